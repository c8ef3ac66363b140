//! Whether the XDP plane can run in the drivers.
//!
//! A program in one driver redirects frames to the other driver, and not every driver transmits
//! them. A driver that does not loses them silently. In this case the other port's program runs
//! behind its driver: at tcx, or before Linux 6.6 as generic XDP. That is slower, and frames go to
//! any device from there. Nothing here prevents a start.

use super::drivers::{Redirected, redirected};
use super::{Finding, PortFacts};
use crate::Link;
use narrows_units::counted;

/// A device, and whether its program runs behind its driver anyway.
pub(super) type Device<'a> = (&'a Link, &'a PortFacts, bool);

/// Judges devices of which each gets frames from the programs of all others. `cpus` handle frames.
pub(super) fn judge(devices: &[Device], cpus: u32) -> Vec<Finding> {
    let slower = match devices.len() {
        ..=2 => "the other port's program runs behind its driver, which is slower",
        _ => "the other devices' programs run behind their drivers, which is slower",
    };
    judge_with(devices, cpus, slower)
}

/// Judges the ports of a host, which get frames of others only where they balance services.
pub(super) fn judge_of_host(devices: &[Device], cpus: u32) -> Vec<Finding> {
    let lost =
        "packets of services that arrive at other ports do not reach servers behind this one";
    judge_with(devices, cpus, lost)
}

fn judge_with(devices: &[Device], cpus: u32, otherwise: &str) -> Vec<Finding> {
    let gets = |at: usize| {
        let is_other = |(other, (_, _, at_tcx)): (usize, &Device)| other != at && !at_tcx;
        devices.iter().enumerate().any(is_other)
    };
    let egresses = devices.iter().enumerate().filter(|(at, _)| gets(*at));
    egresses.map(|(_, (link, port, _))| egress(link, port, cpus, otherwise)).collect()
}

/// Judges a port as one where frames leave.
fn egress(link: &Link, port: &PortFacts, cpus: u32, otherwise: &str) -> Finding {
    let (name, driver) = (link.name(), &link.driver);
    let takes = || Finding::ok(name, format!("{driver} sends what XDP programs redirect to it"));
    match redirected(&driver.name) {
        Redirected::Sent => takes(),
        Redirected::ByQueue if link.queues.now.tx >= cpus => takes(),
        Redirected::ByQueue => {
            let what = format!(
                "{driver} has {}, and sends no redirected frames for the others of {cpus} CPUs: \
                 {otherwise}",
                counted(link.queues.now.tx, "queue")
            );
            let finding = Finding::note(name, what);
            match link.queues.most.pairs() >= cpus {
                true => finding.remedy(link.queues.command(name, cpus)),
                false => finding,
            }
        }
        Redirected::Unknown if link.status.is_veth() => veth(name, port, otherwise),
        Redirected::Unknown => {
            let what = format!("{driver} is not known to send redirected frames: {otherwise}");
            Finding::note(name, what)
        }
    }
}

fn veth(name: &str, port: &PortFacts, otherwise: &str) -> Finding {
    let Some(peer) = &port.peer else {
        let what = format!("takes redirected frames if its peer has GRO on; otherwise {otherwise}");
        return Finding::note(name, what);
    };
    match &peer.inside {
        Some(inside) if inside.offloads.gro => Finding::ok(
            name,
            format!("takes redirected frames, as its peer {} has GRO on", peer.name),
        ),
        _ => {
            let what = format!(
                "takes redirected frames only while its peer {} has GRO on; otherwise {otherwise}",
                peer.name
            );
            Finding::note(name, what).remedy(peer.ethtool("-K", "gro on"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use crate::doctor::facts::fit;
    use crate::peer::{Peer, PeerInside};
    use crate::{Offloads, Queues};

    /// The finding about a port with this driver and this many queues, on a host with 8 CPUs.
    fn of(driver: &str, queues: u32) -> Finding {
        let [facts, _] = fit().ports;
        let mut link = facts.link.clone().unwrap();
        link.driver.name = driver.into();
        link.queues.now = Queues { rx: queues, tx: queues };
        link.queues.most = Queues { rx: 16, tx: 16 };
        egress(&link, &facts, 8, "slower")
    }

    #[test]
    fn a_driver_takes_frames_or_the_plane_runs_in_the_stack() {
        for (driver, queues, severity, remedy) in [
            ("igb", 2, Severity::Ok, None),
            ("i40e", 8, Severity::Ok, None),
            ("i40e", 4, Severity::Note, Some("ethtool -L a combined 8")),
            ("e1000e", 1, Severity::Note, None),
        ] {
            let finding = of(driver, queues);
            assert_eq!(finding.severity, severity, "{}", finding.what);
            assert_eq!(finding.remedy.as_deref(), remedy, "{}", finding.what);
        }
    }

    #[test]
    fn a_veth_takes_them_while_its_peer_merges() {
        let [mut facts, _] = fit().ports;
        let mut link = facts.link.clone().unwrap();
        link.status.kind = Some("veth".into());
        link.driver.name = "veth".into();
        let mut with = |gro| {
            let offloads = Offloads { gro, ..Offloads::default() };
            let inside = Some(PeerInside { offloads, ..PeerInside::default() });
            facts.peer = Some(Peer { name: "v0".into(), prefix: Some(String::new()), inside });
            egress(&link, &facts, 8, "slower")
        };
        assert_eq!(with(true).severity, Severity::Ok);
        assert_eq!(with(false).remedy.as_deref(), Some("ethtool -K v0 gro on"));
    }
}
