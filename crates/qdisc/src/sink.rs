//! Where a qdisc puts what leaves: a batch, or the hand of a parent that takes one packet.

use narrows_packet::{Batch, PacketId};

/// See the module's documentation.
pub(crate) trait Sink {
    fn has_room(&self) -> bool;
    /// How many more it takes.
    fn room(&self) -> usize;
    fn push(&mut self, id: PacketId);
}

impl Sink for Batch {
    #[inline]
    fn has_room(&self) -> bool {
        Self::has_room(self)
    }

    #[inline]
    fn room(&self) -> usize {
        Self::room(self)
    }

    #[inline]
    fn push(&mut self, id: PacketId) {
        Self::push(self, id);
    }
}

impl Sink for Option<PacketId> {
    fn has_room(&self) -> bool {
        self.is_none()
    }

    fn room(&self) -> usize {
        usize::from(self.is_none())
    }

    fn push(&mut self, id: PacketId) {
        *self = Some(id);
    }
}
