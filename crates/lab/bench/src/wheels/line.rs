//! The floor: a queue that looks at no time but lets packets go one by one at 100 Gbit/s.

use super::work::PACKET_TIME;
use narrows_packet::{Fifo, PacketId, Packets};
use narrows_qdisc::pacing::{Calendar, Slot};
use narrows_units::Nanos;

/// First in, first out. It keeps no packet's time.
pub(super) struct Line {
    queue: Fifo,
    /// When the next packet leaves.
    next: Nanos,
}

impl Line {
    /// An empty one, from which packets leave from `start` on.
    pub(super) fn new(start: Nanos) -> Self {
        Self { queue: Fifo::new(), next: start }
    }
}

impl Calendar for Line {
    #[inline]
    fn insert(&mut self, packets: &mut Packets, id: PacketId, slot: Slot, _now: Nanos) -> Nanos {
        self.queue.push_back(packets, id);
        slot.at
    }

    #[inline]
    fn pop(&mut self, packets: &mut Packets, now: Nanos) -> Option<PacketId> {
        if self.next > now {
            return None;
        }
        self.next += PACKET_TIME;
        self.queue.pop_front(packets)
    }

    fn next(&self) -> Option<Nanos> {
        self.queue.front().map(|_| self.next)
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        self.queue.pop_front(packets)
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
    }
}
