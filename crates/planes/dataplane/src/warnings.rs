//! Problems of the ports while they are joined: traffic that bypasses the limit, or cannot pass. A
//! warning is logged when it begins, and `narrows show` lists it for as long as it lasts.

use crate::device::DeviceFacts;
use crate::events::Events;
use crate::plane::Plane;
use narrows_forwarding::{Forwarding, PerPort};
use narrows_units::counted;

/// The problems of the ports of `forwarding` that `plane` joins.
pub(crate) fn of_ports(plane: &dyn Plane, forwarding: &Forwarding) -> Vec<String> {
    let devices = plane.devices();
    let served = plane.queues() as u32;
    let unserved = devices.iter().filter_map(|device| unserved_queues(device, served));
    // In a router and a switch ports may have any: the kernel decides about what is too long.
    let pairs = forwarding.ids().step_by(2).filter_map(|port| {
        let ends = [port, forwarding.across(port)?];
        Some(ends.map(|port| &devices[forwarding.device_of(port)]))
    });
    let uncharged = plane.slow_path_refusal().map(uncharged);
    let policing = plane.policing_at_egress();
    unserved.chain(pairs.filter_map(unequal_mtus)).chain(uncharged).chain(policing).collect()
}

/// A worker needs a queue of each direction, so receive queues beyond the transmit queues have
/// none.
fn unserved_queues(port: &DeviceFacts, served: u32) -> Option<String> {
    let DeviceFacts { name, counts, .. } = port;
    let rx = counts.now.rx;
    (rx > served).then(|| {
        format!(
            "{name} has {}, of which {} served: frames on the others bypass the limit; try: {}",
            counted(rx, "receive queue"),
            if served == 1 { "1 is".to_owned() } else { format!("{served} are") },
            counts.command(name, served)
        )
    })
}

fn uncharged(why: &str) -> String {
    format!(
        "what the kernel itself sends through the ports is not charged to their limits: no program \
         can be attached at their egress, which needs Linux 6.6 or newer: {why}"
    )
}

fn unequal_mtus(ports: [&DeviceFacts; 2]) -> Option<String> {
    let [a, b] = ports;
    let (less, more) = if a.mtu < b.mtu { (a, b) } else { (b, a) };
    (less.mtu != more.mtu).then(|| {
        format!(
            "{} has MTU {}, but {} has {}: larger packets are dropped silently; try: ip \
             link set dev {} mtu {}",
            more.name, more.mtu, less.name, less.mtu, more.name, less.mtu
        )
    })
}

/// Notices frames that arrive on queues without a worker.
#[derive(Default)]
pub(crate) struct Bypass {
    ports: PerPort<Unserved>,
}

/// Frames of a port that no worker got.
#[derive(Clone, Default)]
struct Unserved {
    last: u64,
    since: Option<u64>,
}

impl Bypass {
    /// Takes the counts of each port, once per second, and reports when frames start to bypass the
    /// limit and when they stop.
    pub(crate) fn sample(
        &mut self,
        unserved: &PerPort<u64>,
        ports: &Forwarding,
        events: &mut Events,
    ) {
        self.ports.resize(unserved.len(), Unserved::default());
        for (id, &now) in unserved.iter_enumerated() {
            let Unserved { last, since } = &mut self.ports[id];
            let port = ports.name(id);
            match *since {
                None if now > *last => {
                    *since = Some(*last);
                    events.warn(format!(
                        "{port}: frames arrive on queues without a worker and bypass the limit"
                    ));
                }
                Some(began) if now == *last => {
                    *since = None;
                    events.say(format!(
                        "{port}: {} bypassed the limit",
                        counted(now - began, "frame")
                    ));
                }
                _ => {}
            }
            *last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_link::{QueueCounts, Queues};

    fn port(name: &str, mtu: u32, rx: u32, tx: u32) -> DeviceFacts {
        let now = Queues { rx, tx };
        DeviceFacts {
            name: name.into(),
            ifindex: 1,
            mac: [2; 6],
            way_in: Default::default(),
            mtu,
            queues: now.pairs(),
            counts: QueueCounts { now, most: now, combined: false },
            driver: "ice".into(),
            headerless: false,
            rx_ring: 0,
        }
    }

    #[test]
    fn receive_queues_without_a_worker_are_named_with_the_command() {
        let said = unserved_queues(&port("eth1", 1500, 8, 4), 4).unwrap();
        assert!(said.starts_with("eth1 has 8 receive queues, of which 4 are served"), "{said}");
        assert!(said.ends_with("ethtool -L eth1 rx 4 tx 4"), "{said}");
        assert_eq!(unserved_queues(&port("eth1", 1500, 4, 8), 4), None);
    }

    #[test]
    fn a_slow_path_without_limits_is_told_with_what_it_needs() {
        let said = uncharged("Invalid argument");
        assert!(said.contains("is not charged") && said.contains("Linux 6.6"), "{said}");
        assert!(said.ends_with("Invalid argument"), "{said}");
    }

    #[test]
    fn the_larger_of_two_mtus_is_named() {
        let (a, b) = (port("eth1", 1500, 1, 1), port("eth2", 9000, 1, 1));
        assert!(unequal_mtus([&a, &b]).unwrap().starts_with("eth2 has MTU 9000"));
        assert_eq!(unequal_mtus([&a, &a]), None);
    }

    #[test]
    fn bypassing_frames_are_reported_when_they_start_and_counted_when_they_stop() {
        let (mut bypass, mut events) = (Bypass::default(), Events::default());
        let ports = Forwarding::wire("eth1", "eth2").unwrap();
        for count in [0, 7, 9, 9, 9] {
            bypass.sample(&vec![0, count].into(), &ports, &mut events);
        }
        let said = events.list();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("eth2: frames arrive on queues without a worker"), "{said:?}");
        assert_eq!(said[1], "eth2: 9 frames bypassed the limit");
    }
}
