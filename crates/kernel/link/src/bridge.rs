//! A standby kernel bridge: it forwards when Narrows does not.
//!
//! While Narrows runs, its XDP programs take every frame before the bridge sees it. When the
//! process ends for whatever reason, the kernel detaches the programs, and the bridge, which exists
//! all the time, forwards from the next frame on. It must be prepared in advance, because a killed
//! process can prepare nothing.
//!
//! # A bridge that behaves like a wire
//!
//! * **No learning** (`ageing_time 0`). With exactly two ports, flooding a frame means sending it
//!   out of the other port, as a wire does; learning could only add errors. A learning bridge drops
//!   a frame whose destination it believes to be behind the port on which the frame arrived. So a
//!   host that moves from one side to the other, or an address shared by both sides (VRRP), would
//!   be cut off until the entry ages.
//! * **No delay** (`stp_state 0`, `forward_delay 0`): a port forwards as soon as it is up.
//! * **No filtering of multicast** (`mcast_snooping 0`) **or VLANs**: both pass unchanged. VLAN
//!   filtering is off in a new bridge. It is not set explicitly, because a kernel built without it
//!   refuses even to turn it off.
//! * **Link-local groups pass.** IEEE 802.1D forbids forwarding 01-80-C2-00-00-00 to -0F. The
//!   bridge's `group_fwd_mask` 0xfff8 lets LLDP, 802.1X and others through; the kernel refuses its
//!   three lowest bits. Of these three, spanning tree (-00) passes because the bridge's own is off,
//!   and LACP (-02) passes by the mask of each *port*, which has only one restriction: **pause
//!   frames (-01) cannot pass**. They would not cross a wire that ends at a network card either,
//!   because the card consumes them.
//! * **Invisible**: no IPv6 address of its own (`addrgenmode none`), and so no router
//!   solicitations. In IPv4 it answers only for its own addresses (`arp_ignore 1`), and takes only
//!   packets whose answers would go through it (`rp_filter 1`): as it has no address unless an
//!   operator gives it one, none.
//! * **MTU**: the kernel keeps it at the smaller MTU of the ports unless it is set explicitly.
//!
//! Remaining differences: a frame addressed to a port's own MAC address goes to this host. Its IPv4
//! refuses it, see above; its global IPv6 addresses, if it has any, can be reached that way until
//! Narrows runs again (`net.ipv6.conf.BRIDGE.disable_ipv6`). If `br_netfilter` is loaded and
//! `net.bridge.bridge-nf-call-iptables` is 1, bridged packets pass the host's firewall
//! ([`crate::doctor`] reports it).
//!
//! # All or nothing
//!
//! [`prepare`] checks everything before it changes anything, and reverts its changes if a later
//! step fails. It is idempotent, and completes what a killed process left half done. [`check`] says
//! whether it has to be called again.
//!
//! # Foreign bridges
//!
//! A bridge that Narrows did not create is used as it is and never changed, but only if it forwards
//! everything between exactly these two ports. While Narrows runs, XDP takes every frame before the
//! bridge and forwards it, whatever the bridge would do. If spanning tree blocks a port, that makes
//! a loop; frames for a third port never arrive; VLAN filters have no effect. Such a bridge is
//! refused, at the start and when it becomes one.

use crate::changes::{Changes, all_or_nothing};
use crate::link::{all, delete, hide, status_by_name};
use crate::{Address, BridgeSettings, Link, LinkError, LinkStatus, netlink};
use narrows_escape::shell;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    BridgeStpState, InfoBridge, InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind,
    LinkAttribute, LinkInfo, LinkMessage,
};
use std::fmt;

mod foreign;

pub use foreign::Unfit;

/// The prefix of the names of bridges that Narrows creates. It changes and removes only these. The
/// index of the lower port follows, in at most ten digits, which makes the longest possible name.
pub const PREFIX: &str = "nrwbr";

/// Link-local groups that the bridge forwards: all that the kernel allows.
const GROUPS: u16 = 0xfff8;
/// Link-local groups that each port forwards: all but pause frames.
const PORT_GROUPS: u16 = 0xfffd;

/// The settings of a bridge that Narrows creates.
pub(crate) const LIKE_A_WIRE: BridgeSettings = BridgeSettings {
    forward_delay: 0,
    ageing_time: 0,
    stp: false,
    vlan_filtering: false,
    group_fwd_mask: GROUPS,
    mcast_snooping: false,
};

/// A bridge that joins two ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BridgeState {
    /// Its index.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
    /// The indices of the two ports.
    pub ports: [u32; 2],
}

/// Where a bridge comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Made just now.
    Created,
    /// Made by an earlier run.
    Reused,
    /// Created by someone else, who is responsible for its settings. It may learn.
    Foreign,
}

/// Why two ports cannot be bridged.
#[derive(Debug)]
pub enum BridgeError {
    /// The two ports are one.
    SamePort(String),
    /// A port is a bridge itself, and a bridge cannot be in a bridge.
    IsBridge(String),
    /// A port belongs to another device already.
    HasMaster {
        /// The port.
        port: String,
        /// What it belongs to.
        master: String,
    },
    /// A port has IP addresses, which stop working on the port of a bridge.
    HasAddresses {
        /// The port.
        port: String,
        /// Its addresses.
        addresses: Vec<Address>,
    },
    /// A foreign bridge joins them already, and does not forward like a wire.
    Unfit {
        /// The bridge.
        bridge: String,
        /// The difference.
        why: Unfit,
    },
    /// The kernel does not support bridges.
    NoBridges,
    /// Another failure.
    Link(LinkError),
}

impl BridgeError {
    /// The obstacle.
    pub fn what(&self) -> String {
        match self {
            Self::SamePort(port) => format!("{port} cannot be bridged with itself"),
            Self::IsBridge(port) => {
                format!("{port} is a bridge, which cannot be a port of the standby bridge")
            }
            Self::HasMaster { port, master } => format!("{port} is a port of {master} already"),
            Self::HasAddresses { port, addresses } => {
                let list: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                let list = list.join(", ");
                format!("{port} carries {list}, which would stop working on a bridge's port")
            }
            Self::Unfit { bridge, why } => format!("{bridge} joins the ports and {why}"),
            Self::NoBridges => "this kernel has no bridges (CONFIG_BRIDGE)".to_owned(),
            Self::Link(error) => error.to_string(),
        }
    }

    /// The command to type; none if only the kernel's message can help.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::SamePort(_) => "name two interfaces".to_owned(),
            Self::IsBridge(_) => "name one of its ports instead (or use --fail-closed)".to_owned(),
            Self::HasMaster { port, .. } => {
                format!("ip link set dev {} nomaster (or use --fail-closed)", shell(port))
            }
            Self::HasAddresses { port, addresses } => {
                let port = shell(port);
                let delete = |address| format!("ip addr del {address} dev {port}");
                let deletes: Vec<_> = addresses.iter().map(delete).collect();
                let deletes = deletes.join(" && ");
                format!(
                    "{deletes} (and add it to a bridge of both ports or to a third interface, or use --fail-closed)"
                )
            }
            Self::Unfit { bridge, why } => why.remedy(bridge),
            Self::NoBridges => "modprobe bridge (or use --fail-closed)".to_owned(),
            Self::Link(_) => return None,
        })
    }
}

impl fmt::Display for BridgeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what())?;
        self.remedy().map_or(Ok(()), |remedy| write!(f, "; try: {remedy}"))
    }
}

impl std::error::Error for BridgeError {}

impl From<LinkError> for BridgeError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

/// Joins interfaces `a` and `b` of the calling thread's network namespace by a bridge and sets all
/// three up. If both are ports of one bridge already, that one is used.
///
/// # Errors
///
/// The obstacle, with the remedy. Nothing is changed then.
pub fn prepare(a: &str, b: &str) -> Result<BridgeState, BridgeError> {
    all_or_nothing(|changes| join(a, b, changes))
}

/// Joins `a` and `b` as [`prepare`] does, by `changes`.
pub(crate) fn join(a: &str, b: &str, changes: &mut Changes) -> Result<BridgeState, BridgeError> {
    let ports = [Link::by_name(a)?, Link::by_name(b)?];
    let plan = plan(ports.each_ref().map(Some), &all()?)?;
    carry_out(&plan, &ports, changes)
}

/// Removes a bridge that Narrows created, and leaves any other. The ports are free afterwards and
/// stay up. Succeeds if the bridge is gone already.
///
/// # Errors
///
/// If the kernel refuses.
pub fn remove(bridge: &BridgeState) -> Result<(), LinkError> {
    if bridge.origin == Origin::Foreign {
        return Ok(());
    }
    match delete("removing the bridge", bridge.ifindex) {
        Err(LinkError::NoSuchIndex(_)) => Ok(()),
        result => result,
    }
}

/// Why `bridge` would not forward between `ports` at this moment, in words; none if it would.
/// [`prepare`] repairs what can be repaired.
///
/// # Errors
///
/// If the kernel does not say.
pub fn check(bridge: &BridgeState, ports: &[String; 2]) -> Result<Option<String>, LinkError> {
    Ok(trouble(bridge, ports, &all()?))
}

/// The answer of [`check`], from the list of all interfaces.
pub(crate) fn trouble(
    bridge: &BridgeState,
    ports: &[String; 2],
    all: &[LinkStatus],
) -> Option<String> {
    let find = |wanted: &dyn Fn(&LinkStatus) -> bool| all.iter().find(|link| wanted(link));
    let name = &bridge.name;
    let Some(now) = find(&|link| link.ifindex == bridge.ifindex) else {
        return Some(format!("the bridge {name} is gone"));
    };
    if !now.up {
        return Some(format!("the bridge {name} is down"));
    }
    for port in ports {
        let Some(link) = find(&|link| link.name == *port) else { continue };
        if link.master != Some(bridge.ifindex) {
            return Some(format!("{port} is no longer a port of the bridge {name}"));
        }
    }
    match bridge.origin {
        Origin::Foreign => {
            Unfit::find(now, &bridge.ports.map(Some), all).map(|why| format!("{name} {why}"))
        }
        Origin::Created | Origin::Reused => (now.bridge != Some(LIKE_A_WIRE))
            .then(|| format!("the bridge {name} was configured as something other than a wire")),
    }
}

/// The action of [`prepare`], decided before anything is changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Create a bridge with this name.
    Create(String),
    /// Use and complete this bridge of ours.
    Reuse(LinkStatus),
    /// Use this foreign bridge as it is.
    Adopt(LinkStatus),
}

/// Decides from the two ports and the list of all interfaces. A port that does not exist yet is
/// free.
pub(crate) fn plan(ports: [Option<&Link>; 2], all: &[LinkStatus]) -> Result<Plan, BridgeError> {
    let indices = ports.map(|port| port.map(|port| port.status.ifindex));
    if let [Some(a), Some(b)] = ports
        && a.status.ifindex == b.status.ifindex
    {
        return Err(BridgeError::SamePort(a.name().to_owned()));
    }
    let is_bridge = |link: &LinkStatus| link.kind.as_deref() == Some("bridge");
    if let Some(bridge) = ports.into_iter().flatten().find(|port| is_bridge(&port.status)) {
        return Err(BridgeError::IsBridge(bridge.name().to_owned()));
    }
    // One of ours, without a third port.
    let ours = |link: &&LinkStatus| {
        let strangers = |port: &LinkStatus| {
            port.master == Some(link.ifindex) && !indices.contains(&Some(port.ifindex))
        };
        is_bridge(link) && link.name.starts_with(PREFIX) && !all.iter().any(strangers)
    };
    let master = |port: Option<&Link>| {
        let master = port?.status.master?;
        all.iter().find(|link| link.ifindex == master)
    };
    let name = format!("{PREFIX}{}", indices.into_iter().flatten().min().unwrap_or_default());
    let reusable = match ports.map(master) {
        [Some(one), Some(other)] if one.ifindex == other.ifindex && is_bridge(one) => {
            if !ours(&one) {
                return match Unfit::find(one, &indices, all) {
                    None => Ok(Plan::Adopt(one.clone())),
                    Some(why) => Err(BridgeError::Unfit { bridge: one.name.clone(), why }),
                };
            }
            Some(one)
        }
        [Some(one), None] | [None, Some(one)] => Some(one).filter(ours),
        [None, None] => all.iter().find(|link| link.name == name).filter(ours),
        [Some(_), Some(_)] => None,
    };
    for port in ports.into_iter().flatten() {
        if let Some(master) = port.status.master
            && reusable.is_none_or(|bridge| bridge.ifindex != master)
        {
            let master = all.iter().find(|link| link.ifindex == master);
            return Err(BridgeError::HasMaster {
                port: port.name().to_owned(),
                master: master.map_or("another device", |link| &link.name).to_owned(),
            });
        }
        let addresses: Vec<_> =
            port.addresses.iter().copied().filter(|address| !address.is_automatic()).collect();
        if !addresses.is_empty() {
            return Err(BridgeError::HasAddresses { port: port.name().to_owned(), addresses });
        }
    }
    Ok(match reusable {
        Some(bridge) => Plan::Reuse(bridge.clone()),
        None => Plan::Create(name),
    })
}

fn carry_out(
    plan: &Plan,
    ports: &[Link; 2],
    changes: &mut Changes,
) -> Result<BridgeState, BridgeError> {
    let (bridge, origin) = match plan {
        Plan::Adopt(bridge) => (bridge.clone(), Origin::Foreign),
        Plan::Reuse(bridge) => (bridge.clone(), Origin::Reused),
        Plan::Create(name) => {
            let bridge = create(name)?;
            changes.created(bridge.ifindex);
            (bridge, Origin::Created)
        }
    };
    if origin != Origin::Foreign {
        configure(&bridge)?;
        for port in ports {
            changes.enslave(&port.status, &bridge)?;
            configure_port(&port.status)?;
        }
    }
    changes.set_up(&bridge)?;
    for port in ports {
        changes.set_up(&port.status)?;
    }
    Ok(BridgeState {
        ifindex: bridge.ifindex,
        name: bridge.name,
        origin,
        ports: ports.each_ref().map(|port| port.status.ifindex),
    })
}

pub(crate) fn create(name: &str) -> Result<LinkStatus, BridgeError> {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
    ];
    let doing = format!("creating bridge {name}");
    match netlink::ask(&doing, RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL) {
        Ok(_) => Ok(status_by_name(name)?),
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Err(BridgeError::NoBridges),
        Err(error) => Err(error.into()),
    }
}

/// Makes a bridge behave like a wire.
fn configure(bridge: &LinkStatus) -> Result<(), LinkError> {
    let doing = format!("making bridge {} behave like a wire", bridge.name);
    // In a message of its own, and first: while spanning tree runs, the kernel refuses a delay of
    // 0, whatever else the same message says.
    set(bridge, &doing, vec![InfoBridge::StpState(BridgeStpState::Disabled)])?;
    let mut settings = vec![
        InfoBridge::ForwardDelay(0),
        InfoBridge::AgeingTime(0),
        InfoBridge::MulticastSnooping(false),
        InfoBridge::GroupFwdMask(GROUPS),
    ];
    // Only if it was turned on: a kernel built without it refuses even to turn it off.
    if bridge.bridge.is_some_and(|now| now.vlan_filtering) {
        settings.push(InfoBridge::VlanFiltering(false));
    }
    set(bridge, &doing, settings)?;

    hide(&doing, bridge.ifindex)
}

fn set(bridge: &LinkStatus, doing: &str, settings: Vec<InfoBridge>) -> Result<(), LinkError> {
    let mut message = LinkMessage::default();
    message.header.index = bridge.ifindex;
    message.attributes = vec![LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Bridge),
        LinkInfo::Data(InfoData::Bridge(settings)),
    ])];
    netlink::ask(doing, RouteNetlinkMessage::NewLink(message), 0).map(drop)
}

fn configure_port(port: &LinkStatus) -> Result<(), LinkError> {
    let mut message = LinkMessage::default();
    message.header.index = port.ifindex;
    message.attributes = vec![LinkAttribute::LinkInfo(vec![
        LinkInfo::PortKind(InfoPortKind::Bridge),
        LinkInfo::PortData(InfoPortData::BridgePort(vec![InfoBridgePort::GroupFwdMask(
            PORT_GROUPS,
        )])),
    ])];
    let doing = format!("letting link-local groups through port {}", port.name);
    netlink::ask(&doing, RouteNetlinkMessage::NewLink(message), 0).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(ifindex: u32, name: &str, master: Option<u32>) -> Link {
        let status = LinkStatus { ifindex, name: name.into(), master, ..LinkStatus::default() };
        Link { status, ..Link::default() }
    }

    fn bridge(ifindex: u32, name: &str) -> LinkStatus {
        let kind = Some("bridge".to_owned());
        LinkStatus { ifindex, name: name.into(), kind, ..LinkStatus::default() }
    }

    /// The plan for two ports among the given other interfaces.
    fn planned(ports: [Link; 2], others: &[LinkStatus]) -> Result<Plan, BridgeError> {
        let mut all = others.to_vec();
        all.extend(ports.iter().map(|port| port.status.clone()));
        plan(ports.each_ref().map(Some), &all)
    }

    #[test]
    fn free_ports_get_a_bridge_named_after_the_lower_one() {
        let plan = planned([port(7, "sb", None), port(3, "sa", None)], &[]);
        assert_eq!(plan.unwrap(), Plan::Create("nrwbr3".into()));
    }

    #[test]
    fn the_longest_name_is_one_that_the_kernel_takes() {
        assert!(format!("{PREFIX}{}", i32::MAX).len() < libc::IFNAMSIZ);
    }

    #[test]
    fn our_bridge_of_just_these_ports_is_used_again() {
        let plan =
            planned([port(3, "sa", Some(9)), port(4, "sb", Some(9))], &[bridge(9, "nrwbr3")]);
        assert_eq!(plan.unwrap(), Plan::Reuse(bridge(9, "nrwbr3")));
    }

    #[test]
    fn our_bridge_that_lost_a_port_is_completed() {
        let plan = planned([port(3, "sa", Some(9)), port(12, "sb", None)], &[bridge(9, "nrwbr3")]);
        assert_eq!(plan.unwrap(), Plan::Reuse(bridge(9, "nrwbr3")));
    }

    #[test]
    fn our_bridge_without_ports_is_completed() {
        let plan = planned([port(3, "sa", None), port(4, "sb", None)], &[bridge(9, "nrwbr3")]);
        assert_eq!(plan.unwrap(), Plan::Reuse(bridge(9, "nrwbr3")));
    }

    #[test]
    fn a_foreign_bridge_of_both_ports_is_used_as_it_is() {
        let plan = planned([port(3, "sa", Some(9)), port(4, "sb", Some(9))], &[bridge(9, "br0")]);
        assert_eq!(plan.unwrap(), Plan::Adopt(bridge(9, "br0")));
    }

    #[test]
    fn our_bridge_with_a_third_port_is_no_longer_ours_to_change() {
        let third = port(5, "sc", Some(9)).status;
        let plan = planned(
            [port(3, "sa", Some(9)), port(4, "sb", Some(9))],
            &[bridge(9, "nrwbr3"), third],
        );
        assert_eq!(
            plan.unwrap_err().to_string(),
            "nrwbr3 joins the ports and has sc as a port, too, which frames would not reach while \
             Narrows forwards between the two; try: ip link set dev sc nomaster (or take the two \
             off it: `ip link set dev PORT nomaster`)"
        );
    }

    #[test]
    fn a_foreign_bridge_that_is_no_wire_is_refused_with_a_remedy() {
        let refused = |settings: BridgeSettings| {
            let mut br0 = bridge(9, "br0");
            br0.bridge = Some(settings);
            let plan = planned([port(3, "sa", Some(9)), port(4, "sb", Some(9))], &[br0]);
            plan.unwrap_err().remedy().unwrap()
        };
        let stp = BridgeSettings { stp: true, ..BridgeSettings::default() };
        assert!(refused(stp).starts_with("ip link set dev br0 type bridge stp_state 0"));
        let vlans = BridgeSettings { vlan_filtering: true, ..BridgeSettings::default() };
        assert!(refused(vlans).starts_with("ip link set dev br0 type bridge vlan_filtering 0"));
    }

    #[test]
    fn a_port_of_another_master_is_refused_with_the_remedy() {
        let error = planned([port(3, "sa", Some(9)), port(4, "sb", None)], &[bridge(9, "br0")]);
        assert_eq!(
            error.unwrap_err().to_string(),
            "sa is a port of br0 already; try: ip link set dev sa nomaster (or use --fail-closed)"
        );
    }

    #[test]
    fn a_bridge_is_refused_with_what_to_name_instead() {
        let whole = Link { status: bridge(9, "br0"), ..Link::default() };
        let error = planned([port(3, "sa", None), whole], &[]);
        assert_eq!(
            error.unwrap_err().to_string(),
            "br0 is a bridge, which cannot be a port of the standby bridge; try: name one of its \
             ports instead (or use --fail-closed)"
        );
    }

    #[test]
    fn ports_of_two_masters_are_refused() {
        let others = [bridge(9, "nrwbr3"), bridge(10, "nrwbr4")];
        let error = planned([port(3, "sa", Some(9)), port(4, "sb", Some(10))], &others);
        assert!(matches!(error, Err(BridgeError::HasMaster { .. })));
    }

    #[test]
    fn a_configured_address_is_refused_and_an_automatic_one_is_not() {
        let with = |ip: &str| {
            let mut carrying = port(3, "sa", None);
            carrying.addresses.push(Address { ip: ip.parse().unwrap(), prefix: 24 });
            planned([carrying, port(4, "sb", None)], &[])
        };
        assert!(with("fe80::1").is_ok());
        assert_eq!(
            with("192.0.2.1").unwrap_err().to_string(),
            "sa carries 192.0.2.1/24, which would stop working on a bridge's port; \
             try: ip addr del 192.0.2.1/24 dev sa (and add it to a bridge of both ports or \
             to a third interface, or use --fail-closed)"
        );
    }

    #[test]
    fn a_port_that_is_to_be_made_is_free_and_the_other_must_be_too() {
        let beside_new = |port: Link, others: &[LinkStatus]| {
            let all = [others, std::slice::from_ref(&port.status)].concat();
            plan([None, Some(&port)], &all)
        };
        let free = beside_new(port(3, "sa", None), &[]);
        assert_eq!(free.unwrap(), Plan::Create("nrwbr3".into()));
        let lost = beside_new(port(3, "sa", Some(9)), &[bridge(9, "nrwbr2")]);
        assert_eq!(lost.unwrap(), Plan::Reuse(bridge(9, "nrwbr2")));
        let taken = beside_new(port(3, "sa", Some(9)), &[bridge(9, "br0")]);
        assert!(matches!(taken, Err(BridgeError::HasMaster { .. })));
        // Its partner is new, so this one is of somebody else.
        let stranger = port(4, "sb", Some(9)).status;
        let crowded = beside_new(port(3, "sa", Some(9)), &[bridge(9, "nrwbr2"), stranger]);
        assert!(matches!(crowded, Err(BridgeError::HasMaster { .. })));
    }

    #[test]
    fn one_interface_is_no_pair() {
        let error = planned([port(3, "sa", None), port(3, "sa", None)], &[]);
        assert!(matches!(error, Err(BridgeError::SamePort(_))));
    }
}
