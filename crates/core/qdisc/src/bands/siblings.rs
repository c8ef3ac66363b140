//! Classes that take turns on several queues of a class above: the share of each on this queue.
//!
//! If each queue gives its classes turns by quantum, the sum is not fair: a class with packets on
//! three queues gets three quanta. So the queues count on how many of them a class has packets
//! ([`Census`]), and on each of these it gets that part of its quantum. A queue's weight is the sum
//! of these parts ([`crate::Qdisc::weight`]).
//!
//! Cost: two atomic additions when a class gets its first packet or has sent its last, and once
//! every [`PERIOD`] two loads for each class in line.

use crate::{Census, HostKey, Weight};
use narrows_units::{Bytes, Nanos};

/// How often quanta are divided.
const PERIOD: Nanos = Nanos::from_micros(500);

/// What a queue's bands share with those of other queues.
pub(super) struct Siblings {
    census: Box<dyn Census>,
    next: Nanos,
    weight: Weight,
}

impl Siblings {
    pub(super) fn new(census: Box<dyn Census>) -> Self {
        Self { census, next: Nanos::ZERO, weight: Weight::ONE }
    }

    /// The queue's weight.
    pub(super) fn weight(&self) -> Weight {
        self.weight
    }

    /// The class `id` has packets here, or no longer has any.
    pub(super) fn count(&mut self, id: u16, has_packets: bool) {
        self.census.count(key(id), if has_packets { 1 } else { -1 });
    }

    /// The number of queues on which the class `id` has packets.
    pub(super) fn queues(&self, id: u16) -> u32 {
        self.census.flows(key(id)).max(1)
    }

    /// Whether it is time to divide quanta.
    #[inline]
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// Quanta were divided at `now`; the classes get `due` here in total.
    pub(super) fn have_met(&mut self, due: Bytes, now: Nanos) {
        self.next = now + PERIOD;
        self.weight = Weight(u32::try_from(due.0).unwrap_or(u32::MAX).max(1));
    }
}

/// The key of the class `id`.
fn key(id: u16) -> HostKey {
    HostKey::mixed((u64::from(id) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
