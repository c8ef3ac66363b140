//! A leaf class on one queue: what waits there, and its seat at the tree.

use super::lines::{Place, Standing, Top};
use super::{Class, ClassMeter, DEPTH_MAX, LeafFigures, Line, TreeMeter};
use crate::class_queue::ClassQueue;
use crate::rotation::{Link, Linked};
use crate::sink::Sink;
use crate::{Handover, Next, Spec, Verdict, Weight};
use narrows_cpu::{prefetch, prefetch_all};
use narrows_packet::{PacketId, Packets};
use narrows_units::{Bytes, Nanos, wire::Overhead};

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

/// See the module's documentation.
///
/// In order of access: two cache lines for an arrival, one more for a class that becomes active or
/// takes its turn, and one for each further action.
#[repr(C, align(64))]
pub(super) struct Leaf {
    pub(super) queue: ClassQueue,
    /// Packets that came, those dropped included.
    came: u64,
    pub(super) state: State,
    pub(super) prio: u8,
    /// Whether what the queue weighs changes,
    has_weight: bool,
    /// and the rank of what it sends.
    has_ranks: bool,
    link: Link,
    /// The cost of the next packet, if there is one,
    cost: Bytes,
    /// and its rank.
    next_rank: u8,
    /// The right of the last request.
    asked_rank: u8,
    /// The right by which it asks for its lines.
    pub(super) rank: u8,

    meter: Box<dyn ClassMeter>,
    quantum: Bytes,
    overhead: Overhead,
    /// The queue's weight, as last told to the tree.
    weight: Weight,
    /// When it asks again, where it waits for a time.
    pub(super) until: Nanos,
    /// When to check whether it does; [`Nanos::MAX`] for never.
    pub(super) looked_at: Nanos,
    /// The time until which it counts as active without packets.
    pub(super) lingers_until: Nanos,

    /// Whether that check is scheduled.
    pub(super) is_looked_after: bool,
    /// Whether it stands in line with credit of its own.
    pub(super) has_own: bool,
    /// The lines for which it asks, before each of them.
    pub(super) asks_for: Top,
    /// Its place in a line.
    pub(super) in_line: Place,
    /// Its last line, since it has had packets.
    pub(super) last_line: Option<u32>,

    sent: Backlog64,
    overlimits: u64,
    pub(super) id: u32,
    granted: [u64; DEPTH_MAX],
}

/// Packets and bytes over a lifetime.
#[derive(Clone, Copy, Default)]
pub(super) struct Backlog64 {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Linked for Leaf {
    #[inline]
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
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
        let mut new = Self {
            id,
            prio: 0,
            state: State::Idle,
            until: Nanos::MAX,
            looked_at: Nanos::MAX,
            in_line: Place::NOWHERE,
            has_own: false,
            last_line: None,
            asks_for: Top::NONE,
            rank: 0,
            lingers_until: Nanos::ZERO,
            is_looked_after: false,
            link: Link::END,
            meter,
            has_weight: leaf.qdisc.config.has_weight(),
            has_ranks: leaf.qdisc.config.has_ranks(),
            next_rank: 0,
            asked_rank: 0,
            queue: ClassQueue::new(leaf.qdisc),
            cost: Bytes::ZERO,
            quantum: Bytes::ZERO,
            overhead: Overhead::NONE,
            weight: Weight::ONE,
            came: 0,
            sent: Backlog64::default(),
            overlimits: 0,
            granted: [0; DEPTH_MAX],
        };
        new.follow(&leaf.class);
        new
    }

    fn follow(&mut self, class: &Class) {
        self.prio = class.prio.min(super::PRIORITIES as u8 - 1);
        self.quantum = Bytes(u64::from(class.quantum));
        self.overhead = class.overhead;
        if let Some(held) = self.queue.held {
            self.cost = class.overhead.cost(held.len);
        }
    }

    /// Prefetches the data of an arrival.
    #[inline]
    pub(super) fn prefetch_arrival(&self) {
        prefetch(&self.queue);
        prefetch(&self.came);
        prefetch(&self.meter);
    }

    /// Prefetches all of it.
    #[inline]
    pub(super) fn prefetch(&self) {
        self.prefetch_arrival();
        prefetch(&self.in_line);
        prefetch(&self.sent);
    }

    /// Prefetches its qdisc and its seat.
    #[inline]
    pub(super) fn prefetch_parts(&self) {
        self.queue.prefetch_qdisc();
        prefetch_all(self.meter.as_ref());
    }

    /// Prefetches the data that the arrival of `id` touches behind these.
    #[inline]
    pub(super) fn expect(&self, packets: &Packets, id: PacketId) {
        self.queue.qdisc().expect(packets, id);
        if self.state == State::Idle {
            self.meter.expect();
        }
    }

    /// The same for its turn in the rotation.
    #[inline]
    pub(super) fn expect_turn(&self, packets: &Packets) {
        self.queue.qdisc().expect_departure(packets);
        self.meter.expect();
    }

    /// The same for the end of the time for which it still counts as active.
    #[inline]
    pub(super) fn expect_rest(&self) {
        self.meter.expect();
    }

    /// Whether its seat is at the present class of its number in `tree`: the class may have been
    /// deleted and created again.
    pub(super) fn is_seated_in(&self, tree: &dyn TreeMeter) -> bool {
        tree.is_seat_of(self.meter.seat_of(), self.id)
    }

    /// Replaces its seat at the tree.
    pub(super) fn sit_at(&mut self, meter: Box<dyn ClassMeter>) {
        self.meter = meter;
        (self.weight, self.asked_rank) = (Weight::ONE, 0);
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
        if self.has_ranks {
            self.next_rank = self.queue.qdisc().ranking().left;
        }
    }

    /// Tells the tree the best queued rank, which the next packet also has. Returns the bytes of
    /// that rank.
    #[inline(never)]
    fn follow_rank(&mut self, now: Nanos) -> Bytes {
        let rest = self.queue.qdisc().ranking();
        let rank = self.next_rank.min(rest.next);
        if rank != self.asked_rank {
            self.asked_rank = rank;
            self.meter.rank(rank, now);
        }
        let alike = if rest.next == self.next_rank { rest.bytes } else { Bytes::ZERO };
        self.cost + self.overhead.cost(alike)
    }

    /// Whether it waits although the new packet may not have to: its qdisc held everything back, or
    /// the packet has a better rank.
    #[inline]
    pub(super) fn is_hastened(&self) -> bool {
        if self.state != State::Waiting {
            return false;
        }
        let asked = self.asked_rank;
        self.queue.held.is_none() || (self.has_ranks && self.queue.qdisc().ranking().next < asked)
    }

    /// Applies the class's new parameters.
    pub(super) fn retune(&mut self, class: &Class, qdisc: Spec, handover: &mut Handover<'_>) {
        self.follow(class);
        self.has_weight = qdisc.config.has_weight();
        self.has_ranks = qdisc.config.has_ranks();
        if !self.has_ranks && self.asked_rank != 0 {
            self.asked_rank = 0;
            self.meter.rank(0, handover.now);
        }
        self.queue.retune(qdisc, handover);
        self.follow_weight();
    }

    /// What it waits for in addition to a time, after it could not borrow.
    #[inline]
    pub(super) fn line(&self) -> Option<Line> {
        self.meter.line()
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
        self.queue.held.map_or(Nanos::MAX, |_| self.meter.due_below(level, self.cost, now))
    }

    #[inline]
    pub(super) fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        self.came += 1;
        self.queue.enqueue(packets, id, now)
    }

    pub(super) fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        self.came += 1;
        self.queue.adopt(packets, id, now);
    }

    pub(super) fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let id = self.queue.drain(packets)?;
        // It was neither sent nor dropped here.
        self.came -= 1;
        Some(id)
    }

    /// Tells the tree whether it has packets.
    #[inline]
    pub(super) fn set_active(&mut self, active: bool) {
        self.meter.set_active(active);
    }

    /// Sends up to a quantum, with the class's own credit or, if `borrow` is true, with borrowed
    /// credit.
    #[inline]
    pub(super) fn turn(
        &mut self,
        packets: &mut Packets,
        borrow: bool,
        now: Nanos,
        out: &mut impl Sink,
    ) -> Turn {
        let turn = self.send(packets, borrow, now, out);
        self.queue.settle();
        turn
    }

    fn send(
        &mut self,
        packets: &mut Packets,
        borrow: bool,
        now: Nanos,
        out: &mut impl Sink,
    ) -> Turn {
        let mut held = match self.queue.held {
            Some(held) => held,
            None => match self.queue.next(packets, now) {
                Ok(held) => {
                    self.cost = self.overhead.cost(held.len);
                    self.rank_next();
                    *self.queue.held.insert(held)
                }
                Err(next) => return Self::out_of_packets(next),
            },
        };
        let queued = if self.has_ranks {
            self.follow_rank(now)
        } else {
            self.overhead.cost(self.queue.backlog().bytes)
        };
        if self.has_weight {
            self.follow_weight();
        }
        let least = self.cost;
        let want = if out.room() == 1 { least } else { self.quantum.min(queued).max(least) };
        let grant = match self.meter.buy(least, want, borrow, now) {
            Ok(grant) => grant,
            Err(at) => {
                self.overlimits += u64::from(borrow);
                return Turn::Short(at);
            }
        };
        let mut credit = grant.bytes;
        let mut sent = Backlog64::default();
        let turn = loop {
            self.queue.held = None;
            credit = Bytes(credit.0 - self.cost.0);
            sent.packets += 1;
            sent.bytes += held.len.0;
            self.queue.sent(packets, held.id, now);
            out.push(held.id);
            if !out.has_room() {
                break Turn::More;
            }
            held = match self.queue.next(packets, now) {
                Ok(held) => held,
                Err(next) => break Self::out_of_packets(next),
            };
            self.cost = self.overhead.cost(held.len);
            self.rank_next();
            // A purchase is for packets of one rank.
            if self.cost > credit || (self.has_ranks && self.next_rank > self.asked_rank) {
                self.queue.held = Some(held);
                break Turn::More;
            }
        };
        if credit > Bytes::ZERO {
            self.meter.give_back(credit);
        }
        self.sent.packets += sent.packets;
        self.sent.bytes += sent.bytes;
        self.granted[usize::from(grant.lender)] += sent.packets;
        turn
    }

    fn out_of_packets(next: Next) -> Turn {
        match next {
            Next::Empty | Next::Now => Turn::Empty,
            Next::At(at) | Next::Held(at) => Turn::Held(at),
        }
    }

    /// Packets that left.
    #[inline]
    pub(super) fn sent(&self) -> Backlog64 {
        self.sent
    }

    pub(super) fn drops(&self) -> u64 {
        self.came - self.sent.packets - u64::from(self.queue.backlog().packets)
    }

    pub(super) fn figures(&self, now: Nanos) -> LeafFigures {
        LeafFigures {
            sent_bytes: self.sent.bytes,
            sent_packets: self.sent.packets,
            drops: self.drops(),
            overlimits: self.overlimits,
            backlog: self.queue.backlog(),
            granted: self.granted,
            tokens: self.meter.tokens(now),
            delays: self.queue.delays().clone(),
        }
    }
}
