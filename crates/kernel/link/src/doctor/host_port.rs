//! A host's port: whether the frames that arrive there are this device's own.

use super::{Finding, HostPortsFacts, PortFacts};
use crate::{Link, LinkStatus};
use narrows_escape::shell;

/// Devices whose frames have passed the drivers of others, by their kind.
const ABOVE: [&str; 3] = ["bridge", "bond", "team"];

/// Judges the device.
pub(super) fn judge_device(
    (port, link): (&PortFacts, &Link),
    facts: &HostPortsFacts,
) -> Vec<Finding> {
    let HostPortsFacts { others, .. } = facts;
    let findings = [is_vlan(&link.status, others), is_above(link), part(&link.status, others)];
    let mut findings: Vec<Finding> = findings.into_iter().flatten().collect();
    if findings.is_empty() && !port.addressed {
        let what = "has no IP address of this host: it filters for what is above, such as VLANs, \
                    and other hosts";
        findings.push(Finding::note(link.name(), what));
    }
    findings
}

/// A VLAN has no frames of its own: they come through the device below.
fn is_vlan(device: &LinkStatus, others: &[LinkStatus]) -> Option<Finding> {
    let (lower, tag) = (device.peer?.ifindex, device.vlan?);
    let lower = others.iter().find(|other| other.ifindex == lower);
    let name = lower.map_or("another device", |lower| &lower.name);
    let what = format!("is {tag} of {name}, and cannot be a port by itself");
    let remedy = format!("name {name} in its place: filters can ask for the tag");
    Some(Finding::blocker(&device.name, what).remedy(remedy))
}

/// What is above other devices has no driver in which to drop.
fn is_above(link: &Link) -> Option<Finding> {
    let kind = link.status.kind.as_deref().filter(|kind| ABOVE.contains(kind))?;
    let what = format!("is a {kind}: what arrives there has passed its ports' drivers already");
    let remedy = "name one of its ports in its place".to_owned();
    Some(Finding::blocker(link.name(), what).remedy(remedy))
}

/// What gets the device's frames after the filters.
fn part(device: &LinkStatus, others: &[LinkStatus]) -> Option<Finding> {
    let master = others.iter().find(|other| Some(other.ifindex) == device.master)?;
    let (name, master, kind) = (&device.name, &master.name, master.kind.as_deref());
    Some(match kind {
        Some("bond" | "team") => {
            let what = format!(
                "is a part of {master}, and frames of the same sender may come through other parts, \
                 by limits of their own"
            );
            let remedy = format!("ip link set dev {} nomaster", shell(name));
            Finding::blocker(name, what).remedy(remedy)
        }
        _ => Finding::ok(name, format!("is a port of {master}, which gets what filters pass")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PeerId;
    use crate::doctor::facts::fit;
    use crate::doctor::{Severity, Wanted, WantedPlane, blockers, judge_host};
    use narrows_forwarding::{Tag, TagProtocol};

    fn host_port() -> HostPortsFacts {
        let fit = fit();
        let [mut device, _] = fit.ports;
        device.addressed = true;
        HostPortsFacts { ports: vec![device], others: Vec::new(), host: fit.host }
    }

    /// What is worse than a note after `spoil` has changed the facts.
    fn bad(spoil: impl FnOnce(&mut Link, &mut Vec<LinkStatus>)) -> Vec<Finding> {
        let mut facts = host_port();
        let mut link = facts.ports[0].link.clone().unwrap();
        spoil(&mut link, &mut facts.others);
        facts.ports[0].link = Ok(link);
        let wanted = Wanted { plane: WantedPlane::Xdp, ..Wanted::default() };
        let findings = judge_host(&facts, &wanted);
        findings.into_iter().filter(|finding| finding.severity > Severity::Note).collect()
    }

    fn above(kind: &str) -> LinkStatus {
        let (name, kind) = (format!("{kind}0"), Some(kind.to_owned()));
        LinkStatus { ifindex: 9, name, kind, ..LinkStatus::default() }
    }

    #[test]
    fn a_port_with_an_address_and_one_of_a_bridge_are_fit() {
        assert_eq!(bad(|_, _| ()), []);
        let in_bridge = |link: &mut Link, others: &mut Vec<LinkStatus>| {
            link.status.master = Some(9);
            others.push(above("bridge"));
        };
        assert_eq!(bad(in_bridge), []);
    }

    #[test]
    fn a_port_among_several_whose_driver_sends_nothing_of_others_is_said() {
        let mut facts = host_port();
        let wanted = Wanted { plane: WantedPlane::Xdp, ..Wanted::default() };
        let said = |facts: &HostPortsFacts| {
            let findings = judge_host(facts, &wanted);
            let about = |finding: &&Finding| finding.what.contains("do not reach servers behind");
            findings.iter().filter(about).count()
        };
        let mut other = facts.ports[0].clone();
        let mut link = other.link.clone().unwrap();
        link.driver.name = "unheard-of".to_owned();
        other.link = Ok(link);
        facts.ports = vec![other.clone()];
        assert_eq!(said(&facts), 0, "there is no other");
        facts.ports.push(host_port().ports[0].clone());
        assert_eq!(said(&facts), 1);
    }

    #[test]
    fn what_is_above_others_is_refused_and_so_is_a_part_of_a_bond() {
        for kind in ABOVE {
            let found = bad(|link, _| link.status.kind = Some(kind.to_owned()));
            assert_eq!(blockers(&found).count(), 1, "{kind}");
            assert!(found[0].what.starts_with(&format!("is a {kind}: ")), "{found:?}");
        }
        let found = bad(|link, others| {
            link.status.master = Some(9);
            others.push(above("bond"));
        });
        assert_eq!(blockers(&found).count(), 1);
        assert!(found[0].what.starts_with("is a part of bond0"), "{found:?}");
    }

    #[test]
    fn a_vlan_is_refused_with_the_device_below() {
        let found = bad(|link, others| {
            link.status.peer = Some(PeerId { ifindex: 9, namespace: None });
            link.status.vlan = Some(Tag::new(TagProtocol::Customer, 100).unwrap());
            let name = "eth9".to_owned();
            others.push(LinkStatus { ifindex: 9, name, ..LinkStatus::default() });
        });
        let refused: Vec<&Finding> = blockers(&found).collect();
        assert_eq!(refused.len(), 1, "{found:?}");
        assert!(refused[0].remedy.as_ref().unwrap().starts_with("name eth9"), "{found:?}");
    }
}
