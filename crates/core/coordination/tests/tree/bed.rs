//! Queues that keep a tree together, in virtual time.

use narrows_coordination::{Below, Label, SharedTree, Spent, TreeKind, TreeStrategy};
use narrows_packet::{Batch, Headers, PacketId, Packets};
use narrows_qdisc::htb::{self, Class};
use narrows_qdisc::{Config, Detail, Next, NodeId, Qdisc, Spec, bands, fifo};
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const MBIT: u64 = 1_000_000;

/// A class with these rates in bits per second, below `parent`.
pub fn class(parent: Option<u32>, rate: u64, ceil: u64) -> Class {
    let (rate, ceil) = (Rate::from_bits_per_sec(rate), Rate::from_bits_per_sec(ceil));
    let burst = |rate: Rate| Bytes((rate.bits_per_sec() / 8 / 1000).max(6 * 1514));
    Class {
        parent,
        rate,
        ceil,
        burst: burst(rate),
        cburst: burst(ceil),
        prio: 0,
        quantum: 6_000,
        overhead: Overhead::NONE,
    }
}

/// The offered load of a class on a queue.
#[derive(Clone, Copy)]
pub enum Demand {
    /// More than can leave.
    Endless,
    /// Bits per second.
    Rate(u64),
}

struct Source {
    class: u32,
    queue: usize,
    /// The packets' host, and which of its flows they belong to.
    host: u32,
    flow: u32,
    /// Their band of the class, if it has bands.
    band: u16,
    dscp: u8,
    len: u32,
    demand: Demand,
    next: Nanos,
    queued: u32,
}

/// Threads that serve workers, and sleep in between until a worker has to be asked or packets come
/// for one.
#[derive(Clone, Copy, Default)]
pub struct Threads {
    /// Whether all workers are on one thread. Otherwise each has its own.
    pub is_one: bool,
    /// By how much a thread wakes up too late, at most.
    pub lateness: Nanos,
    /// How often threads woke up because packets came,
    pub by_arrivals: u64,
    /// or because it was time.
    pub by_time: u64,
    /// How often it was time, and nothing was sent.
    pub in_vain: u64,
}

struct Queue {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    free: Vec<PacketId>,
    source_of: Vec<usize>,
    next: Nanos,
    /// Whether packets have come since its thread woke up.
    has_arrivals: bool,
    /// Whether its worker is lost.
    is_dead: bool,
}

/// The largest excess of a class over its rate.
struct Excess {
    rate: u64,
    bits: f64,
    most: f64,
    last: Nanos,
}

impl Excess {
    fn add(&mut self, bytes: u64, now: Nanos) {
        let earned = (now - self.last).0 as f64 * self.rate as f64 / 1e9;
        self.bits = (self.bits - earned).max(0.0) + bytes as f64 * 8.0;
        (self.most, self.last) = (self.most.max(self.bits), now);
    }
}

fn fifo() -> Config {
    Config::Fifo(fifo::Config::Packets(1000))
}

/// A leaf with `config` in it.
fn below(config: Config) -> Below {
    Below::new(NodeId(0), config)
}

/// Packets of no particular host.
fn source(class: u32, queue: usize, len: u32, demand: Demand) -> Source {
    let next = Nanos::ZERO;
    Source { class, queue, host: 0, flow: 0, band: 0, dscp: 0, len, demand, next, queued: 0 }
}

/// The metadata of a packet from `source` to `destination` with the code point `dscp`.
fn hosts(source: u32, destination: u32, dscp: u8) -> Headers {
    Headers { source, destination, dscp, ..Headers::default() }
}

pub struct Bed {
    tree: SharedTree,
    pub classes: BTreeMap<u32, Class>,
    queues: Vec<Queue>,
    sources: Vec<Source>,
    pub now: Nanos,
    /// By class, what its packets took in all.
    sent: BTreeMap<u32, u64>,
    /// By host, the same.
    sent_by: BTreeMap<u32, u64>,
    excess: BTreeMap<u32, Excess>,
    /// By class, the longest that a packet waited.
    pub longest_wait: BTreeMap<u32, Nanos>,
    /// The threads that serve the workers. Without any, workers come in time and look at once what
    /// has arrived.
    pub threads: Option<Threads>,
    /// How many packets were sent.
    pub packets: u64,
    /// By how much workers come too late, at most.
    pub lateness: Nanos,
    random: u64,
}

/// This many packets wait for a class on a queue.
const MOST_QUEUED: u32 = 96;

/// How often queues look.
const TICK: Nanos = Nanos::from_micros(2);

impl Bed {
    /// `queues` that keep `classes` together. Those without one below are leaves.
    pub fn new(queues: usize, classes: &[(u32, Class)]) -> Self {
        Self::made(TreeStrategy::Fair, queues, classes, &BTreeMap::new(), &below(fifo()))
    }

    /// `queues` that keep `classes` together, with `leaf` in each leaf class.
    pub fn with_leaves(queues: usize, classes: &[(u32, Class)], leaf: &Config) -> Self {
        let leaf = below(leaf.clone());
        Self::made(TreeStrategy::Fair, queues, classes, &BTreeMap::new(), &leaf)
    }

    /// `queues` that keep `classes` together, with bands in each leaf class, and a FIFO in each
    /// band.
    pub fn with_bands(queues: usize, classes: &[(u32, Class)], bands: &bands::Config) -> Self {
        let child = |id| Below { level: 2, ..Below::new(NodeId(id), fifo()) };
        let children = (1..).take(bands.classes.len()).map(child).collect();
        let leaf = Below { children, ..below(Config::Bands(bands.clone())) };
        Self::made(TreeStrategy::Fair, queues, classes, &BTreeMap::new(), &leaf)
    }

    /// `queues` that keep `classes` together by `strategy`, with FlowValve's `labels`.
    pub fn kept_by(
        strategy: TreeStrategy,
        queues: usize,
        classes: &[(u32, Class)],
        labels: &BTreeMap<u32, Label>,
    ) -> Self {
        Self::made(strategy, queues, classes, labels, &below(fifo()))
    }

    fn made(
        strategy: TreeStrategy,
        queues: usize,
        classes: &[(u32, Class)],
        labels: &BTreeMap<u32, Label>,
        leaf: &Below,
    ) -> Self {
        let tree = SharedTree::new(TreeKind::Htb(strategy));
        let bed_queue = || {
            let config = htb::Config { default: 0, unclassified: htb::Unclassified::Sent(1000) };
            let spec = Spec { tree: Some(tree.scheduler()), ..Spec::new(Config::Htb(config)) };
            let mut packets = Packets::new(8192);
            packets.prepare(leaf.config.reading());
            Queue {
                qdisc: spec.build(),
                packets,
                free: (0..8192).map(PacketId).collect(),
                source_of: vec![0; 8192],
                next: Nanos::ZERO,
                has_arrivals: false,
                is_dead: false,
            }
        };
        let queues = (0..queues).map(|_| bed_queue()).collect();
        let mut bed = Self {
            tree,
            classes: BTreeMap::new(),
            queues,
            sources: Vec::new(),
            now: Nanos::from_secs(100),
            sent: BTreeMap::new(),
            sent_by: BTreeMap::new(),
            excess: BTreeMap::new(),
            longest_wait: BTreeMap::new(),
            threads: None,
            packets: 0,
            lateness: Nanos::ZERO,
            random: 1,
        };
        let mut members = BTreeMap::new();
        for (id, class) in classes {
            let is_leaf = classes.iter().all(|(_, other)| other.parent != Some(*id));
            let below = is_leaf.then(|| Below { id: NodeId(u64::from(*id)), ..leaf.clone() });
            members.insert(*id, (*class, below));
            bed.classes.insert(*id, *class);
            let rate = class.ceil.bits_per_sec();
            bed.excess.insert(*id, Excess { rate, bits: 0.0, most: 0.0, last: bed.now });
        }
        bed.tree.replace_classes(Arc::new(members), labels);
        bed
    }

    /// Offers packets of `len` bytes for `class` on `queue`.
    pub fn demand(&mut self, class: u32, queue: usize, len: u32, demand: Demand) {
        self.sources.retain(|source| (source.class, source.queue) != (class, queue));
        let next = self.now;
        self.sources.push(Source { next, ..source(class, queue, len, demand) });
    }

    /// Offers full-size packets for the `band` of `class` on `queue`. They count as that host's.
    pub fn demand_band(&mut self, class: u32, band: u16, queue: usize, demand: Demand) {
        let host = u32::from(band);
        let next = self.now;
        self.sources.push(Source { band, host, next, ..source(class, queue, 1514, demand) });
    }

    /// Offers more full-size packets than can leave for `class` on `queue`, of `flows` of `host`.
    pub fn flood(&mut self, class: u32, queue: usize, host: u32, flows: u32) {
        for _ in 0..flows {
            let (flow, next) = (self.sources.len() as u32, self.now);
            let endless = source(class, queue, 1514, Demand::Endless);
            self.sources.push(Source { host, flow, next, ..endless });
        }
    }

    /// Offers full-size packets for `class` on `queue`, of a flow of `host` with the code point
    /// `dscp`.
    pub fn demand_of(&mut self, class: u32, queue: usize, host: u32, dscp: u8, demand: Demand) {
        let (flow, next) = (self.sources.len() as u32, self.now);
        let source = source(class, queue, 1514, demand);
        self.sources.push(Source { host, flow, dscp, next, ..source });
    }

    /// Offers packets of `len` bytes for `class` on all queues.
    pub fn demand_everywhere(&mut self, class: u32, len: u32, demand: Demand) {
        for queue in 0..self.queues.len() {
            self.demand(class, queue, len, demand);
        }
    }

    /// Stops the load of `class`.
    pub fn rest(&mut self, class: u32) {
        for source in self.sources.iter_mut().filter(|source| source.class == class) {
            source.demand = Demand::Rate(0);
        }
    }

    /// What is spent of each class's credit, by number.
    pub fn spent(&self) -> Vec<Spent> {
        let mut spent = self.tree.spent(self.now);
        spent.sort_by_key(|spent| spent.class);
        spent
    }

    /// How many turns of leaves ended without credit.
    pub fn refused(&self) -> u64 {
        let refused = |queue: &Queue| {
            let mut stats = Vec::new();
            queue.qdisc.stats(&mut stats);
            let detail = stats.first().and_then(|stats| stats.detail.clone());
            let Some(Detail::Htb(figures)) = detail else { panic!("an htb has figures") };
            figures.leaves.values().map(|leaf| leaf.overlimits).sum::<u64>()
        };
        self.queues.iter().map(refused).sum()
    }

    /// Another process continues, with the same load.
    pub fn hand_over(&mut self) {
        let classes: Vec<(u32, Class)> = self.classes.iter().map(|(id, it)| (*id, *it)).collect();
        let mut resumed = Self::new(self.queues.len(), &classes);
        resumed.tree.resume(&self.spent());
        (self.tree, self.queues) = (resumed.tree, std::mem::take(&mut resumed.queues));
        self.sources.iter_mut().for_each(|source| source.queued = 0);
    }

    /// The worker of `queue` sends nothing more.
    pub fn kill(&mut self, queue: usize) {
        self.queues[queue].is_dead = true;
    }

    /// Below `most` or equal to it (xorshift).
    fn any_below(&mut self, most: Nanos) -> Nanos {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Nanos(self.random % (most.0 + 1))
    }

    fn arrive(&mut self) {
        let now = self.now;
        for (number, source) in self.sources.iter_mut().enumerate() {
            let queue = &mut self.queues[source.queue];
            if self.threads.is_some()
                && let Demand::Rate(rate @ 1..) = source.demand
                && source.next <= now
            {
                queue.has_arrivals = true;
                if source.queued == MOST_QUEUED {
                    // It is lost, and wakes the thread all the same.
                    source.next += Nanos(u64::from(source.len) * 8_000_000_000 / rate);
                }
            }
            let wanted = |source: &Source| match source.demand {
                Demand::Endless => source.queued < MOST_QUEUED,
                Demand::Rate(0) => false,
                // More than that is lost at the sender.
                Demand::Rate(_) => source.next <= now && source.queued < MOST_QUEUED,
            };
            while wanted(source) {
                let Some(id) = queue.free.pop() else { break };
                queue.packets.arrive(id, source.len, now);
                let meta = queue.packets.meta_mut(id);
                (meta.class, meta.inner[0]) = (source.class, source.band);
                queue.source_of[id.0 as usize] = number;
                if source.host != 0 {
                    let hash = |number: u32| number.wrapping_mul(0x9e37_79b1);
                    let flow = hash(source.flow + 1);
                    let headers = hosts(hash(source.host), hash(flow), source.dscp);
                    let headers = Headers { flow, ..headers };
                    queue.packets.set_headers(id, headers);
                }
                source.queued += 1;
                let _ = queue.qdisc.enqueue(&mut queue.packets, id, now);
                if self.lateness == Nanos::ZERO && self.threads.is_none() {
                    queue.next = now;
                }
                if let Demand::Rate(rate) = source.demand {
                    let gap = Nanos(u64::from(source.len) * 8_000_000_000 / rate);
                    source.next = source.next.max(now - Nanos::from_millis(1)) + gap;
                }
            }
        }
    }

    /// The threads serve the workers.
    fn serve(&mut self, mut threads: Threads) {
        let all: Vec<usize> = (0..self.queues.len()).collect();
        let size = if threads.is_one { all.len() } else { 1 };
        for workers in all.chunks(size) {
            let queues = workers.iter().map(|worker| &self.queues[*worker]);
            let have_arrivals = queues.clone().any(|queue| queue.has_arrivals);
            let is_time = queues.clone().any(|queue| queue.next <= self.now);
            if !is_time && !have_arrivals {
                continue;
            }
            let before = self.packets;
            let mut order = workers.to_vec();
            order.sort_by_key(|worker| self.queues[*worker].next);
            // After arrivals a thread looks once more before it sleeps.
            let rounds = 1 + usize::from(have_arrivals);
            for worker in order.repeat(rounds) {
                let queue = &mut self.queues[worker];
                (queue.next, queue.has_arrivals) = (self.now, false);
                self.depart(worker);
            }
            let late = self.any_below(threads.lateness);
            for worker in workers {
                let queue = &mut self.queues[*worker];
                queue.next = Nanos(queue.next.0.saturating_add(late.0));
            }
            threads.by_arrivals += u64::from(have_arrivals);
            threads.by_time += u64::from(!have_arrivals);
            threads.in_vain += u64::from(!have_arrivals && self.packets == before);
        }
        self.threads = Some(threads);
    }

    fn depart(&mut self, number: usize) {
        let late = self.any_below(self.lateness);
        let queue = &mut self.queues[number];
        if queue.next > self.now || queue.is_dead {
            return;
        }
        let mut out = Batch::new(64);
        queue.next = match queue.qdisc.dequeue(&mut queue.packets, self.now, &mut out) {
            Next::Now => self.now,
            Next::At(at) | Next::Held(at) => at + late,
            // The worker sees arrivals when it polls.
            Next::Empty if late != Nanos::ZERO => self.now + late,
            Next::Empty => Nanos::MAX,
        };
        self.packets += out.as_slice().len() as u64;
        let mut dropped = Batch::new(64);
        queue.packets.reclaim(&mut dropped);
        for &id in dropped.as_slice() {
            let source = &mut self.sources[queue.source_of[id.0 as usize]];
            source.queued = source.queued.saturating_sub(1);
        }
        queue.free.extend_from_slice(dropped.as_slice());
        for &id in out.as_slice() {
            let meta = queue.packets.meta(id);
            let (class, len, wait) = (meta.class, u64::from(meta.len.0), self.now - meta.arrival);
            let source = &mut self.sources[queue.source_of[id.0 as usize]];
            source.queued = source.queued.saturating_sub(1);
            *self.sent_by.entry(source.host).or_default() += len;
            let longest = self.longest_wait.entry(class).or_default();
            *longest = (*longest).max(wait);
            let mut at = Some(class);
            while let Some(id) = at {
                *self.sent.entry(id).or_default() += len;
                self.excess.get_mut(&id).unwrap().add(len, self.now);
                at = self.classes[&id].parent;
            }
        }
        queue.free.extend_from_slice(out.as_slice());
    }

    /// Lets time pass. Returns the rate of each class meanwhile, in bits per second.
    pub fn run(&mut self, span: Nanos) -> BTreeMap<u32, f64> {
        let (before, end) = (self.sent.clone(), self.now + span);
        let mut first = 0;
        while self.now < end {
            self.now += TICK;
            self.arrive();
            if let Some(threads) = self.threads {
                self.serve(threads);
                continue;
            }
            // No queue is always first.
            first = (first + 7) % self.queues.len();
            for number in 0..self.queues.len() {
                self.depart((first + number) % self.queues.len());
            }
        }
        let rate = |(id, bytes): (&u32, &u64)| {
            let bytes = bytes - before.get(id).unwrap_or(&0);
            (*id, bytes as f64 * 8e9 / span.0 as f64)
        };
        self.sent.iter().map(rate).collect()
    }

    /// As [`run`](Self::run), while packets at `beside` leave beside all queues, which the first
    /// learns of each millisecond.
    pub fn run_beside(&mut self, span: Nanos, beside: Rate) -> BTreeMap<u32, f64> {
        let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
        let (step, steps) = (Nanos::from_millis(1), span.0 / 1_000_000);
        for _ in 0..steps {
            self.queues[0].qdisc.owe(beside.bytes_in(step), self.now);
            for (class, rate) in self.run(step) {
                *sums.entry(class).or_default() += rate / steps as f64;
            }
        }
        sums
    }

    /// Lets time pass. Returns the rate of each host meanwhile, in bits per second.
    pub fn run_by_host(&mut self, span: Nanos) -> BTreeMap<u32, f64> {
        let before = self.sent_by.clone();
        self.run(span);
        let rate = |(host, bytes): (&u32, &u64)| {
            let bytes = bytes - before.get(host).unwrap_or(&0);
            (*host, bytes as f64 * 8e9 / span.0 as f64)
        };
        self.sent_by.iter().map(rate).collect()
    }

    /// By how many bytes per class was ever above its ceiling, at most.
    pub fn most_above_ceiling(&self, class: u32) -> u64 {
        (self.excess[&class].most / 8.0) as u64
    }

    /// The bytes that `class` may send at once at its ceiling.
    pub fn burst(class: &Class) -> u64 {
        // The smallest bucket.
        class.cburst.0.max(4 * 1514).max(class.ceil.bits_per_sec() / 8 / 4_000)
    }

    /// Asserts that no class has ever exceeded its ceiling by more than its burst.
    pub fn assert_ceilings(&self) {
        for (id, class) in &self.classes {
            let (above, burst) = (self.most_above_ceiling(*id), Self::burst(class));
            assert!(above <= burst + 1, "class {id:x}: {above} bytes above, burst {burst}");
        }
    }
}
