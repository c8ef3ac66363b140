//! The smallest list of packets.

use crate::{PacketId, Packets};

/// A last-in-first-out list of packets, linked through their metadata.
///
/// Four bytes, all zero when empty, so that a table of a million of them costs nothing until it is
/// touched. Two copies must never both be used.
///
/// Cost: push and pop each write only the metadata of the packet itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stack(u32);

impl Stack {
    /// Whether it is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The packet on top.
    #[inline]
    pub const fn top(self) -> Option<PacketId> {
        match self.0 {
            0 => None,
            above => Some(PacketId(above - 1)),
        }
    }

    /// The stack as a number, zero when empty: the system provides zeroed memory for a table of
    /// these without touching it.
    #[inline]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The inverse of [`Stack::to_bits`].
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Pushes `id`, which must be in no list.
    #[inline]
    pub fn push(&mut self, packets: &mut Packets, id: PacketId) {
        packets.meta_mut(id).next = PacketId(self.0.wrapping_sub(1));
        self.0 = id.0 + 1;
    }

    /// Pops the packet on top.
    #[inline]
    pub fn pop(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let id = self.top()?;
        let next = std::mem::replace(&mut packets.meta_mut(id).next, PacketId::NONE);
        self.0 = next.0.wrapping_add(1);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_units::Nanos;

    #[test]
    fn the_last_one_in_is_taken_first() {
        let mut packets = Packets::new(4);
        let mut stack = Stack::default();
        for id in [2, 0, 3].map(PacketId) {
            packets.arrive(id, 100, Nanos(1));
            stack.push(&mut packets, id);
        }
        assert_eq!(stack.top(), Some(PacketId(3)));
        let taken: Vec<u32> =
            std::iter::from_fn(|| stack.pop(&mut packets)).map(|id| id.0).collect();
        assert_eq!(taken, [3, 0, 2]);
        assert!(stack.is_empty());
    }

    #[test]
    fn what_was_taken_can_stand_elsewhere() {
        let mut packets = Packets::new(2);
        let (mut one, mut other) = (Stack::default(), Stack::default());
        for id in [0, 1].map(PacketId) {
            packets.arrive(id, 100, Nanos(1));
            one.push(&mut packets, id);
        }
        let id = one.pop(&mut packets).unwrap();
        other.push(&mut packets, id);
        assert_eq!((one.top(), other.top()), (Some(PacketId(0)), Some(PacketId(1))));
    }
}
