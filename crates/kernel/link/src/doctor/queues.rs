//! Queues: enough of them, equally many on both ports, none without a worker.
//!
//! One worker serves queue N of both ports. Traffic on a receive queue without a worker bypasses
//! the shaper, so the ports must have equal numbers of queues, and as many as are wanted. The XDP
//! plane has no workers: its program runs on all queues.

use super::{Finding, PortFacts, Wanted, WantedPlane};
use crate::Link;
use narrows_units::counted;

pub(super) fn judge_port(facts: &PortFacts, link: &Link, wanted: &Wanted) -> Vec<Finding> {
    [numbers(link, wanted), narrower_than_peer(facts, link, wanted.plane)]
        .into_iter()
        .flatten()
        .collect()
}

pub(super) fn numbers(link: &Link, wanted: &Wanted) -> Option<Finding> {
    let name = link.name();
    let queues = &link.queues;
    let (now, most) = (queues.now, queues.most.pairs());
    let has = format!("{} receive and {}", now.rx, counted(now.tx, "transmit queue"));
    if wanted.plane != WantedPlane::Xsk {
        return Some(Finding::ok(name, format!("has {has}")));
    }
    Some(match wanted.queues {
        Some(wanted) if wanted > now.pairs() && wanted > most => {
            let what = format!("has {has} and cannot have {wanted} of each");
            Finding::blocker(name, what).remedy(format!("--queues {most}"))
        }
        Some(wanted) if wanted > now.pairs() => {
            let what = format!("has {has}; {wanted} of each are wanted");
            Finding::blocker(name, what).remedy(queues.command(name, wanted))
        }
        Some(wanted) if wanted > 0 && wanted < now.rx => {
            let what = format!(
                "has {has}; what arrives in those beyond {wanted} has no worker and is not \
                 shaped"
            );
            Finding::warning(name, what).remedy(queues.command(name, wanted))
        }
        None if now.rx > now.tx => {
            let what = format!("has {has}; each worker needs one of each");
            Finding::blocker(name, what).remedy(queues.command(name, now.tx.max(1)))
        }
        _ if now.pairs() == 0 => Finding::blocker(name, "has no queues"),
        _ => Finding::ok(name, format!("has {has}")),
    })
}

/// A veth refuses native XDP while its peer has more transmit queues than it has receive
/// queues, since each of the former feeds one of the latter.
fn narrower_than_peer(facts: &PortFacts, link: &Link, plane: WantedPlane) -> Option<Finding> {
    let peer = facts.peer.as_ref()?;
    let rx = link.queues.now.rx;
    let tx = peer.inside?.queues.now.tx;
    (link.status.is_veth() && tx > rx).then(|| {
        let what = format!(
            "has {}, but its peer {} has {}: native XDP is refused",
            counted(rx, "receive queue"),
            peer.name,
            counted(tx, "transmit queue")
        );
        let finding = match plane {
            WantedPlane::Xsk => Finding::blocker(link.name(), what),
            // Its program runs in the stack in this case.
            WantedPlane::Xdp | WantedPlane::Host => Finding::note(link.name(), what),
        };
        finding.remedy(peer.ethtool("-L", &format!("tx {rx}")))
    })
}

pub(super) fn judge_pair(a: &Link, b: &Link, wanted: &Wanted, cpus: u32) -> Vec<Finding> {
    let workers = wanted.queues.unwrap_or(a.queues.now.pairs().min(b.queues.now.pairs()));
    [unequal(a, b, wanted), crowded(&[a, b], workers, cpus)].into_iter().flatten().collect()
}

/// Judges all devices of a router, with a worker for each queue number.
pub(super) fn judge_all(devices: &[&Link], wanted: &Wanted, cpus: u32) -> Vec<Finding> {
    let fewest = devices.iter().map(|device| device.queues.now.pairs()).min().unwrap_or(0);
    let mut findings = unequal_to_most(devices, wanted);
    findings.extend(crowded(devices, wanted.queues.unwrap_or(fewest), cpus));
    findings
}

/// Widens all devices to the widest if they can be, and otherwise narrows all to the narrowest.
fn unequal_to_most(devices: &[&Link], wanted: &Wanted) -> Vec<Finding> {
    let pairs = |device: &&&Link| device.queues.now.pairs();
    let (Some(widest), Some(narrowest)) =
        (devices.iter().max_by_key(pairs), devices.iter().min_by_key(pairs))
    else {
        return Vec::new();
    };
    let (most, fewest) = (widest.queues.now.pairs(), narrowest.queues.now.pairs());
    if most == fewest || wanted.queues.is_some() {
        return Vec::new();
    }
    let widens = devices.iter().all(|device| device.queues.most.pairs() >= most);
    let (target, model) = if widens { (most, widest) } else { (fewest.max(1), narrowest) };
    let odd = devices.iter().filter(|device| device.queues.now.pairs() != target);
    odd.map(|device| {
        let name = device.name();
        let (has, model) = (device.queues.now.pairs(), model.name());
        let what = format!("has {}, {model} has {target}", counted(has, "queue pair"));
        Finding::blocker(name, what).remedy(device.queues.command(name, target))
    })
    .collect()
}

/// Judges the only device, with a worker for each queue pair.
pub(super) fn judge_only(link: &Link, wanted: &Wanted, cpus: u32) -> Option<Finding> {
    crowded(&[link], wanted.queues.unwrap_or(link.queues.now.pairs()), cpus)
}

fn unequal(a: &Link, b: &Link, wanted: &Wanted) -> Option<Finding> {
    let (of_a, of_b) = (a.queues.now.pairs(), b.queues.now.pairs());
    if of_a == of_b || wanted.queues.is_some() {
        return None;
    }
    let (less, more) = if of_a < of_b { (a, b) } else { (b, a) };
    let fewer = of_a.min(of_b);
    let (less_name, name) = (less.name(), more.name());
    let what = format!("has {}, {less_name} has {fewer}", counted(of_a.max(of_b), "queue pair"));
    // More queues are better than fewer, if the device allows it.
    let remedy = if less.queues.most.pairs() >= of_a.max(of_b) {
        less.queues.command(less_name, of_a.max(of_b))
    } else {
        more.queues.command(name, fewer.max(1))
    };
    Some(Finding::blocker(name, what).remedy(remedy))
}

/// Workers that share a CPU function, but wait for each other.
fn crowded(devices: &[&Link], workers: u32, cpus: u32) -> Option<Finding> {
    (workers > cpus).then(|| {
        let what = format!(
            "{} share {} and will wait for each other",
            counted(workers, "worker"),
            counted(cpus, "CPU")
        );
        let command = |device: &&Link| device.queues.command(device.name(), cpus.max(1));
        let commands: Vec<_> = devices.iter().map(command).collect();
        Finding::warning("cpu", what).remedy(commands.join(" && "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use crate::doctor::facts::fit;
    use crate::peer::{Peer, PeerInside};
    use crate::{QueueCounts, Queues};

    fn link(rx: u32, tx: u32, most: u32) -> Link {
        let mut link = fit().ports[0].link.clone().unwrap();
        let most = Queues { rx: most, tx: most };
        link.queues = QueueCounts { now: Queues { rx, tx }, most, combined: false };
        link
    }

    fn want(queues: impl Into<Option<u32>>) -> Wanted {
        Wanted { queues: queues.into(), ..Wanted::default() }
    }

    #[test]
    fn numbers_of_queues_are_compared_with_the_wanted_ones() {
        use Severity::{Blocker, Ok, Warning};
        for (rx, tx, most, wanted, severity, remedy) in [
            (4, 4, 4, None, Ok, None),
            (4, 4, 4, Some(4), Ok, None),
            (4, 4, 8, Some(8), Blocker, Some("ethtool -L a rx 8 tx 8")),
            (4, 4, 4, Some(8), Blocker, Some("--queues 4")),
            (8, 8, 8, Some(4), Warning, Some("ethtool -L a rx 4 tx 4")),
            (4, 2, 4, None, Blocker, Some("ethtool -L a rx 2 tx 2")),
            (2, 4, 4, None, Ok, None),
            (0, 0, 0, None, Blocker, None),
        ] {
            let finding = numbers(&link(rx, tx, most), &want(wanted)).unwrap();
            assert_eq!(finding.severity, severity, "{}", finding.what);
            assert_eq!(finding.remedy.as_deref(), remedy, "{}", finding.what);
        }
    }

    #[test]
    fn unequal_ports_are_widened_where_possible_and_narrowed_where_not() {
        let mut wide = link(8, 8, 8);
        wide.status.name = "b".into();
        let can = unequal(&link(4, 4, 8), &wide, &want(None)).unwrap();
        assert_eq!(can.remedy.as_deref(), Some("ethtool -L a rx 8 tx 8"));
        let cannot = unequal(&link(4, 4, 4), &wide, &want(None)).unwrap();
        assert_eq!(cannot.remedy.as_deref(), Some("ethtool -L b rx 4 tx 4"));
        assert_eq!(cannot.severity, Severity::Blocker);
        assert_eq!(unequal(&wide, &wide, &want(None)), None);
    }

    #[test]
    fn all_devices_of_a_router_are_widened_where_possible_and_narrowed_where_not() {
        let named = |name: &str, now, most| {
            let mut link = link(now, now, most);
            link.status.name = name.into();
            link
        };
        let remedies = |devices: &[Link], queues: Option<u32>| {
            let devices: Vec<&Link> = devices.iter().collect();
            let findings = judge_all(&devices, &want(queues), 8);
            assert!(findings.iter().all(|finding| finding.severity == Severity::Blocker));
            findings.into_iter().map(|finding| finding.remedy.unwrap()).collect::<Vec<_>>()
        };
        let (a, b, c) = (named("a", 4, 8), named("b", 8, 8), named("c", 2, 8));
        let all = [a.clone(), b.clone(), c];
        assert_eq!(remedies(&all, None), ["ethtool -L a rx 8 tx 8", "ethtool -L c rx 8 tx 8"]);
        assert!(remedies(&all, Some(2)).is_empty(), "whatever is wanted is judged for each");
        let all = [a, b, named("c", 2, 2)];
        assert_eq!(remedies(&all, None), ["ethtool -L a rx 2 tx 2", "ethtool -L b rx 2 tx 2"]);
        assert!(remedies(&all[..1], None).is_empty() && remedies(&[], None).is_empty());
    }

    #[test]
    fn a_veth_narrower_than_its_peer_cannot_run_native_xdp() {
        let mut veth = link(2, 2, 4);
        veth.status.kind = Some("veth".into());
        let [mut facts, _] = fit().ports;
        let now = Queues { rx: 4, tx: 4 };
        let queues = QueueCounts { now, most: now, combined: false };
        facts.peer = Some(Peer {
            name: "v0".into(),
            prefix: Some("ip netns exec cli ".into()),
            inside: Some(PeerInside { queues, ..PeerInside::default() }),
        });
        let finding = narrower_than_peer(&facts, &veth, WantedPlane::Xsk).unwrap();
        assert_eq!(finding.severity, Severity::Blocker);
        assert_eq!(finding.remedy.as_deref(), Some("ip netns exec cli ethtool -L v0 tx 2"));
        veth.queues.now = now;
        assert_eq!(narrower_than_peer(&facts, &veth, WantedPlane::Xsk), None);
    }

    #[test]
    fn more_workers_than_cpus_are_warned_of() {
        let port = link(8, 8, 8);
        assert_eq!(crowded(&[&port, &port], 4, 4), None);
        let finding = crowded(&[&port, &port], 8, 4).unwrap();
        assert_eq!(finding.severity, Severity::Warning);
        let remedy = "ethtool -L a rx 4 tx 4 && ethtool -L a rx 4 tx 4";
        assert_eq!(finding.remedy.as_deref(), Some(remedy));
        let finding = judge_only(&port, &want(None), 4).unwrap();
        assert_eq!(finding.remedy.as_deref(), Some("ethtool -L a rx 4 tx 4"));
        assert_eq!(judge_only(&port, &want(4), 4), None);
    }
}
