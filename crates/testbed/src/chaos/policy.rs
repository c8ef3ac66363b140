//! The policies that take turns, and what each promises.

use super::frame::Way;
use super::limit::Limit;
use crate::bed::{PORT_A, PORT_B};
use narrows_units::{Bytes, Nanos, Rate};
use std::time::Duration;

/// A policy for both ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// Its name in the table of events.
    pub(super) name: &'static str,
    /// The qdisc of each port in tc's words; port B's shapes the way forth.
    forth: &'static str,
    back: &'static str,
    rates: [u64; 2],
    /// What may leave at once above the rate, in bytes.
    burst: u64,
    /// How long a packet may stand in its queue.
    hold: Duration,
}

/// What the way forth is offered, in bits per second: more than any policy passes.
pub(super) const OFFERED_FORTH: f64 = 70e6;
/// What the way back is offered: less than any passes, so that nothing there should be dropped.
pub(super) const OFFERED_BACK: f64 = 24e6;

/// All of them; a run begins with the first.
pub(super) const POLICIES: [Policy; 4] = [
    Policy {
        name: "tbf 60mbit",
        forth: "tbf rate 60mbit burst 64000 latency 30ms",
        back: "tbf rate 40mbit burst 64000 latency 30ms",
        rates: [60_000_000, 40_000_000],
        burst: 64_000,
        hold: Duration::from_millis(30),
    },
    Policy {
        name: "tbf 45mbit",
        forth: "tbf rate 45mbit burst 32000 latency 50ms",
        back: "tbf rate 30mbit burst 32000 latency 50ms",
        rates: [45_000_000, 30_000_000],
        burst: 32_000,
        hold: Duration::from_millis(50),
    },
    Policy {
        name: "tbf edt 55mbit",
        forth: "tbf rate 55mbit burst 64000 latency 30ms coordination edt",
        back: "tbf rate 35mbit burst 64000 latency 30ms coordination edt",
        rates: [55_000_000, 35_000_000],
        burst: 64_000,
        hold: Duration::from_millis(30),
    },
    Policy {
        name: "cake 50mbit",
        forth: "cake bandwidth 50mbit",
        back: "cake bandwidth 40mbit",
        rates: [50_000_000, 40_000_000],
        burst: 0,
        // Four megabytes at 50 Mbit/s: what its memory holds of flows that do not respond.
        hold: Duration::from_millis(700),
    },
];

impl Policy {
    /// The words of `narrows tc` that set it, one line for each port.
    pub(super) fn lines(&self) -> [String; 2] {
        [(PORT_B, self.forth), (PORT_A, self.back)]
            .map(|(port, qdisc)| format!("qdisc replace dev {port} root {qdisc}"))
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
