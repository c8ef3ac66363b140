//! `htb`: classes in a tree, each with an assured rate and a ceiling, that lend their unused rate.
//!
//! The tree is elsewhere: all queues of a port share it, behind [`TreeMeter`]. A queue holds its
//! own packets, by leaf class, and buys credit for each class. So a class has one rate on any
//! number of queues.
//!
//! *Order, as in HTB.* A class uses its own credit before it borrows, a better priority goes before
//! a worse one, and classes of one priority take turns of a quantum. The tree enforces this between
//! queues; here the same rule applies to the classes of one queue.
//!
//! *Classes wait for a time.* A class that may not send learns when to ask again, and waits in a
//! heap of times until then. So thousands of classes at their ceilings cost nothing in between.
//! Classes that wait for the same lender stand in lines ([`lines`]), and one asks for all. So a
//! packet costs the same however many others wait.
//!
//! *A queue knows the classes that it has sent for.* A class's qdisc is built with the first packet
//! that comes for it: a million classes on sixty queues are not sixty million qdiscs.
//!
//! *With thousands of classes, each access misses the caches.* So the hot fields of a class share
//! cache lines ([`leaf`]), and few are accessed: a queue that alone sends for a class buys what the
//! class has of its own without its seat ([`OwnCredit`]). It joins the races of the tree when it
//! first asks at its seat. It leaves them at once if that changes nothing
//! ([`ClassMeter::rests`](class::ClassMeter::rests)), and later otherwise. The order of turns is in
//! queues apart from the classes, so the classes whose turns come next are prefetched.
//!
//! Packets are classified before they come here:
//! [`Meta::class_at`](narrows_packet::Meta::class_at) is the class's number. A packet without a
//! class, or whose class is no leaf, goes to the default class; without a default class it is sent
//! at once, as `direct`.
//!
//! Cost: a table look-up to enqueue, besides what the class's qdisc costs. A purchase at the tree
//! for each turn of a class, and a call of the qdisc for each packet.
//!
//! Source: M. Devera, `sch_htb.c`, `tc-htb(8)`.

use crate::draining::Draining;
use crate::heap::Heap;
use crate::overlimits::Overlimits;
use crate::places::Places;
use crate::sink::Sink;
use crate::{Above, Handover, Next, NodeId, Qdisc, Spec, Stats, Verdict};
use leaf::{LINGER, Leaf, State, Turn};
use lines::{Lines, Place, Top};
use narrows_packet::{Backlog, Batch, DropReason, Fifo, PacketId, Packets, Reading};
use narrows_units::Nanos;
use std::collections::VecDeque;
use turns::{Stage, Turns};

mod class;
mod figures;
mod leaf;
mod lines;
mod turns;

pub use class::{
    Class, ClassMeter, DEPTH_MAX, Grant, Leaf as LeafClass, Line, OwnCredit, PRIORITIES, TreeMeter,
};
pub use figures::{Figures, LeafFigures};

/// The last number that a class can have.
pub const CLASS_MAX: u32 = 0x7fff_ffff;

/// Parameters of the qdisc itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The class of packets that have none; 0 for none.
    pub default: u32,
    /// The treatment of packets if there is no class at all.
    pub unclassified: Unclassified,
}

/// The treatment of packets without a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unclassified {
    /// Direct packets are sent at once; at most this many wait for room on the device.
    Sent(u32),
    /// They are dropped, and so are the packets of a deleted class: classes are bands.
    Dropped,
}

/// No packet has used this class yet.
const UNKNOWN: u32 = 0;
/// Packets of this class have none.
const DIRECT: u32 = u32::MAX;

/// The number of a leaf whose class is gone.
const RETIRED: u32 = 0;

/// With more classes than this on a queue, their data is prefetched before a packet or a turn needs
/// it. Fewer stay in the nearest cache.
const NEAR: usize = 64;

/// The packets of a batch to look ahead.
const AHEAD: usize = 32;
/// The resting classes to look ahead.
const REST_AHEAD: usize = 16;

/// Places of retired classes are searched for and cleared when there are this many,
const RETIRED_FEWEST: usize = 64;
/// and at least this part of all. So a class takes a few steps, however many there are.
const RETIRED_PART: usize = 8;

/// Lines that nobody uses are forgotten when there are this many times as many as leaves.
const LINES_MOST: usize = 2;

/// The most times in the heap for a class: one, and an earlier one that was added before it came
/// due.
const TIMES_A_CLASS: usize = 2;

/// See the module's documentation.
pub(crate) struct Htb {
    config: Config,
    /// The number of classful qdiscs above it.
    level: u8,
    tree: Box<dyn TreeMeter>,
    /// Whether other queues send for the tree, too, as of the last batch.
    has_others: bool,
    reading: Reading,
    /// By the number of a class, its place among the leaves and one more; or one of the above.
    places: Places,
    leaves: Vec<Leaf>,
    /// Places of leaves whose classes are gone, which may still take turns or stand in a line.
    retired: Vec<u32>,
    /// Places for new leaves: nothing refers to them.
    vacant: Vec<u32>,
    draining: Draining,
    /// Classes that may have credit of their own, by priority, in the order of their turns.
    assured: [Turns; PRIORITIES],
    /// Classes without credit of their own that have not tried to borrow yet. A class takes turns
    /// in one of these queues at most.
    borrowing: [Turns; PRIORITIES],
    waiting: Heap,
    /// The place of the leaf whose packet left last.
    last: Option<u32>,
    /// Classes without packets, and when to check whether that is still so: in the order of these
    /// times, because all linger equally long.
    lingering: VecDeque<(Nanos, u32)>,
    lines: Lines,
    direct: Fifo,
    direct_packets: u64,
    backlog: Backlog,
    /// All but drops and backlog.
    stats: Stats,
    /// Packets that came, those dropped included.
    came: u64,
    overlimits: Overlimits,
    /// When it was asked last.
    now: Nanos,
}

impl Htb {
    pub(crate) fn new(config: Config, level: u8, tree: Box<dyn TreeMeter>) -> Self {
        Self {
            config,
            level,
            reading: reading(tree.as_ref()),
            tree,
            has_others: false,
            places: Places::default(),
            leaves: Vec::new(),
            retired: Vec::new(),
            vacant: Vec::new(),
            draining: Draining::default(),
            assured: Default::default(),
            borrowing: Default::default(),
            waiting: Heap::default(),
            last: None,
            lingering: VecDeque::new(),
            lines: Lines::default(),
            direct: Fifo::new(),
            direct_packets: 0,
            backlog: Backlog::default(),
            stats: Stats::default(),
            came: 0,
            overlimits: Overlimits::default(),
            now: Nanos::ZERO,
        }
    }

    /// The place of the leaf for packets of `class`; `None` if they have none.
    #[inline]
    fn place_of(&mut self, class: u32) -> Option<u32> {
        match self.places.get(class) {
            UNKNOWN => self.find(class),
            DIRECT => None,
            place => Some(place - 1),
        }
    }

    /// The same for a class's first packet.
    #[cold]
    fn find(&mut self, class: u32) -> Option<u32> {
        let place = match self.open(class) {
            Some(place) => Some(place),
            None if class == self.config.default => None,
            // Ends there: the default class has no other one.
            None => self.place_of(self.config.default),
        };
        self.places.set(class, place.map_or(DIRECT, |place| place + 1));
        place
    }

    /// The class `id`, if it is a leaf, with the qdisc `runs` in it; a new one gets a seat at the
    /// census.
    fn leaf(&self, id: u32, runs: Option<NodeId>) -> Option<LeafClass> {
        let mut leaf = self.tree.leaf(id)?;
        if leaf.qdisc.config.counts_together() && runs != Some(leaf.qdisc.id) {
            leaf.qdisc.census = self.tree.census(id);
        }
        Some(leaf)
    }

    /// Builds this queue's leaf of `class`, if that is a leaf.
    fn open(&mut self, class: u32) -> Option<u32> {
        if class == 0 {
            return None;
        }
        let meter = self.tree.meter(class)?;
        let leaf = self.leaf(class, None)?;
        let leaf = Leaf::new(class, leaf, meter);
        let prio = leaf.prio;
        if let Some(place) = self.vacant.pop() {
            self.leaves[place as usize] = leaf;
            self.make_room_at(prio);
            return Some(place);
        }
        let place = self.leaves.len() as u32;
        if self.leaves.len() == self.leaves.capacity() {
            self.leaves.reserve(1);
            narrows_cpu::ask_for_huge_pages(&mut self.leaves);
        }
        self.leaves.push(leaf);
        let room = self.leaves.capacity();
        self.waiting.make_room(TIMES_A_CLASS * room);
        self.lingering.reserve_exact(room - self.lingering.len());
        self.make_room_at(prio);
        Some(place)
    }

    /// Makes room for all leaves to take turns with this priority.
    fn make_room_at(&mut self, prio: u8) {
        let room = self.leaves.capacity();
        for turns in [&mut self.assured, &mut self.borrowing] {
            turns[usize::from(prio)].make_room(room);
        }
    }

    /// Queues the packet `id` at the leaf at `place`.
    #[inline]
    fn enqueue_at(
        &mut self,
        packets: &mut Packets,
        place: u32,
        id: PacketId,
        now: Nanos,
    ) -> Verdict {
        let leaf = &mut self.leaves[place as usize];
        if !leaf.queue.is_fifo() {
            return self.enqueue_in_other(packets, place, id, now);
        }
        let verdict = leaf.enqueue(packets, id, now);
        if verdict == Verdict::Queued {
            self.backlog.packets += 1;
            self.backlog.bytes += packets.len(id);
            if leaf.state == State::Idle {
                self.make_ready(place);
            }
        }
        verdict
    }

    /// The same where the leaf's qdisc is no FIFO: it may drop other packets, and a better one may
    /// have come.
    fn enqueue_in_other(
        &mut self,
        packets: &mut Packets,
        place: u32,
        id: PacketId,
        now: Nanos,
    ) -> Verdict {
        let leaf = &mut self.leaves[place as usize];
        let before = leaf.queue.backlog();
        let verdict = leaf.enqueue(packets, id, now);
        let after = leaf.queue.backlog();
        self.came += u64::from(verdict == Verdict::Copied);
        self.count(before, after);
        self.wake(place);
        verdict
    }

    /// Prefetches the data that the arrivals of `ids` touch behind their leaves, at `places`.
    fn expect(&self, packets: &Packets, places: &[u32], ids: &[PacketId]) {
        let mut are_fifos = true;
        let arrivals = places.iter().zip(ids);
        let arrivals =
            arrivals.filter_map(|(place, id)| Some((self.leaves.get(*place as usize)?, *id)));
        for (leaf, id) in arrivals.clone() {
            if leaf.queue.is_fifo() {
                leaf.expect(packets, id);
            } else {
                leaf.prefetch_qdisc();
                are_fifos = false;
            }
        }
        if !are_fifos {
            let others = arrivals.filter(|(leaf, _)| !leaf.queue.is_fifo());
            others.for_each(|(leaf, id)| leaf.expect(packets, id));
        }
    }

    /// Prefetches the data for the next turns.
    #[inline(never)]
    fn look_ahead(&mut self, packets: &Packets, borrow: bool, prio: usize) {
        let turns = if borrow { &mut self.borrowing[prio] } else { &mut self.assured[prio] };
        let leaves = &self.leaves;
        turns.look_ahead(|stage, place| {
            let Some(leaf) = leaves.get(place as usize) else { return };
            match stage {
                Stage::Leaf => leaf.prefetch(),
                Stage::Parts => leaf.prefetch_parts(),
                Stage::Turn => leaf.expect_turn(packets),
                Stage::Above => leaf.expect_above(),
            }
        });
    }

    /// The same for classes that rest soon.
    #[inline]
    fn look_ahead_at_rest(&self) {
        let soon = |ahead: usize| {
            let (_, place) = self.lingering.get(ahead)?;
            self.leaves.get(*place as usize)
        };
        soon(REST_AHEAD / 2).into_iter().for_each(Leaf::prefetch_waiting);
        soon(REST_AHEAD / 4).into_iter().for_each(Leaf::prefetch_parts);
        soon(0).into_iter().for_each(Leaf::expect_rest);
    }

    /// A packet has arrived for the leaf at `place`.
    #[inline]
    fn wake(&mut self, place: u32) {
        let leaf = &mut self.leaves[place as usize];
        if leaf.state == State::Idle && !leaf.queue.backlog().is_empty() {
            self.make_ready(place);
        } else if leaf.is_hastened() {
            self.lines.remove(&mut self.leaves, place);
            self.make_ready(place);
        }
    }

    /// The leaf at `place` takes turns from now on.
    #[inline]
    fn make_ready(&mut self, place: u32) {
        let leaf = &mut self.leaves[place as usize];
        leaf.state = State::Ready;
        let prio = usize::from(leaf.prio);
        self.assured[prio].push(place);
    }

    fn count(&mut self, before: Backlog, after: Backlog) {
        self.backlog.packets = self.backlog.packets - before.packets + after.packets;
        self.backlog.bytes = self.backlog.bytes - before.bytes + after.bytes;
    }

    fn enqueue_direct(&mut self, packets: &mut Packets, id: PacketId) -> Verdict {
        let reason = match self.config.unclassified {
            Unclassified::Sent(limit) if self.direct.backlog().packets < limit => None,
            Unclassified::Sent(_) => Some(DropReason::Limit),
            Unclassified::Dropped => Some(DropReason::Unclassified),
        };
        if let Some(reason) = reason {
            packets.discard(id, reason);
            return Verdict::Dropped;
        }
        self.push_direct(packets, id);
        Verdict::Queued
    }

    fn push_direct(&mut self, packets: &mut Packets, id: PacketId) {
        let before = self.direct.backlog();
        self.direct.push_back(packets, id);
        self.count(before, self.direct.backlog());
    }

    fn release(&mut self, packets: &mut Packets, now: Nanos, out: &mut impl Sink) -> Next {
        self.now = now;
        self.has_others = self.tree.has_others();
        let are_many = self.leaves.len() > NEAR;
        self.send_direct(packets, out);
        while let Some(at) = self.waiting.first()
            && at <= now
            && let Some((_, place)) = self.waiting.pop()
        {
            if are_many && let Some(next) = self.waiting.first_flow() {
                self.leaves[next as usize].prefetch_waiting();
            }
            self.class_has_waited(place, at, now);
        }
        while let Some(&(at, place)) = self.lingering.front()
            && at <= now
        {
            self.lingering.pop_front();
            if are_many {
                self.look_ahead_at_rest();
            }
            self.class_has_lingered(place, now);
        }
        let is_full = loop {
            if self.send_classes(packets, false, now, out)
                || self.send_classes(packets, true, now, out)
            {
                break true;
            }
            // A class in line behind a borrower may have credit of its own.
            if self.assured.iter().all(Turns::is_empty) {
                break false;
            }
        };
        let lingers = self.lingering.front().map(|(at, _)| *at);
        let next = match self.waiting.first().into_iter().chain(lingers).min() {
            // What has no class waits for nothing but room.
            _ if is_full || !self.direct.backlog().is_empty() => Next::Now,
            Some(at) => Next::Held(at),
            None => Next::Empty,
        };
        match next {
            Next::Now => {}
            Next::Empty => self.overlimits.passed(&mut self.stats, self.backlog.packets),
            _ => self.overlimits.refused(&mut self.stats, self.backlog.packets),
        }
        next
    }

    /// The time `at`, for which the class at `place` may have waited, has come.
    fn class_has_waited(&mut self, place: u32, at: Nanos, now: Nanos) {
        let leaf = &mut self.leaves[place as usize];
        if leaf.looked_at != at {
            return;
        }
        leaf.looked_at = Nanos::MAX;
        if leaf.state != State::Waiting {
            return;
        }
        if leaf.until > now {
            let until = leaf.until;
            return self.wait(place, until);
        }
        self.lines.remove(&mut self.leaves, place);
        self.make_ready(place);
    }

    fn class_has_lingered(&mut self, place: u32, now: Nanos) {
        let leaf = &mut self.leaves[place as usize];
        leaf.is_looked_after = false;
        if leaf.state == State::Idle {
            if leaf.lingers_until > now {
                let until = leaf.lingers_until;
                self.linger(place, until);
            } else {
                leaf.sleep();
            }
        }
    }

    /// Makes the class at `place` wait until `until`, or until an earlier event.
    fn wait(&mut self, place: u32, until: Nanos) {
        let leaf = &mut self.leaves[place as usize];
        leaf.state = State::Waiting;
        leaf.until = until;
        if until < leaf.looked_at {
            leaf.looked_at = until;
            self.waiting.insert(until, place);
        }
    }

    /// Makes the waiting class at `place` ask.
    fn ask(&mut self, place: u32, now: Nanos) {
        let leaf = &mut self.leaves[place as usize];
        if leaf.has_own || leaf.until <= now {
            return self.make_ready(place);
        }
        leaf.state = State::Ready;
        let prio = usize::from(leaf.prio);
        self.borrowing[prio].push(place);
    }

    /// The class at `place` was refused until `at`.
    fn refused(&mut self, place: u32, at: Nanos, now: Nanos) {
        let are_many = self.leaves.len() > self.tree.asking_alone();
        let leaf = &self.leaves[place as usize];
        let Some(Line { rank, levels, borrows }) = leaf.line().filter(|_| are_many) else {
            self.pass_on(place, 0, false, now);
            return self.wait(place, at);
        };
        // It stops asking where others ask by another right, and above the classes that it waits
        // for.
        let level = if leaf.rank == rank { levels } else { 0 };
        self.pass_on(place, level, false, now);
        let leaf = &mut self.leaves[place as usize];
        (leaf.rank, leaf.has_own) = (rank, !borrows);
        for level in self.lines.level_of(leaf.asks_for) + 1..=levels {
            let (id, turn) = self.leaves[place as usize].place_in_line(level, now);
            let line = self.lines.of(id, level);
            if self.lines.asker(line).is_some() {
                let due = self.due_in(line, place, now);
                return self.stand_in(line, place, turn, due);
            }
            let top = &mut self.leaves[place as usize].asks_for;
            self.lines.put_before(top, place, line);
        }
        self.leaves[place as usize].forget_lines();
        self.wait(place, at);
    }

    /// When the class at `place` gets credit from classes below that of `line`.
    fn due_in(&mut self, line: u32, place: u32, now: Nanos) -> Nanos {
        let level = self.lines.level(line);
        self.leaves[place as usize].due_below(level, now).max(now + Nanos(1))
    }

    /// Puts the class at `place` into `line`, until there is credit at `due`.
    fn stand_in(&mut self, line: u32, place: u32, turn: u64, due: Nanos) {
        self.leaves[place as usize].joins(line);
        self.lines.insert(&mut self.leaves, place, line, turn);
        self.wait(place, due);
    }

    /// The class at `place` stops asking for lines above `level`: the first of each line asks
    /// instead, or, if `returns`, the class itself where its turn is earlier. Where it waits for a
    /// higher line, too, it also asks for that one.
    fn pass_on(&mut self, place: u32, level: u8, returns: bool, now: Nanos) {
        let top = &mut self.leaves[place as usize].asks_for;
        if *top == Top::NONE {
            return;
        }
        let (lines, count) = self.lines.take_above(top, level);
        let mut next = returns.then_some(place);
        for &line in &lines[..count] {
            let level = self.lines.level(line);
            if let Some(place) = next
                && self.leaves[place as usize].waits_up_to() < level
            {
                // It waits for less, and has no turn in this line.
                self.ask(place, now);
                next = None;
            }
            if let Some(place) = next {
                let (_, turn) = self.leaves[place as usize].place_in_line(level, now);
                if self.lines.goes_before(&self.leaves, line, turn) {
                    next = self.lines.pop_front(&mut self.leaves, line);
                    let due = self.due_in(line, place, now);
                    self.stand_in(line, place, turn, due);
                }
            } else {
                next = self.lines.pop_front(&mut self.leaves, line);
            }
            if let Some(place) = next {
                let top = &mut self.leaves[place as usize].asks_for;
                self.lines.put_before(top, place, line);
            }
        }
        if let Some(place) = next {
            self.ask(place, now);
        }
    }

    /// Schedules a check at `until` whether the class at `place` still has no packets.
    fn linger(&mut self, place: u32, until: Nanos) {
        let leaf = &mut self.leaves[place as usize];
        leaf.lingers_until = until;
        if !leaf.is_looked_after {
            leaf.is_looked_after = true;
            self.lingering.push_back((until, place));
        }
    }

    fn send_direct(&mut self, packets: &mut Packets, out: &mut impl Sink) {
        let before = self.direct.backlog();
        if before.is_empty() {
            return;
        }
        while out.has_room()
            && let Some(id) = self.direct.pop_front(packets)
        {
            self.direct_packets += 1;
            self.stats.sent_packets += 1;
            self.stats.sent_bytes += packets.len(id).0;
            self.last = None;
            out.push(id);
        }
        self.count(before, self.direct.backlog());
    }

    /// Sends with the classes' own credit or, if `borrow`, with borrowed credit. Returns whether
    /// the batch is full.
    fn send_classes(
        &mut self,
        packets: &mut Packets,
        borrow: bool,
        now: Nanos,
        out: &mut impl Sink,
    ) -> bool {
        for prio in 0..PRIORITIES {
            while !self.turns_mut(borrow, prio).is_empty() {
                if !out.has_room() {
                    return true;
                }
                if self.leaves.len() > NEAR && self.turns_mut(borrow, prio).is_due() {
                    self.look_ahead(packets, borrow, prio);
                }
                let Some(place) = self.turns_mut(borrow, prio).pop() else { break };
                if !self.joins_line(place, borrow, now) {
                    self.send_class(packets, place, borrow, now, out);
                }
            }
        }
        false
    }

    /// Whether the class at `place`, with credit of its own or (`borrow`) without, would be refused
    /// like the one that asks for its former line: then it returns to that line.
    fn joins_line(&mut self, place: u32, borrow: bool, now: Nanos) -> bool {
        let leaf = &self.leaves[place as usize];
        let Some(line) = leaf.last_line(!borrow) else { return false };
        let level = self.lines.level(line);
        let is_led = self.lines.asker(line).is_some_and(|asker| asker != place);
        if !is_led || self.lines.level_of(leaf.asks_for) >= level {
            return false;
        }
        let leaf = &mut self.leaves[place as usize];
        let Some(due) = leaf.waits_again(!borrow, level, now) else { return false };
        let Some(Line { rank, .. }) = leaf.line() else { return false };
        if leaf.rank != rank {
            self.pass_on(place, 0, false, now);
        }
        let leaf = &mut self.leaves[place as usize];
        (leaf.rank, leaf.has_own) = (rank, !borrow);
        let (_, turn) = leaf.place_in_line(level, now);
        self.stand_in(line, place, turn, due);
        true
    }

    #[inline]
    fn turns_mut(&mut self, borrow: bool, prio: usize) -> &mut Turns {
        if borrow { &mut self.borrowing[prio] } else { &mut self.assured[prio] }
    }

    fn send_class(
        &mut self,
        packets: &mut Packets,
        place: u32,
        borrow: bool,
        now: Nanos,
        out: &mut impl Sink,
    ) {
        let leaf = &mut self.leaves[place as usize];
        if self.has_others {
            leaf.expect_purchase();
        }
        let before = leaf.queue.backlog();
        let (turn, sent) = leaf.turn(packets, borrow, now, out);
        let (after, prio) = (leaf.queue.backlog(), usize::from(leaf.prio));
        if sent.packets != 0 {
            self.stats.sent_packets += u64::from(sent.packets);
            self.stats.sent_bytes += sent.bytes.0;
            self.last = Some(place);
        }
        match turn {
            Turn::Short(_) if !borrow && !self.leaves[place as usize].is_held() => {
                self.borrowing[prio].push(place);
            }
            _ => self.end_turn(place, turn, borrow, now),
        }
        self.count(before, after);
    }

    fn end_turn(&mut self, place: u32, turn: Turn, borrow: bool, now: Nanos) {
        let leaf = &mut self.leaves[place as usize];
        let prio = usize::from(leaf.prio);
        match turn {
            Turn::More if leaf.asks_for != Top::NONE && (borrow || leaf.has_own) => {
                self.pass_on(place, 0, true, now);
            }
            Turn::More => self.turns_mut(borrow, prio).push(place),
            Turn::Short(at) => self.refused(place, at, now),
            Turn::Held(at) => {
                if at > now + LINGER {
                    leaf.sleep();
                }
                self.pass_on(place, 0, false, now);
                self.wait(place, at);
            }
            Turn::Empty => {
                leaf.state = State::Idle;
                leaf.forget_lines();
                self.pass_on(place, 0, false, now);
                if !self.leaves[place as usize].rests() {
                    self.linger(place, now + LINGER);
                }
            }
        }
    }

    /// Whether the default class is unchanged, if it is among `changed`: it holds the packets of
    /// all unknown classes.
    fn can_follow(&self, changed: &[u32]) -> bool {
        let default = self.config.default;
        !changed.contains(&default)
            || self.place_known(default).is_some_and(|place| self.is_seated(place))
    }

    /// Whether the leaf at `place` belongs to the tree's present class of its number.
    fn is_seated(&self, place: u32) -> bool {
        let leaf = &self.leaves[place as usize];
        self.tree.leaf(leaf.id).is_some() && leaf.is_seated_in(self.tree.as_ref())
    }

    /// The place of the leaf of `class` itself, where this queue has one.
    fn place_known(&self, class: u32) -> Option<u32> {
        match self.places.get(class) {
            UNKNOWN | DIRECT => None,
            place => Some(place - 1).filter(|place| self.leaves[*place as usize].id == class),
        }
    }

    /// Applies changes of the classes `changed`: known leaves get their new parameters, packets of
    /// a removed class go to their new class, and classes whose packets moved ask again.
    fn follow(&mut self, changed: &[u32], handover: &mut Handover<'_>) {
        for &id in changed {
            match self.place_known(id) {
                Some(place) if self.is_seated(place) => {
                    let runs = self.leaves[place as usize].qdisc_id();
                    let Some(class) = self.leaf(id, Some(runs)) else { continue };
                    let leaf = &mut self.leaves[place as usize];
                    let before = leaf.queue.backlog();
                    leaf.retune(&class.class, class.qdisc, handover);
                    let (after, prio) = (leaf.queue.backlog(), leaf.prio);
                    self.make_room_at(prio);
                    self.count(before, after);
                    self.wake(place);
                }
                known => {
                    self.places.set(id, UNKNOWN);
                    if let Some(place) = known {
                        self.retire(place, handover);
                    }
                }
            }
        }
        self.clear_retired(handover.now);
    }

    /// Removes the class of the leaf at `place`. Its place stays until there are
    /// [several](Self::clear_retired): it may take turns or stand in a line, where it is found to
    /// be empty.
    fn retire(&mut self, place: u32, handover: &mut Handover<'_>) {
        let (packets, now) = (Handover::packets, handover.now);
        let leaf = &mut self.leaves[place as usize];
        leaf.id = RETIRED;
        leaf.sleep();
        self.retired.push(place);
        loop {
            let leaf = &mut self.leaves[place as usize];
            let before = leaf.queue.backlog();
            let id = leaf.drain(packets(handover));
            let after = leaf.queue.backlog();
            self.count(before, after);
            let Some(id) = id else { break };
            self.adopt_at(packets(handover), id, now);
            if let Some(place) = self.place_of(packets(handover).meta(id).class_at(self.level)) {
                self.wake(place);
            }
        }
    }

    /// Frees the retired leaves and their places, if there are enough of them.
    fn clear_retired(&mut self, now: Nanos) {
        if self.retired.len() < RETIRED_FEWEST.max(self.leaves.len() / RETIRED_PART) {
            return;
        }
        let retired = std::mem::take(&mut self.retired);
        for &place in &retired {
            self.pass_on(place, 0, false, now);
            self.lines.remove(&mut self.leaves, place);
        }
        let leaves = &self.leaves;
        let is_present = |place: u32| leaves[place as usize].id != RETIRED;
        let turns = self.assured.iter_mut().chain(&mut self.borrowing);
        turns.for_each(|turns| turns.retain(is_present));
        self.waiting.retain(is_present);
        self.lingering.retain(|(_, place)| is_present(*place));
        self.last = self.last.filter(|place| is_present(*place));
        if self.lines.forget_unused(LINES_MOST * self.leaves.len()) {
            self.leaves.iter_mut().for_each(Leaf::forget_lines);
        }
        for place in retired {
            self.leaves[place as usize] = Leaf::vacant();
            self.vacant.push(place);
        }
    }

    /// Applies the tree's present leaves: packets of a removed leaf go to the default class, or are
    /// dropped where classes are bands.
    fn rebuild(&mut self, handover: &mut Handover<'_>) {
        let leaves = std::mem::take(&mut self.leaves);
        self.retired.clear();
        self.vacant.clear();
        self.places.clear();
        self.assured.iter_mut().chain(&mut self.borrowing).for_each(Turns::clear);
        self.last = None;
        self.waiting = Heap::default();
        self.waiting.make_room(TIMES_A_CLASS * leaves.len());
        self.lingering.clear();
        self.lines = Lines::default();
        let mut gone = Vec::new();
        for mut leaf in leaves {
            match (self.leaf(leaf.id, None), self.tree.meter(leaf.id)) {
                (Some(class), Some(meter)) => {
                    // It may be another class of the same number.
                    leaf.sit_at(meter);
                    leaf.retune(&class.class, class.qdisc, handover);
                    leaf.state = State::Idle;
                    leaf.looked_at = Nanos::MAX;
                    leaf.in_line = Place::NOWHERE;
                    leaf.asks_for = Top::NONE;
                    leaf.forget_lines();
                    leaf.is_looked_after = false;
                    let (id, prio, place) = (leaf.id, leaf.prio, self.leaves.len() as u32);
                    self.leaves.push(leaf);
                    self.make_room_at(prio);
                    self.places.set(id, place + 1);
                }
                _ => gone.push(leaf),
            }
        }
        self.settle();
        for mut leaf in gone {
            while let Some(id) = leaf.drain(handover.packets()) {
                let now = handover.now;
                match self.config.unclassified {
                    Unclassified::Sent(_) => self.adopt_at(handover.packets(), id, now),
                    Unclassified::Dropped => handover.packets().discard(id, DropReason::ClassGone),
                }
            }
        }
        for place in 0..self.leaves.len() as u32 {
            self.wake(place);
        }
    }

    fn adopt_at(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        match self.place_of(packets.meta(id).class_at(self.level)) {
            Some(place) => {
                let leaf = &mut self.leaves[place as usize];
                let before = leaf.queue.backlog();
                leaf.adopt(packets, id, now);
                let after = leaf.queue.backlog();
                self.count(before, after);
            }
            None if self.config.unclassified == Unclassified::Dropped => {
                packets.discard(id, DropReason::Unclassified);
            }
            None => self.push_direct(packets, id),
        }
    }

    /// The leaves whose classes are there.
    fn present(&self) -> impl Iterator<Item = &Leaf> {
        self.leaves.iter().filter(|leaf| leaf.id != RETIRED)
    }

    /// Adds up what is queued.
    fn settle(&mut self) {
        let mut backlog = self.direct.backlog();
        for leaf in &self.leaves {
            backlog += leaf.queue.backlog();
        }
        self.backlog = backlog;
    }
}

/// The packet fields that the classes' qdiscs read, and the class of each packet.
fn reading(tree: &dyn TreeMeter) -> Reading {
    Reading { class: true, ..tree.reading() }
}

impl Qdisc for Htb {
    fn reading(&self) -> Reading {
        self.reading
    }

    fn observe_reverse(&mut self, packets: &Packets, ids: &[PacketId], now: Nanos) {
        for leaf in &mut self.leaves {
            leaf.queue.qdisc_mut().observe_reverse(packets, ids, now);
        }
    }

    #[inline]
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        self.came += 1;
        let Some(place) = self.place_of(packets.meta(id).class_at(self.level)) else {
            return self.enqueue_direct(packets, id);
        };
        self.enqueue_at(packets, place, id, now)
    }

    fn enqueue_all(&mut self, packets: &mut Packets, ids: &[PacketId], now: Nanos) {
        let are_many = self.leaves.len() > NEAR;
        for ids in ids.chunks(AHEAD) {
            let mut places = [DIRECT; AHEAD];
            for (place, &id) in places.iter_mut().zip(ids) {
                let class = packets.meta(id).class_at(self.level);
                *place = self.place_of(class).unwrap_or(DIRECT);
                if are_many && let Some(leaf) = self.leaves.get(*place as usize) {
                    leaf.prefetch_arrival();
                }
            }
            if are_many {
                self.expect(packets, &places, ids);
            }
            self.came += ids.len() as u64;
            for (&place, &id) in places.iter().zip(ids) {
                let _: Verdict = match place {
                    DIRECT => self.enqueue_direct(packets, id),
                    place => self.enqueue_at(packets, place, id, now),
                };
            }
        }
    }

    fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        self.came += ids.len() as u64;
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
        self.backlog
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        self.stats_below(Above::default(), into);
    }

    fn stats_below(&self, above: Above, into: &mut Vec<Stats>) {
        let figures = Figures {
            direct_packets: self.direct_packets,
            leaves: self.present().map(|leaf| (leaf.id, leaf.figures(self.now))).collect(),
        };
        let mut own = Stats {
            backlog: self.backlog,
            drops: self.stats.dropped_of(self.came, self.backlog),
            detail: Some(crate::Detail::Htb(Box::new(figures))),
            ..self.stats.clone()
        };
        above.restate(&mut own);
        into.push(own);
        for (place, leaf) in (0..).zip(&self.leaves).filter(|(_, leaf)| leaf.id != RETIRED) {
            leaf.stats_below(above.in_class(self.last == Some(place)), into);
        }
    }

    fn retune(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        let Spec { config: crate::Config::Htb(config), tree, level, .. } = spec else {
            panic!("an htb cannot be retuned to {:?}", spec.config)
        };
        let is_same = tree.is_none() && self.config == config;
        self.config = config;
        self.level = level;
        if let Some(tree) = tree {
            self.tree = tree;
        }
        self.reading = reading(self.tree.as_ref());
        match self.tree.changes().filter(|_| is_same) {
            Some(changed) if self.can_follow(&changed) => self.follow(&changed, handover),
            _ => self.rebuild(handover),
        }
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let before = self.direct.backlog();
        let (id, before, after) = match self.direct.pop_front(packets) {
            Some(id) => (id, before, self.direct.backlog()),
            None => {
                let has_packets = |leaf: &Leaf| !leaf.queue.backlog().is_empty();
                let place = self.draining.next(&self.leaves, has_packets)?;
                let leaf = &mut self.leaves[place];
                let before = leaf.queue.backlog();
                (leaf.drain(packets)?, before, leaf.queue.backlog())
            }
        };
        self.count(before, after);
        // It was neither sent nor dropped here.
        self.came -= u64::from(before.packets - after.packets);
        Some(id)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        self.came += 1;
        self.overlimits.adopted();
        self.adopt_at(packets, id, now);
        if let Some(place) = self.place_of(packets.meta(id).class_at(self.level)) {
            self.wake(place);
        }
    }
}
