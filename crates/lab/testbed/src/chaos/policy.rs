//! The policies of a run, and the guarantees of each.

use super::frame::Way;
use super::limit::Limit;
use super::plane::Plane;
use crate::bed::{PORT_A, PORT_B};
use narrows_snapshot::Snapshot;
use narrows_units::{Bytes, Nanos, Rate};
use std::time::Duration;

/// A policy for both ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// Its name in the table of events.
    pub(super) name: &'static str,
    /// The qdisc of each port in tc's words, with `DEV` for the port; port B's shapes the forward
    /// direction.
    forth: &'static [&'static str],
    back: &'static [&'static str],
    rates: [u64; 2],
    /// The burst above the rate, in bytes.
    burst: u64,
    /// How long a packet may stand in its queue.
    hold: Duration,
}

/// The load offered in the forward direction, in bits per second: more than any policy passes.
pub(super) const OFFERED_FORTH: f64 = 70e6;
/// The load offered in the return direction: less than any policy passes, so nothing should be
/// dropped there.
pub(super) const OFFERED_BACK: f64 = 24e6;

/// All of them; a run starts with the first.
const POLICIES: [Policy; 6] = [
    Policy {
        name: "tbf 60mbit",
        forth: &["qdisc replace DEV root tbf rate 60mbit burst 64000 latency 30ms"],
        back: &["qdisc replace DEV root tbf rate 40mbit burst 64000 latency 30ms"],
        rates: [60_000_000, 40_000_000],
        burst: 64_000,
        hold: Duration::from_millis(30),
    },
    Policy {
        name: "tbf 45mbit",
        forth: &["qdisc replace DEV root tbf rate 45mbit burst 32000 latency 50ms"],
        back: &["qdisc replace DEV root tbf rate 30mbit burst 32000 latency 50ms"],
        rates: [45_000_000, 30_000_000],
        burst: 32_000,
        hold: Duration::from_millis(50),
    },
    Policy {
        name: "tbf edt 55mbit",
        forth: &[
            "qdisc replace DEV root tbf rate 55mbit burst 64000 latency 30ms coordination edt",
        ],
        back: &["qdisc replace DEV root tbf rate 35mbit burst 64000 latency 30ms coordination edt"],
        rates: [55_000_000, 35_000_000],
        burst: 64_000,
        hold: Duration::from_millis(30),
    },
    Policy {
        name: "cake 50mbit",
        forth: &["qdisc replace DEV root cake bandwidth 50mbit"],
        back: &["qdisc replace DEV root cake bandwidth 40mbit"],
        rates: [50_000_000, 40_000_000],
        burst: 0,
        // Four megabytes at 50 Mbit/s: what its memory holds for unresponsive flows.
        hold: Duration::from_millis(700),
    },
    Policy {
        name: "flowvalve 50mbit",
        // All classes are offered more than their shares: 20, 15 and 15 Mbit/s.
        forth: &[
            "qdisc replace DEV root handle 1: htb default 30 coordination flowvalve",
            "class replace DEV parent 1: classid 1:1 htb rate 50mbit burst 64000 cburst 64000",
            "class replace DEV parent 1:1 classid 1:10 htb rate 10mbit ceil 50mbit \
             burst 16000 cburst 64000 weight 2",
            "class replace DEV parent 1:1 classid 1:20 htb rate 10mbit ceil 50mbit \
             burst 16000 cburst 64000 borrow 1:10,1:30",
            "qdisc replace DEV parent 1:10 handle 10: pfifo limit 40",
            "qdisc replace DEV parent 1:20 handle 20: pfifo limit 40",
            "filter replace DEV parent 1: protocol ip pref 1 handle 1 flower ip_proto udp \
             src_port 20000-20010 classid 1:10",
            "filter replace DEV parent 1: protocol ip pref 2 handle 1 flower ip_proto udp \
             src_port 20011-20021 classid 1:20",
            // Last, as in the tree below.
            "class replace DEV parent 1:1 classid 1:30 htb rate 10mbit ceil 50mbit \
             burst 16000 cburst 64000 borrow none",
            "qdisc replace DEV parent 1:30 handle 30: pfifo limit 40",
        ],
        back: &[
            "qdisc replace DEV root handle 1: htb default 10 coordination flowvalve",
            "class replace DEV parent 1: classid 1:1 htb rate 35mbit burst 64000 cburst 64000",
            "class replace DEV parent 1:1 classid 1:10 htb rate 30mbit ceil 35mbit \
             burst 64000 cburst 64000",
        ],
        rates: [50_000_000, 35_000_000],
        // Three buckets with their bursts and an epoch each, as much again in those that lend, and
        // what classes lend in the epochs until they have measured each other: half of the rate in
        // the first, a quarter in the next, and so on, over some epochs of 3.5 ms.
        burst: 3 * (16_000 + 9_000) + 64_000 + 100_000,
        // As in the tree below.
        hold: Duration::from_millis(130),
    },
    Policy {
        name: "htb 55mbit",
        forth: &[
            "qdisc replace DEV root handle 1: htb default 30 coordination fair",
            "class replace DEV parent 1: classid 1:1 htb rate 55mbit burst 64000 cburst 64000",
            "class replace DEV parent 1:1 classid 1:10 htb rate 20mbit ceil 55mbit \
             burst 32000 cburst 64000 prio 0",
            "class replace DEV parent 1:1 classid 1:20 htb rate 15mbit ceil 40mbit \
             burst 32000 cburst 64000 prio 1",
            "qdisc replace DEV parent 1:10 handle 10: pfifo limit 40",
            "qdisc replace DEV parent 1:20 handle 20: pfifo limit 40",
            "filter replace DEV parent 1: protocol ip pref 1 handle 1 flower ip_proto udp \
             src_port 20000-20010 classid 1:10",
            "filter replace DEV parent 1: protocol ip pref 2 handle 1 flower ip_proto udp \
             src_port 20011-20021 classid 1:20",
            // The default class comes last: a filter that takes a flow out of a class would let it
            // overtake that class's backlog. Without a class, packets are sent at once.
            "class replace DEV parent 1:1 classid 1:30 htb rate 15mbit ceil 55mbit \
             burst 32000 cburst 64000 prio 2",
            "qdisc replace DEV parent 1:30 handle 30: pfifo limit 40",
        ],
        back: &[
            "qdisc replace DEV root handle 1: htb default 10 coordination fair",
            "class replace DEV parent 1: classid 1:1 htb rate 35mbit burst 64000 cburst 64000",
            "class replace DEV parent 1:1 classid 1:10 htb rate 30mbit ceil 35mbit \
             burst 64000 cburst 64000",
        ],
        rates: [55_000_000, 35_000_000],
        burst: 64_000,
        // Four queues of forty frames at the smallest assured rate of a class.
        hold: Duration::from_millis(130),
    },
];

/// The place of the one with classes, and of those by FlowValve's rules.
const CLASSES: usize = POLICIES.len() - 1;
const VALVES: usize = POLICIES.len() - 2;

/// Those that the plane in the driver can run. By FlowValve's rules there is no virtual queue.
const POLICED: [Policy; 4] = [
    POLICIES[0].policed(),
    POLICIES[1].policed(),
    Policy { hold: Duration::ZERO, ..POLICIES[VALVES] },
    POLICIES[CLASSES].policed(),
];
/// The longest virtual queue that a class has in the driver.
const VIRTUAL_MAX_MS: u64 = 100;

/// The policies of `plane`.
pub(super) fn policies(plane: Plane) -> &'static [Policy] {
    match plane {
        Plane::Xsk => &POLICIES,
        Plane::Xdp => &POLICED,
    }
}

/// The place of the policy with classes: the last.
pub(super) fn with_classes(plane: Plane) -> usize {
    policies(plane).len() - 1
}

impl Policy {
    /// Its promise in the driver: nothing is queued, and the capacity of a virtual queue passes at
    /// the start of an overload.
    const fn policed(self) -> Self {
        let queue_ms = self.hold.as_millis() as u64;
        let queue_ms = if queue_ms < VIRTUAL_MAX_MS { queue_ms } else { VIRTUAL_MAX_MS };
        let [forth, back] = self.rates;
        let rate = if forth > back { forth } else { back };
        Self { burst: self.burst + rate / 8 * queue_ms / 1000, hold: Duration::ZERO, ..self }
    }

    /// The words of `narrows tc` that set it, those of port B first.
    pub(super) fn lines(&self) -> Vec<String> {
        let of = |port: &str, lines: &[&str]| -> Vec<String> {
            lines.iter().map(|line| line.replace("DEV", &format!("dev {port}"))).collect()
        };
        [of(PORT_B, self.forth), of(PORT_A, self.back)].concat()
    }

    /// Whether it takes several commands to set, between which nothing is limited yet.
    pub(super) fn is_set_in_steps(&self) -> bool {
        self.forth.len() > 1
    }

    /// Whether an instance says of port B that this holds there.
    pub(super) fn is_in_force(&self, show: &Snapshot) -> bool {
        let rate = self.rates[Way::Forth.index()];
        show.port(PORT_B).is_some_and(|port| match self.is_set_in_steps() {
            // For a tree, the rate at the root is that of a class.
            true => port.qdisc == "htb",
            false => port.rate_set_bps == Some(rate),
        })
    }

    /// Its limit for one way.
    pub(super) fn limit(&self, way: Way) -> Limit {
        Limit { rate: Rate::from_bits_per_sec(self.rates[way.index()]), burst: Bytes(self.burst) }
    }

    /// How long a packet may stand in its queue.
    pub(super) fn hold(&self) -> Nanos {
        Nanos(self.hold.as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_set_at_both_ports() {
        assert_eq!(
            POLICIES[0].lines(),
            [
                "qdisc replace dev port-b root tbf rate 60mbit burst 64000 latency 30ms",
                "qdisc replace dev port-a root tbf rate 40mbit burst 64000 latency 30ms",
            ]
        );
        assert!(POLICIES[CLASSES].is_set_in_steps() && !POLICIES[0].is_set_in_steps());
        for policy in POLICIES {
            assert!(policy.lines().iter().all(|line| !line.contains("DEV")), "{policy:?}");
        }
    }

    #[test]
    fn in_the_driver_nothing_is_held_and_a_virtual_queue_passes_at_once() {
        let [policed, .., classes] = policies(Plane::Xdp) else { panic!() };
        assert_eq!((policed.name, policed.hold()), ("tbf 60mbit", Nanos::ZERO));
        // 30 ms of 60 Mbit/s, and at most 100 ms of what classes share.
        assert_eq!(policed.limit(Way::Back).burst, Bytes(64_000 + 225_000));
        assert_eq!(classes.limit(Way::Forth).burst, Bytes(64_000 + 687_500));
        let valves = &policies(Plane::Xdp)[2];
        assert_eq!((valves.name, valves.hold()), ("flowvalve 50mbit", Nanos::ZERO));
        assert_eq!(valves.limit(Way::Forth), POLICIES[VALVES].limit(Way::Forth));
        assert!(classes.is_set_in_steps());
    }
}
