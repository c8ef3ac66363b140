//! A leaf class on one queue: its packets, and what it has sent.

use super::{DEPTH_MAX, LeafFigures, Scheduler, Then};
use crate::class_queue::{ClassQueue, Held, Tenure, Totals};
use crate::hfsc::Service;
use crate::sink::Sink;
use crate::{Above, Config, Handover, Next, NodeId, Spec, Stats, Verdict, fifo};
use narrows_cpu::prefetch;
use narrows_packet::{Backlog, PacketId, Packets};
use narrows_units::{Bytes, Nanos, Spread, wire::Overhead};

/// What holds for some leaves only.
#[derive(Clone, Copy)]
struct Traits(u8);

impl Traits {
    /// What the queue weighs changes.
    const WEIGHT: Self = Self(1);
    /// The rank of what it sends changes.
    const RANKS: Self = Self(2);
    /// A frame costs something else than its length.
    const OVERHEAD: Self = Self(4);
    /// The qdisc itself counts flows.
    const FLOWS: Self = Self(8);

    fn of(qdisc: &Spec, overhead: Overhead) -> Self {
        let all = [
            (Self::WEIGHT, qdisc.config.has_weight()),
            (Self::RANKS, qdisc.config.has_ranks()),
            (Self::OVERHEAD, overhead != Overhead::NONE),
            (Self::FLOWS, qdisc.config.counts_flows()),
        ];
        let those = all.into_iter().filter(|(_, holds)| *holds);
        Self(those.fold(0, |traits, (one, _)| traits | one.0))
    }

    #[inline]
    fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }
}

/// A leaf class on one queue: its packets, and what it has sent.
///
/// In order of access: one cache line for an arrival, one more for a class that takes its turn.
#[repr(C, align(64))]
pub(super) struct Leaf {
    pub(super) queue: ClassQueue,
    traits: Traits,
    /// The rank of the next packet.
    next_rank: u8,
    /// The rank of the last request.
    asked_rank: u8,
    /// The weight among the queues of the class, as last told to the scheduler.
    weight: crate::Weight,
    pub(super) id: u32,

    /// The delays of sent packets, from arrival until the class sent them.
    delays: Spread,
    sent: Backlog64,
    quantum: u32,
    overhead: Overhead,

    drops: u64,
    overlimits: u64,
    tenure: Tenure,
    /// Packets that those above have granted, the parent first.
    lent: [u64; DEPTH_MAX - 1],
}

/// Packets and bytes over a lifetime.
#[derive(Clone, Copy, Default)]
pub(super) struct Backlog64 {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Leaf {
    pub(super) fn new(id: u32, leaf: super::class::Leaf) -> Self {
        let traits = Traits::of(&leaf.qdisc, leaf.overhead);
        let (queue, tenure) = ClassQueue::new(leaf.qdisc);
        Self {
            queue,
            traits,
            next_rank: 0,
            asked_rank: 0,
            weight: crate::Weight::ONE,
            id,
            delays: Spread::default(),
            sent: Backlog64::default(),
            quantum: leaf.quantum,
            overhead: leaf.overhead,
            drops: 0,
            overlimits: 0,
            tenure,
            lent: [0; DEPTH_MAX - 1],
        }
    }

    /// One that is for no class, and takes no memory beside its own.
    pub(super) fn vacant() -> Self {
        let qdisc = Spec::new(Config::Fifo(fifo::Config::Packets(0)));
        let none = super::class::Leaf { overhead: Overhead::NONE, quantum: 0, qdisc };
        Self::new(super::RETIRED, none)
    }

    /// Prefetches the data of an arrival.
    #[inline]
    pub(super) fn prefetch_arrival(&self) {
        prefetch(&self.queue);
    }

    /// Prefetches the data for a turn.
    #[inline]
    pub(super) fn prefetch(&self) {
        self.prefetch_arrival();
        prefetch(&self.delays);
    }

    /// Prefetches its qdisc, if that is not in the class itself.
    #[inline]
    pub(super) fn prefetch_qdisc(&self) {
        self.queue.prefetch_qdisc();
    }

    /// Prefetches the data that the arrival of `id` touches behind these.
    #[inline]
    pub(super) fn expect(&self, packets: &Packets, id: PacketId) {
        self.queue.expect(packets, id);
    }

    /// Prefetches the data that its turn in the rotation touches behind these.
    #[inline]
    pub(super) fn expect_turn(&self, packets: &Packets) {
        self.queue.expect_departure(packets);
    }

    /// Begins anew in another place.
    pub(super) fn is_opened(&mut self) {
        (self.weight, self.asked_rank) = (crate::Weight::ONE, 0);
    }

    /// What the tree charges for the next packet.
    #[inline]
    fn cost(&self, held: Held) -> Bytes {
        self.cost_of(held.len())
    }

    /// What the tree charges for this many bytes.
    #[inline]
    fn cost_of(&self, bytes: Bytes) -> Bytes {
        if self.traits.has(Traits::OVERHEAD) { self.overhead.cost(bytes) } else { bytes }
    }

    /// Tells `scheduler` the queue's weight. Small changes are not worth the cost.
    #[inline(never)]
    fn follow_weight(&mut self, place: u32, scheduler: &mut dyn Scheduler) {
        let weight = self.queue.qdisc().weight();
        if weight.0.abs_diff(self.weight.0) > self.weight.0 / 8 {
            self.weight = weight;
            scheduler.weigh(place, weight);
        }
    }

    /// Looks up the rank of the new next packet.
    #[inline]
    fn rank_next(&mut self) {
        if self.traits.has(Traits::RANKS) {
            self.next_rank = self.queue.qdisc().ranking().left;
        }
    }

    /// Tells `scheduler` the best queued rank, which the next packet, which costs `cost`, also has.
    /// Returns the bytes of that rank.
    #[inline(never)]
    fn follow_rank(
        &mut self,
        place: u32,
        cost: Bytes,
        scheduler: &mut dyn Scheduler,
        now: Nanos,
    ) -> Bytes {
        let rest = self.queue.qdisc().ranking();
        let rank = self.next_rank.min(rest.next);
        if rank != self.asked_rank {
            self.asked_rank = rank;
            scheduler.rank(place, rank, now);
        }
        let alike = if rest.next == self.next_rank { rest.bytes } else { Bytes::ZERO };
        cost + self.cost_of(alike)
    }

    /// Whether the packet that has come may leave earlier than the one that was next: its qdisc
    /// held everything back, or the packet has a better rank.
    #[inline]
    pub(super) fn must_reconsider(&self) -> bool {
        self.queue.held.is_none()
            || (self.traits.has(Traits::RANKS)
                && self.queue.qdisc().ranking().next < self.asked_rank)
    }

    /// Applies the class's new parameters.
    pub(super) fn retune(
        &mut self,
        place: u32,
        class: super::class::Leaf,
        scheduler: &mut dyn Scheduler,
        handover: &mut Handover<'_>,
    ) {
        let super::class::Leaf { overhead, quantum, qdisc } = class;
        (self.overhead, self.quantum) = (overhead, quantum);
        self.traits = Traits::of(&qdisc, overhead);
        if !self.traits.has(Traits::RANKS) && self.asked_rank != 0 {
            self.asked_rank = 0;
            scheduler.rank(place, 0, handover.now);
        }
        let queued = self.queue.backlog().packets;
        let totals = self.totals();
        self.queue.retune(qdisc, &mut self.tenure, totals, handover);
        self.count_drops(queued);
        self.follow_weight(place, scheduler);
    }

    #[inline]
    pub(super) fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        let queued = self.queue.backlog().packets;
        let verdict = self.queue.enqueue(packets, id, now);
        if verdict == Verdict::Dropped {
            self.count_drops(queued + 1);
        }
        verdict
    }

    /// What its qdisc has dropped by itself, of `queued` packets that were there.
    #[inline]
    fn count_drops(&mut self, queued: u32) {
        let left = self.queue.backlog().packets;
        // Copies of queued packets may have been made meanwhile.
        self.drops += u64::from(queued.saturating_sub(left));
    }

    pub(super) fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        let queued = self.queue.backlog().packets;
        self.queue.adopt(packets, id, now);
        self.count_drops(queued + 1);
    }

    pub(super) fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let queued = self.queue.backlog().packets;
        let id = self.queue.drain(packets)?;
        // It was neither sent nor dropped here.
        self.count_drops(queued - 1);
        Some(id)
    }

    /// What its next packet costs, if it has one now and its qdisc is a FIFO.
    pub(super) fn next_cost(&mut self, packets: &mut Packets, now: Nanos) -> Option<Bytes> {
        if self.queue.held.is_none() {
            let held = self.queue.next(packets, now).ok()?;
            self.rank_next();
            self.queue.held = Some(held);
        }
        self.queue.held.map(|held| self.cost(held))
    }

    /// Sends up to a quantum, as far as `scheduler` has credit for the class, which is at `place`.
    /// Returns what it has sent.
    #[inline]
    pub(super) fn turn(
        &mut self,
        place: u32,
        scheduler: &mut dyn Scheduler,
        packets: &mut Packets,
        now: Nanos,
        out: &mut impl Sink,
    ) -> Backlog {
        // Of a FIFO nothing is dropped meanwhile.
        let queued = (!self.queue.is_fifo()).then(|| self.queue.backlog().packets);
        let sent = self.send(place, scheduler, packets, now, out);
        if let Some(queued) = queued {
            self.queue.settle();
            self.count_drops(queued.wrapping_sub(sent.packets));
        }
        sent
    }

    fn send(
        &mut self,
        place: u32,
        scheduler: &mut dyn Scheduler,
        packets: &mut Packets,
        now: Nanos,
        out: &mut impl Sink,
    ) -> Backlog {
        let mut sent = Backlog::default();
        let mut held = match self.queue.held {
            Some(held) => held,
            None => match self.queue.next(packets, now) {
                Ok(held) => {
                    self.rank_next();
                    *self.queue.held.insert(held)
                }
                Err(next) => {
                    scheduler.finish(place, Bytes::ZERO, Self::out_of_packets(next), now);
                    return sent;
                }
            },
        };
        let mut cost = self.cost(held);
        let queued = if self.traits.has(Traits::RANKS) {
            self.follow_rank(place, cost, scheduler, now)
        } else {
            self.cost_of(self.queue.backlog().bytes)
        };
        if self.traits.has(Traits::WEIGHT) {
            self.follow_weight(place, scheduler);
        }
        let want = if queued <= cost || out.room() == 1 {
            cost
        } else {
            Bytes(u64::from(self.quantum)).min(queued).max(cost)
        };
        let Some(grant) = scheduler.acquire(place, cost, want, now) else {
            self.overlimits += u64::from(scheduler.lacks_credit());
            return sent;
        };
        let (mut credit, mut lent) = (grant.bytes, 0);
        self.queue.held = None;
        let then = loop {
            credit = Bytes(credit.0 - cost.0);
            sent.packets += 1;
            lent += u64::from(credit < grant.lent);
            sent.bytes.0 += held.len().0;
            self.delays.record(now.since(packets.meta(held.id).arrival));
            out.push(held.id);
            if !out.has_room() {
                // Without packets it need not come again to find that out.
                break if self.queue.is_empty() { Then::Empty } else { Then::More(None) };
            }
            held = match self.queue.next(packets, now) {
                Ok(held) => held,
                Err(next) => break Self::out_of_packets(next),
            };
            cost = self.cost(held);
            self.rank_next();
            // A purchase is for packets of one rank.
            if cost > credit || (self.traits.has(Traits::RANKS) && self.next_rank > self.asked_rank)
            {
                self.queue.held = Some(held);
                let queued = self.cost_of(self.queue.backlog().bytes);
                let want = Bytes(u64::from(self.quantum)).min(queued).max(cost);
                break Then::More(Some((cost, want)));
            }
        };
        scheduler.finish(place, credit, then, now);
        self.sent.packets += u64::from(sent.packets);
        self.sent.bytes += sent.bytes.0;
        if let Some(steps) = usize::from(grant.lender).checked_sub(1) {
            self.lent[steps] += lent;
        }
        sent
    }

    fn out_of_packets(next: Next) -> Then {
        match next {
            Next::Empty | Next::Now => Then::Empty,
            Next::At(at) | Next::Held(at) => Then::Held(at),
        }
    }

    fn totals(&self) -> Totals {
        let Backlog64 { packets, bytes } = self.sent;
        Totals { sent_packets: packets, sent_bytes: bytes, drops: self.drops }
    }

    /// The name of its qdisc.
    pub(super) fn qdisc_id(&self) -> NodeId {
        self.tenure.id
    }

    /// The figures of the qdiscs below it.
    pub(super) fn stats_below(&self, above: Above, into: &mut Vec<Stats>) {
        self.queue.stats_below(&self.tenure, self.totals(), above, into);
    }

    pub(super) fn count(&self) -> super::ClassCount {
        super::ClassCount {
            class: self.id,
            sent_bytes: self.sent.bytes,
            drops: self.drops,
            backlog: self.queue.backlog(),
            flows: self.flows(),
        }
    }

    /// The flows of its qdisc. One that counts them and is empty is not asked: of many classes that
    /// would touch as many cache lines.
    pub(super) fn flows(&self) -> Option<u32> {
        let has_none = self.traits.has(Traits::FLOWS) && self.queue.backlog().is_empty();
        if has_none { Some(0) } else { self.queue.qdisc().flows() }
    }

    pub(super) fn figures(&self, tokens: Vec<[i64; 2]>, service: Vec<Service>) -> LeafFigures {
        let mut granted = [0; DEPTH_MAX];
        granted[1..].copy_from_slice(&self.lent);
        granted[0] = self.sent.packets - self.lent.iter().sum::<u64>();
        LeafFigures {
            sent_bytes: self.sent.bytes,
            sent_packets: self.sent.packets,
            drops: self.drops,
            overlimits: self.overlimits,
            backlog: self.queue.backlog(),
            flows: self.flows(),
            granted,
            tokens,
            service,
            delays: self.delays.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn an_arrival_touches_one_cache_line_of_a_class_and_a_turn_two() {
        assert_eq!(offset_of!(Leaf, delays), 64);
        assert!(offset_of!(Leaf, overhead) + size_of::<Overhead>() <= 2 * 64);
    }
}
