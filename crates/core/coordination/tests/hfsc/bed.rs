//! Queues with an `hfsc` each over one tree, in virtual time.

use narrows_coordination::{Below, Change, Classes, SharedTree, TreeKind};
use narrows_packet::{PacketId, Packets};
use narrows_qdisc::hfsc::{Class, Curve, Service};
use narrows_qdisc::htb::{self, Unclassified};
use narrows_qdisc::{Config, Detail, Next, NodeId, Qdisc, Spec, Verdict, fifo};
use narrows_units::{Nanos, Rate};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const MBIT: u64 = 1_000_000;
pub const MILLI: u64 = 1_000_000;

/// A curve of two pieces, in bits a second, the first in nanoseconds.
pub fn curve(m1: u64, d: u64, m2: u64) -> Curve {
    let [m1, m2] = [m1, m2].map(Rate::from_bits_per_sec);
    Curve { m1, d: Nanos(d), m2 }
}

/// A straight one.
pub fn line(rate: u64) -> Curve {
    Curve::line(Rate::from_bits_per_sec(rate))
}

/// A class with these curves: real time, link share, upper limit.
pub fn class(parent: Option<u32>, curves: [Option<Curve>; 3]) -> Class {
    let [real_time, link_share, upper_limit] = curves;
    Class { parent, real_time, link_share, upper_limit }
}

struct Members(BTreeMap<u32, Class>);

impl Classes for Members {
    fn ids(&self) -> Box<dyn Iterator<Item = u32> + '_> {
        Box::new(self.0.keys().copied())
    }

    fn class(&self, _: u32) -> Option<htb::Class> {
        None
    }

    fn curves(&self, id: u32) -> Option<Class> {
        self.0.get(&id).copied()
    }

    fn below(&self, id: u32) -> Option<Below> {
        let is_leaf = self.0.values().all(|class| class.parent != Some(id));
        let config = Config::Fifo(fifo::Config::Packets(100_000));
        (is_leaf && self.0.contains_key(&id)).then(|| Below::new(NodeId(u64::from(id)), config))
    }
}

/// The most packets of a queue.
const PACKETS: u32 = 1 << 14;

struct Queue {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    free: Vec<PacketId>,
}

/// Some queues over one tree, and their time.
pub struct Bed {
    classes: BTreeMap<u32, Class>,
    tree: SharedTree,
    queues: Vec<Queue>,
    pub now: Nanos,
}

/// A packet that has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    pub class: u32,
    pub len: u32,
    pub arrival: Nanos,
}

impl Bed {
    pub fn new(queues: usize, classes: &[(u32, Class)]) -> Self {
        let tree = SharedTree::new(TreeKind::Hfsc);
        tree.replace_classes(
            Arc::new(Members(classes.iter().copied().collect())),
            &BTreeMap::new(),
        );
        let queue = |_| {
            let config = htb::Config { default: 0, unclassified: Unclassified::Dropped };
            let spec = Spec { tree: Some(tree.scheduler()), ..Spec::new(Config::Htb(config)) };
            let free = (0..PACKETS).map(PacketId).collect();
            Queue { qdisc: spec.build(), packets: Packets::new(PACKETS), free }
        };
        let queues = (0..queues).map(queue).collect();
        Self { classes: classes.iter().copied().collect(), tree, queues, now: Nanos::from_secs(1) }
    }

    /// Applies other classes, as a command would: those that differ, or all.
    pub fn change(&mut self, classes: &[(u32, Class)]) {
        let next: BTreeMap<u32, Class> = classes.iter().copied().collect();
        let before = std::mem::replace(&mut self.classes, next.clone());
        let mut ids: Vec<u32> = before.keys().chain(next.keys()).copied().collect();
        ids.retain(|id| before.get(id) != next.get(id));
        let next = Arc::new(Members(next));
        match Change::of(&Members(before), Arc::clone(&next) as _, ids) {
            Some(change) => assert!(self.tree.apply(&change)),
            None => self.tree.replace_classes(next, &BTreeMap::new()),
        }
        for queue in &mut self.queues {
            let config = htb::Config { default: 0, unclassified: Unclassified::Dropped };
            let spec = Spec::new(Config::Htb(config));
            let mut handover = narrows_qdisc::Handover::new(&mut queue.packets, self.now);
            queue.qdisc.retune(spec, &mut handover);
        }
    }

    pub fn enqueue(&mut self, queue: usize, class: u32, len: u32) {
        let Queue { qdisc, packets, free } = &mut self.queues[queue];
        let id = free.pop().unwrap();
        packets.arrive(id, len, self.now);
        packets.meta_mut(id).class = class;
        assert_eq!(qdisc.enqueue(packets, id, self.now), Verdict::Queued);
    }

    /// The next packet of the queue, or when to come again.
    pub fn dequeue(&mut self, queue: usize) -> Result<Sent, Option<Nanos>> {
        let Queue { qdisc, packets, free } = &mut self.queues[queue];
        match qdisc.dequeue_one(packets, self.now) {
            Ok(id) => {
                let class = packets.meta(id).class;
                let (len, arrival) = (packets.len(id).0 as u32, packets.meta(id).arrival);
                free.push(id);
                Ok(Sent { class, len, arrival })
            }
            Err(Next::Held(at) | Next::At(at)) => Err(Some(at)),
            Err(Next::Empty) => Err(None),
            Err(Next::Now) => panic!("there was room"),
        }
    }

    /// What each class of which the queue has had packets has had.
    pub fn services(&self, queue: usize, classes: &[(u32, Class)]) -> BTreeMap<u32, Service> {
        let parent = |id: u32| {
            classes.iter().find(|(other, _)| *other == id).and_then(|(_, class)| class.parent)
        };
        let mut stats = Vec::new();
        self.queues[queue].qdisc.stats(&mut stats);
        let Some(Detail::Htb(figures)) = &stats[0].detail else { panic!("{:?}", stats[0]) };
        let all = figures.leaves.iter().flat_map(|(leaf, figures)| {
            let path = std::iter::successors(Some(*leaf), |id| parent(*id));
            path.zip(figures.service.iter().copied())
        });
        all.collect()
    }
}

/// What comes for a class on a queue.
#[derive(Clone, Copy)]
pub enum Load {
    /// More than can leave, in packets of this length.
    Endless(u32),
    /// A packet of this length each so often.
    Every(u32, Nanos),
}

struct Source {
    queue: usize,
    class: u32,
    load: Load,
    next: Nanos,
}

/// Queues that each come when they have to, and somewhat late.
pub struct Run {
    pub bed: Bed,
    sources: Vec<Source>,
    due: Vec<Nanos>,
    lateness: u64,
    random: u64,
    /// Bytes by class, and by class and queue.
    pub sent: BTreeMap<u32, u64>,
    pub sent_by: BTreeMap<(u32, usize), u64>,
    /// The longest wait of a packet of each class.
    pub longest: BTreeMap<u32, Nanos>,
    /// Everything that was sent, by time.
    pub log: Vec<(Nanos, Sent)>,
    /// How often a queue came.
    pub turns: u64,
    /// Nanoseconds a byte takes on the link behind all queues; 0 for none.
    pub link: u64,
    link_free: Nanos,
}

impl Run {
    /// How many packets of an endless load are queued.
    const QUEUED: usize = 40;

    pub fn new(queues: usize, classes: &[(u32, Class)], lateness: Nanos) -> Self {
        let bed = Bed::new(queues, classes);
        Self {
            due: vec![bed.now; queues],
            bed,
            sources: Vec::new(),
            lateness: lateness.0,
            random: 1,
            sent: BTreeMap::new(),
            sent_by: BTreeMap::new(),
            longest: BTreeMap::new(),
            log: Vec::new(),
            turns: 0,
            link: 0,
            link_free: Nanos::ZERO,
        }
    }

    pub fn load(&mut self, queue: usize, class: u32, load: Load) {
        let next = self.bed.now;
        self.sources.push(Source { queue, class, load, next });
        self.due[queue] = next;
        if let Load::Endless(len) = load {
            (0..Self::QUEUED).for_each(|_| self.bed.enqueue(queue, class, len));
        }
    }

    /// Nothing more comes for the class on the queue.
    pub fn stop(&mut self, queue: usize, class: u32) {
        self.sources.retain(|source| (source.queue, source.class) != (queue, class));
    }

    /// All queues come at once, as after a change.
    pub fn due_now(&mut self) {
        self.due.fill(self.bed.now);
    }

    fn late(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % (self.lateness + 1)
    }

    /// Lets this much time pass, and forgets what was sent before.
    pub fn pass(&mut self, span: Nanos) {
        let end = self.bed.now + span;
        (self.sent, self.sent_by) = (BTreeMap::new(), BTreeMap::new());
        (self.longest, self.log) = (BTreeMap::new(), Vec::new());
        loop {
            let arrivals = self.sources.iter().enumerate();
            let arrival = arrivals
                .filter(|(_, source)| matches!(source.load, Load::Every(..)))
                .map(|(number, source)| (source.next, number))
                .min();
            let turn = (0..self.due.len()).map(|queue| (self.due[queue], queue)).min().unwrap();
            let next = arrival.map_or(turn.0, |(at, _)| at.min(turn.0));
            if next >= end {
                self.bed.now = end;
                return;
            }
            self.bed.now = self.bed.now.max(next);
            if let Some((at, number)) = arrival.filter(|(at, _)| *at <= turn.0) {
                let source = &mut self.sources[number];
                let Load::Every(len, gap) = source.load else { unreachable!() };
                source.next = at + gap;
                let (queue, class) = (source.queue, source.class);
                self.bed.enqueue(queue, class, len);
                let wakes = self.bed.now + Nanos(self.late());
                self.due[queue] = self.due[queue].min(wakes);
                continue;
            }
            self.turn(turn.1);
        }
    }

    fn turn(&mut self, queue: usize) {
        self.turns += 1;
        let until = loop {
            match self.bed.dequeue(queue) {
                Err(until) => break until,
                Ok(sent) => {
                    let len = u64::from(sent.len);
                    self.link_free = self.link_free.max(self.bed.now) + Nanos(len * self.link);
                    let now = self.link_free;
                    *self.sent.entry(sent.class).or_default() += len;
                    *self.sent_by.entry((sent.class, queue)).or_default() += len;
                    let longest = self.longest.entry(sent.class).or_default();
                    *longest = (*longest).max(now - sent.arrival);
                    self.log.push((now, sent));
                    let of = (queue, sent.class);
                    let mut sources = self.sources.iter();
                    let source = sources.find(|source| (source.queue, source.class) == of);
                    if let Some(Source { load: Load::Endless(len), .. }) = source {
                        let len = *len;
                        self.bed.enqueue(queue, sent.class, len);
                    }
                }
            }
        };
        let late = Nanos(self.late());
        self.due[queue] = until.map_or(Nanos::MAX, |at| at.max(self.bed.now + Nanos(1)) + late);
    }

    /// What a class got, in bits a second.
    pub fn rate(&self, class: u32, span: Nanos) -> f64 {
        *self.sent.get(&class).unwrap_or(&0) as f64 * 8e9 / span.0 as f64
    }
}
