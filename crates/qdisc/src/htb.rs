//! `htb`: classes in a tree, each with an assured rate and a ceiling, that lend what they leave.
//!
//! The tree is not here. All queues of a port keep it together, behind [`TreeMeter`]; one queue
//! has the packets that wait on it, by leaf class, and asks for each class what it may send. So a
//! class has one rate however many queues its flows land on.
//!
//! *Order, as in HTB.* What a class has itself goes before what it borrows, a better priority
//! before a worse one, and classes of one priority take turns of a quantum. What is true between
//! the queues is the tree's to see to; this is the same rule for the classes of one queue.
//!
//! *Classes wait for a time.* One that may not send is told when to ask again, and stands in a
//! heap of times until then. So thousands of classes at their ceilings cost nothing in between.
//! Those that wait for the same class above them stand in lines ([`lines`]), and one asks for all.
//! So a packet costs the same however many others wait.
//!
//! *A queue knows the classes that it has sent for.* A class's qdisc is built with the first packet
//! that comes for it: a million classes on sixty queues are not sixty million qdiscs.
//!
//! *Of thousands of classes none is in the caches.* What is touched lies close together ([`leaf`]),
//! and is touched as rarely as can be: the tree hears of a class with its first turn, and that it
//! has nothing to send at once where that changes nothing
//! ([`ClassMeter::rests`](class::ClassMeter::rests)), a while later otherwise. Who comes next is
//! known in advance ([`upcoming`]), so that it can be prefetched.
//!
//! Packets are classified before they come here:
//! [`Meta::class_at`](narrows_packet::Meta::class_at) is the class's number. What has none, or one
//! that is no leaf, goes to the default class; without one it is sent at once, as `direct`.
//!
//! Cost: a table look-up to enqueue, besides what the class's qdisc costs. A purchase at the tree
//! for each turn of a class, and a call of the qdisc for each packet.
//!
//! Source: M. Devera, `sch_htb.c`, `tc-htb(8)`.

use crate::heap::Heap;
use crate::overlimits::Overlimits;
use crate::rotation::{Link, Rotation};
use crate::sink::Sink;
use crate::{Above, Handover, Next, NodeId, Qdisc, Spec, Stats, Verdict};
use leaf::{LINGER, Leaf, State, Turn};
use lines::{Lines, Place, Top};
use narrows_packet::{Backlog, Batch, DropReason, Fifo, PacketId, Packets, Reading};
use narrows_units::Nanos;
use std::collections::VecDeque;
use upcoming::Upcoming;

mod class;
mod figures;
mod leaf;
mod lines;
mod upcoming;

pub use class::{
    Class, ClassMeter, DEPTH_MAX, Grant, Leaf as LeafClass, Line, PRIORITIES, TreeMeter,
};
pub use figures::{Figures, LeafFigures};

/// Numbers of classes are below this.
pub const CLASS_MAX: u32 = 1 << 24;

/// Parameters of the qdisc itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The class of packets that have none; 0 for none.
    pub default: u32,
    /// What becomes of packets for which there is no class at all.
    pub unclassified: Unclassified,
}

/// What becomes of packets without a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unclassified {
    /// They are sent at once, and so many may wait for room on the device.
    Sent(u32),
    /// They are dropped, and so is what waits in a class that is deleted: classes are bands.
    Dropped,
}

/// Nobody has asked for this class yet.
const UNKNOWN: u32 = 0;
/// Packets of this class have none.
const DIRECT: u32 = u32::MAX;

/// The number of a leaf whose class is gone.
const RETIRED: u32 = 0;

/// Where a queue has sent for more classes than this they may have to come from far: what a packet
/// or a turn will touch of one is brought near in advance. Fewer stay in the nearest cache.
const NEAR: usize = 64;

/// So many packets of a batch are looked at in advance,
const AHEAD: usize = 32;
/// so many classes that rest,
const REST_AHEAD: usize = 16;
/// and so many turns before its own a class's seat,
const PARTS_AHEAD: usize = 4;
/// and its state at the tree and its first packet. The class itself is [`upcoming`]'s matter.
const TURN_AHEAD: usize = 2;

/// How many times there are for a class: one, and another that was earlier than one that has not
/// come yet.
const TIMES_A_CLASS: usize = 2;

/// See the module's documentation.
pub(crate) struct Htb {
    config: Config,
    /// How many qdiscs with classes are above it.
    level: u8,
    tree: Box<dyn TreeMeter>,
    reading: Reading,
    /// By the number of a class, its place among the leaves and one more; or one of the above.
    places: Vec<u32>,
    leaves: Vec<Leaf>,
    /// Where each of them stands in a rotation. Apart from them, so that it can be known who comes
    /// next before any of it is near.
    links: Vec<Link>,
    upcoming: Upcoming,
    /// Who may have something of their own, by priority.
    assured: [Rotation; PRIORITIES],
    /// Who had not, and has not asked yet what others lend.
    borrowing: [Rotation; PRIORITIES],
    waiting: Heap,
    /// The place of the leaf whose packet left last.
    last: Option<u32>,
    /// Who has nothing to send, and when somebody looks whether that is still so: in the order of
    /// these times, as all linger for as long.
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
            places: Vec::new(),
            leaves: Vec::new(),
            links: Vec::new(),
            upcoming: Upcoming::NONE,
            assured: [Rotation::EMPTY; PRIORITIES],
            borrowing: [Rotation::EMPTY; PRIORITIES],
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

    /// The place of the leaf for packets of `class`; `None` where they have none.
    #[inline]
    fn place_of(&mut self, class: u32) -> Option<u32> {
        match self.places.get(class as usize) {
            None | Some(&UNKNOWN) => self.find(class),
            Some(&DIRECT) => None,
            Some(&place) => Some(place - 1),
        }
    }

    /// The same for the first packet of a class.
    #[cold]
    fn find(&mut self, class: u32) -> Option<u32> {
        let class = if class < CLASS_MAX { class } else { 0 };
        let place = match self.open(class) {
            Some(place) => Some(place),
            None if class == self.config.default => None,
            None => self.place_of(self.config.default),
        };
        self.remember(class, place.map_or(DIRECT, |place| place + 1));
        place
    }

    fn remember(&mut self, class: u32, place: u32) {
        let class = class as usize;
        if self.places.len() <= class {
            self.places.resize(class + 1, UNKNOWN);
        }
        self.places[class] = place;
    }

    /// The class `id`, if it is a leaf, where the qdisc `runs` in it; with a seat at the census for
    /// one that is new.
    fn leaf(&self, id: u32, runs: Option<NodeId>) -> Option<LeafClass> {
        let mut leaf = self.tree.leaf(id)?;
        if leaf.qdisc.config.counts_together() && runs != Some(leaf.qdisc.id) {
            leaf.qdisc.census = self.tree.census(id);
        }
        Some(leaf)
    }

    /// Builds what this queue needs to send for `class`, where that is a leaf.
    fn open(&mut self, class: u32) -> Option<u32> {
        if class == 0 {
            return None;
        }
        let meter = self.tree.meter(class)?;
        let leaf = self.leaf(class, None)?;
        let place = self.leaves.len() as u32;
        if self.leaves.len() == self.leaves.capacity() {
            self.leaves.reserve(1);
            narrows_cpu::ask_for_huge_pages(&mut self.leaves);
        }
        self.leaves.push(Leaf::new(class, leaf, meter));
        self.links.push(Link::END);
        let room = self.leaves.capacity();
        self.waiting.make_room(TIMES_A_CLASS * room);
        self.lingering.reserve_exact(room - self.lingering.len());
        Some(place)
    }

    /// Takes the packet `id` in, which is for the leaf at `place`.
    #[inline]
    fn enqueue_at(
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
        self.count(before, after);
        self.wake(place);
        verdict
    }

    /// Has brought near what the turns of those behind the one at `place` touch, whose turn it is: of
    /// each what is further back, and is found through what is further in front, some turns later.
    #[inline]
    fn look_ahead(&mut self, packets: &Packets, borrow: bool, prio: usize, place: u32) {
        let rotation = if borrow { &self.borrowing[prio] } else { &self.assured[prio] };
        let leaf = |place: u32| self.leaves.get(place as usize);
        self.upcoming.follow(rotation, &mut self.links, place, |last| {
            leaf(last).into_iter().for_each(Leaf::prefetch);
        });
        let leaf = |turns: usize| leaf(self.upcoming.after(turns)?);
        leaf(PARTS_AHEAD).into_iter().for_each(Leaf::prefetch_parts);
        if let Some(leaf) = leaf(TURN_AHEAD) {
            leaf.expect_turn(packets);
        }
    }

    /// The same for those that rest soon.
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

    /// A packet has come for the leaf at `place`.
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
        self.assured[prio].push_back(&mut self.links, place);
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
            // Whoever stood in line behind one that has borrowed may have something of its own.
            if self.assured.iter().all(Rotation::is_empty) {
                break false;
            }
        };
        let lingers = self.lingering.front().map(|(at, _)| *at);
        let next = match self.waiting.first().into_iter().chain(lingers).min() {
            _ if is_full => Next::Now,
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

    /// The time `at` has come, for which the class at `place` may have waited.
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

    /// Has the class at `place` wait until `until`, if nothing else comes before.
    fn wait(&mut self, place: u32, until: Nanos) {
        let leaf = &mut self.leaves[place as usize];
        leaf.state = State::Waiting;
        leaf.until = until;
        if until < leaf.looked_at {
            leaf.looked_at = until;
            self.waiting.insert(until, place);
        }
    }

    /// Has the class at `place` ask, which waits.
    fn ask(&mut self, place: u32, now: Nanos) {
        let leaf = &mut self.leaves[place as usize];
        if leaf.has_own || leaf.until <= now {
            return self.make_ready(place);
        }
        leaf.state = State::Ready;
        let prio = usize::from(leaf.prio);
        self.borrowing[prio].push_back(&mut self.links, place);
    }

    /// The class at `place` was refused until `at`.
    fn refused(&mut self, place: u32, at: Nanos, now: Nanos) {
        let are_many = self.leaves.len() > self.tree.asking_alone();
        let leaf = &self.leaves[place as usize];
        let Some(Line { rank, levels, borrows }) = leaf.line().filter(|_| are_many) else {
            self.pass_on(place, 0, false, now);
            return self.wait(place, at);
        };
        // It asks no more where others ask by another right, and above whom it waits for.
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
        self.leaves[place as usize].set_last_line(None);
        self.wait(place, at);
    }

    /// When the class at `place` has something from those below the class of `line`.
    fn due_in(&mut self, line: u32, place: u32, now: Nanos) -> Nanos {
        let level = self.lines.level(line);
        self.leaves[place as usize].due_below(level, now).max(now + Nanos(1))
    }

    /// Has the class at `place` stand in `line`, until those below that have something, at `due`.
    fn stand_in(&mut self, line: u32, place: u32, turn: u64, due: Nanos) {
        self.leaves[place as usize].set_last_line(Some(line));
        self.lines.insert(&mut self.leaves, place, line, turn);
        self.wait(place, due);
    }

    /// The class at `place` asks no more for the lines at classes higher than `level`: those who
    /// are first in them do, or where `returns` is true itself, where its turn is before theirs.
    fn pass_on(&mut self, place: u32, level: u8, returns: bool, now: Nanos) {
        let top = &mut self.leaves[place as usize].asks_for;
        if *top == Top::NONE {
            return;
        }
        let (lines, count) = self.lines.take_above(top, level);
        let mut next = returns.then_some(place);
        for &line in &lines[..count] {
            if let Some(place) = next {
                let level = self.lines.level(line);
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

    /// Has somebody look at `until` whether the class at `place` still has nothing to send.
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

    /// Sends what the classes have themselves, or, where `borrow` is true, what is lent to them.
    /// Whether there was no room for more.
    fn send_classes(
        &mut self,
        packets: &mut Packets,
        borrow: bool,
        now: Nanos,
        out: &mut impl Sink,
    ) -> bool {
        for prio in 0..PRIORITIES {
            while !self.rotation(borrow, prio).is_empty() {
                if !out.has_room() {
                    return true;
                }
                let rotation =
                    if borrow { &mut self.borrowing[prio] } else { &mut self.assured[prio] };
                let Some(place) = rotation.pop_front(&mut self.links) else { break };
                if self.leaves.len() > NEAR {
                    self.look_ahead(packets, borrow, prio, place);
                }
                if !borrow || !self.joins_line(place, now) {
                    self.send_class(packets, place, borrow, now, out);
                }
            }
        }
        false
    }

    /// Whether the class at `place`, which has nothing of its own, would be refused as the one is
    /// that asks for the line that it comes from: then it stands in that again.
    fn joins_line(&mut self, place: u32, now: Nanos) -> bool {
        let leaf = &self.leaves[place as usize];
        let Some(line) = leaf.last_line() else { return false };
        if self.lines.asker(line).is_none_or(|asker| asker == place) {
            return false;
        }
        let level = self.lines.level(line);
        let leaf = &mut self.leaves[place as usize];
        let due = leaf.due_below(level, now);
        if due <= now {
            return false;
        }
        let (_, turn) = leaf.place_in_line(level, now);
        self.stand_in(line, place, turn, due);
        true
    }

    fn rotation(&self, borrow: bool, prio: usize) -> &Rotation {
        if borrow { &self.borrowing[prio] } else { &self.assured[prio] }
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
        let (before, sent) = (leaf.queue.backlog(), leaf.sent());
        let turn = leaf.turn(packets, borrow, now, out);
        let (after, prio) = (leaf.queue.backlog(), usize::from(leaf.prio));
        self.stats.sent_packets += leaf.sent().packets - sent.packets;
        self.stats.sent_bytes += leaf.sent().bytes - sent.bytes;
        if leaf.sent().packets != sent.packets {
            self.last = Some(place);
        }
        match turn {
            Turn::Short(_) if !borrow => {
                self.borrowing[prio].push_back(&mut self.links, place);
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
            Turn::More => {
                let rotations = if borrow { &mut self.borrowing } else { &mut self.assured };
                rotations[prio].push_back(&mut self.links, place);
            }
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
                leaf.set_last_line(None);
                self.pass_on(place, 0, false, now);
                if !self.leaves[place as usize].rests() {
                    self.linger(place, now + LINGER);
                }
            }
        }
    }

    /// Whether the default class is what it was, if it is among `changed`: those that have no class
    /// of their own are in its place.
    fn can_follow(&self, changed: &[u32]) -> bool {
        let default = self.config.default;
        !changed.contains(&default)
            || self.place_known(default).is_some_and(|place| self.is_seated(place))
    }

    /// Whether the leaf at `place` is that of the class that the tree has under its number now.
    fn is_seated(&self, place: u32) -> bool {
        let leaf = &self.leaves[place as usize];
        self.tree.leaf(leaf.id).is_some() && leaf.is_seated_in(self.tree.as_ref())
    }

    /// The place of the leaf of `class` itself, where this queue has one.
    fn place_known(&self, class: u32) -> Option<u32> {
        match *self.places.get(class as usize)? {
            UNKNOWN | DIRECT => None,
            place => Some(place - 1).filter(|place| self.leaves[*place as usize].id == class),
        }
    }

    /// The classes `changed` are as the tree has them now: leaves that are known here have other
    /// parameters, what waited in one that is gone goes where it belongs now, and whoever had
    /// packets of another one sent elsewhere asks again.
    fn follow(&mut self, changed: &[u32], handover: &mut Handover<'_>) {
        for &id in changed {
            match self.place_known(id) {
                Some(place) if self.is_seated(place) => {
                    let runs = self.leaves[place as usize].queue.id();
                    let Some(class) = self.leaf(id, Some(runs)) else { continue };
                    let leaf = &mut self.leaves[place as usize];
                    let before = leaf.queue.backlog();
                    leaf.retune(&class.class, class.qdisc, handover);
                    let after = leaf.queue.backlog();
                    self.count(before, after);
                    self.wake(place);
                }
                known => {
                    if let Some(place) = self.places.get_mut(id as usize) {
                        *place = UNKNOWN;
                    }
                    if let Some(place) = known {
                        self.retire(place, handover);
                    }
                }
            }
        }
    }

    /// The class of the leaf at `place` is gone. Its place stays until all leaves are looked at
    /// again: it may stand in a rotation or a line, where it will be found to have nothing.
    fn retire(&mut self, place: u32, handover: &mut Handover<'_>) {
        let (packets, now) = (Handover::packets, handover.now);
        let leaf = &mut self.leaves[place as usize];
        leaf.id = RETIRED;
        leaf.sleep();
        loop {
            let leaf = &mut self.leaves[place as usize];
            let before = leaf.queue.backlog();
            let id = leaf.drain(packets(handover));
            let after = leaf.queue.backlog();
            self.count(before, after);
            let Some(id) = id else { break };
            self.adopt_at(packets(handover), id, now);
            if let Some(place) = self.place_of(packets(handover).meta(id).class) {
                self.wake(place);
            }
        }
    }

    /// Leaves are as the tree has them now: what waited for one that is gone waits for the default
    /// class, or is dropped where classes are bands.
    fn rebuild(&mut self, handover: &mut Handover<'_>) {
        let leaves = std::mem::take(&mut self.leaves);
        self.links.clear();
        self.upcoming = Upcoming::NONE;
        self.places.fill(UNKNOWN);
        self.assured = [Rotation::EMPTY; PRIORITIES];
        self.borrowing = [Rotation::EMPTY; PRIORITIES];
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
                    leaf.set_last_line(None);
                    leaf.is_looked_after = false;
                    let (id, place) = (leaf.id, self.leaves.len() as u32);
                    self.leaves.push(leaf);
                    self.links.push(Link::END);
                    self.remember(id, place + 1);
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

/// What the classes' qdiscs want to know of packets, and which class each is of.
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
        for ids in ids.chunks(AHEAD) {
            let mut places = [DIRECT; AHEAD];
            for (place, &id) in places.iter_mut().zip(ids) {
                let class = packets.meta(id).class_at(self.level);
                *place = self.place_of(class).unwrap_or(DIRECT);
            }
            if self.leaves.len() > NEAR {
                let leaf = |place: &u32| self.leaves.get(*place as usize);
                places.iter().filter_map(leaf).for_each(Leaf::prefetch_arrival);
                places.iter().filter_map(leaf).for_each(Leaf::prefetch_qdisc);
                let expected = places.iter().zip(ids);
                let expected = expected.filter_map(|(place, id)| Some((leaf(place)?, id)));
                expected.for_each(|(leaf, id)| leaf.expect(packets, *id));
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
            drops: self.came - self.stats.sent_packets - u64::from(self.backlog.packets),
            detail: Some(crate::Detail::Htb(Box::new(figures))),
            ..self.stats.clone()
        };
        above.restate(&mut own);
        into.push(own);
        for (place, leaf) in (0..).zip(&self.leaves).filter(|(_, leaf)| leaf.id != RETIRED) {
            leaf.queue.stats_below(above.in_class(self.last == Some(place)), into);
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
                let leaf = self.leaves.iter_mut().find(|leaf| !leaf.queue.backlog().is_empty())?;
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
