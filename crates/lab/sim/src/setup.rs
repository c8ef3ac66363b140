//! One run, completely described: what a scenario says for one strategy and one point of its
//! sweep.

use narrows_trace::Trace;
use narrows_units::{Bytes, Nanos, Rate};
use std::sync::Arc;

/// A run.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// Everything random follows from it.
    pub seed: u64,
    /// The port that is shaped.
    pub port: Port,
    /// The cores that serve it, one a queue.
    pub cores: Cores,
    /// The offered load.
    pub traffic: Vec<Traffic>,
    /// The next hop behind the shaper, if any.
    pub next_hop: Option<NextHop>,
    /// When what is measured.
    pub run: Run,
    /// The faults.
    pub faults: Vec<Fault>,
    /// The operator's changes during the run, in order of time.
    pub changes: Vec<Change>,
    /// Traces that traffic of [`Kind::Trace`] replays.
    pub traces: Vec<Arc<Trace>>,
}

/// The shaped port.
#[derive(Clone, PartialEq, Debug)]
pub struct Port {
    /// Queues, and cores: 1 to [`MAX_QUEUES`].
    pub queues: usize,
    /// The limit that the measures refer to: normally the rate in `qdisc`.
    pub rate: Rate,
    /// The words of `tc` behind `qdisc replace dev PORT root`, among them the coordination. Behind
    /// `mq ;` those of the first queue follow, behind the next `;` those of the second, and so on.
    pub qdisc: Vec<String>,
    /// By queue, how much it counts for; empty if all count the same.
    pub weights: Vec<f64>,
    /// What cores do with a lock held, if a strategy has one.
    pub lock: LockScope,
    /// What a step sends.
    pub sends: Sends,
}

/// What a lock that all cores take protects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockScope {
    /// The bucket that queues of their own share.
    #[default]
    Bucket,
    /// The qdisc: a core has the lock while it works on a packet. Any qdisc at the root of a device
    /// in the kernel is like that.
    Qdisc,
}

/// What a core sends in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sends {
    /// Everything that is due, as our workers do.
    #[default]
    AllDue,
    /// Packets that leave at one and the same time, as the published structures do.
    SlotBySlot,
}

/// The most virtual cores.
pub const MAX_QUEUES: usize = 128;

/// How the cores behave.
#[derive(Clone, PartialEq, Debug)]
pub struct Cores {
    /// A core that sleeps wakes up later than asked by up to this, uniformly.
    pub jitter: Nanos,
    /// Its clock is off by a constant of up to this, either way, uniformly.
    pub clock_offset: Nanos,
    /// The memory accesses of a step take effect up to this after its clock was read, uniformly.
    pub staleness: Nanos,
    /// How long it is busy.
    pub costs: Costs,
}

/// How long a core is busy with what, in nanoseconds: measured (`narrows bench`), and printed
/// with every result.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// A step, whatever it moves.
    pub step_ns: f64,
    /// A packet from ring to ring, its qdisc and meter included.
    pub packet_ns: f64,
    /// A packet that is dropped.
    pub drop_ns: f64,
    /// Reading a cache line that another core has written since.
    pub line_read_ns: f64,
    /// Updating a line that all cores update, undisturbed. Only one core at a time can. A section
    /// under a lock likewise.
    pub line_update_ns: f64,
    /// Handing a lock to another core that waits for it. Nobody holds it meanwhile.
    pub lock_handover_ns: f64,
    /// The handover of the lock of a qdisc, whose lines move with it.
    pub qdisc_handover_ns: f64,
}

impl Costs {
    /// Of each of them the lowest and the highest of `all`, if there are any.
    pub(crate) fn range(all: impl IntoIterator<Item = Self>) -> Option<(Self, Self)> {
        let both = all.into_iter().map(|costs| (costs, costs));
        both.reduce(|(least, most), (costs, _)| {
            (least.with(costs, f64::min), most.with(costs, f64::max))
        })
    }

    /// Of each what `choose` makes of it and of that of `other`.
    pub(crate) fn with(self, other: Self, choose: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            step_ns: choose(self.step_ns, other.step_ns),
            packet_ns: choose(self.packet_ns, other.packet_ns),
            drop_ns: choose(self.drop_ns, other.drop_ns),
            line_read_ns: choose(self.line_read_ns, other.line_read_ns),
            line_update_ns: choose(self.line_update_ns, other.line_update_ns),
            lock_handover_ns: choose(self.lock_handover_ns, other.lock_handover_ns),
            qdisc_handover_ns: choose(self.qdisc_handover_ns, other.qdisc_handover_ns),
        }
    }

    /// Each of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = f64> {
        let Self {
            step_ns,
            packet_ns,
            drop_ns,
            line_read_ns,
            line_update_ns,
            lock_handover_ns,
            qdisc_handover_ns,
        } = *self;
        let work = [step_ns, packet_ns, drop_ns];
        let lines = [line_read_ns, line_update_ns, lock_handover_ns, qdisc_handover_ns];
        work.into_iter().chain(lines)
    }
}

/// The next hop: a queue that drains at a rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NextHop {
    /// At which it sends.
    pub rate: Rate,
    /// Its capacity; excess packets are lost.
    pub buffer: Bytes,
    /// ECN-capable packets that find more than this queued are marked.
    pub mark_above: Option<Bytes>,
}

/// Times of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Run {
    /// From the start, not measured.
    pub warmup: Nanos,
    /// Measured, from `warmup` on.
    pub length: Nanos,
    /// When something happens whose consequences are measured, from the start of the run:
    /// measures of an event look at what follows it, the others at everything.
    pub event: Option<Nanos>,
}

impl Run {
    /// When it is over.
    pub fn end(&self) -> Nanos {
        self.warmup + self.length
    }
}

/// Something that goes wrong with a core.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fault {
    /// Whose.
    pub queue: usize,
    /// When.
    pub at: Nanos,
    /// What.
    pub kind: FaultKind,
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FaultKind {
    /// The core does nothing for so long; packets keep coming in.
    Stall(Nanos),
    /// The worker is lost for good: its meters are released, and its queue gets no more arrivals.
    Death,
}

/// The operator gives the port other words while it is loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// When, from the start of the run.
    pub at: Nanos,
    /// The words of `tc` from then on, as in [`Port::qdisc`].
    pub qdisc: Vec<String>,
}

/// A group of flows of one kind.
#[derive(Clone, PartialEq, Debug)]
pub struct Traffic {
    /// Its name in results.
    pub name: String,
    /// How it is sent.
    pub kind: Kind,
    /// How many flows, at least one.
    pub flows: u32,
    /// Its start, from the start of the run.
    pub start: Nanos,
    /// Its end ([`Nanos::MAX`] for the end of the run).
    pub stop: Nanos,
    /// Frame lengths in bytes and how often each occurs, relative to the others.
    pub sizes: Vec<(u32, f64)>,
    /// How the load is spread over the queues.
    pub spread: Spread,
    /// A new random spread each time that this has passed.
    pub respread: Option<Nanos>,
    /// Flows end after this long on average (exponentially) and others begin elsewhere.
    pub lifetime: Option<Nanos>,
    /// The headers of its packets.
    pub headers: HeaderFields,
}

/// The headers of a group's packets. No other group uses the same hosts, unless they are common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeaderFields {
    /// Over how many source hosts its flows are spread, as evenly as that goes.
    pub source_hosts: u32,
    /// Over how many destination hosts its flows are spread, as evenly as that goes.
    pub destination_hosts: u32,
    /// The hosts are shared with every other group that sets this. Measures still count each
    /// group's hosts separately.
    pub common_hosts: bool,
    /// The differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Packets may be marked instead of dropped; TCP answers to a mark as to a loss (RFC 3168),
    /// and has nothing to repeat. DCTCP's always may.
    pub ecn: bool,
    /// The rate that a filter gives each flow (`action pace`), if any.
    pub filter_rate: Option<Rate>,
}

impl Default for HeaderFields {
    fn default() -> Self {
        Self {
            source_hosts: 1,
            destination_hosts: 1,
            common_hosts: false,
            dscp: 0,
            ecn: false,
            filter_rate: None,
        }
    }
}

/// How packets are sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// At even intervals, each flow out of step with the others. The rate is that of all flows.
    Constant(Rate),
    /// At intervals that are the even one and at most half of it less or more, uniformly. The rate
    /// is that of all flows.
    Uneven(Rate),
    /// At exponential intervals. The rate is that of all flows.
    Poisson(Rate),
    /// In bursts at a constant rate; on and off times are exponential with these means. The rate
    /// is that of all flows while they are on.
    OnOff {
        /// All flows', while on.
        rate: Rate,
        /// Mean.
        on: Nanos,
        /// Mean.
        off: Nanos,
    },
    /// Closed-loop, always with something to send.
    Tcp {
        /// The stack that reacts to acknowledgements.
        stack: Stack,
        /// How.
        control: Control,
        /// Round trip without any queue.
        rtt: Nanos,
    },
    /// Closed-loop: each flow keeps some packets in the shaper and sends another one when one has
    /// left.
    Backlogged {
        /// The pace at which each flow should leave: the reference for measures, not the cause.
        pace: Rate,
        /// Packets.
        queued: u32,
    },
    /// Frames of a trace with their flows, lengths and times, over and over.
    Trace {
        /// Its index in [`Setup::traces`].
        number: usize,
        /// Its mean rate here: times are stretched, or compressed, to that.
        load: Rate,
    },
    /// A packet a flow at this interval, whose delay is measured.
    Ping {
        /// Between two of a flow.
        interval: Nanos,
    },
}

/// Which implementation of TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stack {
    /// Congestion control over whole segments with selective acknowledgement: for many flows.
    Model,
    /// `smoltcp`, byte for byte: for a few.
    Smoltcp,
}

/// Congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// RFC 9438.
    Cubic,
    /// RFC 5681, 6582.
    Reno,
    /// RFC 8257; needs a next hop that marks.
    Dctcp,
}

/// Which queue gets what part of the load.
#[derive(Clone, PartialEq, Debug)]
pub enum Spread {
    /// Flow `i` on queue `i` modulo their number.
    RoundRobin,
    /// Each flow on a random queue, as RSS does it.
    Hash,
    /// By queue, the part of the load; queues that are not listed get none. Flows are shared out
    /// as evenly as that allows, at least one for each queue that is loaded.
    Parts(Vec<f64>),
    /// Random parts from a symmetric Dirichlet distribution of this concentration.
    Dirichlet(f64),
}
