//! The structures under test.

use super::fair::Fair;
use super::heap::Heap;
use super::line::Line;
use super::order::Order;
use super::plan::Plan;
use super::witness::{Clerk, Findings};
use super::work::{Load, PACKET_TIME, START};
use anyhow::Result;
use narrows_packet::{Batch, PacketId, Packets};
use narrows_qdisc::pacing::{Calendar, Carousel, Eiffel, Mltw, Slot};
use narrows_units::Nanos;

/// Slots of each wheel of `flowbundler`, as in the paper.
const MLTW_SLOTS: u32 = 1024;
/// How long a slot of `carousel` and `eiffel` is, and how far all of them reach.
const GRANULARITY: Nanos = Nanos(100);
const HORIZON: Nanos = Nanos::from_secs(10);

/// Something that holds packets until they may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The reference: FlowBundler's multi-level timing wheel, 64 x 1024 slots.
    FlowBundler,
    /// A timing wheel searched slot by slot, of 100 ns up to 10 s.
    Carousel,
    /// A timing wheel with find-first-set bitmaps, of 100 ns up to 10 s.
    Eiffel,
    /// The qdisc: a queue for each flow, and a heap of those that wait.
    Fq,
    /// `BinaryHeap` from the standard library.
    Heap,
    /// The floor of a linked queue, which looks at no time.
    Fifo,
    /// The floor of memory: an order that is known beforehand.
    Order,
}

impl Subject {
    /// All of them, the one with which others are compared first.
    pub const ALL: [Self; 7] = [
        Self::FlowBundler,
        Self::Carousel,
        Self::Eiffel,
        Self::Fq,
        Self::Heap,
        Self::Fifo,
        Self::Order,
    ];

    /// Its name in tables and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FlowBundler => "flowbundler",
            Self::Carousel => "carousel",
            Self::Eiffel => "eiffel",
            Self::Fq => "fq",
            Self::Heap => "heap",
            Self::Fifo => "fifo",
            Self::Order => "order",
        }
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|subject| subject.name() == name)
    }

    /// Whether it looks at times, so that it makes sense to ask how well it keeps them.
    pub const fn keeps_time(self) -> bool {
        !matches!(self, Self::Fifo | Self::Order)
    }

    /// Passes `user` an empty one for this many flows and packets.
    pub(super) fn lend<U: User>(self, flows: u32, packets: u32, user: U) -> U::Outcome {
        match self {
            Self::FlowBundler => user.using(Mltw::new(MLTW_SLOTS)),
            Self::Carousel => user.using(Carousel::new(GRANULARITY, HORIZON)),
            Self::Eiffel => user.using(Eiffel::new(GRANULARITY, HORIZON)),
            Self::Fq => user.using(Fair::new(flows)),
            Self::Heap => user.using(Heap::new(packets)),
            Self::Fifo => user.using(Line::new(START)),
            Self::Order => user.using(Order::new(packets, START)),
        }
    }

    /// Lets at least `packets` packets leave and return, then all leave, and checks them. Fails if
    /// a packet is lost or reordered in its flow.
    pub fn check(self, plan: &Plan, mode: Mode, packets: u64) -> Result<Findings> {
        self.lend(plan.flows.len() as u32, plan.packets, Check { plan, mode, packets })
    }
}

/// How often the structure is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Every 3840 ns, the time of 32 packets: as a worker with other things to do.
    Drain,
    /// Every 120 ns, the time of one packet: as a worker that has nothing else to do.
    Poll,
}

impl Mode {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Drain, Self::Poll];

    /// Its name in tables and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Poll => "poll",
        }
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The time between two polls.
    pub(super) const fn step(self) -> Nanos {
        match self {
            Self::Drain => Nanos(32 * PACKET_TIME.0),
            Self::Poll => PACKET_TIME,
        }
    }
}

/// The interface of a structure for the work. The work is compiled for each one, so that calls cost
/// nothing.
pub(super) trait Holder {
    /// As [`Calendar::insert`].
    fn insert(&mut self, packets: &mut Packets, id: PacketId, slot: Slot, now: Nanos) -> Nanos;
    /// Adds all that may leave to `left`.
    fn release(&mut self, packets: &mut Packets, now: Nanos, left: &mut Batch);
    /// As [`Calendar::memory`].
    fn memory(&self) -> usize;
}

impl<C: Calendar> Holder for C {
    // It is called in two places, one of which is timed; the call must cost nothing there.
    #[inline(always)]
    fn insert(&mut self, packets: &mut Packets, id: PacketId, slot: Slot, now: Nanos) -> Nanos {
        Calendar::insert(self, packets, id, slot, now)
    }

    #[inline]
    fn release(&mut self, packets: &mut Packets, now: Nanos, left: &mut Batch) {
        Calendar::release(self, packets, now, left);
    }

    fn memory(&self) -> usize {
        Calendar::memory(self)
    }
}

/// The work of one structure, ready to be done.
pub struct Work(Box<dyn Run>);

impl Work {
    /// Sets it up.
    pub fn new(subject: Subject, plan: &Plan, mode: Mode) -> Self {
        subject.lend(plan.flows.len() as u32, plan.packets, Prepare { plan, mode })
    }

    /// Lets at least `packets` packets leave and return. Returns their number.
    pub fn run(&mut self, packets: u64) -> u64 {
        self.0.run(packets)
    }

    /// The structure's own memory in bytes.
    pub fn memory(&self) -> usize {
        self.0.memory()
    }
}

/// Work on any structure.
trait Run {
    fn run(&mut self, packets: u64) -> u64;
    fn memory(&self) -> usize;
}

impl<H: Holder> Run for Load<H, ()> {
    fn run(&mut self, packets: u64) -> u64 {
        Self::run(self, packets)
    }

    fn memory(&self) -> usize {
        Self::memory(self)
    }
}

/// A generic user of any structure.
pub(super) trait User {
    type Outcome;
    fn using(self, holder: impl Holder + 'static) -> Self::Outcome;
}

struct Prepare<'a> {
    plan: &'a Plan,
    mode: Mode,
}

impl User for Prepare<'_> {
    type Outcome = Work;

    fn using(self, holder: impl Holder + 'static) -> Work {
        Work(Box::new(Load::new(self.plan, self.mode, holder, ())))
    }
}

struct Check<'a> {
    plan: &'a Plan,
    mode: Mode,
    packets: u64,
}

impl User for Check<'_> {
    type Outcome = Result<Findings>;

    fn using(self, holder: impl Holder + 'static) -> Result<Findings> {
        let clerk = Clerk::new(self.plan.packets, self.plan.flows.len() as u32);
        let mut load = Load::new(self.plan, self.mode, holder, clerk);
        load.run(self.packets);
        let findings = load.witness.findings();
        load.finish(self.plan.longest);
        load.witness.close()?;
        Ok(findings)
    }
}
