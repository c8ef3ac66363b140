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
//!
//! *A queue knows the classes that it has sent for.* A class's qdisc is built with the first packet
//! that comes for it: a million classes on sixty queues are not sixty million qdiscs.
//!
//! Packets are classified before they come here: [`Meta::class`](narrows_packet::Meta::class) is
//! the class's number. What has none, or one that is no leaf, goes to the default class; without
//! one it is sent at once, as `direct`.
//!
//! Cost: a table look-up to enqueue, besides what the class's qdisc costs. A purchase at the tree
//! for each turn of a class, and a call of the qdisc for each packet.
//!
//! Source: M. Devera, `sch_htb.c`, `tc-htb(8)`.

use crate::heap::Heap;
use crate::overlimits::Overlimits;
use crate::sink::Sink;
use crate::{Handover, Next, Qdisc, Spec, Stats, Verdict};
use leaf::{LINGER, Leaf, State, Turn};
use narrows_packet::{Backlog, Batch, DropReason, Fifo, PacketId, Packets, Reading};
use narrows_units::Nanos;
use rotation::Rotation;

mod class;
mod figures;
mod leaf;
mod rotation;

pub use class::{Class, ClassMeter, DEPTH_MAX, Grant, Leaf as LeafClass, PRIORITIES, TreeMeter};
pub use figures::{Figures, LeafFigures};

/// Numbers of classes are below this.
pub const CLASS_MAX: u32 = 1 << 24;

/// Parameters of the qdisc itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The class of packets that have none; 0 for none.
    pub default: u32,
    /// How many packets without a class may wait for room on the device.
    pub direct_limit: u32,
}

/// Nobody has asked for this class yet.
const UNKNOWN: u32 = 0;
/// Packets of this class have none.
const DIRECT: u32 = u32::MAX;

/// See the module's documentation.
pub(crate) struct Htb {
    config: Config,
    tree: Box<dyn TreeMeter>,
    reading: Reading,
    /// By the number of a class, its place among the leaves and one more; or one of the above.
    places: Vec<u32>,
    leaves: Vec<Leaf>,
    /// Who may have something of their own, by priority.
    assured: [Rotation; PRIORITIES],
    /// Who had not, and has not asked yet what others lend.
    borrowing: [Rotation; PRIORITIES],
    waiting: Heap,
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
    pub(crate) fn new(config: Config, tree: Box<dyn TreeMeter>) -> Self {
        Self {
            config,
            reading: reading(tree.as_ref()),
            tree,
            places: Vec::new(),
            leaves: Vec::new(),
            assured: [Rotation::EMPTY; PRIORITIES],
            borrowing: [Rotation::EMPTY; PRIORITIES],
            waiting: Heap::default(),
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

    /// Builds what this queue needs to send for `class`, where that is a leaf.
    fn open(&mut self, class: u32) -> Option<u32> {
        if class == 0 {
            return None;
        }
        let meter = self.tree.meter(class)?;
        let leaf = self.tree.leaf(class)?;
        let place = self.leaves.len() as u32;
        self.leaves.push(Leaf::new(class, leaf, meter));
        self.waiting.make_room(2 * self.leaves.len());
        Some(place)
    }

    /// A packet has come for the leaf at `place`.
    #[inline]
    fn wake(&mut self, place: u32) {
        let leaf = &mut self.leaves[place as usize];
        if leaf.state == State::Idle && !leaf.backlog().is_empty() {
            self.make_ready(place);
        }
    }

    /// The leaf at `place` takes turns from now on.
    #[inline]
    fn make_ready(&mut self, place: u32) {
        let leaf = &mut self.leaves[place as usize];
        leaf.state = State::Ready;
        leaf.set_active(true);
        let prio = usize::from(leaf.prio);
        self.assured[prio].push_back(&mut self.leaves, place);
    }

    fn count(&mut self, before: Backlog, after: Backlog) {
        self.backlog.packets = self.backlog.packets - before.packets + after.packets;
        self.backlog.bytes = self.backlog.bytes - before.bytes + after.bytes;
    }

    fn enqueue_direct(&mut self, packets: &mut Packets, id: PacketId) -> Verdict {
        if self.direct.backlog().packets >= self.config.direct_limit {
            packets.discard(id, DropReason::Limit);
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
        self.send_direct(packets, out);
        while let Some(at) = self.waiting.first()
            && at <= now
            && let Some((_, entry)) = self.waiting.pop()
        {
            self.time_has_come(entry, now);
        }
        let is_full = self.send_classes(packets, false, now, out)
            || self.send_classes(packets, true, now, out);
        let next = match self.waiting.first() {
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

    /// A class has waited long enough, or lingered.
    fn time_has_come(&mut self, entry: u32, now: Nanos) {
        let (place, lingers) = (entry >> 1, entry & 1 == 1);
        if !lingers {
            return self.make_ready(place);
        }
        let leaf = &mut self.leaves[place as usize];
        leaf.is_looked_after = false;
        if leaf.state == State::Idle {
            if leaf.lingers_until > now {
                let until = leaf.lingers_until;
                self.linger(place, until);
            } else {
                leaf.set_active(false);
            }
        }
    }

    /// Has somebody look at `until` whether the class at `place` still has nothing to send.
    fn linger(&mut self, place: u32, until: Nanos) {
        let leaf = &mut self.leaves[place as usize];
        leaf.lingers_until = until;
        if !leaf.is_looked_after {
            leaf.is_looked_after = true;
            self.waiting.insert(until, place << 1 | 1);
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
                let Some(place) = rotation.pop_front(&mut self.leaves) else { break };
                self.send_class(packets, place, borrow, now, out);
            }
        }
        false
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
        let (before, sent) = (leaf.backlog(), leaf.sent());
        let turn = leaf.turn(packets, borrow, now, out);
        let (after, prio) = (leaf.backlog(), usize::from(leaf.prio));
        self.stats.sent_packets += leaf.sent().packets - sent.packets;
        self.stats.sent_bytes += leaf.sent().bytes - sent.bytes;
        match turn {
            Turn::More => {
                let rotations = if borrow { &mut self.borrowing } else { &mut self.assured };
                rotations[prio].push_back(&mut self.leaves, place);
            }
            Turn::Short(_) if !borrow => {
                self.borrowing[prio].push_back(&mut self.leaves, place);
            }
            Turn::Short(at) => {
                leaf.state = State::Waiting;
                self.waiting.insert(at, place << 1);
            }
            Turn::Held(at) => {
                leaf.state = State::Waiting;
                if at > now + LINGER {
                    leaf.set_active(false);
                }
                self.waiting.insert(at, place << 1);
            }
            Turn::Empty => {
                leaf.state = State::Idle;
                self.linger(place, now + LINGER);
            }
        }
        self.count(before, after);
    }

    /// Leaves are as the tree has them now: what waited for one that is gone waits for the default
    /// class.
    fn rebuild(&mut self, handover: &mut Handover<'_>) {
        let leaves = std::mem::take(&mut self.leaves);
        self.places.fill(UNKNOWN);
        self.assured = [Rotation::EMPTY; PRIORITIES];
        self.borrowing = [Rotation::EMPTY; PRIORITIES];
        self.waiting = Heap::default();
        self.waiting.make_room(2 * leaves.len());
        let mut gone = Vec::new();
        for mut leaf in leaves {
            match (self.tree.leaf(leaf.id), self.tree.meter(leaf.id)) {
                (Some(class), Some(meter)) => {
                    // It may be another class of the same number.
                    leaf.sit_at(meter);
                    leaf.retune(&class.class, class.qdisc, handover);
                    leaf.state = State::Idle;
                    leaf.is_looked_after = false;
                    leaf.set_active(false);
                    let (id, place) = (leaf.id, self.leaves.len() as u32);
                    self.leaves.push(leaf);
                    self.remember(id, place + 1);
                }
                _ => gone.push(leaf),
            }
        }
        self.settle();
        for mut leaf in gone {
            while let Some(id) = leaf.drain(handover.packets()) {
                let now = handover.now;
                self.adopt_at(handover.packets(), id, now);
            }
        }
        for place in 0..self.leaves.len() as u32 {
            self.wake(place);
        }
    }

    fn adopt_at(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        match self.place_of(packets.meta(id).class) {
            Some(place) => {
                let leaf = &mut self.leaves[place as usize];
                let before = leaf.backlog();
                leaf.adopt(packets, id, now);
                let after = leaf.backlog();
                self.count(before, after);
            }
            None => self.push_direct(packets, id),
        }
    }

    /// Adds up what is queued.
    fn settle(&mut self) {
        let mut backlog = self.direct.backlog();
        for leaf in &self.leaves {
            backlog += leaf.backlog();
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

    fn overhear(&mut self, packets: &Packets, ids: &[PacketId], now: Nanos) {
        for leaf in &mut self.leaves {
            leaf.qdisc_mut().overhear(packets, ids, now);
        }
    }

    #[inline]
    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        self.came += 1;
        let Some(place) = self.place_of(packets.meta(id).class) else {
            return self.enqueue_direct(packets, id);
        };
        let leaf = &mut self.leaves[place as usize];
        let before = leaf.backlog();
        let verdict = leaf.enqueue(packets, id, now);
        let after = leaf.backlog();
        self.count(before, after);
        self.wake(place);
        verdict
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
        let figures = Figures {
            direct_packets: self.direct_packets,
            leaves: self.leaves.iter().map(|leaf| (leaf.id, leaf.figures(self.now))).collect(),
        };
        into.push(Stats {
            backlog: self.backlog,
            drops: self.came - self.stats.sent_packets - u64::from(self.backlog.packets),
            detail: Some(crate::Detail::Htb(Box::new(figures))),
            ..self.stats.clone()
        });
        for leaf in &self.leaves {
            leaf.stats(into);
        }
    }

    fn retune(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        let Spec { config: crate::Config::Htb(config), tree, .. } = spec else {
            panic!("an htb cannot be retuned to {:?}", spec.config)
        };
        self.config = config;
        if let Some(tree) = tree {
            self.tree = tree;
        }
        self.reading = reading(self.tree.as_ref());
        self.rebuild(handover);
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        let before = self.direct.backlog();
        let (id, before, after) = match self.direct.pop_front(packets) {
            Some(id) => (id, before, self.direct.backlog()),
            None => {
                let leaf = self.leaves.iter_mut().find(|leaf| !leaf.backlog().is_empty())?;
                let before = leaf.backlog();
                (leaf.drain(packets)?, before, leaf.backlog())
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
        if let Some(place) = self.place_of(packets.meta(id).class) {
            self.wake(place);
        }
    }
}
