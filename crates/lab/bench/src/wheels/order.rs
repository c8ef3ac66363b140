//! The cost of memory alone: packets in an order that is known beforehand.
//!
//! A ring of numbers side by side, in the order in which packets came. Taking a packet reveals the
//! ones behind it without touching them, so the processor waits for many of them at once, and a
//! packet costs its own cache line, its flow's, and the loops around. No structure that determines
//! the next packet can cost less.

use super::work::PACKET_TIME;
use narrows_packet::{PacketId, Packets};
use narrows_qdisc::pacing::{Calendar, Slot};
use narrows_units::Nanos;
use std::collections::VecDeque;

/// First in, first out, by number. It keeps no packet's time.
pub(super) struct Order {
    ring: VecDeque<PacketId>,
    /// When the next packet leaves.
    next: Nanos,
}

impl Order {
    /// An empty one for up to `packets` packets, which leave from `start` on.
    pub(super) fn new(packets: u32, start: Nanos) -> Self {
        Self { ring: VecDeque::with_capacity(packets as usize), next: start }
    }
}

impl Calendar for Order {
    #[inline]
    fn insert(&mut self, packets: &mut Packets, id: PacketId, slot: Slot, _now: Nanos) -> Nanos {
        packets.meta_mut(id).edt = slot.at;
        self.ring.push_back(id);
        slot.at
    }

    #[inline]
    fn pop(&mut self, _: &mut Packets, now: Nanos) -> Option<PacketId> {
        if self.next > now {
            return None;
        }
        self.next += PACKET_TIME;
        self.ring.pop_front()
    }

    fn next(&self) -> Option<Nanos> {
        self.ring.front().map(|_| self.next)
    }

    fn drain(&mut self, _: &mut Packets) -> Option<PacketId> {
        self.ring.pop_front()
    }

    fn memory(&self) -> usize {
        self.ring.capacity() * size_of::<PacketId>()
    }
}
