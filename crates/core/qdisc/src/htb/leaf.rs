//! A leaf class on one queue: what waits there, and its seat at the tree.

use super::lines::{Place, Standing, Top};
use super::{Class, ClassMeter, DEPTH_MAX, Grant, LeafFigures, Line, OwnCredit, TreeMeter};
use crate::class_queue::{ClassQueue, Held, Tenure, Totals};
use crate::sink::Sink;
use crate::{Above, Config, Handover, Next, NodeId, Spec, Stats, Verdict, Weight, fifo};
use narrows_cpu::prefetch;
use narrows_packet::{Backlog, PacketId, Packets};
use narrows_units::{Bytes, Nanos, Rate, Spread, wire::Overhead};
use std::sync::Arc;

/// What a class is waiting for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// For packets.
    Idle,
    /// For its turn.
    Ready,
    /// For a time, or in a line.
    Waiting,
}

/// How long a class without packets still counts as active, so that a sparse class does not come
/// and go with each packet.
pub(super) const LINGER: Nanos = Nanos::from_millis(1);

/// The result of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// It has used its turn, and has more packets.
    More,
    /// It has no packets.
    Empty,
    /// Its qdisc holds everything back until then.
    Held(Nanos),
    /// It may not send before then.
    Short(Nanos),
}

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

    fn of(qdisc: &Spec, overhead: Overhead) -> Self {
        let all = [
            (Self::WEIGHT, qdisc.config.has_weight()),
            (Self::RANKS, qdisc.config.has_ranks()),
            (Self::OVERHEAD, overhead != Overhead::NONE),
        ];
        let those = all.into_iter().filter(|(_, holds)| *holds);
        Self(those.fold(0, |traits, (one, _)| traits | one.0))
    }

    #[inline]
    fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }
}

/// See the module's documentation.
///
/// In order of access: one cache line for an arrival, one more for a class that takes its turn, and
/// others if it waits, borrows, or has several packets.
#[repr(C, align(64))]
pub(super) struct Leaf {
    pub(super) queue: ClassQueue,
    pub(super) state: State,
    pub(super) prio: u8,
    traits: Traits,
    /// Whether it buys of `own`, and not at its seat.
    buys_own: bool,
    /// Whether it has joined the races of the tree.
    is_active: bool,
    /// The rank of the next packet.
    next_rank: u8,
    /// The right of the last request.
    asked_rank: u8,
    /// The right by which it asks for its lines.
    pub(super) rank: u8,
    /// The lines for which it asks, before each of them.
    pub(super) asks_for: Top,
    /// Its last line with credit of its own since it has had packets, or one of the two below.
    held_line: u32,

    /// What the class has of its own, if it can be bought apart from the seat.
    own: Option<Arc<dyn OwnCredit>>,
    /// Its seat.
    meter: Box<dyn ClassMeter>,
    /// The delays of sent packets, from arrival until the class sent them.
    delays: Spread,
    sent: Backlog64,

    /// Its place in a line.
    pub(super) in_line: Place,
    /// When it asks again, where it waits for a time.
    pub(super) until: Nanos,
    /// When to check whether it does; [`Nanos::MAX`] for never.
    pub(super) looked_at: Nanos,
    /// The time until which it counts as active without packets.
    pub(super) lingers_until: Nanos,
    /// Its last line without credit of its own, unless the other one is [`NO_LINE`].
    lent_line: u32,
    /// Whether that check is scheduled.
    pub(super) is_looked_after: bool,
    /// Whether it stands in line with credit of its own.
    pub(super) has_own: bool,
    overlimits: u64,

    quantum: u32,
    overhead: Overhead,
    drops: u64,
    /// The queue's weight, as last told to the tree.
    weight: Weight,
    pub(super) id: u32,
    tenure: Tenure,
    /// Packets that those above have granted, the parent first.
    lent: [u64; DEPTH_MAX - 1],
}

/// No line, and none without credit of its own either.
const NO_LINE: u32 = u32::MAX;
/// None with credit of its own.
const NOT_HELD: u32 = NO_LINE - 1;

/// Packets and bytes over a lifetime.
#[derive(Clone, Copy, Default)]
pub(super) struct Backlog64 {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Standing for Leaf {
    #[inline]
    fn in_line(&mut self) -> &mut Place {
        &mut self.in_line
    }

    #[inline]
    fn turn(&self) -> u64 {
        self.in_line.turn
    }
}

impl Leaf {
    pub(super) fn new(id: u32, leaf: super::class::Leaf, meter: Box<dyn ClassMeter>) -> Self {
        let traits = Traits::of(&leaf.qdisc, leaf.class.overhead);
        let (queue, tenure) = ClassQueue::new(leaf.qdisc);
        let mut new = Self {
            id,
            prio: 0,
            state: State::Idle,
            until: Nanos::MAX,
            looked_at: Nanos::MAX,
            in_line: Place::NOWHERE,
            has_own: false,
            held_line: NO_LINE,
            lent_line: NO_LINE,
            asks_for: Top::NONE,
            rank: 0,
            lingers_until: Nanos::ZERO,
            is_looked_after: false,
            is_active: false,
            own: None,
            buys_own: false,
            meter,
            traits,
            next_rank: 0,
            asked_rank: 0,
            queue,
            tenure,
            delays: Spread::default(),
            quantum: 0,
            overhead: Overhead::NONE,
            weight: Weight::ONE,
            drops: 0,
            sent: Backlog64::default(),
            overlimits: 0,
            lent: [0; DEPTH_MAX - 1],
        };
        new.follow(&leaf.class);
        new.ask_for_own();
        new
    }

    /// One that is for no class, and takes no memory beside its own.
    pub(super) fn vacant() -> Self {
        let class = Class {
            parent: None,
            rate: Rate::default(),
            ceil: Rate::default(),
            burst: Bytes::ZERO,
            cburst: Bytes::ZERO,
            prio: 0,
            quantum: 0,
            overhead: Overhead::NONE,
        };
        let qdisc = Spec::new(Config::Fifo(fifo::Config::Packets(0)));
        Self::new(super::RETIRED, super::class::Leaf { class, qdisc }, Box::new(NoMeter))
    }

    /// Buys of the class's own credit, if it can be bought apart from the seat, which is new.
    fn ask_for_own(&mut self) {
        self.own = self.meter.own_credit();
        self.buys_own = self.own.is_some();
    }

    fn follow(&mut self, class: &Class) {
        self.prio = class.prio.min(super::PRIORITIES as u8 - 1);
        self.quantum = class.quantum;
        self.overhead = class.overhead;
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
        prefetch(&self.own);
    }

    /// The same for a class that waits or borrows.
    #[inline]
    pub(super) fn prefetch_waiting(&self) {
        self.prefetch();
        prefetch(&self.in_line);
    }

    /// Prefetches its qdisc, if that is not in the class itself.
    #[inline]
    pub(super) fn prefetch_qdisc(&self) {
        self.queue.prefetch_qdisc();
    }

    /// Where it buys if it does not ask at its seat.
    #[inline]
    fn own(&self) -> Option<&dyn OwnCredit> {
        self.own.as_deref().filter(|_| self.buys_own)
    }

    /// Prefetches its qdisc, and what it buys from.
    #[inline]
    pub(super) fn prefetch_parts(&self) {
        self.queue.prefetch_qdisc();
        match self.own() {
            Some(own) => own.expect(),
            None => prefetch(self.meter.as_ref()),
        }
    }

    /// Prefetches the data that the arrival of `id` touches behind these.
    #[inline]
    pub(super) fn expect(&self, packets: &Packets, id: PacketId) {
        self.queue.expect(packets, id);
    }

    /// The same for its turn in the rotation.
    #[inline]
    pub(super) fn expect_turn(&self, packets: &Packets) {
        self.queue.expect_departure(packets);
        if !self.buys_own {
            self.meter.expect();
        }
    }

    /// The same for the class above it.
    #[inline]
    pub(super) fn expect_above(&self) {
        match self.own() {
            Some(own) => own.expect_above(),
            None => self.meter.expect_above(),
        }
    }

    /// Starts to fetch what it writes where other queues have written since. Apart, so that one
    /// queue alone does without what this needs of the registers.
    #[inline(never)]
    pub(super) fn expect_purchase(&self) {
        match self.own() {
            Some(own) => own.expect_purchase(),
            None => self.meter.expect_purchase(),
        }
    }

    /// The same for the end of the time for which it still counts as active.
    #[inline]
    pub(super) fn expect_rest(&self) {
        self.meter.expect();
    }

    /// The line in which it stood the last time, since it has had packets, with credit of its own
    /// or without.
    #[inline]
    pub(super) fn last_line(&self, has_own: bool) -> Option<u32> {
        let line = match self.held_line {
            NO_LINE => return None,
            held if has_own => held,
            _ => self.lent_line,
        };
        (line < NOT_HELD).then_some(line)
    }

    /// Stands in `line` from now on.
    #[inline]
    pub(super) fn joins(&mut self, line: u32) {
        match (self.has_own, self.held_line) {
            (true, NO_LINE) => (self.held_line, self.lent_line) = (line, NO_LINE),
            (true, _) => self.held_line = line,
            (false, NO_LINE) => (self.held_line, self.lent_line) = (NOT_HELD, line),
            (false, _) => self.lent_line = line,
        }
    }

    /// It asks by itself from now on.
    #[inline]
    pub(super) fn forget_lines(&mut self) {
        self.held_line = NO_LINE;
    }

    /// Whether it has credit of its own, which the classes above held up.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.meter.is_held()
    }

    /// Waits for what it waited for the last time, with credit of its own or without. Returns when
    /// it gets credit below `level`; `None` if it has to ask.
    #[inline]
    pub(super) fn waits_again(&mut self, has_own: bool, level: u8, now: Nanos) -> Option<Nanos> {
        let cost = self.cost(self.queue.held?);
        self.meter.waits_again(has_own, level, cost, now)
    }

    /// Whether its seat is at the class that `tree` has under its number now: it may have gone and
    /// come again.
    pub(super) fn is_seated_in(&self, tree: &dyn TreeMeter) -> bool {
        tree.is_seat_of(self.meter.seat_of(), self.id)
    }

    /// Replaces its seat at the tree.
    pub(super) fn sit_at(&mut self, meter: Box<dyn ClassMeter>) {
        self.meter = meter;
        self.ask_for_own();
        self.is_active = false;
        (self.weight, self.asked_rank) = (Weight::ONE, 0);
    }

    /// What the tree charges for the next packet.
    #[inline]
    fn cost(&self, held: Held) -> Bytes {
        self.cost_of(held.len())
    }

    /// The same for this many bytes.
    #[inline]
    fn cost_of(&self, bytes: Bytes) -> Bytes {
        if self.traits.has(Traits::OVERHEAD) { self.overhead.cost(bytes) } else { bytes }
    }

    /// Tells the tree the queue's weight. Small changes are not worth the cost.
    #[inline(never)]
    fn follow_weight(&mut self) {
        let weight = self.queue.qdisc().weight();
        if weight.0.abs_diff(self.weight.0) > self.weight.0 / 8 {
            self.weight = weight;
            self.meter.weigh(weight);
        }
    }

    /// Looks up the rank of the new next packet.
    #[inline]
    fn rank_next(&mut self) {
        if self.traits.has(Traits::RANKS) {
            self.next_rank = self.queue.qdisc().ranking().left;
        }
    }

    /// Tells the tree the best queued rank, which the next packet, which costs `cost`, also has.
    /// Returns the bytes of that rank.
    #[inline(never)]
    fn follow_rank(&mut self, cost: Bytes, now: Nanos) -> Bytes {
        let rest = self.queue.qdisc().ranking();
        let rank = self.next_rank.min(rest.next);
        if rank != self.asked_rank {
            self.asked_rank = rank;
            self.meter.rank(rank, now);
        }
        let alike = if rest.next == self.next_rank { rest.bytes } else { Bytes::ZERO };
        cost + self.cost_of(alike)
    }

    /// Whether it waits although the new packet may not have to: its qdisc held everything back, or
    /// the packet has a better rank.
    #[inline]
    pub(super) fn is_hastened(&self) -> bool {
        if self.state != State::Waiting {
            return false;
        }
        let asked = self.asked_rank;
        self.queue.held.is_none()
            || (self.traits.has(Traits::RANKS) && self.queue.qdisc().ranking().next < asked)
    }

    /// Applies the class's new parameters.
    pub(super) fn retune(&mut self, class: &Class, qdisc: Spec, handover: &mut Handover<'_>) {
        self.follow(class);
        self.forget_lines();
        self.traits = Traits::of(&qdisc, class.overhead);
        if !self.traits.has(Traits::RANKS) && self.asked_rank != 0 {
            self.asked_rank = 0;
            self.meter.rank(0, handover.now);
        }
        let queued = self.queue.backlog().packets;
        let totals = self.totals();
        self.queue.retune(qdisc, &mut self.tenure, totals, handover);
        self.count_drops(queued);
        self.follow_weight();
    }

    /// What it waits for in addition to a time, after it could not borrow.
    #[inline]
    pub(super) fn line(&self) -> Option<Line> {
        self.meter.line()
    }

    /// How many levels up it waits for what others wait for, too. Without such a wait it may stand
    /// in any line.
    #[inline]
    pub(super) fn waits_up_to(&self) -> u8 {
        self.line().map_or(u8::MAX, |line| line.levels)
    }

    /// The name of the line at the class `level` above it, and its turn there.
    #[inline]
    pub(super) fn place_in_line(&self, level: u8, now: Nanos) -> (u64, u64) {
        self.meter.place_in_line(level, now)
    }

    /// When it will have credit for its next packet without the class `level` above it and higher
    /// ones.
    #[inline]
    pub(super) fn due_below(&mut self, level: u8, now: Nanos) -> Nanos {
        let Some(held) = self.queue.held else { return Nanos::MAX };
        let cost = self.cost(held);
        self.meter.due_below(level, cost, now)
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

    /// Tells the tree that it has something to send.
    #[inline]
    fn wake(&mut self) {
        if !self.is_active {
            self.is_active = true;
            self.meter.set_active(true);
        }
    }

    /// Tells the tree that it has nothing to send for a while.
    #[inline]
    pub(super) fn sleep(&mut self) {
        if self.is_active {
            self.is_active = false;
            self.meter.set_active(false);
        }
    }

    /// It has no packets now. Returns whether it need not linger, because no other queue shares the
    /// class, or because it sleeps already.
    #[inline]
    pub(super) fn rests(&mut self) -> bool {
        if self.is_active && self.meter.rests() {
            self.is_active = false;
        }
        !self.is_active
    }

    /// Sends up to a quantum, with the class's own credit or, if `borrow` is true, with borrowed
    /// credit. Also returns what it has sent.
    #[inline]
    pub(super) fn turn(
        &mut self,
        packets: &mut Packets,
        borrow: bool,
        now: Nanos,
        out: &mut impl Sink,
    ) -> (Turn, Backlog) {
        let queued = self.queue.backlog().packets;
        let (turn, sent) = self.send(packets, borrow, now, out);
        self.queue.settle();
        self.count_drops(queued.wrapping_sub(sent.packets));
        (turn, sent)
    }

    fn send(
        &mut self,
        packets: &mut Packets,
        borrow: bool,
        now: Nanos,
        out: &mut impl Sink,
    ) -> (Turn, Backlog) {
        let mut sent = Backlog::default();
        let mut held = match self.queue.held {
            Some(held) => held,
            None => match self.queue.next(packets, now) {
                Ok(held) => {
                    self.rank_next();
                    *self.queue.held.insert(held)
                }
                Err(next) => return (Self::out_of_packets(next), sent),
            },
        };
        let mut cost = self.cost(held);
        let queued = if self.traits.has(Traits::RANKS) {
            self.follow_rank(cost, now)
        } else {
            self.cost_of(self.queue.backlog().bytes)
        };
        if self.traits.has(Traits::WEIGHT) {
            self.follow_weight();
        }
        let want = if queued <= cost || out.room() == 1 {
            cost
        } else {
            Bytes(u64::from(self.quantum)).min(queued).max(cost)
        };
        let grant = match self.buy(cost, want, borrow, now) {
            Ok(grant) => grant,
            Err(at) => {
                self.overlimits += u64::from(borrow);
                return (Turn::Short(at), sent);
            }
        };
        let mut credit = grant.bytes;
        self.queue.held = None;
        let turn = loop {
            credit = Bytes(credit.0 - cost.0);
            sent.packets += 1;
            sent.bytes.0 += held.len().0;
            self.delays.record(now.since(packets.meta(held.id).arrival));
            out.push(held.id);
            if !out.has_room() {
                // Without packets it need not come again to find that out.
                break if self.queue.is_empty() { Turn::Empty } else { Turn::More };
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
                break Turn::More;
            }
        };
        if credit > Bytes::ZERO {
            match self.own() {
                Some(own) => own.give_back(credit),
                None => self.meter.give_back(credit),
            }
        }
        if grant.lender == 0 && !self.buys_own && self.own.is_some() {
            self.buys_own = self.meter.buys_alone();
        }
        self.sent.packets += u64::from(sent.packets);
        self.sent.bytes += sent.bytes.0;
        if let Some(steps) = usize::from(grant.lender).checked_sub(1) {
            self.lent[steps] += u64::from(sent.packets);
        }
        (turn, sent)
    }

    /// Buys `least` bytes, or up to `want`: of the class's own credit as long as that has some, and
    /// at its seat otherwise.
    #[inline]
    fn buy(&mut self, least: Bytes, want: Bytes, borrow: bool, now: Nanos) -> Result<Grant, Nanos> {
        if let Some(own) = self.own() {
            if let Some(bytes) = own.buy(least, want, now) {
                return Ok(Grant { bytes, lender: 0 });
            }
            self.buys_own = false;
        }
        self.wake();
        self.meter.buy(least, want, borrow, now)
    }

    fn out_of_packets(next: Next) -> Turn {
        match next {
            Next::Empty | Next::Now => Turn::Empty,
            Next::At(at) | Next::Held(at) => Turn::Held(at),
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

    pub(super) fn figures(&self, now: Nanos) -> LeafFigures {
        let mut granted = [0; DEPTH_MAX];
        granted[1..].copy_from_slice(&self.lent);
        granted[0] = self.sent.packets - self.lent.iter().sum::<u64>();
        LeafFigures {
            sent_bytes: self.sent.bytes,
            sent_packets: self.sent.packets,
            drops: self.drops,
            overlimits: self.overlimits,
            backlog: self.queue.backlog(),
            granted,
            tokens: self.meter.tokens(now),
            delays: self.delays.clone(),
        }
    }
}

/// The meter of no class: it sells nothing.
struct NoMeter;

impl ClassMeter for NoMeter {
    fn buy(&mut self, _: Bytes, _: Bytes, _: bool, _: Nanos) -> Result<Grant, Nanos> {
        Err(Nanos::MAX)
    }

    fn give_back(&mut self, _: Bytes) {}

    fn set_active(&mut self, _: bool) {}

    fn tokens(&self, _: Nanos) -> Vec<[i64; 2]> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn an_arrival_touches_one_cache_line_of_a_class_and_a_turn_two() {
        assert_eq!(offset_of!(Leaf, own), 64);
        assert_eq!(offset_of!(Leaf, in_line), 2 * 64);
        assert_eq!(offset_of!(Leaf, quantum), 3 * 64);
    }
}
