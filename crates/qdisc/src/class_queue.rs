//! The packets of a class on one queue: the qdisc below it, and the packet that leaves next.
//!
//! The class decides when that packet goes. It is out of the qdisc already, so a qdisc that takes
//! the place of another one inherits it.

use crate::sink::Sink;
use crate::{Above, Handover, Next, NodeId, Qdisc, Slot, Spec, Stats, Verdict};
use narrows_packet::{Backlog, PacketId, Packets};
use narrows_units::{Bytes, Nanos, Spread};
use std::num::NonZeroU32;

/// The length of a frame, one more than it is: so that there being none takes no memory.
#[derive(Clone, Copy)]
struct Length(NonZeroU32);

impl Length {
    #[inline]
    fn of(len: Bytes) -> Self {
        Self(NonZeroU32::MIN.saturating_add(u32::try_from(len.0).unwrap_or(u32::MAX)))
    }

    #[inline]
    fn get(self) -> Bytes {
        Bytes(u64::from(self.0.get() - 1))
    }
}

/// The packet that leaves next, out of the qdisc already.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) id: PacketId,
    len: Length,
}

impl Held {
    #[inline]
    pub(crate) fn len(self) -> Bytes {
        self.len.get()
    }
}

/// See the module's documentation.
///
/// The data for a packet fits two cache lines, less the eight bytes that the owner adds.
#[repr(C)]
pub(crate) struct ClassQueue {
    slot: Slot,
    /// The delays of packets that the class has sent.
    delays: Spread,
    /// The backlog, including the held packet: its bytes,
    bytes: Bytes,
    /// and its packets.
    packets: u32,
    pub(crate) held: Option<Held>,
    /// The length of the packet that a former qdisc had handed over, if there was one.
    inherited: Option<Length>,
}

impl ClassQueue {
    pub(crate) fn new(qdisc: Spec) -> Self {
        Self {
            slot: Slot::new(qdisc),
            delays: Spread::default(),
            bytes: Bytes::ZERO,
            packets: 0,
            held: None,
            inherited: None,
        }
    }

    /// Prefetches its qdisc.
    #[inline]
    pub(crate) fn prefetch_qdisc(&self) {
        self.slot.prefetch_qdisc();
    }

    /// Applies the qdisc's new specification.
    pub(crate) fn retune(&mut self, qdisc: Spec, handover: &mut Handover<'_>) {
        if qdisc.id != self.slot.id() {
            self.inherited = self.held.map(|held| held.len);
        }
        self.slot.take_over(qdisc, handover);
        self.settle();
    }

    #[inline]
    pub(crate) fn backlog(&self) -> Backlog {
        Backlog { packets: self.packets, bytes: self.bytes }
    }

    /// The delays of sent packets, from arrival until the class sent them.
    pub(crate) fn delays(&self) -> &Spread {
        &self.delays
    }

    /// The class sends `id` at `now`.
    #[inline]
    pub(crate) fn sent(&mut self, packets: &Packets, id: PacketId, now: Nanos) {
        self.delays.record(now.since(packets.meta(id).arrival));
    }

    /// The name of its qdisc.
    #[inline]
    pub(crate) fn id(&self) -> NodeId {
        self.slot.id()
    }

    #[inline]
    pub(crate) fn qdisc(&self) -> &dyn Qdisc {
        self.slot.qdisc()
    }

    #[inline]
    pub(crate) fn qdisc_mut(&mut self) -> &mut dyn Qdisc {
        self.slot.qdisc_mut()
    }

    /// Updates the backlog, after the qdisc may have dropped packets.
    #[inline]
    pub(crate) fn settle(&mut self) {
        let mut backlog = self.slot.qdisc().backlog();
        if let Some(held) = self.held {
            backlog.packets += 1;
            backlog.bytes += held.len();
        }
        (self.packets, self.bytes) = (backlog.packets, backlog.bytes);
    }

    #[inline]
    pub(crate) fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        let len = packets.len(id);
        let verdict = self.slot.qdisc_mut().enqueue(packets, id, now);
        match verdict {
            Verdict::Queued => {
                self.packets += 1;
                self.bytes += len;
            }
            Verdict::Dropped => self.settle(),
        }
        verdict
    }

    pub(crate) fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        self.slot.qdisc_mut().adopt(packets, id, now);
        self.settle();
    }

    pub(crate) fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let id = match self.held.take() {
            Some(held) => held.id,
            None => self.slot.qdisc_mut().drain(packets)?,
        };
        self.settle();
        Some(id)
    }

    /// The packet behind the one that leaves next. It is not held yet.
    #[inline]
    pub(crate) fn next(&mut self, packets: &mut Packets, now: Nanos) -> Result<Held, Next> {
        let id = self.slot.qdisc_mut().dequeue_one(packets, now)?;
        Ok(Held { id, len: Length::of(packets.len(id)) })
    }

    /// Sends packets of the qdisc into `out` while there is room, and passes each to `tell`. None
    /// is held.
    #[inline]
    pub(crate) fn send_into(
        &mut self,
        packets: &mut Packets,
        now: Nanos,
        out: &mut impl Sink,
        mut tell: impl FnMut(&Packets, PacketId),
    ) -> Next {
        let delays = &mut self.delays;
        out.fill(self.slot.qdisc_mut(), packets, now, |packets, id| {
            delays.record(now.since(packets.meta(id).arrival));
            tell(packets, id);
        })
    }

    /// The figures of the qdiscs below the class.
    pub(crate) fn stats_below(&self, above: Above, into: &mut Vec<Stats>) {
        let inherited = self.inherited.map(Length::get);
        let held = self.held.map(Held::len);
        self.slot.stats_below(above.and(inherited, held), into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_packet_touches_of_a_class_is_in_two_cache_lines() {
        assert_eq!(size_of::<ClassQueue>(), 2 * 64 - 8);
        assert_eq!(std::mem::offset_of!(ClassQueue, slot), 0, "a FIFO is the first of them");
        assert_eq!(size_of::<crate::fifo::Fifo>(), 64);
    }

    #[test]
    fn lengths_are_what_they_were() {
        for len in [0, 1, 1514, 65_535, u64::from(u32::MAX) - 1] {
            assert_eq!(Length::of(Bytes(len)).get(), Bytes(len));
        }
    }
}
