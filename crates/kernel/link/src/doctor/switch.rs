//! A switch's devices: which bridge they are in, or will be, and what that does.

use super::router::{Seers, past_netfilter};
use super::{BridgedFacts, Finding, Wanted};
use crate::Link;
use crate::switch::{Plan, plan};
use crate::switching::SwitchPort;
use narrows_escape::shell;

const BRIDGES: Seers = Seers {
    all: "firewall",
    some: "netfilter",
    forwards: "bridges",
    packets: "switched frames",
    remedy: "nft list ruleset (shows the rules), then --skip-netfilter if frames may pass without \
        them",
};

/// Judges one device.
pub(super) fn judge_device(link: &Link, facts: &BridgedFacts) -> Vec<Finding> {
    let bridge = facts.bridge.as_ref().ok().filter(|facts| facts.bridge.is_some());
    let is_it = |port: &&SwitchPort| port.ifindex == link.status.ifindex;
    let Some(port) = bridge.and_then(|facts| facts.ports.iter().find(is_it)) else {
        return Vec::new();
    };
    let name = link.name();
    let mut findings = Vec::new();
    if port.special {
        let what = "answers for others (proxy_arp, neigh_suppress), maps VLANs to tunnels, is in a \
                    ring (MRP), or has VLAN devices: its frames go through the bridge, unshaped";
        findings.push(Finding::warning(name, what));
    }
    if !port.learns && port.forwards {
        let what = "does not learn: only frames of stations with static entries are shaped";
        let remedy = format!("bridge link set dev {} learning on", shell(name));
        findings.push(Finding::note(name, what).remedy(remedy));
    }
    findings
}

/// Judges what concerns all devices.
pub(super) fn judge_host(facts: &BridgedFacts, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = vec![bridge(facts)];
    match &facts.bridge {
        Ok(read) => {
            if let Some(bridge) = read.bridge.filter(|bridge| bridge.ageing.is_zero()) {
                let it = facts.others.iter().find(|link| link.ifindex == bridge.ifindex);
                let name = shell(it.map_or("BRIDGE", |link| &link.name)).to_string();
                let what = "remembers no station, so it floods all frames, and nothing is shaped";
                let remedy = format!("ip link set dev {name} type bridge ageing_time 30000");
                findings.push(Finding::warning("bridge", what).remedy(remedy));
            }
        }
        Err(error) => findings.push(Finding::warning("bridge", error)),
    }
    findings.push(past_netfilter(&facts.netfilter, wanted, &BRIDGES));
    findings
}

fn bridge(facts: &BridgedFacts) -> Finding {
    let links: Vec<&Link> = facts.ports.iter().filter_map(|port| port.link.as_ref().ok()).collect();
    match plan(&links, &facts.others) {
        Ok(Plan::Adopt(bridge) | Plan::Complete(bridge)) => {
            Finding::ok("bridge", format!("{} decides, and forwards without Narrows", bridge.name))
        }
        Ok(Plan::Create(name)) => Finding::note(
            "bridge",
            format!("there is none: Narrows makes {name}, which stays when it ends"),
        ),
        Err(error) => {
            let finding = Finding::blocker("bridge", error.what());
            match error.remedy() {
                Some(remedy) => finding.remedy(remedy),
                None => finding,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkStatus;
    use crate::doctor::facts::fit_router;
    use crate::doctor::{Severity, blockers, judge_switch};
    use crate::netfilter::Hooks;
    use crate::switching::{Bridge, SwitchFacts};
    use std::time::Duration;

    /// Facts of three ports of the bridge `br0` that is a switch.
    fn fit() -> BridgedFacts {
        let mut router = fit_router();
        let kind = Some("bridge".to_owned());
        let br0 = LinkStatus { ifindex: 9, name: "br0".into(), kind, ..LinkStatus::default() };
        let mut ports = Vec::new();
        for port in &mut router.ports {
            let Ok(link) = &mut port.link else { continue };
            link.status.master = Some(9);
            link.addresses.clear();
            let ifindex = link.status.ifindex;
            let plain = SwitchPort { ifindex, forwards: true, learns: true, ..Default::default() };
            ports.push(plain);
        }
        let ageing = Duration::from_secs(300);
        let bridge = Some(Bridge { ifindex: 9, ageing, ..Bridge::default() });
        BridgedFacts {
            ports: router.ports,
            bridge: Ok(SwitchFacts { bridge, ports }),
            netfilter: Ok(Hooks { complete: true, ..Hooks::default() }),
            others: vec![br0],
            host: router.host,
        }
    }

    /// What is worse than a note after `spoil` has changed the facts.
    fn bad(spoil: impl FnOnce(&mut BridgedFacts)) -> Vec<Finding> {
        let mut facts = fit();
        spoil(&mut facts);
        let findings = judge_switch(&facts, &Wanted::default());
        findings.into_iter().filter(|finding| finding.severity > Severity::Note).collect()
    }

    #[test]
    fn a_fit_switch_has_no_warning_also_if_its_bridge_is_to_be_made() {
        assert_eq!(bad(|_| ()), []);
        let free = |facts: &mut BridgedFacts| {
            facts.others.clear();
            facts.bridge = Ok(SwitchFacts::default());
            for port in &mut facts.ports {
                port.link.as_mut().unwrap().status.master = None;
            }
        };
        assert_eq!(bad(free), []);
    }

    #[test]
    fn ports_of_different_bridges_block_with_what_to_type() {
        let findings = bad(|facts| facts.ports[1].link.as_mut().unwrap().status.master = None);
        assert_eq!(blockers(&findings).count(), 1);
        assert_eq!(findings[0].remedy.as_deref(), Some("ip link set dev b master br0"));
    }

    #[test]
    fn what_keeps_frames_from_being_shaped_is_said() {
        let read = |facts: &mut BridgedFacts| facts.bridge.clone().unwrap();
        let special = bad(|facts| {
            let mut now = read(facts);
            now.ports[0].special = true;
            facts.bridge = Ok(now);
        });
        assert!(special[0].what.contains("through the bridge"), "{special:?}");
        let forgets = bad(|facts| {
            let mut now = read(facts);
            now.bridge = now.bridge.map(|it| Bridge { ageing: Duration::ZERO, ..it });
            facts.bridge = Ok(now);
        });
        let remedy = "ip link set dev br0 type bridge ageing_time 30000";
        assert_eq!(forgets[0].remedy.as_deref(), Some(remedy));
        let unread = bad(|facts| facts.bridge = Err("no answer".into()));
        assert_eq!((unread.len(), &*unread[0].what), (1, "no answer"));
    }

    #[test]
    fn a_firewall_for_bridged_frames_is_not_passed_by() {
        let found = vec!["bridge filter forward (nf_tables chain)".to_owned()];
        let findings =
            bad(|facts| facts.netfilter = Ok(Hooks { found, complete: true, ..Hooks::default() }));
        assert_eq!(blockers(&findings).count(), 1);
        assert!(findings[0].what.contains("see what it bridges"), "{findings:?}");
    }
}
