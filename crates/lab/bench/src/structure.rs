//! The structures that are compared, and the work that each of them does.
//!
//! A turn is one step of a worker: 32 packets arrive, the clock advances by their time at the
//! limit, and all that may leave do. A standing queue of 32 packets keeps the limit binding, so
//! every turn of a shaper ends, as in practice, with a packet that may not leave yet. Packets have
//! 1500 bytes, the limit is 100 Gbit/s, the clock is virtual. Several meters take turns on one
//! thread: this measures the cost of the mechanism, not of contention.

use narrows_coordination::{Below, Coordination, Limit, Strategy, Tree};
use narrows_packet::{Backlog, Batch, Fifo, PacketId, Packets};
use narrows_qdisc::bands::{self, Discipline};
use narrows_qdisc::bucket::Bucket;
use narrows_qdisc::htb::{self, Class};
use narrows_qdisc::{
    Config, Meter, NodeId, Qdisc, Spec, Take, codel, fifo, fq_codel, netem, red, sfq, tbf,
};
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Packets that arrive in a turn.
pub const TURN: u32 = 32;
/// The backlog of each queue before a turn, in packets.
const STANDING: u32 = 32;
/// The size of a packet table: a power of two above the packets queued and in flight.
const TABLE: u32 = 128;
const LEN: u32 = 1500;
const RATE: Rate = Rate::from_bits_per_sec(100_000_000_000);
/// The time of a turn's packets at the limit.
const TURN_TIME: Nanos = Nanos(TURN as u64 * LEN as u64 * 8 * 1_000_000_000 / 100_000_000_000);
/// The delay of a `netem`: a turn, so that the packets of the next turn queue behind.
const UNDER_WAY: Nanos = TURN_TIME;
/// 2^32 divided by the golden ratio: what spreads flows.
const SPREAD: u32 = 0x9e37_79b1;
/// Meters at a shared limit.
const METERS: usize = 4;
/// The number of sibling classes.
const CLASSES: u32 = 4;
/// Classes one below the other.
const LEVELS: u32 = 4;
/// Large enough that a quarter of it covers the time between two turns of a meter.
const BURST: Bytes = Bytes(1 << 20);

/// Something that packets pass through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Structure {
    /// The floor: a `VecDeque` from the standard library.
    VecDeque,
    /// The intrusive queue that all qdiscs are made of.
    Fifo,
    /// `pfifo` behind the qdisc trait.
    Pfifo,
    /// `codel`, without a standing queue.
    Codel,
    /// `fq_codel` with a flow for each packet of the table.
    FqCodel,
    /// `sfq` with the same.
    Sfq,
    /// `netem` with a delay of [`UNDER_WAY`].
    Netem,
    /// `netem` with a delay of [`UNDER_WAY`], over a `pfifo`.
    NetemOver,
    /// `red` over a `bfifo`, with an average below its thresholds.
    Red,
    /// `tbf` with a bucket of its own.
    Tbf,
    /// `tbf` with meters at a shared limit.
    TbfShared(Strategy),
    /// `htb` with schedulers of a shared tree of [`LEVELS`], where the leaf has all it sends.
    Htb,
    /// `htb` with schedulers of a shared tree of [`LEVELS`], where the leaf borrows all it sends
    /// from the root.
    HtbBorrowing,
    /// `prio`, `drr` or `ets` with [`CLASSES`], each of which has a part of the packets.
    Bands(Discipline),
    /// The bucket alone, no packets.
    Take,
    /// Meters at a shared limit alone, no packets.
    TakeShared(Strategy),
}

impl Structure {
    /// Every structure, the floor first.
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::VecDeque, Self::Fifo, Self::Pfifo];
        all.extend([Self::Codel, Self::FqCodel, Self::Sfq, Self::Netem]);
        all.extend([Self::NetemOver, Self::Red, Self::Tbf]);
        all.extend(Strategy::ALL.map(Self::TbfShared));
        all.extend([Self::Htb, Self::HtbBorrowing]);
        all.extend([Discipline::Prio, Discipline::Drr, Discipline::Ets].map(Self::Bands));
        all.push(Self::Take);
        all.extend(Strategy::ALL.map(Self::TakeShared));
        all
    }

    /// Its name in tables and on command lines.
    pub fn name(self) -> String {
        match self {
            Self::VecDeque => "vecdeque".to_owned(),
            Self::Fifo => "fifo".to_owned(),
            Self::Pfifo => "pfifo".to_owned(),
            Self::Codel => "codel".to_owned(),
            Self::FqCodel => "fq_codel".to_owned(),
            Self::Sfq => "sfq".to_owned(),
            Self::Netem => "netem".to_owned(),
            Self::NetemOver => "netem-pfifo".to_owned(),
            Self::Red => "red".to_owned(),
            Self::Tbf => "tbf".to_owned(),
            Self::TbfShared(strategy) => format!("tbf-{}", strategy.name()),
            Self::Htb => "htb".to_owned(),
            Self::HtbBorrowing => "htb-borrowing".to_owned(),
            Self::Bands(Discipline::Prio) => "prio".to_owned(),
            Self::Bands(Discipline::Drr) => "drr".to_owned(),
            Self::Bands(Discipline::Ets) => "ets".to_owned(),
            Self::Take => "take".to_owned(),
            Self::TakeShared(strategy) => format!("take-{}", strategy.name()),
        }
    }

    /// The structure of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|structure| structure.name() == name)
    }

    /// Queues, one for each meter.
    pub fn queues(self) -> usize {
        match self {
            Self::TbfShared(_) | Self::TakeShared(_) | Self::Htb | Self::HtbBorrowing => METERS,
            _ => 1,
        }
    }

    /// Sets the work up.
    pub fn workload(self) -> Workload {
        let lanes = match self {
            Self::VecDeque => vec![Lane::queue(VecDeque::with_capacity(TABLE as usize))],
            Self::Fifo => vec![Lane::queue(Fifo::new())],
            Self::Pfifo => vec![Lane::queue(pfifo().build())],
            Self::Codel => leaf(Config::Codel(codel::Config::default())),
            Self::FqCodel => leaf(Config::FqCodel(fq_codel::Config::default())),
            Self::Sfq => leaf(Config::Sfq(sfq::Config { limit: TABLE, ..sfq::Config::default() })),
            Self::Netem => {
                leaf(Config::Netem(netem::Config { delay: UNDER_WAY, ..netem::Config::default() }))
            }
            Self::NetemOver => {
                let config = netem::Config { delay: UNDER_WAY, ..netem::Config::default() };
                let spec = Spec::new(Config::Netem(config));
                vec![Lane::queue(Spec { children: vec![pfifo()], ..spec }.build())]
            }
            Self::Red => vec![Lane::queue(red().build())],
            Self::Tbf => vec![Lane::queue(tbf(None).build())],
            Self::TbfShared(strategy) => {
                let meters = meters(strategy).into_iter();
                meters.map(|meter| Lane::queue(tbf(Some(meter)).build())).collect()
            }
            Self::Bands(discipline) => vec![Lane::queue(bands_of(discipline))],
            Self::Htb => htbs(RATE).into_iter().map(Lane::queue).collect(),
            // Less than a packet in a turn.
            Self::HtbBorrowing => {
                let least = Rate::from_bits_per_sec(8_000);
                htbs(least).into_iter().map(Lane::queue).collect()
            }
            Self::Take => vec![Lane::meter(Box::new(Bucket::new(limit().shape())))],
            Self::TakeShared(strategy) => meters(strategy).into_iter().map(Lane::meter).collect(),
        };
        Workload { lanes, turn: 0, now: Nanos::from_secs(1) }
    }
}

fn limit() -> Limit {
    Limit { rate: RATE, burst: BURST, peak: None, backlog: Bytes(1 << 24) }
}

fn meters(strategy: Strategy) -> Vec<Box<dyn Meter>> {
    let coordination = Coordination::new(strategy, limit(), METERS);
    (0..METERS).map(|meter| coordination.meter(meter)).collect()
}

/// An `htb` for each queue of one tree: a chain of classes of which only the root has a rate of
/// weight, and the leaf `assured`.
fn htbs(assured: Rate) -> Vec<Box<dyn Qdisc>> {
    let (tree, mut classes) = (Tree::new(), BTreeMap::new());
    for id in 1..=LEVELS {
        let is_leaf = id == LEVELS;
        let rate = if id == 1 { RATE } else { assured };
        let class = Class {
            parent: (id > 1).then(|| id - 1),
            rate,
            ceil: RATE,
            burst: BURST,
            cburst: BURST,
            prio: 0,
            quantum: TURN * LEN,
            overhead: Overhead::NONE,
        };
        let below = || Below::new(NodeId(1), pfifo().config);
        classes.insert(id, (class, is_leaf.then(below)));
    }
    tree.replace_classes(Arc::new(classes));
    let config = htb::Config { default: LEVELS, unclassified: htb::Unclassified::Sent(TABLE) };
    let spec = || Spec { tree: Some(tree.scheduler()), ..Spec::new(Config::Htb(config)) };
    (0..METERS).map(|_| spec().build()).collect()
}

/// One queue of `config`.
fn leaf(config: Config) -> Vec<Lane> {
    vec![Lane::queue(Spec::new(config).build())]
}

/// Classes by the rules of `discipline`: of an `ets` half of them in an order.
fn bands_of(discipline: Discipline) -> Bands {
    let strict = match discipline {
        Discipline::Prio => CLASSES,
        Discipline::Drr => 0,
        Discipline::Ets => CLASSES / 2,
    };
    let class = |id| bands::Class { id: id as u16, quantum: (id > strict).then_some(2 * LEN) };
    let classes = (1..=CLASSES).map(class).collect();
    let config = bands::Config { discipline, classes, otherwise: None };
    let children = (0..CLASSES).map(|_| pfifo()).collect();
    Bands(Spec { children, ..Spec::new(Config::Bands(config)) }.build())
}

fn pfifo() -> Spec {
    let config = Config::Fifo(fifo::Config::Packets(TABLE));
    Spec::new(config)
}

fn red() -> Spec {
    let config = red::Config {
        limit: 1 << 20,
        min: 1 << 18,
        max: 1 << 19,
        avpkt: LEN,
        burst: 300,
        bandwidth: RATE,
        probability: red::Config::probability_of(0.02),
        ecn: false,
        harddrop: false,
        nodrop: false,
        adaptive: false,
        stream: 0,
    };
    let bfifo = Spec::new(Config::Fifo(fifo::Config::Bytes(Bytes(1 << 20))));
    Spec { children: vec![bfifo], ..Spec::new(Config::Red(config)) }
}

fn tbf(meter: Option<Box<dyn Meter>>) -> Spec {
    let Limit { rate, burst, peak, backlog: limit } = limit();
    let config = tbf::Config { rate, burst, limit, peak, overhead: Overhead::NONE };
    Spec { metering: meter.into(), children: vec![pfifo()], ..Spec::new(Config::Tbf(config)) }
}

/// The work of one structure, ready to be done.
pub struct Workload {
    lanes: Vec<Lane>,
    turn: usize,
    now: Nanos,
}

impl Workload {
    /// Runs until at least `packets` packets have arrived and left. Returns the number of
    /// departures.
    pub fn run(&mut self, packets: u64) -> u64 {
        let mut left = 0;
        while left < packets {
            self.now += TURN_TIME;
            left += u64::from(self.lanes[self.turn].turn(self.now));
            self.turn = (self.turn + 1) % self.lanes.len();
        }
        left
    }
}

/// One queue, or one meter without.
#[expect(
    clippy::large_enum_variant,
    reason = "a handful of them, made before anything is measured"
)]
enum Lane {
    Queue { queue: Box<dyn Queue>, packets: Packets, free: Vec<PacketId>, out: Batch },
    Meter { meter: Box<dyn Meter>, stamps: VecDeque<Nanos> },
}

impl Lane {
    fn queue(mut queue: impl Queue + 'static) -> Self {
        let mut packets = Packets::new(TABLE);
        let mut free: Vec<PacketId> = (0..TABLE).map(PacketId).collect();
        for &id in &free {
            // Header fields are kept when a packet is reused.
            packets.headers_mut(id).flow = id.0.wrapping_mul(SPREAD);
        }
        queue.arrive(&mut packets, &mut free, STANDING, Nanos::ZERO);
        Self::Queue { queue: Box::new(queue), packets, free, out: Batch::new(TABLE as usize) }
    }

    fn meter(meter: Box<dyn Meter>) -> Self {
        Self::Meter { meter, stamps: VecDeque::with_capacity(TURN as usize) }
    }

    fn turn(&mut self, now: Nanos) -> u32 {
        match self {
            Self::Queue { queue, packets, free, out } => {
                queue.arrive(packets, free, TURN, now);
                out.clear();
                out.limit(TURN as usize * 2);
                queue.leave(packets, now, out);
                free.extend_from_slice(out.as_slice());
                out.len() as u32
            }
            Self::Meter { meter, stamps } => {
                let cost = Bytes(u64::from(LEN));
                for _ in 0..TURN {
                    stamps.extend(meter.stamp(cost, now));
                }
                let mut granted = 0;
                while let Some(&stamp) = stamps.front() {
                    let Take::Granted = meter.take(cost, stamp, now) else { break };
                    stamps.pop_front();
                    granted += 1;
                }
                let queued = stamps.len() as u32;
                let bytes = Bytes(u64::from(queued * LEN));
                meter.report(Backlog { packets: queued, bytes }, now);
                granted
            }
        }
    }
}

/// A structure under test, called once for a batch of arrivals and once for departures, so that
/// the call itself weighs nothing.
trait Queue {
    fn arrive(&mut self, packets: &mut Packets, free: &mut Vec<PacketId>, number: u32, now: Nanos);
    fn leave(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch);
}

/// The next free packet, arrived.
#[inline]
fn arrival(packets: &mut Packets, free: &mut Vec<PacketId>, now: Nanos) -> PacketId {
    let id = free.pop().expect("as many leave as arrive");
    packets.arrive(id, LEN, now);
    id
}

impl Queue for VecDeque<PacketId> {
    fn arrive(&mut self, packets: &mut Packets, free: &mut Vec<PacketId>, number: u32, now: Nanos) {
        for _ in 0..number {
            self.push_back(arrival(packets, free, now));
        }
    }

    fn leave(&mut self, _packets: &mut Packets, _now: Nanos, out: &mut Batch) {
        for _ in 0..TURN {
            let Some(id) = self.pop_front() else { break };
            out.push(id);
        }
    }
}

impl Queue for Fifo {
    fn arrive(&mut self, packets: &mut Packets, free: &mut Vec<PacketId>, number: u32, now: Nanos) {
        for _ in 0..number {
            let id = arrival(packets, free, now);
            self.push_back(packets, id);
        }
    }

    fn leave(&mut self, packets: &mut Packets, _now: Nanos, out: &mut Batch) {
        for _ in 0..TURN {
            let Some(id) = self.pop_front(packets) else { break };
            out.push(id);
        }
    }
}

/// A qdisc with classes, to which packets are assigned in turn.
struct Bands(Box<dyn Qdisc>);

impl Queue for Bands {
    fn arrive(&mut self, packets: &mut Packets, free: &mut Vec<PacketId>, number: u32, now: Nanos) {
        for _ in 0..number {
            let id = arrival(packets, free, now);
            packets.meta_mut(id).class = 1 + id.0 % CLASSES;
            self.0.enqueue(packets, id, now);
        }
    }

    fn leave(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) {
        self.0.dequeue(packets, now, out);
    }
}

impl Queue for Box<dyn Qdisc> {
    fn arrive(&mut self, packets: &mut Packets, free: &mut Vec<PacketId>, number: u32, now: Nanos) {
        for _ in 0..number {
            let id = arrival(packets, free, now);
            self.enqueue(packets, id, now);
        }
    }

    fn leave(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) {
        self.dequeue(packets, now, out);
    }
}
