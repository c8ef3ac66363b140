//! `htb`: classes in a tree, each with an assured rate and a ceiling, that lend their unused rate.
//!
//! A queue holds its own packets, by leaf class. Which class sends next, and how much, a
//! [`Scheduler`] decides, of which all queues of a port have one over the same tree. So a class has
//! one rate on any number of queues.
//!
//! *A queue knows the classes that it has sent for.* A class's qdisc is built with the first packet
//! that comes for it: a million classes on sixty queues are not sixty million qdiscs.
//!
//! *With thousands of classes, each access misses the caches.* So the hot fields of a class share
//! cache lines ([`leaf`]), and classes whose turns come next are prefetched.
//!
//! Packets are classified before they come here:
//! [`Meta::class_at`](narrows_packet::Meta::class_at) is the class's number. A packet without a
//! class, or whose class is no leaf, goes to the default class; without a default class it is sent
//! at once, as `direct`.
//!
//! Cost: a table look-up to enqueue, besides what the class's qdisc costs. Three calls of the
//! scheduler for each turn of a class, and one of the qdisc for each packet.
//!
//! Source: M. Devera, `sch_htb.c`, `tc-htb(8)`.

use crate::draining::Draining;
use crate::overlimits::Overlimits;
use crate::places::Places;
use crate::sink::Sink;
use crate::{Above, Handover, Next, NodeId, Qdisc, Spec, Stats, Verdict};
use leaf::Leaf;
use narrows_packet::{Backlog, Batch, DropReason, Fifo, PacketId, Packets, Reading};
use narrows_units::{Bytes, Nanos};

mod alone;
mod class;
mod figures;
mod leaf;
mod turns;

pub use crate::heap::Heap as Times;
pub use alone::{Alone, Meters};
pub use class::{
    Class, ClassMeter, DEPTH_MAX, Grant, LINGER, Leaf as LeafClass, PRIORITIES, Scheduler, Stage,
    Then,
};
pub use figures::{ClassCount, Figures, LeafFigures};
pub use turns::Turns;

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

/// An `htb` on one queue: the packets of its leaf classes, and the scheduler that orders them.
pub(crate) struct Htb {
    config: Config,
    /// The number of classful qdiscs above it.
    level: u8,
    scheduler: Box<dyn Scheduler>,
    /// Whether the scheduler has to know what packets cost.
    needs_costs: bool,
    reading: Reading,
    /// By the number of a class, its place among the leaves and one more; or one of the above.
    places: Places,
    leaves: Vec<Leaf>,
    /// Places of leaves whose classes are gone.
    retired: Vec<u32>,
    /// Places for new leaves.
    vacant: Vec<u32>,
    draining: Draining,
    /// The place of the leaf whose packet left last.
    last: Option<u32>,
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
    pub(crate) fn new(config: Config, level: u8, scheduler: Box<dyn Scheduler>) -> Self {
        Self {
            config,
            level,
            reading: reading(scheduler.as_ref()),
            needs_costs: scheduler.needs_costs(),
            scheduler,
            places: Places::default(),
            leaves: Vec::new(),
            retired: Vec::new(),
            vacant: Vec::new(),
            draining: Draining::default(),
            last: None,
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

    /// The place of the leaf for a class's first packet; `None` if there is none.
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

    /// The class `id`, if it is a leaf, with the qdisc `runs` in it; a new one gets a handle at the
    /// census.
    fn leaf(&self, id: u32, runs: Option<NodeId>) -> Option<LeafClass> {
        let mut leaf = self.scheduler.leaf(id)?;
        if leaf.qdisc.config.counts_together() && runs != Some(leaf.qdisc.id) {
            leaf.qdisc.census = self.scheduler.census(id);
        }
        Some(leaf)
    }

    /// Builds this queue's leaf of `class`, if that is a leaf.
    fn open(&mut self, class: u32) -> Option<u32> {
        if class == 0 {
            return None;
        }
        let leaf = Leaf::new(class, self.leaf(class, None)?);
        let place = self.vacant.last().copied().unwrap_or(self.leaves.len() as u32);
        if !self.scheduler.open(place, class) {
            return None;
        }
        if self.vacant.pop().is_some() {
            self.leaves[place as usize] = leaf;
            return Some(place);
        }
        if self.leaves.len() == self.leaves.capacity() {
            self.leaves.reserve(1);
            narrows_cpu::ask_for_huge_pages(&mut self.leaves);
        }
        self.leaves.push(leaf);
        Some(place)
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
        let was_empty = leaf.queue.is_empty();
        let verdict = leaf.enqueue(packets, id, now);
        if verdict == Verdict::Queued {
            self.backlog.packets += 1;
            self.backlog.bytes += packets.len(id);
            if was_empty {
                let cost = if self.needs_costs { leaf.next_cost(packets, now) } else { None };
                match cost {
                    None => self.scheduler.arrived(place),
                    Some(cost) => self.scheduler.costs(place, cost, now),
                }
            }
        }
        verdict
    }

    /// Queues the packet `id` at a leaf whose qdisc is no FIFO: it may drop other packets, and a
    /// better one may have come.
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
    #[inline]
    fn look_ahead(&mut self, packets: &Packets) {
        let leaves = &self.leaves;
        self.scheduler.look_ahead(&mut |stage, places| {
            let those = places.iter().filter_map(|place| leaves.get(*place as usize));
            match stage {
                Stage::Leaf => those.for_each(Leaf::prefetch),
                Stage::Parts => those.for_each(Leaf::prefetch_qdisc),
                Stage::Turn => those.for_each(|leaf| leaf.expect_turn(packets)),
            }
        });
    }

    /// Packets have come to the leaf at `place`, or it has others.
    #[inline]
    fn wake(&mut self, place: u32) {
        let leaf = &self.leaves[place as usize];
        if !leaf.queue.backlog().is_empty() {
            self.scheduler.arrived(place);
            if leaf.must_reconsider() {
                self.scheduler.reconsider(place);
            }
        }
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
        self.send_direct(packets, out);
        self.scheduler.begin(now);
        let are_many = self.leaves.len() > NEAR;
        let is_full = loop {
            if !out.has_room() {
                break true;
            }
            if are_many {
                self.look_ahead(packets);
            }
            let Some(place) = self.scheduler.next(now) else { break false };
            self.send_class(packets, place, now, out);
        };
        let next = match self.scheduler.end(now) {
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

    fn send_class(&mut self, packets: &mut Packets, place: u32, now: Nanos, out: &mut impl Sink) {
        let leaf = &mut self.leaves[place as usize];
        // Of a FIFO nothing is dropped meanwhile.
        let before = (!leaf.queue.is_fifo()).then(|| leaf.queue.backlog());
        let sent = leaf.turn(place, self.scheduler.as_mut(), packets, now, out);
        let after = before.map(|_| leaf.queue.backlog());
        if sent.packets != 0 {
            self.stats.sent_packets += u64::from(sent.packets);
            self.stats.sent_bytes += sent.bytes.0;
            self.last = Some(place);
        }
        let (before, after) = before.zip(after).unwrap_or((sent, Backlog::default()));
        self.count(before, after);
    }

    /// Whether the default class is unchanged, if it is among `changed`: it holds the packets of
    /// all unknown classes.
    fn can_follow(&self, changed: &[u32]) -> bool {
        let default = self.config.default;
        !changed.contains(&default)
            || self.place_known(default).is_some_and(|place| self.is_current(place))
    }

    /// Whether the leaf at `place` belongs to the tree's present class of its number.
    fn is_current(&self, place: u32) -> bool {
        let id = self.leaves[place as usize].id;
        self.scheduler.leaf(id).is_some() && self.scheduler.is_current(place)
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
                Some(place) if self.is_current(place) => {
                    let runs = self.leaves[place as usize].qdisc_id();
                    let Some(class) = self.leaf(id, Some(runs)) else { continue };
                    self.scheduler.retune(place);
                    let leaf = &mut self.leaves[place as usize];
                    let before = leaf.queue.backlog();
                    leaf.retune(place, class, self.scheduler.as_mut(), handover);
                    let after = leaf.queue.backlog();
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
        self.clear_retired();
    }

    /// Removes the class of the leaf at `place`. Its place stays until there are
    /// [several](Self::clear_retired).
    fn retire(&mut self, place: u32, handover: &mut Handover<'_>) {
        let (packets, now) = (Handover::packets, handover.now);
        self.leaves[place as usize].id = RETIRED;
        self.scheduler.close(place);
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

    /// Frees the retired leaves.
    fn clear_retired(&mut self) {
        if self.last.is_some_and(|place| self.leaves[place as usize].id == RETIRED) {
            self.last = None;
        }
        for place in std::mem::take(&mut self.retired) {
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
        self.last = None;
        (0..leaves.len() as u32).for_each(|place| self.scheduler.close(place));
        let mut gone = Vec::new();
        for mut leaf in leaves {
            let place = self.leaves.len() as u32;
            let class = self.leaf(leaf.id, None).filter(|_| leaf.id != RETIRED);
            match class.filter(|_| self.scheduler.open(place, leaf.id)) {
                Some(class) => {
                    leaf.is_opened();
                    leaf.retune(place, class, self.scheduler.as_mut(), handover);
                    self.places.set(leaf.id, place + 1);
                    self.leaves.push(leaf);
                }
                None => gone.push(leaf),
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
    fn present(&self) -> impl Iterator<Item = (u32, &Leaf)> {
        (0..).zip(&self.leaves).filter(|(_, leaf)| leaf.id != RETIRED)
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
fn reading(scheduler: &dyn Scheduler) -> Reading {
    Reading { class: true, ..scheduler.reading() }
}

impl Qdisc for Htb {
    fn owe(&mut self, bytes: Bytes, now: Nanos) {
        self.scheduler.owe(self.config.default, bytes, now);
    }

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
            leaves: self
                .present()
                .map(|(place, leaf)| {
                    let tokens = self.scheduler.tokens(place, self.now);
                    (leaf.id, leaf.figures(tokens, self.scheduler.service(place)))
                })
                .collect(),
        };
        let mut own = Stats {
            backlog: self.backlog,
            drops: self.stats.dropped_of(self.came, self.backlog),
            detail: Some(crate::Detail::Htb(Box::new(figures))),
            ..self.stats.clone()
        };
        above.restate(&mut own);
        into.push(own);
        for (place, leaf) in self.present() {
            leaf.stats_below(above.in_class(self.last == Some(place)), into);
        }
    }

    fn flows(&self) -> Option<u32> {
        self.present().map(|(_, leaf)| leaf.flows()).sum()
    }

    fn class_counts(&self, into: &mut Vec<ClassCount>) {
        into.extend(self.present().map(|(_, leaf)| leaf.count()));
    }

    fn retune(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        let Spec { config: crate::Config::Htb(config), tree, level, .. } = spec else {
            panic!("an htb cannot be retuned to {:?}", spec.config)
        };
        let is_same = tree.is_none() && self.config == config;
        self.config = config;
        self.level = level;
        if let Some(tree) = tree {
            self.scheduler = tree;
            self.needs_costs = self.scheduler.needs_costs();
        }
        self.reading = reading(self.scheduler.as_ref());
        match self.scheduler.changes().filter(|_| is_same) {
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
