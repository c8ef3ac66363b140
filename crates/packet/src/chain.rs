//! The list for tables of lists that are taken whole.

use crate::{PacketId, Packets};

/// Packets of which the first that came is taken first, linked through a column of their own.
///
/// Eight bytes, all zero when empty, so that a table of many costs nothing until it is touched. It keeps no
/// account of what stands in it, and the packet behind another is written in a dense table
/// ([`Packets`] has four bytes a packet for it): whoever walks along a chain knows packet after packet
/// long before he has what is known of the first of them in his cache, and can fetch all of
/// it at the same time. Two copies must never both be used.
///
/// Cost: push and pop each touch four bytes, of the packet in front or of the packet itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chain {
    /// The first packet and the last, and one more; both zero when empty.
    head: u32,
    tail: u32,
}

impl Chain {
    /// Whether nothing is in it.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.head == 0
    }

    /// The packet that is taken next.
    #[inline]
    pub const fn front(self) -> Option<PacketId> {
        match self.head {
            0 => None,
            above => Some(PacketId(above - 1)),
        }
    }

    /// The same as a number, zero when empty: memory for a table of these is handed out zeroed by the
    /// system, untouched.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        (self.tail as u64) << 32 | self.head as u64
    }

    /// What [`Chain::to_bits`] was.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self { head: bits as u32, tail: (bits >> 32) as u32 }
    }

    /// Puts `id`, which stands nowhere, behind all others.
    #[inline]
    pub fn push_back(&mut self, packets: &mut Packets, id: PacketId) {
        let above = id.0 + 1;
        if self.is_empty() {
            self.head = above;
        } else {
            packets.set_behind(PacketId(self.tail - 1), above);
        }
        self.tail = above;
    }

    /// Takes the one that came first.
    #[inline]
    pub fn pop_front(&mut self, packets: &Packets) -> Option<PacketId> {
        let id = self.front()?;
        if self.head == self.tail {
            *self = Self::default();
        } else {
            self.head = packets.behind(id);
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// The oracle is a `VecDeque`. Packets that were taken come again, and the chain is kept as a
        /// number in between.
        #[test]
        fn a_chain_is_a_queue(pushes in prop::collection::vec(any::<bool>(), 1..300)) {
            let mut packets = Packets::new(8);
            let mut free: Vec<PacketId> = (0..8).map(PacketId).collect();
            let mut bits = 0;
            let mut model = VecDeque::new();
            for push in pushes {
                let mut chain = Chain::from_bits(bits);
                if push && !free.is_empty() {
                    let id = free.remove(free.len() / 2);
                    chain.push_back(&mut packets, id);
                    model.push_back(id);
                } else {
                    let popped = chain.pop_front(&packets);
                    prop_assert_eq!(popped, model.pop_front());
                    free.extend(popped);
                }
                prop_assert_eq!(chain.front(), model.front().copied());
                bits = chain.to_bits();
                prop_assert_eq!(bits == 0, model.is_empty());
            }
        }
    }
}
