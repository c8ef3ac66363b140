//! The virtual queue of each class: how long a packet may have to wait, and when its AQM signals.
//!
//! *Policing.* Nothing waits. The virtual queue is what a class may be sold ahead of time, and its
//! AQM signals near the end of that.
//!
//! *Shaping.* Packets wait for their departure times. Flows get their shares by how far each is
//! ahead (`programs/flow_clock.h`), so the AQM signals where it does in a queue. The limit has room
//! for super-packets, which are one packet each: TCP keeps two of them with the device.

use crate::Enforcement;
use crate::flatten::Queue;
use crate::rates::Rates;
use narrows_units::{Bytes, Nanos};

/// The shortest virtual queue: what a burst of a driver's poll and a CPU that waits need.
const LIMIT_MIN: Nanos = Nanos::from_millis(5);
/// The default maximum where nothing waits. The rate may be exceeded by this much at once, so it
/// must not be long; and a flow can make up for only this much after a drop, so it must not be
/// short. docs/xdp.md has the effect of both.
const LIMIT_MAX: Nanos = Nanos::from_millis(100);
/// The longest virtual queue if a `tbf` sets it, rather than a qdisc's default.
const LIMIT_MAX_STATED: Nanos = Nanos::from_millis(250);
/// Where nothing waits, the AQM's target is all of the virtual queue but this part, unless a
/// `codel` sets another one. In this part a flow grows until the sender notices the drop.
const TARGET_BELOW: u64 = 10;
/// How long senders have to respond, unless a `codel` says so (RFC 8289).
const INTERVAL: Nanos = Nanos::from_millis(100);

/// Where packets wait: how long, if no rate is so low that a few super-packets take longer.
const WAIT: Nanos = Nanos::from_millis(100);
/// The longest wait. A packet of a sender that has given it up is of no use.
const WAIT_MAX: Nanos = Nanos::from_secs(1);
/// Room for four super-packets of 64 KiB.
const SUPER_PACKETS: Bytes = Bytes(256 * 1024);
/// The AQM's target where packets wait, unless a `codel` or `fq_codel` says another (RFC 8289).
const TARGET: Nanos = Nanos::from_millis(5);
/// A delay by two frames is no queue (as in `sch_cake`).
const FRAMES: Bytes = Bytes(2 * 1514);
/// Credit after a pause, at least: the timers behind are not more exact.
const BURST_MIN: Nanos = Nanos::from_millis(1);

/// The parameters of a class, in time at its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct VirtualQueue {
    /// What would wait longer is dropped.
    pub(crate) limit: Nanos,
    /// The delay from which the AQM signals.
    pub(crate) target: Nanos,
    /// How long senders have to respond.
    pub(crate) interval: Nanos,
    /// Credit after a pause.
    pub(crate) burst: Nanos,
}

/// That of a leaf with these rates.
pub(crate) fn of_leaf(queue: &Queue, rates: &Rates, enforcement: Enforcement) -> VirtualQueue {
    if enforcement.is_shaping() { shaped(queue, rates) } else { policed(queue, rates) }
}

/// That of a class with others below it, whose [limit](inner_limit) this is.
pub(crate) fn of_inner(limit: Nanos, rates: &Rates, enforcement: Enforcement) -> VirtualQueue {
    let burst = if enforcement.is_shaping() { rates.burst.max(BURST_MIN) } else { rates.burst };
    VirtualQueue { limit, target: Nanos::MAX, interval: INTERVAL, burst }
}

/// The limit of classes with others below them, of a tree whose leaves have these.
pub(crate) fn inner_limit(leaves: impl Iterator<Item = Nanos>, enforcement: Enforcement) -> Nanos {
    if enforcement.is_shaping() {
        // Whatever a leaf has booked has room above it.
        leaves.max().unwrap_or(WAIT)
    } else {
        // Twice a leaf's: those that borrow may use half of it.
        Nanos(2 * LIMIT_MAX.0)
    }
}

fn policed(queue: &Queue, rates: &Rates) -> VirtualQueue {
    let most = if queue.is_stated { LIMIT_MAX_STATED } else { LIMIT_MAX };
    let limit = rates.ceil.time_for(queue.limit).clamp(LIMIT_MIN, most);
    let [target, interval] =
        queue.aqm.unwrap_or([Nanos(limit.0 - limit.0 / TARGET_BELOW), INTERVAL]);
    VirtualQueue { limit, target, interval, burst: rates.burst }
}

fn shaped(queue: &Queue, rates: &Rates) -> VirtualQueue {
    let super_packets = rates.ceil.time_for(SUPER_PACKETS).min(WAIT_MAX);
    let limit = if queue.is_stated {
        rates.ceil.time_for(queue.limit).clamp(super_packets.max(LIMIT_MIN), WAIT_MAX)
    } else {
        super_packets.max(WAIT)
    };
    let [target, interval] = queue.aqm.unwrap_or([TARGET, INTERVAL]);
    let target = target.max(rates.ceil.time_for(FRAMES));
    VirtualQueue { limit, target, interval, burst: rates.burst.max(BURST_MIN) }
}
