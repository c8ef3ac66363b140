//! A kernel bridge that stands by as a wire: what carries on when Narrows does not.
//!
//! While Narrows runs, its XDP programs take every frame before the bridge could see it.
//! When the process ends, however it ends, the kernel detaches the programs, and the
//! bridge, which was there all along, forwards from the next frame on. It has to be
//! prepared beforehand, because a process that was killed prepares nothing.
//!
//! # A bridge that behaves like a wire
//!
//! * **No learning** (`ageing_time 0`). With exactly two ports, flooding a frame means
//!   sending it out of the other port, which is what a wire does; learning could add
//!   nothing but errors. A learning bridge drops a frame whose destination it believes to
//!   be behind the port that it came from, so a host that moves from one side to the other,
//!   or an address shared by both sides (VRRP), would be cut off until the entry ages.
//! * **No waiting** (`stp_state 0`, `forward_delay 0`): a port forwards from the moment it
//!   is up.
//! * **No opinion on multicast** (`mcast_snooping 0`) **and VLANs**: both pass untouched.
//!   VLAN filtering is off in a new bridge and is not mentioned, because a kernel built
//!   without it refuses even to turn it off.
//! * **Link-local groups pass.** IEEE 802.1D keeps 01-80-C2-00-00-00 to -0F from being
//!   forwarded. The bridge's `group_fwd_mask` 0xfff8 lets LLDP, 802.1X and the rest
//!   through; the kernel refuses its three lowest bits. Of these, spanning tree (-00)
//!   passes because the bridge's own is off, and LACP (-02) passes by the mask of each
//!   *port*, which has one restriction only: **pause frames (-01) cannot pass**. They
//!   would not cross a wire with a network card at its end either, which consumes them.
//! * **Invisible**: no IPv6 address of its own (`addrgenmode none`), hence no router
//!   solicitations.
//! * **MTU**: the kernel keeps it at the smaller of the ports' as long as nobody sets it.
//!
//! Differences that remain: a frame addressed to a port's own MAC address goes to this
//! host, as it does while Narrows runs; where `br_netfilter` is loaded and
//! `net.bridge.bridge-nf-call-iptables` is 1, bridged packets pass the host's firewall
//! ([`crate::doctor`] says so).
//!
//! # All or nothing
//!
//! [`prepare`] looks before it touches anything, and undoes what it did where a later step
//! fails. It is idempotent, and completes what a killed process left half done; [`check`] says
//! whether it has to be called again.
//!
//! # Somebody else's bridge
//!
//! A bridge that somebody else made is used as it is and never changed, but only where it forwards
//! between just these two ports whatever comes. While Narrows runs, XDP takes every frame before
//! the bridge, and forwards it whatever the bridge would do: where spanning tree blocks a port,
//! that is a loop; with a third port, frames for it never get there; where VLANs are filtered,
//! they no longer are. Such a bridge is refused, at the start and when it becomes one.

use crate::link::{all, change, set_administrative_state, status_by_name};
use crate::{Address, BridgeSettings, Link, LinkError, LinkStatus, netlink};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, BridgeStpState, In6AddrGenMode, InfoBridge, InfoBridgePort,
    InfoData, InfoKind, InfoPortData, InfoPortKind, LinkAttribute, LinkInfo, LinkMessage,
};
use std::fmt;

mod foreign;

pub use foreign::Unfit;

/// How the names of bridges begin that Narrows made: it may change and remove these, and
/// no others. The index of the lower port follows, in at most ten digits, which is the
/// longest that a name can be.
pub const PREFIX: &str = "nrwbr";

/// Link-local groups that the bridge forwards: all that the kernel lets through.
const GROUPS: u16 = 0xfff8;
/// The same for each port: all but pause frames.
const PORT_GROUPS: u16 = 0xfffd;

/// What a bridge of ours is set to.
const LIKE_A_WIRE: BridgeSettings = BridgeSettings {
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
    /// Made by somebody else, who alone answers for how it is set. It may learn.
    Foreign,
}

/// Why two ports cannot be bridged.
#[derive(Debug)]
pub enum BridgeError {
    /// The two ports are one.
    SamePort(String),
    /// A port belongs to another device already.
    HasMaster {
        /// The port.
        port: String,
        /// What it belongs to.
        master: String,
    },
    /// A port carries IP addresses, which stop working on the port of a bridge.
    HasAddresses {
        /// The port.
        port: String,
        /// What it carries.
        addresses: Vec<Address>,
    },
    /// Somebody else's bridge joins them already, and does not forward like a wire.
    Unfit {
        /// The bridge.
        bridge: String,
        /// What it does otherwise.
        why: Unfit,
    },
    /// The kernel knows no bridges.
    NoBridges,
    /// Another failure.
    Link(LinkError),
}

impl BridgeError {
    /// What stands in the way.
    pub fn what(&self) -> String {
        match self {
            Self::SamePort(port) => format!("{port} cannot be bridged with itself"),
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

    /// What to type; none where the kernel's refusal has to speak for itself.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::SamePort(_) => "name two interfaces".to_owned(),
            Self::HasMaster { port, .. } => {
                format!("ip link set dev {port} nomaster (or use --fail-closed)")
            }
            Self::HasAddresses { port, addresses } => {
                let delete = |address| format!("ip addr del {address} dev {port}");
                let deletes: Vec<_> = addresses.iter().map(delete).collect();
                let deletes = deletes.join(" && ");
                format!("{deletes} (and add it elsewhere, or use --fail-closed)")
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

/// Joins interfaces `a` and `b` of the calling thread's network namespace by a bridge,
/// sets all three up, and says which bridge it is. Where both are ports of one bridge
/// already, that is the one.
///
/// # Errors
///
/// What stands in the way, with the remedy. Nothing is changed then.
pub fn prepare(a: &str, b: &str) -> Result<BridgeState, BridgeError> {
    let ports = [Link::by_name(a)?, Link::by_name(b)?];
    let all = all()?;
    let plan = plan(&ports, &all)?;
    let mut done = Vec::new();
    carry_out(&plan, &ports, &mut done).inspect_err(|_| {
        // A step that cannot be undone is of an interface that is gone by itself.
        for step in done.iter().rev() {
            let _ = step.undo();
        }
    })
}

/// Removes a bridge that Narrows made, and leaves one that it did not make. The ports are
/// free afterwards and stay up. No harm where it is gone already.
///
/// # Errors
///
/// Where the kernel refuses.
pub fn remove(bridge: &BridgeState) -> Result<(), LinkError> {
    if bridge.origin == Origin::Foreign {
        return Ok(());
    }
    match delete(bridge.ifindex) {
        Err(LinkError::NoSuchIndex(_)) => Ok(()),
        result => result,
    }
}

/// Why `bridge` would not carry on between `ports` at this moment, in words; none where it would.
/// [`prepare`] mends what can be mended.
///
/// # Errors
///
/// Where the kernel does not say.
pub fn check(bridge: &BridgeState, ports: &[String; 2]) -> Result<Option<String>, LinkError> {
    let all = all()?;
    let find = |wanted: &dyn Fn(&LinkStatus) -> bool| all.iter().find(|link| wanted(link));
    let name = &bridge.name;
    let Some(now) = find(&|link| link.ifindex == bridge.ifindex) else {
        return Ok(Some(format!("the bridge {name} is gone")));
    };
    if !now.up {
        return Ok(Some(format!("the bridge {name} is down")));
    }
    for port in ports {
        let Some(link) = find(&|link| link.name == *port) else { continue };
        if link.master != Some(bridge.ifindex) {
            return Ok(Some(format!("{port} is no longer a port of the bridge {name}")));
        }
    }
    Ok(match bridge.origin {
        Origin::Foreign => Unfit::find(now, bridge.ports, &all).map(|why| format!("{name} {why}")),
        Origin::Created | Origin::Reused => (now.bridge != Some(LIKE_A_WIRE))
            .then(|| format!("the bridge {name} was configured as something other than a wire")),
    })
}

/// What is to be done, decided before anything is touched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Make a bridge of this name.
    Create(String),
    /// Use and complete this one of ours.
    Reuse(LinkStatus),
    /// Use this one of somebody else's as it is.
    Adopt(LinkStatus),
}

/// Decides from the two ports and the list of all interfaces.
pub(crate) fn plan(ports: &[Link; 2], all: &[LinkStatus]) -> Result<Plan, BridgeError> {
    let [a, b] = ports;
    if a.status.ifindex == b.status.ifindex {
        return Err(BridgeError::SamePort(a.name().to_owned()));
    }
    let is_bridge = |link: &LinkStatus| link.kind.as_deref() == Some("bridge");
    let indices = [a.status.ifindex, b.status.ifindex];
    // Ours, and joining no third interface.
    let ours = |link: &&LinkStatus| {
        let strangers = |port: &LinkStatus| {
            port.master == Some(link.ifindex) && !indices.contains(&port.ifindex)
        };
        is_bridge(link) && link.name.starts_with(PREFIX) && !all.iter().any(strangers)
    };
    let master = |port: &Link| {
        port.status.master.and_then(|master| all.iter().find(|link| link.ifindex == master))
    };
    let name = format!("{PREFIX}{}", indices[0].min(indices[1]));
    let reusable = match (master(a), master(b)) {
        (Some(one), Some(other)) if one.ifindex == other.ifindex && is_bridge(one) => {
            if !ours(&one) {
                return match Unfit::find(one, indices, all) {
                    None => Ok(Plan::Adopt(one.clone())),
                    Some(why) => Err(BridgeError::Unfit { bridge: one.name.clone(), why }),
                };
            }
            Some(one)
        }
        (Some(one), None) | (None, Some(one)) => Some(one).filter(ours),
        (None, None) => all.iter().find(|link| link.name == name).filter(ours),
        (Some(_), Some(_)) => None,
    };
    for port in ports {
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

/// A change that was made.
enum Step {
    Created { bridge: u32 },
    Enslaved { port: u32 },
    SetUp { link: u32 },
}

impl Step {
    fn undo(&self) -> Result<(), LinkError> {
        match *self {
            Self::Created { bridge } => delete(bridge),
            Self::Enslaved { port } => set_master("releasing a port", port, 0),
            Self::SetUp { link } => set_administrative_state(link, false),
        }
    }
}

fn carry_out(
    plan: &Plan,
    ports: &[Link; 2],
    done: &mut Vec<Step>,
) -> Result<BridgeState, BridgeError> {
    let (bridge, origin) = match plan {
        Plan::Adopt(bridge) => (bridge.clone(), Origin::Foreign),
        Plan::Reuse(bridge) => (bridge.clone(), Origin::Reused),
        Plan::Create(name) => {
            let bridge = create(name)?;
            done.push(Step::Created { bridge: bridge.ifindex });
            (bridge, Origin::Created)
        }
    };
    let set_up = |link: &LinkStatus, done: &mut Vec<Step>| {
        if link.up {
            return Ok(());
        }
        set_administrative_state(link.ifindex, true)?;
        done.push(Step::SetUp { link: link.ifindex });
        Ok::<_, LinkError>(())
    };
    if origin != Origin::Foreign {
        configure(&bridge)?;
        for port in ports {
            if port.status.master != Some(bridge.ifindex) {
                let doing = format!("making {} a port of bridge {}", port.name(), bridge.name);
                set_master(&doing, port.status.ifindex, bridge.ifindex)?;
                done.push(Step::Enslaved { port: port.status.ifindex });
            }
            configure_port(&port.status)?;
        }
    }
    set_up(&bridge, done)?;
    for port in ports {
        set_up(&port.status, done)?;
    }
    Ok(BridgeState {
        ifindex: bridge.ifindex,
        name: bridge.name,
        origin,
        ports: [ports[0].status.ifindex, ports[1].status.ifindex],
    })
}

fn create(name: &str) -> Result<LinkStatus, BridgeError> {
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
    // By itself and first: while spanning tree runs, the kernel refuses a delay of 0, whatever else
    // the same message says.
    set(bridge, &doing, vec![InfoBridge::StpState(BridgeStpState::Disabled)])?;
    let mut settings = vec![
        InfoBridge::ForwardDelay(0),
        InfoBridge::AgeingTime(0),
        InfoBridge::MulticastSnooping(false),
        InfoBridge::GroupFwdMask(GROUPS),
    ];
    // Only where somebody turned it on: a kernel built without it refuses even to turn it off.
    if bridge.bridge.is_some_and(|now| now.vlan_filtering) {
        settings.push(InfoBridge::VlanFiltering(false));
    }
    set(bridge, &doing, settings)?;

    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![
        AfSpecInet6::AddrGenMode(In6AddrGenMode::None),
    ])])];
    message.header.index = bridge.ifindex;
    match change(bridge.ifindex, &doing, message) {
        // Without IPv6 in the kernel there is nothing to turn off.
        Err(error) if error.errno() == Some(libc::EAFNOSUPPORT) => Ok(()),
        result => result,
    }
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

/// Makes `port` a port of `master`, or of nothing where that is 0.
fn set_master(doing: &str, port: u32, master: u32) -> Result<(), LinkError> {
    let mut message = LinkMessage::default();
    message.header.index = port;
    message.attributes = vec![LinkAttribute::Controller(master)];
    change(port, doing, message)
}

fn delete(ifindex: u32) -> Result<(), LinkError> {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    netlink::ask("removing the bridge", RouteNetlinkMessage::DelLink(message), 0).map(drop).map_err(
        |error| match error.errno() {
            Some(libc::ENODEV) => LinkError::NoSuchIndex(ifindex),
            _ => error,
        },
    )
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
        plan(&ports, &all)
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
    fn somebody_else_s_bridge_of_both_ports_is_used_as_it_is() {
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
    fn somebody_else_s_bridge_that_is_no_wire_is_refused_with_what_to_type() {
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
             try: ip addr del 192.0.2.1/24 dev sa (and add it elsewhere, or use --fail-closed)"
        );
    }

    #[test]
    fn one_interface_is_no_pair() {
        let error = planned([port(3, "sa", None), port(3, "sa", None)], &[]);
        assert!(matches!(error, Err(BridgeError::SamePort(_))));
    }
}
