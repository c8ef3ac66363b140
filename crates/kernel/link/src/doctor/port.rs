//! A single port: present, up, capable, free.

use super::drivers::support;
use super::{Dispatcher, Finding, PortFacts, Wanted, WantedPlane};
use crate::{Link, XdpMode};
use narrows_escape::shell;

/// A receive ring shorter than this overflows when a worker is away for a scheduling tick of 1 ms
/// at a million packets per second.
const COMFORTABLE_RING: u32 = 1024;

/// The most programs that libxdp's dispatcher calls.
const PLACES: usize = 10;

/// The interface could not be read.
pub(super) fn missing(asked: &str, error: &str) -> Finding {
    Finding::blocker(asked, error)
}

pub(super) fn judge(facts: &PortFacts, link: &Link, wanted: &Wanted, at_tcx: bool) -> Vec<Finding> {
    let mut findings = device(facts, link, wanted, at_tcx);
    findings.extend(reach(facts, link));
    findings.extend(programs(facts, link, wanted, at_tcx));
    findings
}

/// Judges the device of a stick, a router or a switch. What is not forwarded reaches this host at
/// all times, so there is nothing to say about how.
pub(super) fn judge_only(
    facts: &PortFacts,
    link: &Link,
    wanted: &Wanted,
    at_tcx: bool,
) -> Vec<Finding> {
    let mut findings = device(facts, link, wanted, at_tcx);
    findings.extend(programs(facts, link, wanted, at_tcx));
    findings
}

fn device(facts: &PortFacts, link: &Link, wanted: &Wanted, at_tcx: bool) -> Vec<Finding> {
    let mut findings = vec![state(facts, link)];
    findings.extend(not_ethernet(link));
    findings.push(if at_tcx { behind_driver(link) } else { driver(link, wanted.plane) });
    findings.extend(rings(link));
    findings
}

pub(super) fn state(facts: &PortFacts, link: &Link) -> Finding {
    let name = link.name();
    if !link.status.up {
        return Finding::warning(name, "is down")
            .remedy(format!("ip link set dev {} up", shell(name)));
    }
    if link.status.carrier {
        return Finding::ok(name, "is up, with carrier");
    }
    let finding = Finding::warning(name, "is up, but has no carrier: nothing passes");
    match &facts.peer {
        Some(peer) => {
            let prefix = peer.prefix.as_deref().unwrap_or_default();
            finding.remedy(format!("{prefix}ip link set dev {} up", shell(&peer.name)))
        }
        None => finding,
    }
}

fn not_ethernet(link: &Link) -> Option<Finding> {
    let what = "does not carry Ethernet frames, and only such are forwarded";
    (!link.status.ethernet).then(|| Finding::blocker(link.name(), what))
}

fn driver(link: &Link, plane: WantedPlane) -> Finding {
    let name = link.name();
    let driver = &link.driver;
    let support = support(&driver.name);
    match support.zero_copy {
        _ if support.native && plane == WantedPlane::Xdp => {
            Finding::ok(name, format!("{driver}: native XDP"))
        }
        Some(since) => {
            Finding::ok(name, format!("{driver}: native XDP; zero copy since Linux {since}"))
        }
        None if support.native => {
            Finding::ok(name, format!("{driver}: native XDP; frames are copied once each way"))
        }
        None => Finding::note(
            name,
            format!("{driver}: not known to run XDP itself; generic XDP works, but slower"),
        ),
    }
}

fn behind_driver(link: &Link) -> Finding {
    let driver = &link.driver;
    Finding::ok(link.name(), format!("{driver}: the XDP plane runs behind the driver, at tcx"))
}

/// How the port's network reaches this host.
fn reach(facts: &PortFacts, link: &Link) -> Option<Finding> {
    let name = link.name();
    if facts.addressed {
        let what = "this host has an IP address behind it: frames to the port's own MAC address go \
                    to its kernel, from any sender, and can reach all its addresses";
        return Some(Finding::note(name, what));
    }
    let mut automatic = link.addresses.iter().filter(|address| address.is_automatic());
    let address = automatic.next()?;
    let what = format!(
        "has the automatic address {address}, by which its network can reach this host: Narrows \
         takes it off while it runs"
    );
    Some(Finding::ok(name, what))
}

fn rings(link: &Link) -> Option<Finding> {
    let name = link.name();
    let rings = link.rings?;
    let wanted = COMFORTABLE_RING.min(rings.rx_max);
    Some(if rings.rx < wanted {
        let what = format!("receive rings of {} descriptors may overflow in bursts", rings.rx);
        Finding::note(name, what).remedy(format!("ethtool -G {} rx {wanted}", shell(name)))
    } else {
        Finding::ok(name, format!("rings of {} (rx) and {} (tx)", rings.rx, rings.tx))
    })
}

/// Another instance has it.
pub(super) fn running(link: &Link, wanted: &Wanted) -> Option<Finding> {
    let name = link.name();
    let remedy = format!("narrows show {} (stop that one first)", shell(name));
    let runs = wanted.running.iter().any(|device| device == name);
    runs.then(|| Finding::blocker(name, "has a Narrows that runs").remedy(remedy))
}

fn programs(facts: &PortFacts, link: &Link, wanted: &Wanted, at_tcx: bool) -> Vec<Finding> {
    let name = link.name();
    if let Some(running) = running(link, wanted) {
        return vec![running];
    }
    let one = |program: &crate::XdpProgram| {
        let (mode, word) = match program.mode {
            XdpMode::Native => ("native", "xdpdrv"),
            XdpMode::Generic => ("generic", "xdpgeneric"),
            XdpMode::Hardware => ("hardware", "xdpoffload"),
        };
        let id = program.id;
        let dispatcher = facts.dispatchers.iter().find(|dispatcher| dispatcher.id == id);
        if let Some(Dispatcher { programs, .. }) = dispatcher {
            let there = format!(
                "has libxdp's dispatcher (id {id}, {mode}) with {programs} of {PLACES} programs"
            );
            if *programs >= PLACES {
                // One of them may be what a Narrows left behind, which the start removes.
                let what =
                    format!("{there}: no place is left, unless a Narrows that ended has one");
                return Finding::warning(name, what)
                    .remedy(format!("xdp-loader status {}", shell(name)));
            }
            let what = format!("{there}; Narrows takes a place there, behind lower priorities");
            return Finding::ok(name, what);
        }
        if at_tcx {
            let what = format!("has a {mode} XDP program (id {id}), which sees frames first");
            return Finding::note(name, what);
        }
        let what =
            format!("has a {mode} XDP program already (id {id}), which may be another Narrows");
        Finding::blocker(name, what).remedy(format!("ip link set dev {} {word} off", shell(name)))
    };
    link.status.xdp.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use crate::doctor::facts::fit;
    use crate::peer::Peer;
    use crate::{Rings, XdpProgram};

    /// The findings for a fit port after `spoil` has changed it.
    fn after(spoil: impl FnOnce(&mut Link)) -> Vec<Finding> {
        let [mut facts, _] = fit().ports;
        let mut link = facts.link.unwrap();
        spoil(&mut link);
        facts.link = Ok(link.clone());
        judge(&facts, &link, &Wanted::default(), false)
    }

    #[test]
    fn the_program_of_a_narrows_that_runs_is_not_to_be_detached() {
        let [facts, _] = fit().ports;
        let mut link = facts.link.clone().unwrap();
        link.status.xdp.push(XdpProgram { mode: XdpMode::Native, id: 7 });
        let foreign = programs(&facts, &link, &Wanted::default(), false);
        assert!(foreign[0].remedy.as_ref().unwrap().contains("xdpdrv off"));
        let wanted = Wanted { running: vec![link.name().to_owned()], ..Wanted::default() };
        let [ours] = &programs(&facts, &link, &wanted, false)[..] else { panic!("one finding") };
        assert_eq!(ours.severity, Severity::Blocker);
        assert!(ours.remedy.as_ref().unwrap().starts_with("narrows show "));
    }

    #[test]
    fn libxdps_dispatcher_is_joined_while_it_has_a_place_and_other_programs_are_not() {
        let [mut facts, _] = fit().ports;
        let mut link = facts.link.clone().unwrap();
        link.status.xdp.push(XdpProgram { mode: XdpMode::Native, id: 7 });
        facts.dispatchers.push(Dispatcher { id: 7, programs: 9 });
        let findings = programs(&facts, &link, &Wanted::default(), false);
        assert_eq!(findings[0].severity, Severity::Ok);
        assert!(
            findings[0].what.contains("9 of 10 programs; Narrows takes"),
            "{}",
            findings[0].what
        );
        facts.dispatchers[0].programs = 10;
        assert_eq!(
            programs(&facts, &link, &Wanted::default(), false)[0].severity,
            Severity::Warning
        );
        facts.dispatchers[0].id = 8;
        let findings = programs(&facts, &link, &Wanted::default(), false);
        assert_eq!(findings[0].severity, Severity::Blocker);
        assert_eq!(findings[0].remedy.as_deref(), Some("ip link set dev a xdpdrv off"));
    }

    #[test]
    fn who_can_reach_the_host_is_said() {
        let [mut facts, _] = fit().ports;
        let mut link = facts.link.clone().unwrap();
        assert_eq!(reach(&facts, &link), None);
        let ip = "fe80::1".parse().unwrap();
        link.addresses.push(crate::Address { ip, prefix: 64 });
        let said = reach(&facts, &link).unwrap();
        assert!(said.what.starts_with("has the automatic address fe80::1/64"), "{}", said.what);
        facts.addressed = true;
        let said = reach(&facts, &link).unwrap();
        assert_eq!(said.severity, Severity::Note);
        assert!(said.what.contains("from any sender"), "{}", said.what);
    }

    fn worst(findings: &[Finding]) -> &Finding {
        findings.iter().max_by_key(|finding| finding.severity).unwrap()
    }

    #[test]
    fn a_port_that_is_down_can_be_set_up() {
        let findings = after(|link| link.status.up = false);
        let worst = worst(&findings);
        assert_eq!(worst.severity, Severity::Warning);
        assert_eq!(worst.remedy.as_deref(), Some("ip link set dev a up"));
    }

    #[test]
    fn a_veth_without_carrier_points_at_its_peer() {
        let [mut facts, _] = fit().ports;
        let mut link = facts.link.clone().unwrap();
        link.status.carrier = false;
        let prefix = Some("ip netns exec cli ".to_owned());
        facts.peer = Some(Peer { name: "v0".into(), prefix, inside: None });
        let remedy = state(&facts, &link).remedy;
        assert_eq!(remedy.as_deref(), Some("ip netns exec cli ip link set dev v0 up"));
    }

    #[test]
    fn devices_other_than_ethernet_are_refused() {
        let findings = after(|link| link.status.ethernet = false);
        assert_eq!(worst(&findings).severity, Severity::Blocker);
    }

    #[test]
    fn drivers_set_expectations() {
        for (driver, words, severity) in [
            ("ice", "zero copy since Linux 5.5", Severity::Ok),
            ("veth", "copied once each way", Severity::Ok),
            ("r8169", "generic XDP", Severity::Note),
            ("", "an unknown driver: not known to run XDP itself", Severity::Note),
        ] {
            let findings = after(|link| link.driver.name = driver.into());
            let finding = findings.iter().find(|finding| finding.what.contains(words)).unwrap();
            assert!(finding.what.contains(driver), "{}", finding.what);
            assert_eq!(finding.severity, severity);
        }
    }

    #[test]
    fn short_rings_are_lengthened_as_far_as_they_go() {
        let of = |rx, rx_max| {
            after(|link| link.rings = Some(Rings { rx, rx_max, tx: 512, tx_max: 512 }))
        };
        let remedy = |findings: Vec<Finding>| findings.into_iter().find_map(|one| one.remedy);
        assert_eq!(remedy(of(256, 4096)).as_deref(), Some("ethtool -G a rx 1024"));
        assert_eq!(remedy(of(256, 512)).as_deref(), Some("ethtool -G a rx 512"));
        assert_eq!(remedy(of(512, 512)), None);
    }

    #[test]
    fn a_program_in_the_way_is_refused_with_the_word_that_detaches_it() {
        for (mode, word) in [
            (XdpMode::Native, "xdpdrv"),
            (XdpMode::Generic, "xdpgeneric"),
            (XdpMode::Hardware, "xdpoffload"),
        ] {
            let findings = after(|link| link.status.xdp.push(XdpProgram { mode, id: 7 }));
            let worst = worst(&findings);
            assert_eq!(worst.severity, Severity::Blocker);
            assert_eq!(worst.remedy, Some(format!("ip link set dev a {word} off")));
        }
    }

    #[test]
    fn a_program_before_tcx_is_not_in_the_way() {
        let [facts, _] = fit().ports;
        let mut link = facts.link.clone().unwrap();
        link.status.xdp.push(XdpProgram { mode: XdpMode::Native, id: 7 });
        let findings = judge(&facts, &link, &Wanted::default(), true);
        assert!(findings.iter().all(|finding| finding.severity <= Severity::Note));
        assert!(findings.iter().any(|finding| finding.what.contains("sees frames first")));
    }
}
