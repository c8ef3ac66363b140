//! `netem`: makes a path longer, worse or slower.
//!
//! A packet may be lost by chance or corrupted by chance; otherwise it waits for its delay, which
//! may vary. Packets are sorted by arrival time ([`line::Line`]), so a packet with a shorter delay
//! overtakes others: jitter reorders, as on a path with several routes, and `reorder` lets some
//! packets skip the delay. With a `rate`, delayed packets also pass through a bottleneck, first in,
//! first out.
//!
//! *One path for a port.* At the root of a port every queue has its own delay line, since a flow
//! stays on its queue. All queues share one rate, by a meter at a common limit ([`Meter`]), as a
//! `tbf` has. As in Linux, only packets that are reordered on purpose overtake others on the way to
//! the bottleneck. A queue reports only packets that wait for the rate: those still under way need
//! none yet.
//!
//! *Limits.* `limit` counts the packets of each queue, under way or not. If several queues share a
//! rate, it also bounds the packets of the port that wait for the rate: each queue has its share of
//! it, and drops arrivals beyond that.
//!
//! *Chance* ([`chance`]) is drawn from `seed` and the number of the queue only: the same packets
//! meet the same fate again.
//!
//! Source: S. Hemminger, "Network Emulation with NetEm" (2005); S. Salsano et al., "Definition of a
//! general and intuitive loss model for packet networks" (2009); `tc-netem(8)`. Differences:
//! correlated draws keep their distribution ([`chance::Draw`]), and a reordered packet goes through
//! the bottleneck like any other.
//!
//! *A qdisc below.* With one, packets enter it when their delay and the rate have let them pass,
//! and leave when it lets them: a `tbf` below emulates a bottleneck behind a long path. Its packets
//! do not count for `limit`.
//!
//! *Duplicates.* A copy has a frame of its own and goes through this `netem` alone, behind its
//! original's place in the order of arrival: it may be lost, delayed or corrupted otherwise, but is
//! not copied again here. In Linux it passes the whole port again, which two such qdiscs can make
//! endless; here each makes at most one copy of what it gets. Without a free frame the copy counts
//! as made and dropped.
//!
//! Cost: O(1) a packet with a constant delay, O(log n) with a varying one. Memory grows by
//! doubling, with packets that are out of order.
//!
//! Non-goals: queue management (that belongs to a qdisc of its own, above or below in the path).

mod chance;
mod config;
mod departure;
mod line;
mod loss;
mod slot;

use crate::inner::Inner;
use crate::{Above, Handover, Meter, Metering, Next, Qdisc, Share, Spec, Stats, Verdict, Weight};
use chance::{Chances, Draw};
use line::Line;
use loss::Losses;
use narrows_packet::{Backlog, Batch, DropReason, Fifo, PacketId, Packets, Reading};
use narrows_units::{Bytes, Nanos};
use slot::Slots;

pub use config::{
    Config, Distribution, Happening, Loss, Probability, RateLimit, Reorder, SlotDelay, Slotting,
};

/// Packets that may always wait for the rate, however small the queue's part of the limit.
const LEAST_QUEUE: u32 = 4;

/// What keeps the rate.
enum Limiter {
    /// The time at which the last packet had passed the link. Exact even for a late caller, because
    /// the time since which packets wait is known.
    Own(Nanos),
    /// A meter at a shared one.
    Shared(Box<dyn Meter>),
}

impl Limiter {
    fn of(config: &Config, meter: Option<Box<dyn Meter>>) -> Option<Self> {
        meter.map(Self::Shared).or(config.rate.map(|_| Self::Own(Nanos::ZERO)))
    }
}

/// How many packets enter the qdisc below at once.
const ENTERING: usize = 64;

/// The qdisc below, and packets on their way into it.
struct Below {
    inner: Inner,
    entering: Batch,
}

impl Below {
    fn new(spec: Spec) -> Self {
        Self { inner: Inner::new(spec), entering: Batch::new(ENTERING) }
    }
}

/// An instance: one queue's.
pub(crate) struct Netem {
    config: Config,
    limiter: Option<Limiter>,
    chances: Chances,
    losses: Losses,
    duplicates: Draw,
    delays: Draw,
    corruptions: Draw,
    reorderings: Draw,
    /// The number of packets since the last reordered one.
    since_reordered: u32,
    slots: Slots,
    /// Packets under way.
    line: Line,
    /// Packets that have arrived at the bottleneck.
    queue: Fifo,
    /// The qdisc below, which packets enter then.
    below: Option<Below>,
    /// Packets of a former qdisc below: they go before all others.
    ready: Fifo,
    /// How many packets may wait for the rate, as of the last dequeue.
    part: u32,
    stats: Stats,
}

impl Netem {
    pub(crate) fn new(config: Config, meter: Option<Box<dyn Meter>>, below: Option<Spec>) -> Self {
        Self {
            limiter: Limiter::of(&config, meter),
            chances: Chances::new(config.seed, config.stream),
            losses: Losses::default(),
            duplicates: Draw::default(),
            delays: Draw::default(),
            corruptions: Draw::default(),
            reorderings: Draw::default(),
            since_reordered: 0,
            slots: Slots::default(),
            line: Line::default(),
            queue: Fifo::new(),
            below: below.map(Below::new),
            ready: Fifo::new(),
            part: config.limit,
            stats: Stats::default(),
            config,
        }
    }

    /// Why `id` is refused, if it is.
    fn refusal(&self, packets: &Packets, id: PacketId) -> Option<DropReason> {
        if self.under_way().packets >= self.config.limit {
            return Some(DropReason::Limit);
        }
        let (Some(rate), Some(Limiter::Shared(meter))) = (&self.config.rate, &self.limiter) else {
            return None;
        };
        (rate.cost(packets.len(id)) > meter.longest()).then_some(DropReason::TooLong)
    }

    /// Whether `id` is lost. A packet that should be marked instead is marked.
    fn is_lost(&mut self, packets: &mut Packets, id: PacketId) -> bool {
        if !self.losses.happens(&self.config.loss, &mut self.chances) {
            return false;
        }
        let is_marked = self.config.ecn && packets.headers(id).ecn.is_capable();
        if is_marked {
            packets.meta_mut(id).rewrite.mark();
        }
        !is_marked
    }

    /// Puts `id`, which arrives at `now`, under way.
    fn send_off(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        let chances = &mut self.chances;
        if let Some(Reorder { happening, gap }) = &self.config.reorder {
            self.since_reordered = self.since_reordered.saturating_add(1);
            if self.since_reordered >= *gap && self.reorderings.happens(happening, chances) {
                self.since_reordered = 0;
                self.stats.requeues += 1;
                // Past the delay, but not past the rate.
                let passing = self.config.rate.map(|rate| rate.time(packets.len(id)));
                self.line.insert(packets, id, now + passing.unwrap_or_default());
                return;
            }
        }
        let Config { delay, jitter, delay_correlation, distribution, .. } = self.config;
        let delay = self.delays.time(delay, jitter, distribution, delay_correlation, chances);
        match self.config.rate {
            None => self.line.insert(packets, id, now + delay),
            // Its own transmission time counts for the delay, that of packets before it for the
            // rate.
            Some(rate) => {
                let passing = rate.time(packets.len(id));
                self.line.append(packets, id, now + delay + passing);
            }
        }
    }

    /// Queues `id` and a copy of it; or one of them, or drops both.
    #[cold]
    fn enqueue_twice(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        // As in Linux: of the two one is lost.
        let has_copy = !self.is_lost(packets, id) && self.duplicate(packets, id, now);
        match (self.accept(packets, id, now), has_copy) {
            (Verdict::Queued, true) => Verdict::Copied,
            (verdict, _) => verdict,
        }
    }

    /// Queues `id`, or drops it. Apart from duplicates and losses, which are decided before.
    #[inline]
    fn accept(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        if self.corruptions.happens(&self.config.corrupt, &mut self.chances) {
            packets.meta_mut(id).rewrite.flip(self.chances.place());
        }
        if let Some(reason) = self.refusal(packets, id) {
            return self.discard(packets, id, reason);
        }
        self.send_off(packets, id, now);
        Verdict::Queued
    }

    /// Queues a copy of `id`, unless it is lost on its own. Returns whether there is one.
    fn duplicate(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> bool {
        let Some(copy) = packets.copy(id) else {
            self.stats.drops += 1;
            return false;
        };
        if self.is_lost(packets, copy) {
            self.discard(packets, copy, DropReason::Loss);
            return false;
        }
        self.accept(packets, copy, now) == Verdict::Queued
    }

    /// What is on its way to the qdisc below.
    #[inline]
    fn under_way(&self) -> Backlog {
        let mut backlog = self.line.backlog();
        backlog += self.queue.backlog();
        backlog
    }

    fn discard(&mut self, packets: &mut Packets, id: PacketId, reason: DropReason) -> Verdict {
        self.stats.drops += 1;
        packets.discard(id, reason);
        Verdict::Dropped
    }

    /// Applies the specification of the qdisc below, if there is to be one. Packets stay queued.
    fn follow_below(&mut self, spec: Option<Spec>, handover: &mut Handover<'_>) {
        let queued =
            |below: &Option<Below>| below.as_ref().map_or(0, |below| below.inner.backlog().packets);
        let before = queued(&self.below);
        match (spec, &mut self.below) {
            (Some(spec), Some(below)) => drop(below.inner.take_over(spec, handover)),
            (spec, none @ None) => *none = spec.map(Below::new),
            (None, Some(below)) => {
                while let Some(id) = below.inner.qdisc_mut().drain(handover.packets()) {
                    handover.packets().meta_mut(id).edt = Nanos::ZERO;
                    self.ready.push_back(handover.packets(), id);
                }
                self.below = None;
                return;
            }
        }
        // Classes were removed from it, with their packets.
        self.stats.drops += u64::from(before.saturating_sub(queued(&self.below)));
    }

    /// Caches the meter's answers, so that arrivals need not call it.
    fn follow_meter(&mut self) {
        let share = match &self.limiter {
            Some(Limiter::Shared(meter)) => meter.share(),
            _ => Share::WHOLE,
        };
        let part = share.of(Bytes(u64::from(self.config.limit)));
        self.part = u32::try_from(part.0).unwrap_or(u32::MAX);
    }
}

impl Qdisc for Netem {
    fn reading(&self) -> Reading {
        let below =
            self.below.as_ref().map_or(Reading::NOTHING, |below| below.inner.qdisc().reading());
        self.config.reading().and(below)
    }

    fn observe_reverse(&mut self, packets: &Packets, ids: &[PacketId], now: Nanos) {
        if let Some(below) = &mut self.below {
            below.inner.qdisc_mut().observe_reverse(packets, ids, now);
        }
    }

    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        if self.duplicates.happens(&self.config.duplicate, &mut self.chances) {
            return self.enqueue_twice(packets, id, now);
        }
        if self.is_lost(packets, id) {
            return self.discard(packets, id, DropReason::Loss);
        }
        self.accept(packets, id, now)
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
        let mut backlog = self.under_way();
        backlog += self.ready.backlog();
        if let Some(below) = &self.below {
            backlog += below.inner.backlog();
        }
        backlog
    }

    fn weight(&self) -> Weight {
        self.below.as_ref().map_or(Weight::ONE, |below| below.inner.qdisc().weight())
    }

    fn flows(&self) -> Option<u32> {
        self.below.as_ref()?.inner.qdisc().flows()
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        self.stats_below(Above::default(), into);
    }

    fn stats_below(&self, above: Above, into: &mut Vec<Stats>) {
        let mut own = Stats { backlog: self.backlog(), ..self.stats.clone() };
        above.restate(&mut own);
        into.push(own);
        if let Some(below) = &self.below {
            below.inner.stats_below(above, into);
        }
    }

    fn retune(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        let Spec { config: crate::Config::Netem(config), metering, children, .. } = spec else {
            panic!("a netem cannot be retuned to {:?}", spec.config)
        };
        if (config.seed, config.stream) != (self.config.seed, self.config.stream) {
            self.chances = Chances::new(config.seed, config.stream);
        }
        if config.loss != self.config.loss {
            self.losses = Losses::default();
        }
        if config.slots != self.config.slots {
            self.slots = Slots::default();
        }
        self.config = config;
        match (metering, &self.limiter, config.rate) {
            (Metering::Shared(meter), ..) => self.limiter = Some(Limiter::Shared(meter)),
            (Metering::Kept, Some(Limiter::Shared(_)), Some(_))
            | (_, Some(Limiter::Own(_)), Some(_)) => {}
            _ => self.limiter = Limiter::of(&config, None),
        }
        self.follow_meter();
        self.follow_below(one_at_most(children), handover);
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        if let Some(id) = self.ready.pop_front(packets) {
            return Some(id);
        }
        let below = self.below.as_mut();
        if let Some(id) = below.and_then(|below| below.inner.qdisc_mut().drain(packets)) {
            return Some(id);
        }
        let Some(id) = self.queue.pop_front(packets) else {
            return self.line.pop(packets, Nanos::MAX).map(|(_, id)| id);
        };
        packets.meta_mut(id).edt = Nanos::ZERO;
        Some(id)
    }

    /// It has been under way since it arrived, and stays behind all others.
    fn adopt(&mut self, packets: &mut Packets, id: PacketId, _now: Nanos) {
        let at = packets.meta(id).arrival + self.config.delay;
        self.line.append(packets, id, at);
    }
}

/// The only one of `children`, if there is any.
///
/// # Panics
/// If there are more.
pub(crate) fn one_at_most(mut children: Vec<Spec>) -> Option<Spec> {
    let child = children.pop();
    assert!(children.is_empty(), "a netem has at most one qdisc below it");
    child
}
