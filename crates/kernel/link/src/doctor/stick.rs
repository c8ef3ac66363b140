//! The standby of a stick: VLAN devices and bridges.

use super::standby::{master, refused};
use super::{Finding, StickFacts, Wanted};
use crate::bridge::{BridgeError, Plan};
use crate::stick::{self, Found, StickError};
use crate::{Link, LinkStatus, vlan};
use narrows_escape::shell;
use narrows_forwarding::stick::{Pair, port_name};

pub(super) fn judge(facts: &StickFacts, device: &Link, wanted: &Wanted) -> Vec<Finding> {
    let devices = || facts.pairs.iter().flat_map(|(_, found)| found).flatten();
    if !wanted.bridge {
        let all = std::iter::once(device).chain(devices());
        return all.filter_map(|link| master(link, &facts.others)).collect();
    }
    let lower = &device.status;
    let mut findings = Vec::new();
    findings.extend(has_vlan_devices(facts));
    findings.extend(part(lower, &facts.others));
    for (pair, found) in &facts.pairs {
        findings.extend(joined(lower, *pair, found, &facts.others));
    }
    findings
}

/// Whether those VLAN devices that are missing can be made.
fn has_vlan_devices(facts: &StickFacts) -> Option<Finding> {
    facts.pairs.iter().flat_map(|(_, found)| found).find(|found| found.is_none())?;
    Some(match facts.vlan_devices {
        Some(true) => Finding::ok("kernel", "has VLAN devices"),
        Some(false) => refused(
            "kernel",
            "has no VLAN devices (CONFIG_VLAN_8021Q)",
            StickError::NoVlans.remedy(),
        ),
        None => Finding::note("kernel", "may or may not have VLAN devices: the start will tell")
            .remedy("modprobe 8021q"),
    })
}

/// What the device is a part of.
fn part(lower: &LinkStatus, others: &[LinkStatus]) -> Option<Finding> {
    if let Err(error) = stick::is_free(lower, others) {
        return Some(refused(&lower.name, &error.what(), error.remedy()));
    }
    let master = others.iter().find(|other| Some(other.ifindex) == lower.master)?;
    let what =
        format!("is a port of {}, which gets all frames but those of the VLANs", master.name);
    Some(Finding::note(&lower.name, what))
}

/// How a pair will be joined: the result of [`crate::stick::prepare`].
fn joined(lower: &LinkStatus, pair: Pair, found: &Found, others: &[LinkStatus]) -> Vec<Finding> {
    let (tags, device) = ([pair.0, pair.1], &lower.name);
    let [a, b] = [0, 1].map(|at| {
        found[at]
            .as_ref()
            .map_or_else(|| port_name(device, tags[at]), |link| link.name().to_owned())
    });
    let both = format!("{a} ({}) and {b} ({})", tags[0], tags[1]);
    match stick::plan(lower, pair, found, others) {
        Ok(Plan::Create(_)) => {
            vec![Finding::ok(device, format!("a standby bridge will join {both}"))]
        }
        Ok(Plan::Reuse(bridge)) => {
            vec![Finding::ok(&bridge.name, format!("is the standby bridge of {both}"))]
        }
        Ok(Plan::Adopt(bridge)) => {
            let what = format!("joins {both} already and serves as the standby as it is");
            let narrow = found.iter().flatten().filter_map(|link| narrow(link, lower));
            std::iter::once(Finding::note(&bridge.name, what)).chain(narrow).collect()
        }
        Err(error) => {
            let subject = match &error {
                StickError::Bridge(
                    BridgeError::HasMaster { port, .. } | BridgeError::HasAddresses { port, .. },
                ) => port,
                StickError::Bridge(BridgeError::Unfit { bridge, .. }) => bridge,
                _ => device,
            };
            vec![refused(subject, &error.what(), error.remedy())]
        }
    }
}

/// A VLAN device with a smaller MTU than the device below, in a bridge that is not ours to repair.
fn narrow(link: &Link, lower: &LinkStatus) -> Option<Finding> {
    let (mtu, wanted) = (link.status.mtu, vlan::mtu(lower));
    (mtu < wanted).then(|| {
        let name = link.name();
        let what = format!(
            "MTU {mtu}, but {} has {wanted}: while the kernel stands in for Narrows, larger \
             packets are dropped silently",
            lower.name
        );
        Finding::warning(name, what).remedy(format!("ip link set dev {} mtu {wanted}", shell(name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::fit;
    use crate::doctor::{Severity, blockers, judge_stick};
    use crate::{Address, BridgeSettings, PeerId};
    use narrows_forwarding::{Tag, TagProtocol};

    fn tag(vid: u16) -> Tag {
        Tag::new(TagProtocol::Customer, vid).unwrap()
    }

    fn vlan(ifindex: u32, vid: u16, master: Option<u32>) -> Link {
        let status = LinkStatus {
            ifindex,
            name: format!("a.{vid}"),
            mtu: 1500,
            kind: Some("vlan".into()),
            vlan: Some(tag(vid)),
            peer: Some(PeerId { ifindex: 2, namespace: None }),
            master,
            ..LinkStatus::default()
        };
        Link { status, ..Link::default() }
    }

    fn other(ifindex: u32, name: &str, kind: &str) -> LinkStatus {
        let kind = Some(kind.to_owned());
        LinkStatus { ifindex, name: name.into(), kind, ..LinkStatus::default() }
    }

    /// A stick that nothing is to be said about, with VLANs 100 and 200.
    fn facts(found: Found, others: &[LinkStatus]) -> StickFacts {
        let crate::doctor::Facts { ports: [device, _], host, .. } = fit();
        let present = found.iter().flatten().map(|link| link.status.clone());
        let others = others.iter().cloned().chain(present).collect();
        let pairs = vec![((tag(100), tag(200)), found)];
        StickFacts { device, pairs, vlan_devices: Some(true), others, host }
    }

    fn wanted(bridge: bool) -> Wanted {
        Wanted { bridge, ..Wanted::default() }
    }

    fn of(facts: &StickFacts, bridge: bool) -> Vec<Finding> {
        judge(facts, facts.device.link.as_ref().unwrap(), &wanted(bridge))
    }

    #[test]
    fn a_fit_device_on_a_fit_host_has_no_warning_and_is_judged_once() {
        let findings = judge_stick(&facts([None, None], &[]), &wanted(true));
        assert_eq!(findings.iter().find(|finding| finding.severity > Severity::Note), None);
        let up = findings.iter().filter(|finding| finding.what.starts_with("is up"));
        assert_eq!(up.count(), 1);
        let will = "a standby bridge will join a.100 (VLAN 100) and a.200 (VLAN 200)";
        assert!(findings.iter().any(|finding| finding.what == will));
    }

    #[test]
    fn a_missing_device_is_one_blocker() {
        let mut facts = facts([None, None], &[]);
        facts.device.link = Err("there is no interface 'a'".into());
        let findings = judge_stick(&facts, &wanted(true));
        assert_eq!(blockers(&findings).count(), 1);
    }

    #[test]
    fn a_kernel_without_vlan_devices_cannot_stand_by_and_need_not() {
        let mut facts = facts([Some(vlan(5, 100, None)), None], &[]);
        facts.vlan_devices = Some(false);
        let findings = of(&facts, true);
        assert_eq!((findings[0].severity, &*findings[0].subject), (Severity::Blocker, "kernel"));
        assert!(findings[0].remedy.as_ref().unwrap().starts_with("modprobe 8021q"));
        assert_eq!(of(&facts, false), []);
        facts.vlan_devices = None;
        assert_eq!(of(&facts, true)[0].severity, Severity::Note);
        facts.vlan_devices = Some(false);
        facts.pairs[0].1[1] = Some(vlan(6, 200, None));
        assert_eq!(blockers(&of(&facts, true)).count(), 0, "nothing is to be made");
    }

    #[test]
    fn each_pair_is_judged_even_if_another_is_refused() {
        let mut addressed = vlan(5, 100, None);
        addressed.addresses.push(Address { ip: [192, 0, 2, 1].into(), prefix: 24 });
        let taken = [Some(vlan(7, 101, Some(9))), None];
        let mut facts = facts([Some(addressed), None], &[other(9, "br0", "bridge")]);
        facts.pairs.push(((tag(101), tag(201)), taken));
        let findings = of(&facts, true);
        let remedies: Vec<_> =
            blockers(&findings).map(|finding| finding.remedy.as_deref().unwrap()).collect();
        assert!(remedies[0].starts_with("ip addr del 192.0.2.1/24 dev a.100"), "{remedies:?}");
        assert!(remedies[1].starts_with("ip link set dev a.101 nomaster"), "{remedies:?}");
        let subjects: Vec<_> = blockers(&findings).map(|finding| &*finding.subject).collect();
        assert_eq!(subjects, ["a.100", "a.101"]);
        let warned = of(&facts, false);
        assert_eq!(warned.len(), 1, "an address only is in nobody's way");
        assert_eq!(warned[0].severity, Severity::Warning);
    }

    #[test]
    fn an_operators_bridge_is_used_unless_it_is_no_wire() {
        let found = || [Some(vlan(5, 100, Some(9))), Some(vlan(6, 200, Some(9)))];
        let mut br0 = other(9, "br0", "bridge");
        let findings = of(&facts(found(), std::slice::from_ref(&br0)), true);
        assert_eq!((findings[0].severity, &*findings[0].subject), (Severity::Note, "br0"));
        br0.bridge = Some(BridgeSettings { vlan_filtering: true, ..BridgeSettings::default() });
        let findings = of(&facts(found(), &[br0]), true);
        assert_eq!((findings[0].severity, &*findings[0].subject), (Severity::Blocker, "br0"));
        assert!(findings[0].remedy.as_ref().unwrap().contains("vlan_filtering 0"));
    }

    #[test]
    fn a_vlan_device_that_is_too_narrow_is_warned_of_where_nobody_widens_it() {
        let said = |bridge: &str| {
            let mut narrow = vlan(5, 100, Some(9));
            narrow.status.mtu = 1400;
            let found = [Some(narrow), Some(vlan(6, 200, Some(9)))];
            let findings = of(&facts(found, &[other(9, bridge, "bridge")]), true);
            findings.into_iter().find_map(|finding| finding.remedy)
        };
        assert_eq!(said("br0").as_deref(), Some("ip link set dev a.100 mtu 1500"));
        assert_eq!(said("nrwbr5"), None);
    }

    #[test]
    fn a_device_in_a_bond_is_refused_and_in_a_bridge_noted() {
        let said = |kind: &str| {
            let mut facts = facts([None, None], &[other(9, "m", kind)]);
            facts.device.link.as_mut().unwrap().status.master = Some(9);
            let findings = of(&facts, true);
            findings.into_iter().find(|finding| finding.what.contains('m')).unwrap()
        };
        assert_eq!(said("bond").severity, Severity::Blocker);
        assert!(said("bond").what.starts_with("is a part of m"));
        assert_eq!(said("bridge").severity, Severity::Note);
    }
}
