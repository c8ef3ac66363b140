//! Offloads that change what XDP sees.
//!
//! An offload defers work to a later stage. XDP on receive comes before that stage, and AF_XDP on
//! transmit after it, so the work is never done. The ports' own transmit offloads do not matter:
//! they apply to what the local stack sends, and AF_XDP frames are sent as they are.

use super::drivers::support;
use super::{Finding, PortFacts, Wanted};
use crate::{Harm, Link, Offload};
use narrows_escape::shell;

/// `at_tcx` tells whether programs run behind the driver.
pub(super) fn judge(
    facts: &PortFacts,
    link: &Link,
    wanted: &Wanted,
    at_tcx: bool,
    harm: &Harm,
) -> Vec<Finding> {
    if link.status.is_veth() && !at_tcx {
        return peer(facts, link, wanted, harm);
    }
    // Generic XDP runs after the stack has merged packets; native XDP runs before.
    let generic = !support(&link.driver.name).native;
    let spoils = if at_tcx { Offload::AT_TCX } else { Offload::of_port(generic) };
    let on = spoils.iter().filter(|offload| offload.is_on(&link.offloads));
    let name = link.name();
    on.map(|&offload| {
        let does = match offload {
            Offload::RxVlan => "takes VLAN tags out of frames before XDP sees them",
            Offload::RxServiceTag => {
                "takes the outer tags of 802.1ad out of frames before XDP sees them"
            }
            Offload::GroHw => "merges received packets (hardware GRO) before XDP sees them",
            Offload::Lro if at_tcx => "merges received packets (LRO), which nothing reverses",
            Offload::Lro => "merges received packets (LRO), for which most drivers refuse XDP",
            _ => "merges received packets (GRO) before generic XDP sees them",
        };
        let remedy = format!("ethtool -K {} {} off", shell(name), offload.word());
        spoilt(name, &format!("{does}: {}", (harm.of)(offload)), remedy, wanted)
    })
    .collect()
}

/// An offload that corrupts frames is a blocker, unless it is about to be switched off.
fn spoilt(name: &str, what: &str, remedy: String, wanted: &Wanted) -> Finding {
    if wanted.repairs {
        let what = format!("{what}; `narrows run` switches it off while it runs");
        return Finding::note(name, what).remedy(remedy);
    }
    Finding::blocker(name, what).remedy(remedy)
}

/// A veth receives what its peer sent, with the peer's deferred work undone.
fn peer(facts: &PortFacts, link: &Link, wanted: &Wanted, harm: &Harm) -> Vec<Finding> {
    let name = link.name();
    let known = facts.peer.as_ref().and_then(|peer| peer.inside.map(|inside| (peer, inside)));
    let Some((peer, inside)) = known else {
        let peer = facts.peer.as_ref();
        let called = peer.map(|peer| format!(" {}", peer.name)).unwrap_or_default();
        let what = format!(
            "its peer{called} is in a network namespace that cannot be looked into; if it leaves \
             checksums to the device, TCP through Narrows does not connect"
        );
        let finding = Finding::warning(name, what);
        return vec![match peer {
            Some(peer) => finding.remedy(peer.ethtool("-K", Offload::PEER_WORDS)),
            None => finding.remedy(format!(
                "ethtool -K PEER {} (in its network namespace)",
                Offload::PEER_WORDS
            )),
        }];
    };
    let mut findings = Vec::new();
    for &offload in harm.of_peer.iter().filter(|offload| offload.is_on(&inside.offloads)) {
        let does = match offload {
            Offload::TxChecksum => "leaves checksums to a device that does not exist",
            Offload::TxServiceTag => {
                "keeps the outer tags of 802.1ad beside the frame, where XDP does not see them"
            }
            _ => "keeps VLAN tags beside the frame, where XDP does not see them",
        };
        let what = format!("its peer {} {does}: {}", peer.name, (harm.of)(offload));
        let remedy = peer.ethtool("-K", &format!("{} off", offload.word()));
        findings.push(spoilt(name, &what, remedy, wanted));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(name, format!("its peer {} sends whole frames", peer.name)));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Offloads;
    use crate::doctor::Severity;
    use crate::doctor::facts::fit;
    use crate::peer::{Peer, PeerInside};

    fn veth(peer: Option<Peer>) -> Vec<Finding> {
        let [mut facts, _] = fit().ports;
        let mut link = facts.link.clone().unwrap();
        link.status.kind = Some("veth".into());
        facts.peer = peer;
        judge(&facts, &link, &Wanted::default(), false, &Harm::WIRE)
    }

    fn v0(offloads: Offloads) -> Option<Peer> {
        let inside = Some(PeerInside { offloads, ..PeerInside::default() });
        Some(Peer { name: "v0".into(), prefix: Some("ip netns exec cli ".into()), inside })
    }

    #[test]
    fn a_veth_peer_that_leaves_checksums_undone_is_refused() {
        let findings = veth(v0(Offloads { tx_checksum: true, ..Offloads::default() }));
        assert_eq!(findings[0].severity, Severity::Blocker);
        assert_eq!(findings[0].remedy.as_deref(), Some("ip netns exec cli ethtool -K v0 tx off"));
    }

    #[test]
    fn a_veth_peer_that_keeps_tags_aside_is_refused() {
        let findings = veth(v0(Offloads { tx_vlan: true, ..Offloads::default() }));
        assert_eq!(findings[0].severity, Severity::Blocker);
        assert!(findings[0].remedy.as_ref().unwrap().ends_with("txvlan off"));
    }

    #[test]
    fn a_veth_peer_without_offloads_is_fine_with_any_of_the_port() {
        let findings = veth(v0(Offloads { tso: true, gso: true, ..Offloads::default() }));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Ok);
    }

    #[test]
    fn a_veth_peer_that_cannot_be_seen_is_warned_of_by_name_where_known() {
        let hidden = Peer { name: "v0".into(), prefix: None, inside: None };
        let named = veth(Some(hidden));
        assert_eq!(named[0].severity, Severity::Warning);
        assert!(named[0].what.starts_with("its peer v0 is in"), "{}", named[0].what);
        assert_eq!(veth(None)[0].severity, Severity::Warning);
    }

    #[test]
    fn offloads_about_to_be_switched_off_do_not_block() {
        let [facts, _] = fit().ports;
        let mut link = facts.link.clone().unwrap();
        link.offloads.rx_vlan = true;
        let severity = |repairs| {
            let wanted = Wanted { repairs, ..Wanted::default() };
            judge(&facts, &link, &wanted, false, &Harm::WIRE)[0].severity
        };
        assert_eq!((severity(false), severity(true)), (Severity::Blocker, Severity::Note));
    }

    #[test]
    fn a_stick_loses_frames_where_a_port_loses_tags() {
        let [facts, _] = fit().ports;
        let mut link = facts.link.clone().unwrap();
        (link.offloads.rx_vlan, link.offloads.lro) = (true, true);
        let of = |harm| judge(&facts, &link, &Wanted::default(), false, harm);
        let [port, stick] = [&Harm::WIRE, &Harm::STICK].map(of);
        assert_eq!(stick[0].severity, Severity::Blocker);
        assert!(stick[0].what.contains("pass Narrows by"), "{}", stick[0].what);
        assert_eq!(stick[0].remedy, port[0].remedy);
        assert_eq!(stick[1], port[1]);
    }

    #[test]
    fn offloads_of_hardware_are_judged_each() {
        let on = |offloads: Offloads, driver: &str| {
            let [facts, _] = fit().ports;
            let mut link = facts.link.clone().unwrap();
            link.offloads = offloads;
            link.driver.name = driver.into();
            judge(&facts, &link, &Wanted::default(), false, &Harm::WIRE)
                .into_iter()
                .filter_map(|finding| finding.remedy)
                .collect::<Vec<_>>()
        };
        let none = Offloads::default();
        assert_eq!(on(Offloads { rx_vlan: true, ..none }, "ice"), ["ethtool -K a rxvlan off"]);
        assert_eq!(on(Offloads { lro: true, ..none }, "ice"), ["ethtool -K a lro off"]);
        assert_eq!(on(Offloads { gro: true, ..none }, "r8169"), ["ethtool -K a gro off"]);
        let harmless = Offloads { gro: true, tx_checksum: true, tso: true, ..none };
        assert!(on(harmless, "ice").is_empty());
    }
}
