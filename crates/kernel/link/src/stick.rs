//! The standby of a stick: the kernel forwards between VLANs of one device when Narrows does not.
//!
//! For each pair of VLANs there are two VLAN devices and a bridge between them, which forwards like
//! a wire ([`crate::bridge`]). A frame of one VLAN loses its tag in the one device, crosses the
//! bridge and gets the other tag in the other device. While Narrows runs, its XDP program takes
//! the frames of these VLANs before any VLAN device sees them. All other frames are the kernel's at
//! all times.
//!
//! # What it uses, and what it makes
//!
//! A VLAN device that exists is used, and so is a bridge that joins just the two of a pair, as
//! [`crate::bridge`] does it. What is missing is made. What is a port of a bridge of ours follows
//! the MTU of the device, and has no automatic address when it is set up here. [`crate::vlan`] says
//! how a later run knows what an earlier one left.
//!
//! # All or nothing
//!
//! [`prepare`] checks all pairs before it changes anything, and reverts all its changes if a later
//! step fails. It is idempotent, and completes what a killed process left half done. [`check`] says
//! whether it has to be called again.
//!
//! If the device goes, its VLAN devices go with it, and a bridge of ours stays behind without
//! ports. It was named after one of them, and no interface ever has that number again, so nobody
//! can use it: the next [`prepare`] removes it.
//!
//! # A device that belongs to another
//!
//! It may be a port of a bridge, and may have addresses. The kernel looks for a VLAN device before
//! it hands a frame to the bridge (`vlan_do_receive` comes before the `rx_handler`), as the XDP
//! program does: the bridge gets what the stick leaves, whether Narrows runs or not, so that a
//! trunk can serve both. A bond is different: frames of the same VLANs arrive at its other devices,
//! and what leaves here may have to leave there. The device of a stick cannot be a part of one.
//!
//! Differences to Narrows: the kernel keeps the priority of a frame, but not its drop eligibility
//! (DEI); and an operator's VLAN device does what its operator set (`ingress-qos-map`).

use crate::bridge::{self, BridgeError, BridgeState, Origin, Plan};
use crate::changes::{Changes, all_or_nothing};
use crate::link::{all, delete};
use crate::vlan::{self, Vlan};
use crate::{Link, LinkError, LinkEvent, LinkStatus};
use narrows_escape::shell;
use narrows_forwarding::Tag;
use narrows_forwarding::stick::{Pair, port_name};
use std::fmt;

/// Kinds of masters that get from their ports what no VLAN device takes, and spread no VLAN over
/// several ports.
const GET_THE_REST: [&str; 3] = ["bridge", "openvswitch", "vrf"];

/// The standby of a stick.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StickState {
    /// The index of the device.
    pub ifindex: u32,
    /// Its name.
    pub device: String,
    /// The pairs, in the order in which they were asked for.
    pub pairs: Vec<PairState>,
}

/// The standby of one pair of VLANs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PairState {
    /// The two VLAN devices.
    pub vlans: [Vlan; 2],
    /// The bridge between them.
    pub bridge: BridgeState,
}

impl StickState {
    /// The names of its bridges, for people: `nrwbr7 and nrwbr9`.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.pairs.iter().map(|pair| &*pair.bridge.name).collect();
        match &names[..] {
            [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
            names => names.join(""),
        }
    }

    /// Whether `event` may concern it.
    pub fn concerns(&self, event: &LinkEvent) -> bool {
        match event {
            LinkEvent::Added(now) | LinkEvent::Changed { now, .. } => {
                let status = &now.status;
                self.has(status.ifindex)
                    || status.master.is_some_and(|master| self.has(master))
                    || status.name == self.device
            }
            LinkEvent::Removed { ifindex, .. } => self.has(*ifindex),
            LinkEvent::Overrun => true,
            LinkEvent::Settings | LinkEvent::Addresses | LinkEvent::Routing => false,
        }
    }

    fn has(&self, ifindex: u32) -> bool {
        let has = |pair: &PairState| {
            pair.bridge.ifindex == ifindex || pair.vlans.iter().any(|vlan| vlan.ifindex == ifindex)
        };
        self.ifindex == ifindex || self.pairs.iter().any(has)
    }
}

/// Why the kernel cannot stand by for a stick.
#[derive(Debug)]
pub enum StickError {
    /// The kernel has no VLAN devices.
    NoVlans,
    /// The device is a part of another one that spreads VLANs over several.
    Member {
        /// The device.
        device: String,
        /// What it is a part of.
        master: String,
    },
    /// Another interface has the name of a VLAN device that is missing.
    NameTaken {
        /// The device.
        device: String,
        /// The VLAN.
        tag: Tag,
    },
    /// A VLAN has a device in another network namespace.
    Elsewhere {
        /// The device.
        device: String,
        /// The VLAN.
        tag: Tag,
    },
    /// The VLAN devices of a pair cannot be bridged.
    Bridge(BridgeError),
    /// Another failure.
    Link(LinkError),
}

impl StickError {
    /// The obstacle.
    pub fn what(&self) -> String {
        match self {
            Self::NoVlans => "this kernel has no VLAN devices (CONFIG_VLAN_8021Q)".to_owned(),
            Self::Member { device, master } => format!(
                "{device} is a part of {master}, and frames of its VLANs may come and go through \
                 other parts"
            ),
            Self::NameTaken { device, tag } => {
                let name = port_name(device, *tag);
                format!("{name} is the name of another interface, and not of {tag} of {device}")
            }
            Self::Elsewhere { device, tag } => {
                format!("{tag} of {device} has a device in another network namespace")
            }
            Self::Bridge(error) => error.what(),
            Self::Link(error) => error.to_string(),
        }
    }

    /// The command to type; none if only the kernel's message can help.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::NoVlans => "modprobe 8021q (or use --fail-closed)".to_owned(),
            Self::Member { device, .. } => {
                format!("ip link set dev {} nomaster (or use --fail-closed)", shell(device))
            }
            Self::NameTaken { device, tag } => {
                let (protocol, vid) = (tag.protocol().name(), tag.vid());
                format!(
                    "ip link add link {} name NAME type vlan protocol {protocol} id {vid} (any \
                     NAME will do; or use --fail-closed)",
                    shell(device)
                )
            }
            Self::Elsewhere { .. } => {
                "ip -all netns exec ip -details link show type vlan (delete it where it is, or use \
                 --fail-closed)"
                    .to_owned()
            }
            Self::Bridge(error) => return error.remedy(),
            Self::Link(_) => return None,
        })
    }
}

impl fmt::Display for StickError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what())?;
        self.remedy().map_or(Ok(()), |remedy| write!(f, "; try: {remedy}"))
    }
}

impl std::error::Error for StickError {}

impl From<LinkError> for StickError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<BridgeError> for StickError {
    fn from(error: BridgeError) -> Self {
        match error {
            BridgeError::Link(error) => Self::Link(error),
            error => Self::Bridge(error),
        }
    }
}

/// Lets the kernel of the calling thread's network namespace stand by for the stick on `device`
/// with these pairs of VLANs, and sets the device up.
///
/// # Errors
///
/// The obstacle, with the remedy. Nothing is changed then.
pub fn prepare(device: &str, pairs: &[Pair]) -> Result<StickState, StickError> {
    let lower = Link::by_name(device)?.status;
    let all = all()?;
    let found =
        pairs.iter().map(|&pair| find(&lower, pair, &all)).collect::<Result<Vec<_>, _>>()?;
    is_free(&lower, &all)?;
    for (&pair, found) in pairs.iter().zip(&found) {
        plan(&lower, pair, found, &all)?;
    }
    let state = all_or_nothing(|changes| carry_out(&lower, pairs, &found, changes))?;
    sweep(&all);
    Ok(state)
}

/// Removes the bridges and VLAN devices that were made just now, and leaves any other. The device
/// stays up. What is gone already is no failure.
///
/// # Errors
///
/// If the kernel refuses.
pub fn remove(stick: &StickState) -> Result<(), LinkError> {
    let or_gone = |result| match result {
        Err(LinkError::NoSuchIndex(_)) => Ok(()),
        result => result,
    };
    for pair in &stick.pairs {
        if pair.bridge.origin == Origin::Created {
            bridge::remove(&pair.bridge)?;
        }
        for vlan in pair.vlans.iter().filter(|vlan| vlan.created) {
            or_gone(delete("removing a VLAN device", vlan.ifindex))?;
        }
    }
    Ok(())
}

/// Why the kernel would not forward between the VLANs of `stick` at this moment, in words; none if
/// it would. [`prepare`] repairs what can be repaired. That the device itself is down, or gone, is
/// not said here.
///
/// # Errors
///
/// If the kernel does not say.
pub fn check(stick: &StickState) -> Result<Option<String>, LinkError> {
    Ok(trouble(stick, &all()?))
}

/// The answer of [`check`], from the list of all interfaces.
fn trouble(stick: &StickState, all: &[LinkStatus]) -> Option<String> {
    let Some(lower) = all.iter().find(|link| link.ifindex == stick.ifindex) else {
        let is_back = all.iter().any(|link| link.name == stick.device);
        return is_back.then(|| format!("{} is a new device without its VLANs", stick.device));
    };
    stick.pairs.iter().find_map(|pair| {
        let [one, other] = pair.vlans.each_ref().map(|vlan| {
            let now = all.iter().find(|link| link.ifindex == vlan.ifindex);
            now.filter(|now| vlan::is_on(lower.ifindex, vlan.tag, now))
                .ok_or_else(|| format!("{} for {} is gone", vlan.name, vlan.tag))
        });
        let now = match (one, other) {
            (Ok(one), Ok(other)) => [one, other],
            (Err(gone), _) | (_, Err(gone)) => return Some(gone),
        };
        let is_ours = pair.bridge.origin != Origin::Foreign;
        let ails = |link: &LinkStatus| {
            if lower.up && !link.up {
                return Some(format!("{} is down", link.name));
            }
            (is_ours && link.mtu < vlan::mtu(lower))
                .then(|| format!("{} takes packets of {} bytes at most", link.name, link.mtu))
        };
        bridge::trouble(&pair.bridge, &now.map(|link| link.name.clone()), all)
            .or_else(|| now.into_iter().find_map(ails))
    })
}

/// The VLAN devices of a pair that are there.
pub(crate) type Found = [Option<Link>; 2];

/// Reads the VLAN devices of a pair that are there on the device `lower`.
pub(crate) fn find(
    lower: &LinkStatus,
    (one, other): Pair,
    all: &[LinkStatus],
) -> Result<Found, LinkError> {
    let read = |tag| {
        let found = vlan::find(lower.ifindex, tag, all);
        found.map(|link| Link::by_index(link.ifindex)).transpose()
    };
    Ok([read(one)?, read(other)?])
}

/// Refuses a device that is a part of another one with which it shares VLANs.
pub(crate) fn is_free(lower: &LinkStatus, all: &[LinkStatus]) -> Result<(), StickError> {
    let Some(master) = lower.master else { return Ok(()) };
    let master = all.iter().find(|link| link.ifindex == master);
    let kind = master.and_then(|master| master.kind.as_deref());
    if kind.is_some_and(|kind| GET_THE_REST.contains(&kind)) {
        return Ok(());
    }
    let master = master.map_or("another device", |master| &master.name).to_owned();
    Err(StickError::Member { device: lower.name.clone(), master })
}

/// Decides how to join a pair. [`Plan::Create`] names the bridge provisionally if a VLAN device is
/// missing.
pub(crate) fn plan(
    lower: &LinkStatus,
    (one, other): Pair,
    found: &Found,
    all: &[LinkStatus],
) -> Result<Plan, StickError> {
    for (tag, found) in [one, other].into_iter().zip(found) {
        if found.is_none() && vlan::namesake(lower, tag, all).is_some() {
            return Err(StickError::NameTaken { device: lower.name.clone(), tag });
        }
    }
    Ok(bridge::plan(found.each_ref().map(Option::as_ref), all)?)
}

fn carry_out(
    lower: &LinkStatus,
    pairs: &[Pair],
    found: &[Found],
    changes: &mut Changes,
) -> Result<StickState, StickError> {
    // First, because a VLAN device cannot be up without it.
    changes.set_up(lower)?;
    let mut states = Vec::new();
    for (&(one, other), [found, found_other]) in pairs.iter().zip(found) {
        let ports =
            [ensure(lower, one, found, changes)?, ensure(lower, other, found_other, changes)?];
        let [(a, _), (b, _)] = &ports;
        let bridge = bridge::join(&a.name, &b.name, changes)?;
        if bridge.origin != Origin::Foreign {
            for (port, _) in &ports {
                changes.resize(port, vlan::mtu(lower))?;
            }
        }
        let [a, b] = ports.map(|(link, created)| (link.ifindex, link.name, created));
        let vlan = |(ifindex, name, created), tag| Vlan { ifindex, name, tag, created };
        states.push(PairState { vlans: [vlan(a, one), vlan(b, other)], bridge });
    }
    Ok(StickState { ifindex: lower.ifindex, device: lower.name.clone(), pairs: states })
}

/// The VLAN device for `tag`, which was `found` or is made, and whether it was made. Silent if it
/// is down.
fn ensure(
    lower: &LinkStatus,
    tag: Tag,
    found: &Option<Link>,
    changes: &mut Changes,
) -> Result<(LinkStatus, bool), StickError> {
    let (link, created) = match found {
        Some(link) => (link.status.clone(), false),
        None => vlan::create(lower, tag, changes)?,
    };
    if !link.up {
        changes.silence(&link)?;
    }
    Ok((link, created))
}

/// Removes bridges of ours that nobody can use any more.
fn sweep(all: &[LinkStatus]) {
    for bridge in forsaken(all) {
        // One that stays is in nobody's way.
        let _ = delete("removing a bridge whose ports are gone", bridge.ifindex);
    }
}

/// Bridges of ours without ports, named after an interface that is gone.
fn forsaken(all: &[LinkStatus]) -> impl Iterator<Item = &LinkStatus> {
    all.iter().filter(|link| {
        let number = link.name.strip_prefix(bridge::PREFIX).and_then(|rest| rest.parse().ok());
        let is_gone = |number: u32| all.iter().all(|other| other.ifindex != number);
        link.kind.as_deref() == Some("bridge")
            && number.is_some_and(is_gone)
            && all.iter().all(|port| port.master != Some(link.ifindex))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, PeerId};
    use narrows_forwarding::TagProtocol;
    use proptest::prelude::*;

    const A: u32 = 2;

    fn tag(vid: u16) -> Tag {
        Tag::new(TagProtocol::Customer, vid).unwrap()
    }

    fn link(ifindex: u32, name: &str) -> LinkStatus {
        LinkStatus { ifindex, name: name.into(), mtu: 1500, up: true, ..LinkStatus::default() }
    }

    fn vlan_on(lower: u32, ifindex: u32, vid: u16, master: Option<u32>) -> LinkStatus {
        LinkStatus {
            kind: Some("vlan".into()),
            vlan: Some(tag(vid)),
            peer: Some(PeerId { ifindex: lower, namespace: None }),
            master,
            ..link(ifindex, &format!("v{vid}"))
        }
    }

    fn bridge(ifindex: u32, name: &str) -> LinkStatus {
        let kind = Some("bridge".to_owned());
        LinkStatus { kind, bridge: Some(bridge::LIKE_A_WIRE), ..link(ifindex, name) }
    }

    /// The plan for VLANs 100 and 200 of `a` among the given other interfaces, of which those with
    /// the given indices carry an address.
    fn planned(
        a: LinkStatus,
        others: &[LinkStatus],
        addressed: &[u32],
    ) -> Result<Plan, StickError> {
        let all = [others, std::slice::from_ref(&a)].concat();
        let read = |status: &LinkStatus| {
            let address = Address { ip: [192, 0, 2, 1].into(), prefix: 24 };
            let has = addressed.contains(&status.ifindex);
            let addresses = has.then_some(address).into_iter().collect();
            Link { status: status.clone(), addresses, ..Link::default() }
        };
        let found = [100, 200].map(|vid| vlan::find(a.ifindex, tag(vid), &all).map(read));
        is_free(&a, &all)?;
        plan(&a, (tag(100), tag(200)), &found, &all)
    }

    #[test]
    fn vlans_without_devices_get_them_and_a_bridge() {
        let plan = planned(link(A, "a"), &[], &[]).unwrap();
        assert!(matches!(plan, Plan::Create(_)));
    }

    #[test]
    fn what_a_killed_run_left_is_completed() {
        let one = [vlan_on(A, 5, 100, None)];
        assert_eq!(planned(link(A, "a"), &one, &[]).unwrap(), Plan::Create("nrwbr5".into()));
        let bridged = [vlan_on(A, 5, 100, Some(9)), bridge(9, "nrwbr5")];
        let plan = planned(link(A, "a"), &bridged, &[]).unwrap();
        assert_eq!(plan, Plan::Reuse(bridge(9, "nrwbr5")));
        let both = [vlan_on(A, 5, 100, Some(9)), vlan_on(A, 6, 200, None), bridge(9, "nrwbr5")];
        let plan = planned(link(A, "a"), &both, &[]).unwrap();
        assert_eq!(plan, Plan::Reuse(bridge(9, "nrwbr5")));
    }

    #[test]
    fn an_operators_bridge_of_the_two_is_used_and_one_that_is_no_wire_is_refused() {
        let mut br0 = bridge(9, "br0");
        let two = [vlan_on(A, 5, 100, Some(9)), vlan_on(A, 6, 200, Some(9))];
        let plan = planned(link(A, "a"), &[&two[..], &[br0.clone()]].concat(), &[]).unwrap();
        assert_eq!(plan, Plan::Adopt(br0.clone()));
        br0.bridge.as_mut().unwrap().vlan_filtering = true;
        let error = planned(link(A, "a"), &[&two[..], &[br0]].concat(), &[]).unwrap_err();
        assert!(error.to_string().starts_with("br0 joins the ports and filters VLANs"), "{error}");
    }

    #[test]
    fn a_vlan_device_with_an_address_or_another_master_is_refused_with_the_remedy() {
        let error = planned(link(A, "a"), &[vlan_on(A, 5, 100, None)], &[5]).unwrap_err();
        assert!(error.to_string().contains("ip addr del 192.0.2.1/24 dev v100"), "{error}");
        let taken = [vlan_on(A, 5, 200, Some(9)), bridge(9, "br0")];
        let error = planned(link(A, "a"), &taken, &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "v200 is a port of br0 already; try: ip link set dev v200 nomaster (or use \
             --fail-closed)"
        );
    }

    #[test]
    fn the_device_may_be_a_port_of_a_bridge_and_not_of_a_bond() {
        let a = LinkStatus { master: Some(8), ..link(A, "a") };
        assert!(planned(a.clone(), &[bridge(8, "br0")], &[]).is_ok());
        let bond = LinkStatus { kind: Some("bond".into()), ..link(8, "bond0") };
        let error = planned(a.clone(), &[bond], &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a is a part of bond0, and frames of its VLANs may come and go through other parts; \
             try: ip link set dev a nomaster (or use --fail-closed)"
        );
        assert!(matches!(planned(a, &[], &[]), Err(StickError::Member { .. })), "unknown");
    }

    #[test]
    fn a_name_that_another_interface_has_is_refused_only_where_it_is_needed() {
        let dummy = link(5, "a.100");
        let error = planned(link(A, "a"), std::slice::from_ref(&dummy), &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a.100 is the name of another interface, and not of VLAN 100 of a; try: ip link add \
             link a name NAME type vlan protocol 802.1Q id 100 (any NAME will do; or use \
             --fail-closed)"
        );
        assert!(planned(link(A, "a"), &[dummy, vlan_on(A, 6, 100, None)], &[]).is_ok());
    }

    /// A stick that stands by with bridge 9, and all interfaces.
    fn standing(origin: Origin) -> (StickState, Vec<LinkStatus>) {
        let vlan =
            |ifindex, vid| Vlan { ifindex, name: format!("v{vid}"), tag: tag(vid), created: false };
        let state = BridgeState { ifindex: 9, name: "nrwbr5".into(), origin, ports: [5, 6] };
        let pair = PairState { vlans: [vlan(5, 100), vlan(6, 200)], bridge: state };
        let stick = StickState { ifindex: A, device: "a".into(), pairs: vec![pair] };
        let all = vec![
            link(A, "a"),
            vlan_on(A, 5, 100, Some(9)),
            vlan_on(A, 6, 200, Some(9)),
            bridge(9, "nrwbr5"),
        ];
        (stick, all)
    }

    #[test]
    fn whatever_keeps_the_kernel_from_forwarding_is_said() {
        type Spoil = fn(&mut Vec<LinkStatus>);
        let cases: [(Spoil, Option<&str>); 11] = [
            (|_| (), None),
            (|all| all[1].up = false, Some("v100 is down")),
            // Somebody set the device down, and its VLANs with it.
            (|all| (all[0].up, all[1].up, all[2].up) = (false, false, false), None),
            (|all| drop(all.remove(2)), Some("v200 for VLAN 200 is gone")),
            (|all| all[2].vlan = None, Some("v200 for VLAN 200 is gone")),
            (|all| all[1].name = "renamed".into(), None),
            (|all| all[1].master = None, Some("v100 is no longer a port of the bridge nrwbr5")),
            (|all| drop(all.remove(3)), Some("the bridge nrwbr5 is gone")),
            (|all| all[0].mtu = 9000, Some("v100 takes packets of 1500 bytes at most")),
            (|all| drop(all.drain(..3)), None),
            (
                |all| {
                    all.drain(..3);
                    all.push(link(22, "a"));
                },
                Some("a is a new device without its VLANs"),
            ),
        ];
        for (spoil, expected) in cases {
            let (stick, mut all) = standing(Origin::Created);
            spoil(&mut all);
            assert_eq!(trouble(&stick, &all).as_deref(), expected);
        }
        let (stick, mut all) = standing(Origin::Foreign);
        all[0].mtu = 9000;
        assert_eq!(trouble(&stick, &all), None, "what nobody may repair is not said again");
    }

    #[test]
    fn bridges_that_nobody_can_use_again_are_known_by_name() {
        let names = |all: &[LinkStatus]| -> Vec<String> {
            forsaken(all).map(|link| link.name.clone()).collect()
        };
        let (_, all) = standing(Origin::Created);
        assert!(names(&all).is_empty(), "in use");
        assert_eq!(names(&[bridge(9, "nrwbr5"), bridge(10, "br5")]), ["nrwbr5"]);
        assert!(names(&[bridge(9, "nrwbr5"), link(5, "v")]).is_empty(), "about to be used");
        assert!(names(&[bridge(9, "nrwbrX"), link(10, "nrwbr4")]).is_empty());
        assert!(
            names(&[bridge(9, "nrwbr5"), LinkStatus { master: Some(9), ..link(6, "v") }])
                .is_empty()
        );
    }

    #[test]
    fn bridges_are_listed_for_people() {
        let (mut stick, _) = standing(Origin::Created);
        assert_eq!(stick.name(), "nrwbr5");
        let mut second = stick.pairs[0].clone();
        second.bridge.name = "br0".into();
        stick.pairs.push(second);
        assert_eq!(stick.name(), "nrwbr5 and br0");
    }

    #[test]
    fn an_event_concerns_a_stick_if_it_is_about_its_parts() {
        let (stick, all) = standing(Origin::Created);
        let added = |status: &LinkStatus| {
            let status = status.clone();
            LinkEvent::Added(crate::Snapshot { status, queues: crate::Queues::default() })
        };
        assert!(all.iter().all(|link| stick.concerns(&added(link))));
        assert!(stick.concerns(&added(&link(22, "a"))), "it came back");
        assert!(stick.concerns(&added(&LinkStatus { master: Some(9), ..link(30, "x") })));
        assert!(!stick.concerns(&added(&link(30, "x"))));
        assert!(stick.concerns(&LinkEvent::Removed { ifindex: 6, name: "v200".into() }));
        assert!(!stick.concerns(&LinkEvent::Removed { ifindex: 30, name: "x".into() }));
    }

    /// Any interface among few numbers, VLANs and kinds.
    fn any_link(ifindex: u32) -> impl Strategy<Value = LinkStatus> {
        let kind = prop::sample::select(vec!["vlan", "bridge", "bond", ""]);
        let name = prop::sample::select(vec!["nrwbr", "br", "a.100", "a.200", "x"]);
        let number = prop::option::of(0..9_u32);
        (kind, name, number.clone(), number, prop::sample::select(vec![100, 200, 300])).prop_map(
            move |(kind, name, master, lower, vid)| {
                let name = match name {
                    "nrwbr" | "br" => format!("{name}{ifindex}"),
                    name => name.to_owned(),
                };
                LinkStatus {
                    kind: (!kind.is_empty()).then(|| kind.to_owned()),
                    vlan: (kind == "vlan").then(|| tag(vid)),
                    peer: lower.map(|ifindex| PeerId { ifindex, namespace: None }),
                    master: master.filter(|&master| master != ifindex),
                    ..link(ifindex, &name)
                }
            },
        )
    }

    fn any_links() -> impl Strategy<Value = Vec<LinkStatus>> {
        (3..9_u32).map(any_link).collect::<Vec<_>>()
    }

    proptest! {
        /// A bridge that joins anything else would carry the frames of one VLAN into it.
        #[test]
        fn a_bridge_that_is_used_has_no_port_but_the_two(others in any_links()) {
            let Ok(plan) = planned(link(A, "a"), &others, &[]) else { return Ok(()) };
            let used = match &plan {
                Plan::Reuse(bridge) | Plan::Adopt(bridge) => bridge,
                Plan::Create(name) => {
                    prop_assert!(name.starts_with(bridge::PREFIX));
                    return Ok(());
                }
            };
            prop_assert_eq!(used.kind.as_deref(), Some("bridge"));
            let is_adopted = matches!(plan, Plan::Adopt(_));
            let of_pair = [100, 200].map(|vid| vlan::find(A, tag(vid), &others));
            for port in others.iter().filter(|port| port.master == Some(used.ifindex)) {
                prop_assert!(of_pair.contains(&Some(port)), "{} of {}", port.name, used.name);
            }
            prop_assert!(is_adopted || used.name.starts_with(bridge::PREFIX));
        }

        #[test]
        fn a_bridge_with_a_port_is_never_swept_away(others in any_links()) {
            for bridge in forsaken(&others) {
                prop_assert!(others.iter().all(|port| port.master != Some(bridge.ifindex)));
                prop_assert!(bridge.name.starts_with(bridge::PREFIX));
            }
        }
    }
}
