//! The packets of a class on one queue: the qdisc below it, and the packet that leaves next.
//!
//! The class decides when that packet goes. It is out of the qdisc already, so a qdisc that takes
//! the place of another one inherits it.

use crate::sink::Sink;
use crate::{Above, Handover, Next, NodeId, Qdisc, Slot, Spec, Stats, Verdict};
use narrows_packet::{Backlog, PacketId, Packets};
use narrows_units::{Bytes, Nanos, Spread};

/// The packet that leaves next, out of the qdisc already.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) id: PacketId,
    pub(crate) len: Bytes,
}

/// See the module's documentation.
pub(crate) struct ClassQueue {
    slot: Slot,
    pub(crate) held: Option<Held>,
    /// The length of the packet that a former qdisc had handed over, if there was one.
    inherited: Option<Bytes>,
    /// The backlog, including the held packet.
    backlog: Backlog,
    /// The delays of packets that the class has sent.
    delays: Spread,
}

impl ClassQueue {
    pub(crate) fn new(qdisc: Spec) -> Self {
        Self {
            slot: Slot::new(qdisc),
            held: None,
            inherited: None,
            backlog: Backlog::default(),
            delays: Spread::default(),
        }
    }

    /// Prefetches its qdisc.
    #[inline]
    pub(crate) fn prefetch_qdisc(&self) {
        narrows_cpu::prefetch_all(self.slot.qdisc());
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
        self.backlog
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
            backlog.bytes += held.len;
        }
        self.backlog = backlog;
    }

    #[inline]
    pub(crate) fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        let len = packets.len(id);
        let verdict = self.slot.qdisc_mut().enqueue(packets, id, now);
        match verdict {
            Verdict::Queued => {
                self.backlog.packets += 1;
                self.backlog.bytes += len;
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
        Ok(Held { id, len: packets.len(id) })
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
        let held = self.held.map(|held| held.len);
        self.slot.stats_below(above.and(self.inherited, held), into);
    }
}
