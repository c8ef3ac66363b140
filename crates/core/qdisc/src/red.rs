//! `red`: random early detection.
//!
//! Packets wait in a qdisc of their own (the inner one, a `bfifo` unless the operator says
//! otherwise). The average of its length in bytes ([`law`]) decides what becomes of an arrival:
//! below `min` it is queued, above `max` it is dropped, and in between it is dropped with a
//! probability that rises to `probability`, evenly spaced. With `ecn` a packet that can be marked
//! is marked instead; `harddrop` drops above `max` all the same, and `nodrop` queues what cannot be
//! marked.
//!
//! *The limits* are each queue's: at the root of a port every queue has its own average.
//!
//! Source: S. Floyd and V. Jacobson, "Random Early Detection Gateways for Congestion Avoidance"
//! (1993); S. Floyd et al., "Adaptive RED" (2001); `tc-red(8)`, whose figures these are
//! (`net/sched/sch_red.c`, `include/net/red.h`). Differences from Linux: a change keeps the inner
//! qdisc and its packets, and time is idle while the queue is empty, not while it waits for a rate
//! below.
//!
//! Cost: a FIFO's, and the average: two shifts and two comparisons an arrival. Headers are read
//! only to mark.
//!
//! Non-goals: `gred`, `qevent` (there is nothing to trap to).

mod config;
mod law;

use crate::codel::mark;
use crate::inner::Inner;
use crate::sink::Sink;
use crate::{Above, Detail, Handover, Next, Qdisc, Spec, Stats, Verdict, Weight};
use law::{Action, Law};
use narrows_packet::{Backlog, Batch, DropReason, PacketId, Packets, Reading};
use narrows_units::Nanos;

pub use config::{Config, Unfit};

/// What only a `red` counts: `struct tc_red_xstats`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Packets marked instead of dropped.
    pub marked: u64,
    /// Packets dropped because of the average length.
    pub early: u64,
    /// Packets dropped because of a limit below.
    pub pdrop: u64,
}

impl Figures {
    /// Adds those of the instance of another queue.
    pub fn merge(&mut self, other: &Self) {
        self.marked += other.marked;
        self.early += other.early;
        self.pdrop += other.pdrop;
    }
}

/// An instance: one queue's.
pub(crate) struct Red {
    config: Config,
    law: Law,
    inner: Inner,
    figures: Figures,
    /// All but the backlog.
    stats: Stats,
}

impl Red {
    pub(crate) fn new(config: Config, inner: Spec) -> Self {
        Self {
            law: Law::new(&config),
            config,
            inner: Inner::new(inner),
            figures: Figures::default(),
            stats: Stats::default(),
        }
    }

    /// Packets that have been accepted, and were not dropped since.
    #[inline]
    fn accepted(&self) -> u64 {
        self.stats.sent_packets + u64::from(self.inner.backlog().packets)
    }

    /// Whether `id` is marked instead of dropped, or let through although it cannot be marked.
    fn is_spared(&mut self, packets: &mut Packets, id: PacketId, action: Action) -> bool {
        let Config { ecn, harddrop, nodrop, .. } = self.config;
        if !ecn || action == Action::Hard && harddrop {
            return false;
        }
        let is_marked = mark(packets, id);
        self.figures.marked += u64::from(is_marked);
        is_marked || nodrop
    }

    /// Decides on an arrival that is not simply queued: whether it is dropped.
    #[cold]
    fn is_dropped(&mut self, packets: &mut Packets, id: PacketId, action: Action) -> bool {
        self.stats.overlimits += 1;
        if self.is_spared(packets, id, action) {
            return false;
        }
        self.figures.early += 1;
        self.stats.drops += 1;
        packets.discard(id, DropReason::Aqm);
        true
    }

    #[inline]
    fn release(&mut self, packets: &mut Packets, now: Nanos, out: &mut impl Sink) -> Next {
        let before = self.accepted();
        let stats = &mut self.stats;
        let next = self.inner.release(packets, now, out, |packets, id| {
            stats.sent_packets += 1;
            stats.sent_bytes += packets.len(id).0;
        });
        // What the inner qdisc has dropped meanwhile.
        self.stats.drops += before.saturating_sub(self.accepted());
        if self.inner.backlog().is_empty() {
            self.law.rests(now);
            return Next::Empty;
        }
        next
    }
}

impl Qdisc for Red {
    fn reading(&self) -> Reading {
        self.config.reading().and(self.inner.qdisc().reading())
    }

    fn observe_reverse(&mut self, packets: &Packets, ids: &[PacketId], now: Nanos) {
        self.inner.qdisc_mut().observe_reverse(packets, ids, now);
    }

    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        let action = self.law.arrival(self.inner.backlog().bytes, now);
        if action != Action::Queue && self.is_dropped(packets, id, action) {
            return Verdict::Dropped;
        }
        let before = self.accepted() + 1;
        let verdict = self.inner.enqueue(packets, id, now);
        if verdict == Verdict::Dropped {
            let lost = before.saturating_sub(self.accepted());
            self.figures.pdrop += lost;
            self.stats.drops += lost;
        }
        verdict
    }

    fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        self.stats.refuse_all(packets, ids);
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
        self.inner.backlog()
    }

    fn weight(&self) -> Weight {
        self.inner.qdisc().weight()
    }

    fn flows(&self) -> Option<u32> {
        self.inner.qdisc().flows()
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        self.stats_below(Above::default(), into);
    }

    fn stats_below(&self, above: Above, into: &mut Vec<Stats>) {
        let detail = Some(Detail::Red(Box::new(self.figures)));
        let mut own = Stats { backlog: self.backlog(), detail, ..self.stats.clone() };
        above.restate(&mut own);
        into.push(own);
        self.inner.stats_below(above, into);
    }

    fn retune(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        let Spec { config: crate::Config::Red(config), children, .. } = spec else {
            panic!("a red cannot be retuned to {:?}", spec.config)
        };
        if config != self.config {
            self.law = Law::new(&config);
            self.config = config;
        }
        let before = self.accepted();
        self.inner.take_over(Inner::of(children, "red"), handover);
        // Classes were removed from the inner qdisc, with their packets.
        self.stats.drops += before.saturating_sub(self.accepted());
        if !self.inner.backlog().is_empty() {
            self.law.wakes(handover.now);
        }
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        self.inner.qdisc_mut().drain(packets)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        self.law.wakes(now);
        self.inner.qdisc_mut().adopt(packets, id, now);
    }
}
