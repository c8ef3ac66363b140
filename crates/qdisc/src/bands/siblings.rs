//! Classes by turns on several queues of a class above: what each is due on this queue.
//!
//! Queues that each give their classes turns by quantum are not fair together: a class with packets
//! on three queues has three quanta. So queues count together on how many of them a class has
//! something to send ([`Census`]), and on each of these it is due that part of its quantum. A queue
//! weighs what its classes are due there ([`crate::Qdisc::weight`]).
//!
//! Cost: two atomic additions when a class gets its first packet or has sent its last, and once
//! every [`PERIOD`] two loads for each class in line.

use crate::{Census, HostKey, Weight};
use narrows_units::{Bytes, Nanos};

/// How often quanta are divided anew.
const PERIOD: Nanos = Nanos::from_micros(500);

/// A seat among the queues.
pub(super) struct Siblings {
    census: Box<dyn Census>,
    next: Nanos,
    weight: Weight,
}

impl Siblings {
    pub(super) fn new(census: Box<dyn Census>) -> Self {
        Self { census, next: Nanos::ZERO, weight: Weight::ONE }
    }

    /// What the queue weighs.
    pub(super) fn weight(&self) -> Weight {
        self.weight
    }

    /// The class of the number `id` has something to send here, or nothing any more.
    pub(super) fn count(&mut self, id: u16, has_packets: bool) {
        self.census.count(key(id), if has_packets { 1 } else { -1 });
    }

    /// On how many queues the class of the number `id` has something to send.
    pub(super) fn queues(&self, id: u16) -> u32 {
        self.census.flows(key(id)).max(1)
    }

    /// Whether it is time to divide quanta.
    #[inline]
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// At `now` quanta have been divided; what classes are due here is `due` in all.
    pub(super) fn have_met(&mut self, due: Bytes, now: Nanos) {
        self.next = now + PERIOD;
        self.weight = Weight(u32::try_from(due.0).unwrap_or(u32::MAX).max(1));
    }
}

/// That of the number `id`.
fn key(id: u16) -> HostKey {
    HostKey::mixed((u64::from(id) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
