//! `netem`: makes a path longer, worse or slower.
//!
//! A packet may be lost by chance or corrupted by chance; otherwise it waits for its delay, which
//! may vary. Packets are sorted by arrival time ([`line::Line`]), so a packet with a shorter delay
//! overtakes others: jitter reorders, as on a path with several routes, and `reorder` lets some
//! packets skip the delay. With a `rate`, delayed packets also pass through a bottleneck, first in,
//! first out.
//!
//! *One path for a port.* At the root of a port every queue has its own delay line, since a flow
//! stays on its queue. All queues share one rate, by a seat at a common limit ([`Meter`]), as a
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
//! Cost: O(1) a packet with a constant delay, O(log n) with a varying one. Memory grows by
//! doubling, with packets that are out of order.
//!
//! Non-goals: duplicates (a frame is sent once or dropped once, and there is no way to copy one),
//! queue management (that belongs to a qdisc of its own, above or below in the path).

mod chance;
mod config;
mod departure;
mod line;
mod loss;
mod slot;

use crate::{Handover, Meter, Metering, Next, Qdisc, Share, Spec, Stats, Verdict};
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

/// The meter.
enum Seat {
    /// The time at which the last packet had passed the link. Exact even for a late caller, because
    /// the time since which packets wait is known.
    Own(Nanos),
    /// A seat at a shared one.
    Shared(Box<dyn Meter>),
}

impl Seat {
    fn of(config: &Config, meter: Option<Box<dyn Meter>>) -> Option<Self> {
        meter.map(Self::Shared).or(config.rate.map(|_| Self::Own(Nanos::ZERO)))
    }
}

/// An instance: one queue's.
pub(crate) struct Netem {
    config: Config,
    seat: Option<Seat>,
    chances: Chances,
    losses: Losses,
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
    /// How many packets may wait for the rate, as of the last dequeue.
    part: u32,
    stats: Stats,
}

impl Netem {
    pub(crate) fn new(config: Config, meter: Option<Box<dyn Meter>>) -> Self {
        Self {
            seat: Seat::of(&config, meter),
            chances: Chances::new(config.seed, config.stream),
            losses: Losses::default(),
            delays: Draw::default(),
            corruptions: Draw::default(),
            reorderings: Draw::default(),
            since_reordered: 0,
            slots: Slots::default(),
            line: Line::default(),
            queue: Fifo::new(),
            part: config.limit,
            stats: Stats::default(),
            config,
        }
    }

    /// Why `id` is refused, if it is.
    fn refusal(&self, packets: &Packets, id: PacketId) -> Option<DropReason> {
        if self.backlog().packets >= self.config.limit {
            return Some(DropReason::Limit);
        }
        let (Some(rate), Some(Seat::Shared(meter))) = (&self.config.rate, &self.seat) else {
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

    fn discard(&mut self, packets: &mut Packets, id: PacketId, reason: DropReason) -> Verdict {
        self.stats.drops += 1;
        packets.discard(id, reason);
        Verdict::Dropped
    }

    /// Caches the meter's answers, so that arrivals need not call it.
    fn follow_meter(&mut self) {
        let share = match &self.seat {
            Some(Seat::Shared(meter)) => meter.share(),
            _ => Share::WHOLE,
        };
        let part = share.of(Bytes(u64::from(self.config.limit)));
        self.part = u32::try_from(part.0).unwrap_or(u32::MAX);
    }
}

impl Qdisc for Netem {
    fn reading(&self) -> Reading {
        self.config.reading()
    }

    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        if self.is_lost(packets, id) {
            return self.discard(packets, id, DropReason::Loss);
        }
        if self.corruptions.happens(&self.config.corrupt, &mut self.chances) {
            packets.meta_mut(id).rewrite.flip(self.chances.place());
        }
        if let Some(reason) = self.refusal(packets, id) {
            return self.discard(packets, id, reason);
        }
        self.send_off(packets, id, now);
        Verdict::Queued
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
        let mut backlog = self.line.backlog();
        backlog += self.queue.backlog();
        backlog
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        into.push(Stats { backlog: self.backlog(), ..self.stats.clone() });
    }

    fn retune(&mut self, spec: Spec, _handover: &mut Handover<'_>) {
        let Spec { config: crate::Config::Netem(config), metering, .. } = spec else {
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
        match (metering, &self.seat, config.rate) {
            (Metering::Shared(meter), ..) => self.seat = Some(Seat::Shared(meter)),
            (Metering::Kept, Some(Seat::Shared(_)), Some(_)) | (_, Some(Seat::Own(_)), Some(_)) => {
            }
            _ => self.seat = Seat::of(&config, None),
        }
        self.follow_meter();
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
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
