//! `stab`: a qdisc, and those below it, count packets with another length.
//!
//! Behind a bottleneck that frames packets differently, a packet of some length takes another one.
//! Linux computes it once on the way into a qdisc that has a size table, for that qdisc and all
//! below it: rates, turns, limits and figures. Here the same is a qdisc of its own around that one,
//! which sets the length of a packet on arrival and restores it as the packet leaves. So qdiscs
//! need not know, and those above see frames as they are.
//!
//! *One mechanism.* The length is that of [`Overhead::cost`], exact where Linux has a table in
//! steps of some bytes.
//!
//! Source: `tc-stab(8)`, `net/sched/sch_api.c` (`qdisc_calculate_pkt_len()`).
//!
//! Cost: one more call each way, and two accesses to the packet's lengths. Without `stab` nothing.
//!
//! Non-goals: a `stab` below another one; size tables that are no overhead.

use crate::inner::Inner;
use crate::sink::Sink;
use crate::{Above, Handover, Next, Qdisc, Ranking, Spec, Stats, Verdict, Weight};
use narrows_packet::{Backlog, Batch, PacketId, Packets, Reading, Turnover};
use narrows_units::{Bytes, Nanos, wire::Overhead};

/// An instance: one queue's.
pub(crate) struct Stab {
    overhead: Overhead,
    inner: Inner,
    /// What is queued, as frames are.
    bytes: Bytes,
    /// All but the backlog.
    stats: Stats,
}

impl Stab {
    pub(crate) fn new(overhead: Overhead, inner: Spec) -> Self {
        let (inner, bytes) = (Inner::new(inner), Bytes::ZERO);
        Self { overhead, inner, bytes, stats: Stats::default() }
    }

    /// Counts `id` as it takes on the wire, from here on.
    #[inline]
    fn resize(&mut self, packets: &mut Packets, id: PacketId) {
        let frame = packets.len(id);
        self.bytes += frame;
        packets.set_size(id, self.overhead.cost(frame).max(Bytes(1)));
    }

    /// Takes note of what was dropped or copied below since `before`.
    #[inline]
    fn settle(&mut self, packets: &Packets, before: Turnover) {
        let Turnover { dropped, dropped_bytes, copied_bytes } = packets.turnover() - before;
        self.stats.drops += dropped;
        self.bytes.0 = self.bytes.0 + copied_bytes - dropped_bytes;
    }

    #[inline]
    fn release(&mut self, packets: &mut Packets, now: Nanos, out: &mut impl Sink) -> Next {
        let before = packets.turnover();
        let (bytes, stats) = (&mut self.bytes, &mut self.stats);
        let next = self.inner.release(packets, now, out, |packets, id| {
            let frame = restore(packets, id);
            bytes.0 -= frame.0;
            stats.sent_packets += 1;
            stats.sent_bytes += frame.0;
        });
        self.settle(packets, before);
        if next == Next::Now && self.inner.backlog().is_empty() { Next::Empty } else { next }
    }
}

/// Counts `id`, which leaves, as its frame is, and returns how long that is.
#[inline]
fn restore(packets: &mut Packets, id: PacketId) -> Bytes {
    packets.reset_size(id);
    packets.len(id)
}

impl Qdisc for Stab {
    fn owe(&mut self, bytes: Bytes, now: Nanos) {
        self.inner.qdisc_mut().owe(bytes, now);
    }

    fn reading(&self) -> Reading {
        self.inner.qdisc().reading().and(Reading { sizes: true, ..Reading::NOTHING })
    }

    fn observe_reverse(&mut self, packets: &Packets, ids: &[PacketId], now: Nanos) {
        self.inner.qdisc_mut().observe_reverse(packets, ids, now);
    }

    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        let before = packets.turnover();
        self.resize(packets, id);
        let verdict = self.inner.enqueue(packets, id, now);
        self.settle(packets, before);
        verdict
    }

    fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        self.stats.drops += ids.len() as u64;
        self.inner.qdisc_mut().refuse_all(packets, ids);
    }

    fn dequeue(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) -> Next {
        self.release(packets, now, out)
    }

    fn dequeue_one(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next> {
        let mut one = None;
        let next = self.release(packets, now, &mut one);
        one.ok_or(next)
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.inner.backlog().packets, bytes: self.bytes }
    }

    fn weight(&self) -> Weight {
        self.inner.qdisc().weight()
    }

    fn flows(&self) -> Option<u32> {
        self.inner.qdisc().flows()
    }

    fn ranking(&self) -> Ranking {
        self.inner.qdisc().ranking()
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        self.stats_below(Above::default(), into);
    }

    fn stats_below(&self, above: Above, into: &mut Vec<Stats>) {
        let mut own = Stats { backlog: self.backlog(), ..self.stats.clone() };
        above.restate(&mut own);
        into.push(own);
        self.inner.stats_below(above.charged(&self.overhead), into);
    }

    fn retune(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        let Spec { config: crate::Config::Stab(overhead), children, .. } = spec else {
            panic!("a stab cannot be retuned to {:?}", spec.config)
        };
        self.overhead = overhead;
        let before = handover.packets().turnover();
        self.inner.take_over(Inner::of(children, "stab"), handover);
        self.settle(handover.packets(), before);
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let id = self.inner.qdisc_mut().drain(packets)?;
        self.bytes.0 -= restore(packets, id).0;
        Some(id)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        self.resize(packets, id);
        self.inner.qdisc_mut().adopt(packets, id, now);
    }
}
