//! Two ports between which frames would circle.
//!
//! What arrives at one port leaves by the other. If something else carries it back to the first,
//! one frame is enough to fill both for ever. So ports that this host itself joins are refused.
//!
//! Non-goals: loops through other namespaces or other machines, which nothing here can see.
//! Spanning tree frames pass Narrows, so a switch that runs it opens such a loop.

use super::Finding;
use crate::{Link, LinkStatus};

/// Kinds of devices that pass frames to others on the same lower device.
const SIBLINGS: [&str; 4] = ["macvlan", "macvtap", "ipvlan", "ipvtap"];

/// The most devices on top of each other that are followed; the kernel allows 8.
const DEPTH: usize = 16;

pub(super) fn judge(ports: [&Link; 2], others: &[LinkStatus]) -> Option<Finding> {
    let [a, b] = ports.map(|port| &port.status);
    let what = joined(a, b, others)?;
    let remedy = "name two interfaces that lead to different networks";
    Some(Finding::blocker(&a.name, what).remedy(remedy))
}

/// What joins `a` and `b` already, besides a bridge that both are ports of.
fn joined(a: &LinkStatus, b: &LinkStatus, others: &[LinkStatus]) -> Option<String> {
    if a.ifindex == b.ifindex {
        return Some(format!("is the same interface as {}", b.name));
    }
    let beside = |link: &LinkStatus| {
        let peer = link.peer.filter(|peer| peer.namespace.is_none())?;
        others.iter().find(|other| other.ifindex == peer.ifindex)
    };
    let is_cable = |link: &LinkStatus| link.kind.as_deref() == Some("veth");
    let [beside_a, beside_b] = [a, b].map(beside);
    if is_cable(a) && beside_a.is_some_and(|peer| peer.ifindex == b.ifindex) {
        return Some(format!("and {} are both ends of one veth: frames would circle", b.name));
    }
    for (upper, lower) in [(a, b), (b, a)] {
        if is_below(lower.ifindex, upper, others) {
            let what = format!("{} is on top of {}", upper.name, lower.name);
            return Some(format!("cannot be joined with {}: {what}", b.name));
        }
        if let Some(master) = lower.master.filter(|&master| is_master(master, upper, others)) {
            let name = name_of(master, others);
            return Some(format!(
                "cannot be joined with {}: {} is a port of {name}",
                b.name, lower.name
            ));
        }
    }
    let (beside_a, beside_b) = (beside_a?, beside_b?);
    let are_siblings =
        [a, b].iter().all(|link| link.kind.as_deref().is_some_and(|kind| SIBLINGS.contains(&kind)));
    if are_siblings && beside_a.ifindex == beside_b.ifindex {
        let lower = &beside_a.name;
        return Some(format!(
            "and {} are both on {lower}, which passes frames between them",
            b.name
        ));
    }
    let master = beside_a.master.filter(|_| is_cable(a) && is_cable(b))?;
    (beside_b.master == Some(master)).then(|| {
        let name = name_of(master, others);
        format!("and {} lead to the same device, {name}: frames would circle", b.name)
    })
}

/// Whether the device `lower` is below `upper`, such as the port of a VLAN.
fn is_below(lower: u32, upper: &LinkStatus, others: &[LinkStatus]) -> bool {
    let below = |link: &&LinkStatus| {
        let peer = link.peer.filter(|peer| peer.namespace.is_none())?;
        let is_other_end = link.kind.as_deref() == Some("veth");
        (!is_other_end).then(|| others.iter().find(|other| other.ifindex == peer.ifindex))?
    };
    std::iter::successors(Some(upper), below).skip(1).take(DEPTH).any(|link| link.ifindex == lower)
}

/// Whether the device `master` is `link`, or `link` is on top of it or a port of it.
fn is_master(master: u32, link: &LinkStatus, others: &[LinkStatus]) -> bool {
    master == link.ifindex || is_below(master, link, others)
}

fn name_of(ifindex: u32, others: &[LinkStatus]) -> &str {
    others.iter().find(|other| other.ifindex == ifindex).map_or("another device", |one| &one.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PeerId;

    fn link(ifindex: u32, kind: &str, peer: Option<u32>, master: Option<u32>) -> LinkStatus {
        LinkStatus {
            ifindex,
            name: format!("dev{ifindex}"),
            kind: (!kind.is_empty()).then(|| kind.to_owned()),
            peer: peer.map(|ifindex| PeerId { ifindex, namespace: None }),
            master,
            ..LinkStatus::default()
        }
    }

    /// What is said of the first two, in either order.
    fn said(all: &[LinkStatus]) -> Option<String> {
        let one = joined(&all[0], &all[1], all);
        assert_eq!(one.is_some(), joined(&all[1], &all[0], all).is_some());
        one
    }

    #[test]
    fn ports_that_lead_to_different_networks_are_joined() {
        assert_eq!(said(&[link(1, "", None, None), link(2, "", None, None)]), None);
        // Both are ports of the bridge that stands by.
        let bridged =
            [link(1, "", None, Some(3)), link(2, "", None, Some(3)), link(3, "bridge", None, None)];
        assert_eq!(said(&bridged), None);
        let apart = [link(1, "veth", Some(3), None), link(2, "veth", Some(4), None)];
        assert_eq!(said(&apart), None);
        let mut elsewhere = [link(1, "veth", Some(2), None), link(2, "veth", Some(1), None)];
        elsewhere.iter_mut().for_each(|link| link.peer.as_mut().unwrap().namespace = Some(0));
        assert_eq!(said(&elsewhere), None);
        // Two VLANs of one device.
        let vlans = [
            link(1, "vlan", Some(3), None),
            link(2, "vlan", Some(3), None),
            link(3, "", None, None),
        ];
        assert_eq!(said(&vlans), None);
    }

    #[test]
    fn ports_that_the_host_joins_already_are_refused() {
        let cases: [(&str, Vec<LinkStatus>); 6] = [
            (
                "both ends of one veth",
                vec![link(1, "veth", Some(2), None), link(2, "veth", Some(1), None)],
            ),
            ("is on top of", vec![link(1, "vlan", Some(2), None), link(2, "", None, None)]),
            (
                "is on top of",
                vec![
                    link(1, "macvlan", Some(3), None),
                    link(2, "", None, None),
                    link(3, "vlan", Some(2), None),
                ],
            ),
            ("is a port of", vec![link(1, "bridge", None, None), link(2, "", None, Some(1))]),
            (
                "passes frames between them",
                vec![
                    link(1, "macvlan", Some(3), None),
                    link(2, "macvlan", Some(3), None),
                    link(3, "", None, None),
                ],
            ),
            (
                "lead to the same device, dev5",
                vec![
                    link(1, "veth", Some(3), None),
                    link(2, "veth", Some(4), None),
                    link(3, "veth", Some(1), Some(5)),
                    link(4, "veth", Some(2), Some(5)),
                    link(5, "bridge", None, None),
                ],
            ),
        ];
        for (words, all) in cases {
            let said = said(&all).unwrap_or_default();
            assert!(said.contains(words), "{words}: {said}");
        }
        let one = link(1, "", None, None);
        assert!(said(&[one.clone(), one]).unwrap().contains("same interface"));
    }

    #[test]
    fn devices_on_top_of_each_other_in_a_circle_end() {
        let circle = [
            link(1, "macvlan", Some(3), None),
            link(2, "", None, None),
            link(3, "macvlan", Some(1), None),
        ];
        assert_eq!(said(&circle), None);
    }
}
