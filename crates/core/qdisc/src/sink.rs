//! The destination of departing packets: a batch, or a parent that takes one packet.

use crate::{Next, Qdisc};
use narrows_packet::{Batch, PacketId, Packets};
use narrows_units::Nanos;

/// Where a qdisc puts departing packets.
pub(crate) trait Sink {
    fn has_room(&self) -> bool;
    /// How many more fit.
    fn room(&self) -> usize;
    fn push(&mut self, id: PacketId);
    /// Takes packets from `qdisc` while there is room, and passes each to `tell`.
    fn fill(
        &mut self,
        qdisc: &mut dyn Qdisc,
        packets: &mut Packets,
        now: Nanos,
        tell: impl FnMut(&Packets, PacketId),
    ) -> Next;
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

    #[inline]
    fn fill(
        &mut self,
        qdisc: &mut dyn Qdisc,
        packets: &mut Packets,
        now: Nanos,
        mut tell: impl FnMut(&Packets, PacketId),
    ) -> Next {
        let before = self.len();
        let next = qdisc.dequeue(packets, now, self);
        self.as_slice().iter().skip(before).for_each(|id| tell(packets, *id));
        next
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

    fn fill(
        &mut self,
        qdisc: &mut dyn Qdisc,
        packets: &mut Packets,
        now: Nanos,
        mut tell: impl FnMut(&Packets, PacketId),
    ) -> Next {
        match qdisc.dequeue_one(packets, now) {
            Ok(id) => {
                tell(packets, id);
                *self = Some(id);
                Next::Now
            }
            Err(next) => next,
        }
    }
}
