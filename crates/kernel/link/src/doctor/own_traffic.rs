//! A port at which what this host sends is shaped (the host plane): whether a program at egress
//! sees it all.

use super::{Finding, HostPortsFacts, KernelVersion, PortFacts, Wanted, host, port, queues};
use crate::{Link, LinkStatus};
use narrows_escape::shell;

/// The first version with `bpf_skb_set_tstamp`, which sets departure times.
const DEPARTURES: KernelVersion = KernelVersion::new(5, 18);

/// Judges the ports, and this host.
pub(super) fn judge(facts: &HostPortsFacts, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = Vec::new();
    for port in &facts.ports {
        match &port.link {
            Err(error) => findings.push(port::missing(&port.asked, error)),
            Ok(link) => findings.extend(judge_device(port, link, facts, wanted)),
        }
    }
    findings.push(version(facts));
    findings.extend(host::judge(&facts.host, wanted));
    findings
}

fn judge_device(
    facts: &PortFacts,
    link: &Link,
    all: &HostPortsFacts,
    wanted: &Wanted,
) -> Vec<Finding> {
    let mut findings = vec![port::state(facts, link)];
    findings.extend(unread(&link.status));
    findings.extend(queues::numbers(link, wanted));
    findings.extend(port::running(link, wanted));
    findings.extend(part(link, all));
    findings
}

/// The program reads Ethernet, and packets that begin with IP.
pub(super) fn unread(status: &LinkStatus) -> Option<Finding> {
    let is_read = status.ethernet || status.headerless;
    let what = "has frames of a kind that the program at egress cannot read";
    let remedy = "name a device of Ethernet, PPP, or a tunnel of IP";
    (!is_read).then(|| Finding::blocker(&status.name, what).remedy(remedy.to_owned()))
}

/// What leaves through a part of a bond is chosen behind the bond's own egress.
fn part(link: &Link, all: &HostPortsFacts) -> Option<Finding> {
    let master = all.others.iter().find(|other| Some(other.ifindex) == link.status.master)?;
    let kind = master.kind.as_deref().filter(|kind| ["bond", "team"].contains(kind))?;
    let (name, master) = (link.name(), &master.name);
    let what = format!("is a part of {master}: other parts of the {kind} have limits of their own");
    let remedy = format!("name {} in its place", shell(master));
    Some(Finding::warning(name, what).remedy(remedy))
}

fn version(facts: &HostPortsFacts) -> Finding {
    let kernel = facts.host.kernel;
    if kernel < DEPARTURES {
        let what = format!("Linux {kernel} lets no program set departure times");
        return Finding::blocker("kernel", what)
            .remedy(format!("boot Linux {DEPARTURES} or newer"));
    }
    Finding::ok("kernel", format!("Linux {kernel}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::fit;
    use crate::doctor::{Severity, WantedPlane, judge_host};

    /// What is worse than a note after `spoil` has changed the facts.
    fn bad(spoil: impl FnOnce(&mut Link, &mut HostPortsFacts)) -> Vec<Finding> {
        let fit = fit();
        let [device, _] = fit.ports;
        let mut link = device.link.clone().unwrap();
        let mut facts = HostPortsFacts { ports: Vec::new(), others: Vec::new(), host: fit.host };
        spoil(&mut link, &mut facts);
        facts.ports = vec![PortFacts { link: Ok(link), ..device }];
        let wanted = Wanted { plane: WantedPlane::Host, ..Wanted::default() };
        let findings = judge_host(&facts, &wanted);
        findings.into_iter().filter(|finding| finding.severity > Severity::Note).collect()
    }

    #[test]
    fn an_ethernet_device_is_fit_whatever_its_driver_and_its_length_of_frames() {
        assert_eq!(bad(|_, _| ()), []);
        let odd = |link: &mut Link, _: &mut HostPortsFacts| {
            (link.driver.name, link.status.mtu) = ("unheard-of".to_owned(), 65_535);
            link.status.kind = Some("bridge".to_owned());
        };
        assert_eq!(bad(odd), []);
    }

    #[test]
    fn what_the_program_cannot_read_or_set_is_refused() {
        let tunnel = |link: &mut Link, _: &mut HostPortsFacts| {
            (link.status.ethernet, link.status.headerless) = (false, true);
        };
        assert_eq!(bad(tunnel), []);
        let other = bad(|link, _| link.status.ethernet = false);
        assert!(other[0].severity == Severity::Blocker && other[0].what.contains("cannot read"));
        let old = bad(|_, facts| facts.host.kernel = KernelVersion::new(5, 15));
        assert!(old[0].severity == Severity::Blocker && old[0].what.contains("departure times"));
    }

    #[test]
    fn a_part_of_a_bond_is_said_to_be_one() {
        let found = bad(|link, facts| {
            link.status.master = Some(9);
            let (name, kind) = ("bond0".to_owned(), Some("bond".to_owned()));
            facts.others.push(LinkStatus { ifindex: 9, name, kind, ..LinkStatus::default() });
        });
        assert_eq!((found.len(), found[0].severity), (1, Severity::Warning));
        assert!(found[0].what.starts_with("is a part of bond0"), "{found:?}");
    }
}
