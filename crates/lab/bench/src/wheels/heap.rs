//! What everybody has: a binary heap, from the standard library.
//!
//! Cost: O(log n) an operation, 24 bytes per packet side by side, no rounding at all.

use narrows_packet::{PacketId, Packets};
use narrows_qdisc::pacing::{Calendar, Slot};
use narrows_units::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Packets in order of time, and of arrival if times are equal.
pub(super) struct Heap {
    entries: BinaryHeap<Reverse<Entry>>,
    arrivals: u64,
}

/// When, how many came before, who.
type Entry = (Nanos, u64, PacketId);

impl Heap {
    /// An empty one for up to `packets` packets.
    pub(super) fn new(packets: u32) -> Self {
        Self { entries: BinaryHeap::with_capacity(packets as usize), arrivals: 0 }
    }
}

impl Calendar for Heap {
    #[inline]
    fn insert(&mut self, _: &mut Packets, id: PacketId, slot: Slot, _now: Nanos) -> Nanos {
        let at = slot.at.max(slot.behind);
        self.entries.push(Reverse((at, self.arrivals, id)));
        self.arrivals += 1;
        at
    }

    #[inline]
    fn pop(&mut self, packets: &mut Packets, now: Nanos) -> Option<PacketId> {
        self.entries.peek().filter(|Reverse((at, ..))| *at <= now)?;
        self.drain(packets)
    }

    fn next(&self) -> Option<Nanos> {
        self.entries.peek().map(|Reverse((at, ..))| *at)
    }

    #[inline]
    fn drain(&mut self, _: &mut Packets) -> Option<PacketId> {
        self.entries.pop().map(|Reverse((.., id))| id)
    }

    fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The oracle is a sorted list: due packets leave by time, and by arrival if times are
        /// equal.
        #[test]
        fn due_packets_leave_in_order(times in prop::collection::vec(0_u64..50, 1..100)) {
            let mut packets = Packets::new(times.len() as u32);
            let mut heap = Heap::new(times.len() as u32);
            let mut model: Vec<(u64, u32)> = times.iter().copied().zip(0..).collect();
            for &(at, id) in &model {
                let slot = Slot { at: Nanos(at), behind: Nanos::ZERO, spacing: 0 };
                heap.insert(&mut packets, PacketId(id), slot, Nanos::ZERO);
            }
            model.sort_unstable();
            let mut model = model.into_iter().peekable();
            for now in [10, 20, 50] {
                while let Some((_, id)) = model.next_if(|(at, _)| *at <= now) {
                    prop_assert_eq!(heap.pop(&mut packets, Nanos(now)), Some(PacketId(id)));
                }
                prop_assert_eq!(heap.pop(&mut packets, Nanos(now)), None);
                prop_assert_eq!(heap.next(), model.peek().map(|(at, _)| Nanos(*at)));
            }
        }
    }

    #[test]
    fn packets_with_equal_times_leave_in_order() {
        let mut packets = Packets::new(1);
        let mut heap = Heap::new(1);
        let slot = Slot { at: Nanos(5), behind: Nanos(9), spacing: 0 };
        assert_eq!(heap.insert(&mut packets, PacketId(0), slot, Nanos::ZERO), Nanos(9));
        assert_eq!(heap.pop(&mut packets, Nanos(8)), None);
        assert_eq!(heap.pop(&mut packets, Nanos(9)), Some(PacketId(0)));
    }
}
