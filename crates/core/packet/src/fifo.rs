//! The intrusive queue of which all qdiscs are built.

use crate::{Meta, PacketId, Packets};
use narrows_units::Bytes;

/// The size of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// Packets queued.
    pub packets: u32,
    /// The sum of their frame lengths.
    pub bytes: Bytes,
}

impl Backlog {
    /// Whether nothing is queued.
    pub const fn is_empty(&self) -> bool {
        self.packets == 0
    }
}

impl std::ops::AddAssign for Backlog {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// A first-in-first-out queue of packets, linked through their metadata.
///
/// 24 bytes, no memory of its own. It is `Copy` only so that a table can work on a queue that it
/// holds itself; two copies must never both be used.
///
/// Cost: push and pop each write one packet's metadata; O(1).
#[derive(Clone, Copy, Debug)]
pub struct Fifo {
    head: PacketId,
    /// Meaningless without a head.
    tail: PacketId,
    backlog: Backlog,
}

impl Default for Fifo {
    fn default() -> Self {
        Self::new()
    }
}

impl Fifo {
    /// An empty queue.
    pub const fn new() -> Self {
        let backlog = Backlog { packets: 0, bytes: Bytes::ZERO };
        Self { head: PacketId::NONE, tail: PacketId::NONE, backlog }
    }

    /// Its size.
    #[inline]
    pub const fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// The packet at the head.
    #[inline]
    pub fn front(&self) -> Option<PacketId> {
        (self.head != PacketId::NONE).then_some(self.head)
    }

    /// The packet at the tail.
    #[inline]
    pub fn back(&self) -> Option<PacketId> {
        self.front().map(|_| self.tail)
    }

    /// Appends `id`, which must be in no queue.
    #[inline]
    pub fn push_back(&mut self, packets: &mut Packets, id: PacketId) {
        let len = packets.len(id);
        self.push_back_of(packets, id, len);
    }

    /// Appends `id`, which must be in no queue and is `len` bytes long. It has no successor, so
    /// only its new predecessor is written.
    #[inline]
    pub fn push_back_of(&mut self, packets: &mut Packets, id: PacketId, len: Bytes) {
        debug_assert_eq!(packets.meta(id).next, PacketId::NONE);
        debug_assert_eq!(packets.len(id), len);
        if self.head == PacketId::NONE {
            self.head = id;
        } else {
            packets.meta_mut(self.tail).next = id;
        }
        self.tail = id;
        self.backlog.packets += 1;
        self.backlog.bytes.0 += len.0;
    }

    /// The successor of `id`, which is in this queue.
    #[inline]
    pub fn behind(&self, packets: &Packets, id: PacketId) -> Option<PacketId> {
        let next = packets.meta(id).next;
        (next != PacketId::NONE).then_some(next)
    }

    /// Removes the successor of `id`, or the head for `None`.
    pub fn remove_behind(
        &mut self,
        packets: &mut Packets,
        id: Option<PacketId>,
    ) -> Option<PacketId> {
        let Some(before) = id else { return self.pop_front(packets) };
        let removed = self.behind(packets, before)?;
        let meta = packets.meta_mut(removed);
        let next = std::mem::replace(&mut meta.next, PacketId::NONE);
        let len = Bytes::from(meta.len);
        packets.meta_mut(before).next = next;
        if next == PacketId::NONE {
            self.tail = before;
        }
        self.backlog.packets -= 1;
        self.backlog.bytes.0 -= len.0;
        Some(removed)
    }

    /// Removes the head.
    #[inline]
    pub fn pop_front(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let id = self.front()?;
        self.take_front(packets.meta_mut(id));
        Some(id)
    }

    /// Removes the head, whose metadata is `meta`.
    #[inline]
    pub fn take_front(&mut self, meta: &mut Meta) {
        self.head = std::mem::replace(&mut meta.next, PacketId::NONE);
        self.backlog.packets -= 1;
        self.backlog.bytes.0 -= Bytes::from(meta.len).0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_units::Nanos;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn a_packet_can_be_taken_out_of_the_middle_and_from_the_end() {
        let mut packets = Packets::new(4);
        let mut queue = Fifo::new();
        for id in 0..4 {
            packets.arrive(PacketId(id), 100 + id, Nanos::ZERO);
            queue.push_back(&mut packets, PacketId(id));
        }
        assert_eq!(queue.behind(&packets, PacketId(1)), Some(PacketId(2)));
        assert_eq!(queue.remove_behind(&mut packets, Some(PacketId(0))), Some(PacketId(1)));
        assert_eq!(queue.remove_behind(&mut packets, Some(PacketId(2))), Some(PacketId(3)));
        assert_eq!(queue.remove_behind(&mut packets, Some(PacketId(2))), None);
        queue.push_back(&mut packets, PacketId(1));
        assert_eq!(queue.remove_behind(&mut packets, None), Some(PacketId(0)));
        assert_eq!(queue.backlog(), Backlog { packets: 2, bytes: Bytes(203) });
        assert_eq!(queue.pop_front(&mut packets), Some(PacketId(2)));
        assert_eq!(queue.pop_front(&mut packets), Some(PacketId(1)));
        assert_eq!(queue.pop_front(&mut packets), None);
    }

    proptest! {
        /// The oracle is a `VecDeque` of lengths: both agree after any pushes and pops.
        #[test]
        fn a_fifo_is_a_fifo(pushes in prop::collection::vec(prop::option::of(0u32..70_000), 1..200)) {
            let mut packets = Packets::new(pushes.len() as u32);
            let mut queue = Fifo::new();
            let mut model = VecDeque::new();
            for (index, push) in pushes.into_iter().enumerate() {
                let id = PacketId(index as u32);
                match push {
                    Some(len) => {
                        packets.arrive(id, len, Nanos::ZERO);
                        queue.push_back(&mut packets, id);
                        model.push_back((id, u64::from(len)));
                    }
                    None => {
                        let popped = queue.pop_front(&mut packets);
                        prop_assert_eq!(popped, model.pop_front().map(|(id, _)| id));
                    }
                }
                prop_assert_eq!(queue.front(), model.front().map(|(id, _)| *id));
                prop_assert_eq!(queue.backlog().packets as usize, model.len());
                prop_assert_eq!(queue.backlog().bytes.0, model.iter().map(|(_, len)| len).sum::<u64>());
            }
        }
    }
}
