//! `cake`: a queue for every flow, a share for every host, short queues, one rate.
//!
//! It is what people expect of a shaper at home or in an access network: it keeps a rate, and a
//! call does not notice other traffic. It combines four ideas:
//!
//! *Flows* (`flow.rs`, `ways.rs`) are identified by an 8-way set-associative hash, so that two of a
//! thousand rarely share a queue.
//!
//! *Turns* (`tin.rs`, `rotation.rs`): sparse flows go first; bulk flows take turns by deficit round
//! robin, each with a quantum divided by the number of its host's flows (`hosts.rs`).
//!
//! *Short queues* (`cobalt.rs`): CoDel signals to responsive flows, BLUE drops from unresponsive
//! ones, and when memory runs out (`overflow.rs`) the longest queue drops.
//!
//! *Rate and tins* (`clock.rs`, `tins.rs`, `sizes.rs`): a virtual clock without a burst, charged
//! with the bottleneck's framing; tins by code point, each with priority up to its threshold.
//!
//! *One instance on every queue of a port.* The rate is then a meter at a limit ([`Meter`]), and
//! hosts and tins are counted together ([`Census`], `neighbours.rs`), so that the port as a whole
//! gives hosts, flows and tins what one instance would. Credit that a meter grants and no packet
//! uses stays paid for (`limiter.rs`), so the instance chooses the packet when it may leave, and
//! holds none outside its flow.
//!
//! *First on its queue is first on the port.* A packet that goes first on its queue, because its
//! flow is sparse or its tin is within its threshold, does not wait for the queue's share: bulk
//! packets yield to it on all queues ([`Meter::yields`]), and while a queue waits its worker polls
//! arrivals at least once per frame time.
//!
//! *Lazy updates.* The state of a flow without packets is updated when its next packet arrives;
//! nothing visits it in between.
//!
//! Source: T. Høiland-Jørgensen, D. Täht, J. Morton, "Piece of CAKE: a comprehensive queue
//! management solution for home gateways" (2018); `tc-cake(8)`; RFC 8289, RFC 8290. Each file says
//! what it takes and where it differs.
//!
//! Cost: on arrival one set of tags, the flow's line and the packet's two; at departure the flow's
//! line and the packet's. With a thousand flows these are not in the first-level cache, so batches
//! prefetch them. Counted with 1024 flows, 16 per host, all backlogged, with the harness and header
//! parsing: 578 instructions a packet in one tin and 749 in four, beside 540 of DPDK's `rte_sched`,
//! which parses none (`narrows bench cake`, column `instructions_per_packet`). Memory: what the
//! flows that were active at once need, doubled from a page on (`slab.rs`), and two tables of 4 KiB
//! per tin; freed after a second without packets.
//!
//! Non-goals: splitting segments (frames here are already as on the wire), custom filters.

use crate::acknowledgements::Acknowledgements;
use crate::bucket::Shape;
use crate::coalescing::Coalescing;
use crate::overlimits::Overlimits;
use crate::{
    Census, Detail, Handover, Meter, Metering, Next, Qdisc, Share, Spec, Stats, Verdict, Weight,
};
use flow::Standing;
use limiter::Limiter;
use load::WHOLE_HOST;
use memory::Memory;
use narrows_packet::{Backlog, Batch, PacketId, Packets, Reading};
use narrows_units::{Bytes, Nanos, Rate};
use neighbours::{Neighbours, Part};
use overflow::Overflow;
use rotation::List;
use sizes::Sizes;
use slab::Slab;
use tin::Tin;
use tins::Scheme;
use windows::Windows;

mod ack_filter;
mod arrival;
mod arrivals;
mod clock;
mod cobalt;
mod config;
mod delays;
mod departure;
mod estimator;
mod ewma;
mod figures;
mod flow;
mod hosts;
mod limiter;
mod load;
mod memory;
mod neighbours;
mod overflow;
mod rotation;
mod sizes;
mod slab;
mod tables;
mod tin;
mod tins;
mod ways;
mod windows;

pub use config::{AckFilter, Config, Diffserv, Isolation};
pub use figures::{Figures, TinFigures};

/// How long an instance must be empty before it frees its memory.
const REST: Nanos = Nanos::from_secs(1);

/// An instance: one queue's.
pub(crate) struct Cake {
    config: Config,
    scheme: Scheme,
    tins: Vec<Tin>,
    flows: Slab<flow::Flow>,
    /// Flows at rest, all tins', the one that has rested longest first.
    idle: List,
    limiter: Limiter,
    /// The part of the limit that memory follows.
    share: Share,
    neighbours: Option<Neighbours>,
    /// For how long hosts remember their flows.
    windows: Windows,
    /// This queue's weight among those of a class, if the rate is the class's.
    weight: Weight,
    estimator: Option<estimator::Estimator>,
    sizes: Sizes,
    memory: Memory,
    coalescing: Coalescing,
    overflow: Overflow,
    backlog: Backlog,
    /// The flow that last lost its way to another, until the look-ahead knows.
    displaced: u16,
    /// The tin that is next, if there is no rate.
    turn: usize,
    random: Random,
    acknowledgements: Acknowledgements,
    /// Since when there are no packets.
    empty_since: Option<Nanos>,
    /// All but the backlog.
    stats: Stats,
    overlimits: Overlimits,
}

impl Cake {
    pub(crate) fn new(
        config: Config,
        meter: Option<Box<dyn Meter>>,
        census: Option<Box<dyn Census>>,
    ) -> Self {
        let scheme = Scheme::new(config.diffserv, config.mark_mask);
        let tins = scheme.shares.iter().map(|share| Tin::new(share.quantum)).collect();
        let limiter = Limiter::new(config.rate, meter);
        let mut cake = Self {
            coalescing: coalescing(&config, &limiter),
            limiter,
            estimator: estimator(&config),
            sizes: Sizes::new(&config),
            memory: Memory::new(&config),
            share: Share::WHOLE,
            neighbours: census.map(Neighbours::new),
            windows: Windows::new(),
            weight: Weight::ONE,
            flows: Slab::new(),
            idle: List::EMPTY,
            overflow: Overflow::new(),
            backlog: Backlog::default(),
            displaced: slab::NONE,
            turn: 0,
            random: Random::default(),
            acknowledgements: Acknowledgements::default(),
            empty_since: None,
            stats: Stats::default(),
            overlimits: Overlimits::default(),
            config,
            scheme,
            tins,
        };
        cake.follow_rate(Nanos::ZERO);
        cake
    }

    /// Derives every tin's parameters from the present rate. Excess over a threshold at another
    /// rate is forgiven.
    fn follow_rate(&mut self, now: Nanos) {
        for (tin, share) in self.tins.iter_mut().zip(&self.scheme.shares) {
            let threshold = self.config.rate.map(|rate| part_of(rate, share.threshold));
            tin.follow(&self.config, threshold);
            tin.set_threshold(threshold.unwrap_or_default());
            tin.begin_anew_soon(self.config.frame, now);
        }
        self.follow_share();
    }

    /// Follows this queue's share of the limit.
    fn follow_share(&mut self) {
        self.memory.follow(&self.config, self.share);
        self.coalescing = coalescing(&self.config, &self.limiter);
    }

    /// When to ask again if a packet may leave at `when`: slightly later if many are queued, but
    /// soon enough for arrivals that need not wait for this queue's share. The packet is chosen
    /// then.
    #[inline]
    fn when(&self, when: Nanos, now: Nanos) -> Nanos {
        let longest = Bytes(u64::from(self.config.frame));
        let usual = Bytes(self.backlog.bytes.0 / u64::from(self.backlog.packets.max(1)));
        let behind = self.backlog.bytes - usual;
        let due = self.coalescing.until_one_of(when, [usual, longest], behind);
        due.min(now + self.coalescing.longest_unseen())
    }

    /// Keeps `rate` from `now` on, as the estimator has it.
    fn set_rate(&mut self, rate: Rate, now: Nanos) {
        self.config.rate = Some(rate);
        self.limiter.set_rate(rate, now);
        self.follow_rate(now);
    }

    /// Tins take turns from now on, without debts.
    fn begin_turns(&mut self) {
        self.turn = 0;
        self.tins.iter_mut().for_each(|tin| tin.deficit = 0);
    }

    /// A batch begins: exchanges demands with the siblings, if it is time.
    #[inline]
    fn begin_batch(&mut self, now: Nanos) {
        self.follow_time(now);
        if let Some(neighbours) = &self.neighbours
            && neighbours.is_due(now)
        {
            self.meet(now);
        }
    }

    /// The batch is over: says what is left.
    #[inline]
    fn end_batch(&mut self, now: Nanos) {
        let Limiter::Shared(shared) = &mut self.limiter else {
            if let Some(neighbours) = &self.neighbours
                && self.backlog.is_empty()
                && neighbours.has_published()
            {
                self.meet(now);
            }
            return;
        };
        shared.report(self.backlog, now);
        let share = shared.share();
        if let Some(neighbours) = &self.neighbours
            && self.backlog.is_empty()
            && neighbours.has_published()
        {
            self.meet(now);
        }
        if share.0.abs_diff(self.share.0) > self.share.0 / 8 {
            self.share = share;
            self.follow_share();
        }
    }

    /// Makes hosts forget flows whose backlog is long ago.
    #[inline]
    fn follow_time(&mut self, now: Nanos) {
        if self.windows.is_over(now) {
            self.begin_window(now);
        }
    }

    #[cold]
    fn begin_window(&mut self, now: Nanos) {
        self.windows.begin(now, self.config.rate);
        for tables in self.tins.iter_mut().filter_map(|tin| tin.tables.as_mut()) {
            tables.begin_window(self.windows.number());
        }
    }

    /// Exchanges hosts and tins with the siblings.
    #[inline(never)]
    fn meet(&mut self, now: Nanos) {
        let Some(neighbours) = &mut self.neighbours else { return };
        if let ([tin], None) = (&self.tins[..], self.config.rate) {
            self.weight = neighbours.meet_in_class(tin.weight, now);
            return;
        }
        let nothing = Part { weight: 0, sent: 0, part: 0 };
        let mut parts = [nothing; crate::TINS_MAX];
        for (part, tin) in parts.iter_mut().zip(&self.tins) {
            *part = Part { weight: tin.weight, sent: tin.sent, part: 0 };
        }
        let parts = &mut parts[..self.tins.len()];
        let Some(rate) = self.config.rate else {
            if self.backlog.is_empty() {
                parts.iter_mut().for_each(|part| part.weight = 0);
            }
            let shares = &self.scheme.shares;
            self.weight = neighbours.meet_by_tin(shares, parts, now);
            let due = |(share, part): (&tins::Share, &Part)| {
                u64::from(share.quantum) * u64::from(part.part)
            };
            // Only proportions matter: the largest part becomes the first tin's quantum.
            let most = shares.iter().zip(&*parts).map(due).max().unwrap_or_default().max(1);
            let whole = u64::from(shares[0].quantum);
            for (tin, part) in self.tins.iter_mut().zip(shares.iter().zip(&*parts)) {
                tin.quantum = (due(part) * whole / most).max(1) as u32;
            }
            return;
        };
        let weight = neighbours.meet(&self.scheme.shares, parts, rate, now);
        for ((tin, share), part) in self.tins.iter_mut().zip(&self.scheme.shares).zip(parts) {
            tin.set_threshold(part_of(part_of(rate, share.threshold), part.part));
            tin.begin_anew_soon(self.config.frame, now);
        }
        if let Limiter::Shared(shared) = &mut self.limiter {
            shared.weigh(weight);
        }
    }

    /// New siblings know no flows yet.
    fn forget_published_figures(&mut self) {
        for id in 0..self.flows.taken() {
            self.flows[id].published = false;
        }
        for tables in self.tins.iter_mut().filter_map(|tin| tin.tables.as_mut()) {
            tables.forget_published_figures();
        }
    }

    /// Recounts the weights of flows, which are not maintained without siblings.
    fn weigh_anew(&mut self) {
        self.tins.iter_mut().for_each(|tin| tin.weight = 0);
        for id in 0..self.flows.taken() {
            let flow = &self.flows[id];
            if !matches!(flow.standing, Standing::New | Standing::Idle) {
                self.tins[flow.home.tin()].weight += WHOLE_HOST / u64::from(flow.load);
            }
        }
    }

    /// Frees the memory of flows that ended long ago.
    #[cold]
    fn shrink(&mut self) {
        self.flows = Slab::new();
        self.idle = List::EMPTY;
        self.overflow = Overflow::new();
        for tin in &mut self.tins {
            tin.tables = None;
            tin.unresponsive = 0;
        }
    }

    /// The memory of the instance, in bytes.
    fn own_memory(&self) -> usize {
        let tables = self.tins.iter().filter_map(|tin| tin.tables.as_ref());
        size_of::<Self>()
            + self.tins.capacity() * size_of::<Tin>()
            + self.scheme.shares.capacity() * size_of::<tins::Share>()
            + tables.map(|tables| tables.memory()).sum::<usize>()
            + self.flows.memory()
            + self.overflow.memory()
    }

    fn figures(&self) -> Figures {
        let [network_size, adjusted_size] = self.sizes.extremes();
        let tin = |&tin: &u8| self.tins[usize::from(tin)].figures();
        let spread = |&tin: &u8| self.tins[usize::from(tin)].spread.clone();
        Figures {
            memory_used: self.memory.most(),
            memory_limit: Memory::limit_reported(&self.config),
            memory_is_of_port: self.config.memory.is_none(),
            capacity_estimate: match &self.estimator {
                Some(estimator) => estimator.capacity(),
                None => self.config.rate.unwrap_or_default(),
            },
            network_size,
            adjusted_size,
            active_queues: match &self.limiter {
                Limiter::Shared(_) => (Share::WHOLE.0 + self.share.0 / 2) / self.share.0.max(1),
                _ => 0,
            },
            instances: 1,
            average_offset: self.sizes.average_offset(),
            own_memory: Bytes(self.own_memory() as u64),
            tins: self.scheme.shown.iter().map(tin).collect(),
            delays: self.scheme.shown.iter().map(spread).collect(),
        }
    }
}

impl Qdisc for Cake {
    fn owe(&mut self, bytes: Bytes, now: Nanos) {
        self.limiter.owe(bytes, now);
    }

    fn reading(&self) -> Reading {
        self.config.reading()
    }

    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        self.memory.follow_spare(packets, 1);
        self.arrive(packets, id, now)
    }

    fn enqueue_all(&mut self, packets: &mut Packets, ids: &[PacketId], now: Nanos) {
        self.memory.follow_spare(packets, ids.len());
        self.arrive_all(packets, ids, now);
    }

    fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        self.stats.refuse_all(packets, ids);
    }

    fn dequeue(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) -> Next {
        self.begin_batch(now);
        let (left, mut next) = self.depart(packets, now, out.free());
        out.filled(left);
        if let Next::At(when) = next {
            next = Next::At(self.when(when, now));
        }
        if next == Next::Empty {
            self.rest(now);
        }
        self.end_batch(now);
        next
    }

    fn expect(&self, packets: &Packets, id: PacketId) {
        self.expect_arrival(&packets.headers(id));
    }

    fn expect_departure(&self, packets: &Packets) {
        for first in self.tins.iter().filter_map(Tin::first) {
            Tin::prefetch(&self.flows, first, packets);
        }
    }

    fn dequeue_one(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next> {
        self.begin_batch(now);
        let mut one = [PacketId(0)];
        let (left, next) = self.depart(packets, now, &mut one);
        if left != 0 {
            // The parent may not want the next one yet.
            self.overlimits.passed(&mut self.stats, self.backlog.packets);
        }
        self.end_batch(now);
        one[..left].first().copied().ok_or(next)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn weight(&self) -> Weight {
        self.weight
    }

    fn flows(&self) -> Option<u32> {
        Some(self.tins.iter().map(Tin::flows).sum())
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        let detail = Some(Detail::Cake(Box::new(self.figures())));
        into.push(Stats { backlog: self.backlog, detail, ..self.stats.clone() });
    }

    fn retune(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        let now = handover.now;
        let Spec { config: crate::Config::Cake(mut config), metering, census, .. } = spec else {
            panic!("a cake cannot be retuned to {:?}", spec.config)
        };
        let keeps = matches!(metering, Metering::Kept) || self.limiter.is_own();
        let meter = if let Metering::Shared(meter) = metering { Some(meter) } else { None };
        match &self.estimator {
            // The estimate of the link is kept, unless the operator sets a rate.
            Some(known) if config.autorate && known.began_at() == config.rate => {
                config.rate = self.config.rate;
            }
            _ => self.estimator = estimator(&config),
        }
        if meter.is_some() || !keeps || config.rate.is_some() != self.config.rate.is_some() {
            self.limiter = Limiter::new(config.rate, meter);
            self.limiter.awake(now);
            self.begin_turns();
        } else if let Some(rate) = config.rate {
            self.limiter.set_rate(rate, now);
        }
        if let Some(census) = census {
            self.forget_published_figures();
            self.weigh_anew();
            self.neighbours = Some(Neighbours::new(census));
        }
        if self.config.ack_filter == AckFilter::Off {
            self.acknowledgements.ask(now);
        }
        self.sizes.follow(&config);
        self.scheme = Scheme::new(config.diffserv, config.mark_mask);
        self.config = config;
        self.follow_rate(now);
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        self.drain_one(packets)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        self.overlimits.adopted();
        self.take_in(packets, id, now);
    }
}

/// How long departures may wait for others.
fn coalescing(config: &Config, limiter: &Limiter) -> Coalescing {
    let rate = config.rate.unwrap_or_default();
    let shape = Shape { rate, burst: config.catch_up(rate), peak: None };
    let coalescing = Coalescing::beside_light_flows(&shape, Bytes(u64::from(config.frame)));
    match limiter.part_of_burst() {
        Some(part) => coalescing.of_bucket(part),
        None => coalescing.alone(),
    }
}

/// The estimator, if configured.
fn estimator(config: &Config) -> Option<estimator::Estimator> {
    config.autorate.then(|| estimator::Estimator::new(config.rate, Bytes(u64::from(config.frame))))
}

/// `part` of `rate`, in 1/65536.
fn part_of(rate: Rate, part: u32) -> Rate {
    let bits = (u128::from(rate.bits_per_sec()) * u128::from(part)) >> 16;
    Rate::from_bits_per_sec(bits as u64)
}

/// Numbers of which only their distribution matters: the same in every run (xorshift*).
struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Self(0x2545_f491_4f6c_dd1d)
    }
}

impl Random {
    #[inline]
    fn next(&mut self) -> u16 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 48) as u16
    }
}
