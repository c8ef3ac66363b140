//! The intrusive queue that every qdisc is made of.

use crate::{PacketId, Packets};
use narrows_units::Bytes;

/// How much stands in a queue.
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

/// A first-in-first-out queue of packets, linked through their metadata.
///
/// 24 bytes, no memory of its own. It is `Copy` only so that a table can work on a queue
/// that it holds itself; two copies must never both be used.
///
/// Cost: push and pop each write one packet's metadata; O(1).
#[derive(Clone, Copy, Debug)]
pub struct Fifo {
    head: PacketId,
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

    /// How much stands in it.
    #[inline]
    pub const fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// The packet that leaves next.
    #[inline]
    pub fn front(&self) -> Option<PacketId> {
        (self.head != PacketId::NONE).then_some(self.head)
    }

    /// Puts `id`, which stands in no queue, behind all others.
    #[inline]
    pub fn push_back(&mut self, packets: &mut Packets, id: PacketId) {
        let meta = packets.meta_mut(id);
        meta.next = PacketId::NONE;
        let len = Bytes::from(meta.len);
        if self.tail == PacketId::NONE {
            self.head = id;
        } else {
            packets.meta_mut(self.tail).next = id;
        }
        self.tail = id;
        self.backlog.packets += 1;
        self.backlog.bytes.0 += len.0;
    }

    /// Takes the packet that leaves next.
    #[inline]
    pub fn pop_front(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let id = self.front()?;
        let meta = packets.meta_mut(id);
        self.head = meta.next;
        meta.next = PacketId::NONE;
        let len = Bytes::from(meta.len);
        if self.head == PacketId::NONE {
            self.tail = PacketId::NONE;
        }
        self.backlog.packets -= 1;
        self.backlog.bytes.0 -= len.0;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_units::Nanos;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// The oracle is a `VecDeque` of lengths: whatever is pushed and popped, both agree.
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
