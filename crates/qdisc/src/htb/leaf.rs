//! A leaf class on one queue: what waits there, and its seat at the tree.

use super::rotation::{Link, Linked};
use super::{Class, ClassMeter, DEPTH_MAX, LeafFigures};
use crate::held::restate;
use crate::sink::Sink;
use crate::{Handover, Next, Qdisc, Slot, Spec, Stats, Verdict};
use narrows_packet::{Backlog, PacketId, Packets};
use narrows_units::{Bytes, Nanos, wire::Overhead};

/// The packet that leaves next, out of the qdisc already.
#[derive(Clone, Copy)]
struct Held {
    id: PacketId,
    len: Bytes,
    cost: Bytes,
}

/// What a class waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// For packets.
    Idle,
    /// For its turn.
    Ready,
    /// For a time.
    Waiting,
}

/// How long a class that has nothing to send counts among those that have: one that sends a little
/// all the time does not come and go with each packet.
pub(super) const LINGER: Nanos = Nanos::from_millis(1);

/// What came of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// It has used its turn, and has more to send.
    More,
    /// It has nothing to send.
    Empty,
    /// Its qdisc holds everything back until then.
    Held(Nanos),
    /// It may not send before then.
    Short(Nanos),
}

/// See the module's documentation.
pub(super) struct Leaf {
    pub(super) id: u32,
    pub(super) prio: u8,
    pub(super) state: State,
    /// Until when it counts among those that have something to send, where it has nothing.
    pub(super) lingers_until: Nanos,
    /// Whether somebody comes to look then.
    pub(super) is_looked_after: bool,
    link: Link,
    meter: Box<dyn ClassMeter>,
    slot: Slot,
    held: Option<Held>,
    /// The length of the packet that a former qdisc had handed over, if there was one.
    inherited: Option<Bytes>,
    quantum: Bytes,
    overhead: Overhead,
    /// What is queued, the held packet included.
    backlog: Backlog,
    /// Packets that came, those dropped included.
    came: u64,
    sent: Backlog64,
    overlimits: u64,
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

impl Leaf {
    pub(super) fn new(id: u32, leaf: super::class::Leaf, meter: Box<dyn ClassMeter>) -> Self {
        let mut new = Self {
            id,
            prio: 0,
            state: State::Idle,
            lingers_until: Nanos::ZERO,
            is_looked_after: false,
            link: Link::END,
            meter,
            slot: Slot::new(leaf.qdisc),
            held: None,
            inherited: None,
            quantum: Bytes::ZERO,
            overhead: Overhead::NONE,
            backlog: Backlog::default(),
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
        if let Some(held) = &mut self.held {
            held.cost = class.overhead.cost(held.len);
        }
    }

    /// Has another seat at the tree from now on.
    pub(super) fn sit_at(&mut self, meter: Box<dyn ClassMeter>) {
        self.meter = meter;
    }

    /// Takes over what the class is now.
    pub(super) fn retune(&mut self, class: &Class, qdisc: Spec, handover: &mut Handover<'_>) {
        self.follow(class);
        if qdisc.id != self.slot.id() {
            self.inherited = self.held.map(|held| held.len);
        }
        self.slot.take_over(qdisc, handover);
        self.settle();
    }

    #[inline]
    pub(super) fn backlog(&self) -> Backlog {
        self.backlog
    }

    pub(super) fn qdisc_mut(&mut self) -> &mut dyn Qdisc {
        self.slot.qdisc_mut()
    }

    /// The figures of the qdiscs below the class.
    pub(super) fn stats(&self, into: &mut Vec<Stats>) {
        let below = into.len();
        self.slot.stats(into);
        // No qdisc below a class has another one below it.
        restate(&mut into[below..], self.inherited, self.held.map(|held| held.len));
    }

    /// Looks up what is queued, where the qdisc may have dropped something.
    #[inline]
    fn settle(&mut self) {
        let mut backlog = self.slot.qdisc().backlog();
        if let Some(held) = self.held {
            backlog.packets += 1;
            backlog.bytes += held.len;
        }
        self.backlog = backlog;
    }

    #[inline]
    pub(super) fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        self.came += 1;
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

    pub(super) fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        self.came += 1;
        self.slot.qdisc_mut().adopt(packets, id, now);
        self.settle();
    }

    pub(super) fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let id = match self.held.take() {
            Some(held) => held.id,
            None => self.slot.qdisc_mut().drain(packets)?,
        };
        // It was neither sent nor dropped here.
        self.came -= 1;
        self.settle();
        Some(id)
    }

    /// Tells the tree whether it has something to send.
    #[inline]
    pub(super) fn set_active(&mut self, active: bool) {
        self.meter.set_active(active);
    }

    #[inline]
    fn next(&mut self, packets: &mut Packets, now: Nanos) -> Result<Held, Next> {
        let id = self.slot.qdisc_mut().dequeue_one(packets, now)?;
        let len = packets.len(id);
        Ok(Held { id, len, cost: self.overhead.cost(len) })
    }

    /// Sends up to a quantum, of what the class has itself or, where `borrow` is true, of what
    /// others lend.
    #[inline]
    pub(super) fn turn(
        &mut self,
        packets: &mut Packets,
        borrow: bool,
        now: Nanos,
        out: &mut impl Sink,
    ) -> Turn {
        let turn = self.send(packets, borrow, now, out);
        self.settle();
        turn
    }

    fn send(
        &mut self,
        packets: &mut Packets,
        borrow: bool,
        now: Nanos,
        out: &mut impl Sink,
    ) -> Turn {
        let first = match self.held {
            Some(held) => held,
            None => match self.next(packets, now) {
                Ok(held) => *self.held.insert(held),
                Err(next) => return Self::out_of_packets(next),
            },
        };
        let least = first.cost;
        let queued = self.overhead.cost(self.backlog.bytes);
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
        let mut held = first;
        let turn = loop {
            self.held = None;
            credit = Bytes(credit.0 - held.cost.0);
            sent.packets += 1;
            sent.bytes += held.len.0;
            out.push(held.id);
            if !out.has_room() {
                break Turn::More;
            }
            held = match self.next(packets, now) {
                Ok(held) => held,
                Err(next) => break Self::out_of_packets(next),
            };
            if held.cost > credit {
                self.held = Some(held);
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
        self.came - self.sent.packets - u64::from(self.backlog.packets)
    }

    pub(super) fn figures(&self, now: Nanos) -> LeafFigures {
        LeafFigures {
            sent_bytes: self.sent.bytes,
            sent_packets: self.sent.packets,
            drops: self.drops(),
            overlimits: self.overlimits,
            backlog: self.backlog,
            granted: self.granted,
            tokens: self.meter.tokens(now),
        }
    }
}
