//! The packets of a class on one queue: the qdisc below it, and the packet that leaves next.
//!
//! The class decides when that packet goes. It is out of the qdisc already, so a qdisc that takes
//! the place of another one inherits it.

use crate::fifo::{Fifo, Uncounted};
use crate::sink::Sink;
use crate::{Above, Handover, Next, NodeId, Qdisc, Spec, Stats, Verdict};
use narrows_packet::{Backlog, PacketId, Packets};
use narrows_units::{Bytes, Nanos};
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

/// What a class has done over its lifetime.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) sent_packets: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) drops: u64,
}

/// The qdisc, and the backlog in it. A FIFO is in the class itself, because there may be thousands
/// of classes, and a packet touches both. It counts nothing: what the class counts is true of it,
/// too.
enum Content {
    Fifo(Fifo<Uncounted>),
    Other {
        qdisc: Box<dyn Qdisc>,
        /// Including the held packet.
        backlog: Backlog,
    },
}

impl Content {
    fn new(spec: Spec) -> Self {
        match spec.fifo() {
            Some(fifo) => Self::Fifo(fifo),
            None => Self::Other { qdisc: spec.build(), backlog: Backlog::default() },
        }
    }

    #[inline]
    fn qdisc(&self) -> &dyn Qdisc {
        match self {
            Self::Fifo(fifo) => fifo,
            Self::Other { qdisc, .. } => qdisc.as_ref(),
        }
    }

    #[inline]
    fn qdisc_mut(&mut self) -> &mut dyn Qdisc {
        match self {
            Self::Fifo(fifo) => fifo,
            Self::Other { qdisc, .. } => qdisc.as_mut(),
        }
    }
}

/// Which qdisc it is, and since when: read and written only by changes and figures.
pub(crate) struct Tenure {
    /// Its name.
    pub(crate) id: NodeId,
    /// What the class had done before.
    began: Totals,
    /// The length of the packet that a former qdisc had handed over, if there was one.
    inherited: Option<Length>,
}

/// A class's packets on one queue: the qdisc below it, and the packet that leaves next.
///
/// Three quarters of a cache line, in which a packet finds all.
pub(crate) struct ClassQueue {
    content: Content,
    pub(crate) held: Option<Held>,
}

impl ClassQueue {
    pub(crate) fn new(qdisc: Spec) -> (Self, Tenure) {
        let tenure = Tenure { id: qdisc.id, began: Totals::default(), inherited: None };
        (Self { content: Content::new(qdisc), held: None }, tenure)
    }

    #[inline]
    pub(crate) fn is_fifo(&self) -> bool {
        matches!(self.content, Content::Fifo(_))
    }

    /// As [`Qdisc::expect`].
    #[inline]
    pub(crate) fn expect(&self, packets: &Packets, id: PacketId) {
        match &self.content {
            Content::Fifo(fifo) => fifo.expect(packets, id),
            Content::Other { qdisc, .. } => qdisc.expect(packets, id),
        }
    }

    /// As [`Qdisc::expect_departure`].
    #[inline]
    pub(crate) fn expect_departure(&self, packets: &Packets) {
        match &self.content {
            Content::Fifo(fifo) => fifo.expect_departure(packets),
            Content::Other { qdisc, .. } => qdisc.expect_departure(packets),
        }
    }

    /// Prefetches its qdisc, if that is not in the class itself.
    #[inline]
    pub(crate) fn prefetch_qdisc(&self) {
        if let Content::Other { qdisc, .. } = &self.content {
            narrows_cpu::prefetch_all(qdisc.as_ref());
        }
    }

    /// Applies the qdisc's new specification, as [`Slot::take_over`](crate::Slot::take_over). The
    /// class has done `totals`.
    pub(crate) fn retune(
        &mut self,
        qdisc: Spec,
        tenure: &mut Tenure,
        totals: Totals,
        handover: &mut Handover<'_>,
    ) {
        if qdisc.id == tenure.id {
            self.qdisc_mut().retune(qdisc, handover);
        } else {
            let inherited = self.held.map(|held| held.len);
            *tenure = Tenure { id: qdisc.id, began: totals, inherited };
            let mut successor = Content::new(qdisc);
            handover.hand_over(self.qdisc_mut(), successor.qdisc_mut());
            self.content = successor;
        }
        self.settle();
    }

    #[inline]
    pub(crate) fn backlog(&self) -> Backlog {
        match &self.content {
            Content::Fifo(fifo) => self.and_held(fifo.backlog()),
            Content::Other { backlog, .. } => *backlog,
        }
    }

    #[inline]
    fn and_held(&self, mut backlog: Backlog) -> Backlog {
        if let Some(held) = self.held {
            backlog.packets += 1;
            backlog.bytes += held.len();
        }
        backlog
    }

    #[inline]
    pub(crate) fn qdisc(&self) -> &dyn Qdisc {
        self.content.qdisc()
    }

    #[inline]
    pub(crate) fn qdisc_mut(&mut self) -> &mut dyn Qdisc {
        self.content.qdisc_mut()
    }

    /// Whether the qdisc has no packets, where none is held.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match &self.content {
            Content::Fifo(fifo) => fifo.backlog().is_empty(),
            Content::Other { qdisc, .. } => qdisc.backlog().is_empty(),
        }
    }

    /// Updates the backlog, after the qdisc may have dropped packets.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if let Content::Other { qdisc, .. } = &self.content {
            let settled = self.and_held(qdisc.backlog());
            if let Content::Other { backlog, .. } = &mut self.content {
                *backlog = settled;
            }
        }
    }

    #[inline]
    pub(crate) fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        match &mut self.content {
            Content::Fifo(fifo) => fifo.enqueue(packets, id, now),
            Content::Other { .. } => self.enqueue_in_other(packets, id, now),
        }
    }

    /// Apart, so that a FIFO does without what this needs of the stack.
    #[inline(never)]
    fn enqueue_in_other(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        let len = packets.len(id);
        let verdict = self.qdisc_mut().enqueue(packets, id, now);
        match (verdict, &mut self.content) {
            (Verdict::Queued, Content::Other { backlog, .. }) => {
                backlog.packets += 1;
                backlog.bytes += len;
            }
            _ => self.settle(),
        }
        verdict
    }

    pub(crate) fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        self.qdisc_mut().adopt(packets, id, now);
        self.settle();
    }

    pub(crate) fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let id = match self.held.take() {
            Some(held) => held.id,
            None => self.qdisc_mut().drain(packets)?,
        };
        self.settle();
        Some(id)
    }

    /// The packet behind the one that leaves next. It is not held yet.
    #[inline]
    pub(crate) fn next(&mut self, packets: &mut Packets, now: Nanos) -> Result<Held, Next> {
        let id = match &mut self.content {
            Content::Fifo(fifo) => fifo.dequeue_one(packets, now)?,
            Content::Other { qdisc, .. } => qdisc.dequeue_one(packets, now)?,
        };
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
        tell: impl FnMut(&Packets, PacketId),
    ) -> Next {
        out.fill(self.content.qdisc_mut(), packets, now, tell)
    }

    /// The figures of the qdiscs below the class, which has done `totals`.
    pub(crate) fn stats_below(
        &self,
        tenure: &Tenure,
        totals: Totals,
        above: Above,
        into: &mut Vec<Stats>,
    ) {
        let Tenure { id, began, inherited } = tenure;
        let own = into.len();
        if self.is_fifo() {
            let mut stats = Stats {
                sent_packets: totals.sent_packets - began.sent_packets,
                sent_bytes: totals.sent_bytes - began.sent_bytes,
                drops: totals.drops - began.drops,
                backlog: self.backlog(),
                ..Stats::default()
            };
            above.restate(&mut stats);
            into.push(stats);
        } else {
            let held = self.held.map(Held::len);
            self.qdisc().stats_below(above.and(inherited.map(Length::get), held), into);
        }
        if let Some(own) = into.get_mut(own) {
            (own.id, own.flows) = (*id, self.qdisc().flows());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_packet_touches_leaves_a_quarter_of_a_cache_line_to_its_owner() {
        assert_eq!(size_of::<ClassQueue>(), 48);
    }

    #[test]
    fn lengths_are_what_they_were() {
        for len in [0, 1, 1514, 65_535, u64::from(u32::MAX) - 1] {
            assert_eq!(Length::of(Bytes(len)).get(), Bytes(len));
        }
    }
}
