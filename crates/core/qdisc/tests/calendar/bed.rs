//! A calendar, its packets and a clock, and the list of waiting packets as the oracle.
//!
//! Every operation is checked against the list: a departing packet was waiting, is not early, and
//! is the oldest of its flow; when none leaves, none is due; and the calendar is polled in time.

use narrows_packet::{PacketId, Packets};
use narrows_qdisc::pacing::{Calendar, Slot};
use narrows_units::Nanos;
use std::collections::VecDeque;

const CAPACITY: u32 = 1 << 12;
/// The flows of a test.
pub const FLOWS: usize = 8;

/// A sort of calendar: how to make one, and how late its packets are at most.
pub struct Kind {
    make: Box<dyn Fn() -> Box<dyn Calendar>>,
    granularity: Option<Nanos>,
}

impl Kind {
    /// One whose slots all take `granularity`.
    pub fn even(granularity: Nanos, make: impl Fn() -> Box<dyn Calendar> + 'static) -> Self {
        Self { make: Box::new(make), granularity: Some(granularity) }
    }

    /// One whose slots take what their flow asks for.
    pub fn spaced(make: impl Fn() -> Box<dyn Calendar> + 'static) -> Self {
        Self { make: Box::new(make), granularity: None }
    }

    /// How long the slot of a packet is whose flow asks for `spacing`.
    pub fn length(&self, spacing: u32) -> Nanos {
        self.granularity.unwrap_or(Nanos(1 << spacing))
    }
}

/// Waiting packets.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: PacketId,
    flow: usize,
    at: Nanos,
    /// The departure time that the calendar returned.
    leaves: Nanos,
}

/// Departures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    pub id: PacketId,
    /// When it would have left with an immediate poll.
    pub leaves: Nanos,
}

#[derive(Clone, Copy, Default)]
struct Flow {
    at: Nanos,
    behind: Nanos,
}

pub struct Bed {
    pub now: Nanos,
    kind: Kind,
    calendar: Box<dyn Calendar>,
    packets: Packets,
    /// Unused packets, the longest unused first.
    free: VecDeque<PacketId>,
    flows: [Flow; FLOWS],
    /// In the order in which they came.
    waiting: Vec<Waiting>,
}

impl Bed {
    /// An empty calendar, made at `now`.
    pub fn new(kind: Kind, now: Nanos) -> Self {
        Self {
            now,
            calendar: (kind.make)(),
            kind,
            packets: Packets::new(CAPACITY),
            free: (0..CAPACITY).map(PacketId).collect(),
            flows: [Flow::default(); FLOWS],
            waiting: Vec::new(),
        }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The time after this many slots, for a flow without spacing.
    pub fn after(&self, slots: u64) -> Nanos {
        self.now + Nanos(slots * self.kind.length(0).0)
    }

    /// Puts in a packet of `flow` that may leave at `at`, or with the one before it if that is
    /// later.
    pub fn insert(&mut self, flow: usize, at: Nanos) -> PacketId {
        self.insert_spaced(flow, at, 0)
    }

    /// Puts in a packet of a flow whose packets are 2^`spacing` nanoseconds apart; it may leave at
    /// `at`, or after the one before it.
    pub fn insert_spaced(&mut self, flow: usize, at: Nanos, spacing: u32) -> PacketId {
        let id = self.free.pop_front().expect("fewer packets are needed");
        self.packets.arrive(id, 1500, self.now);
        let Flow { at: before, behind } = self.flows[flow];
        let at = at.max(before);
        let slot = Slot { at, behind, spacing };
        let leaves = self.calendar.insert(&mut self.packets, id, slot, self.now);
        let length = self.kind.length(spacing);
        let earliest = at.max(behind);
        assert!(leaves >= earliest, "leaves at {}, before {}", leaves.0, earliest.0);
        let latest = earliest.0 + length.0;
        assert!(leaves.0 < latest, "{} is more than a slot after {}", leaves.0, earliest.0);
        self.flows[flow] = Flow { at, behind: leaves };
        self.waiting.push(Waiting { id, flow, at, leaves });
        id
    }

    /// Takes out what may leave now, if anything may.
    pub fn pop(&mut self) -> Option<Left> {
        let Some(id) = self.calendar.pop(&mut self.packets, self.now) else {
            self.assert_nothing_is_due();
            return None;
        };
        let left = self.leave(id);
        assert!(self.now >= left.at, "left at {} instead of {}", self.now.0, left.at.0);
        assert!(self.now >= left.leaves, "left at {} and not at {}", self.now.0, left.leaves.0);
        Some(Left { id, leaves: left.leaves })
    }

    /// Takes out all packets that may leave now.
    pub fn pop_all(&mut self) -> Vec<PacketId> {
        std::iter::from_fn(|| self.pop()).map(|left| left.id).collect()
    }

    fn leave(&mut self, id: PacketId) -> Waiting {
        let place = self.waiting.iter().position(|waiting| waiting.id == id);
        let left = self.waiting.remove(place.expect("only what waits leaves"));
        let older = self.waiting[..place.unwrap_or(0)].iter().find(|older| older.flow == left.flow);
        assert!(older.is_none(), "{left:?} left before {older:?}");
        self.free.push_back(id);
        left
    }

    fn assert_nothing_is_due(&self) {
        let first = self.waiting.iter().min_by_key(|waiting| waiting.leaves);
        let next = self.calendar.next();
        let Some(first) = first else { return assert_eq!(next, None, "it is empty") };
        assert!(first.leaves > self.now, "{first:?} is due at {}", self.now.0);
        let next = next.expect("a packet waits");
        assert!(next <= first.leaves, "{first:?} would be missed at {}", next.0);
        assert!(next > self.now, "asking at {} is pointless: it is {}", next.0, self.now.0);
    }

    /// Advances to the calendar's next poll. Returns whether a packet waits.
    pub fn follow(&mut self) -> bool {
        let next = self.calendar.next();
        let due = self.waiting.iter().map(|waiting| waiting.leaves).min();
        assert_eq!(next.is_some(), due.is_some());
        let (Some(next), Some(due)) = (next, due) else { return false };
        assert!(next <= due.max(self.now), "at {} the one of {} is missed", next.0, due.0);
        self.now = self.now.max(next);
        true
    }

    /// Polls as requested until all have left, each exactly at its time.
    pub fn run(&mut self) -> Vec<PacketId> {
        let mut gone = Vec::new();
        let started = self.now;
        let mut asked = 0;
        while self.follow() {
            asked += 1;
            assert!(asked < 100_000, "it is asked for ever");
            while let Some(Left { id, leaves }) = self.pop() {
                assert_eq!(self.now.0, leaves.max(started).0, "{id:?} is not on time");
                gone.push(id);
            }
        }
        assert!(self.waiting.is_empty());
        gone
    }

    /// Takes out everything, regardless of time.
    pub fn drain(&mut self) -> Vec<PacketId> {
        let mut gone = Vec::new();
        while let Some(id) = self.calendar.drain(&mut self.packets) {
            self.leave(id);
            gone.push(id);
        }
        assert!(self.waiting.is_empty(), "{:?} are left", self.waiting);
        assert_eq!(self.calendar.next(), None);
        gone
    }
}
