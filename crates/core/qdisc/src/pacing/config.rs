//! What an operator sets of a pacing qdisc.

use narrows_packet::{DropReason, PacketId, Packets};
use narrows_units::{Nanos, Rate};

/// Parameters of `carousel`, `eiffel` and `flowbundler`. Plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// What holds packets until their time.
    pub structure: Structure,
    /// The rate of each flow; `None` where flows have none, and nothing waits.
    pub maxrate: Option<Rate>,
    /// What a flow is.
    pub key: Key,
    /// The rate of each of the other, too, whatever the rates of flows: of each host if a flow is a
    /// connection, of each connection if a flow is a host.
    pub beside: Option<Rate>,
    /// In `flowbundler`, which packets may not leave together: those of one flow, or all to one
    /// host.
    pub apart: Key,
    /// Whether `flowbundler` listens to congestion feedback, and spaces packets to congested
    /// destinations.
    pub safeguard: bool,
    /// Packets that may be queued here.
    pub limit: u32,
    /// Packets that a flow may have queued here.
    pub flow_limit: u32,
    /// How far ahead a departure may lie.
    pub horizon: Nanos,
    /// What happens to a packet whose departure is further ahead.
    pub beyond: Beyond,
    /// How long a slot is, for `flowbundler` the shortest: it rounds this up to a power of two of
    /// nanoseconds.
    pub granularity: Nanos,
    /// The slots of each wheel of `flowbundler`, a power of two; the others ignore it.
    pub slots: u32,
    /// The longest frame, in bytes.
    pub frame: u32,
    /// Queue management, if any: each flow then has a queue of its own, and times are computed at
    /// release.
    pub codel: Option<Codel>,
}

impl Config {
    /// The defaults, for frames of up to `frame` bytes.
    pub const fn new(structure: Structure, frame: u32) -> Self {
        let granularity = match structure {
            Structure::FlowBundler => Nanos(1),
            Structure::Carousel | Structure::Eiffel => Nanos::from_micros(1),
        };
        Self {
            structure,
            maxrate: None,
            key: Key::Flows,
            beside: None,
            apart: Key::Flows,
            safeguard: false,
            limit: 10_000,
            flow_limit: 100,
            horizon: Nanos::from_secs(10),
            beyond: Beyond::Drop,
            granularity,
            slots: 1024,
            frame,
            codel: None,
        }
    }

    /// Why a flow that has `queued` may queue no more packets, if so.
    #[inline]
    pub(super) fn refuses(&self, queued: u32, packets: &Packets) -> Option<DropReason> {
        if queued >= self.flow_limit {
            Some(DropReason::FlowLimit)
        } else if queued > packets.spare_frames() {
            Some(DropReason::NoFrame)
        } else {
            None
        }
    }

    /// What cannot change while packets are queued.
    pub const fn shape(&self) -> Shape {
        let Self { structure, key, granularity, slots, codel, .. } = *self;
        Shape { structure, key, granularity, slots, has_queues: codel.is_some() }
    }
}

/// CoDel's parameters, the same for every flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Codel {
    /// How long packets may wait.
    pub target: Nanos,
    /// For how long a longer sojourn time is tolerated.
    pub interval: Nanos,
    /// Whether packets that can be marked are marked, and not dropped.
    pub ecn: bool,
}

impl Default for Codel {
    /// RFC 8289's.
    fn default() -> Self {
        Self { target: Nanos::from_millis(5), interval: Nanos::from_millis(100), ecn: true }
    }
}

/// What holds packets until their time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Structure {
    /// One wheel of equal slots.
    Carousel,
    /// A circular queue with a tree of bits that finds its first packet.
    Eiffel,
    /// Wheels whose slots follow the rates of flows.
    FlowBundler,
}

impl Structure {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Carousel => "carousel",
            Self::Eiffel => "eiffel",
            Self::FlowBundler => "flowbundler",
        }
    }
}

/// What a flow is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// Addresses, protocol and ports (`flows`).
    Flows,
    /// Everything to one host (`hosts`).
    Hosts,
}

impl Key {
    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Flows => Self::Hosts,
            Self::Hosts => Self::Flows,
        }
    }

    /// The key of the flow of `id`.
    #[inline]
    pub(super) fn of(self, packets: &Packets, id: PacketId) -> u32 {
        match self {
            Self::Flows => packets.headers(id).flow,
            Self::Hosts => packets.headers(id).destination,
        }
    }
}

/// What happens to a packet whose departure would be beyond the horizon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beyond {
    /// It is dropped (`horizon_drop`).
    Drop,
    /// It leaves at the horizon (`horizon_cap`), faster than its flow's rate.
    Cap,
}

/// What must stay the same for an instance to carry on with other parameters: where packets are,
/// and which flow they count for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    structure: Structure,
    key: Key,
    granularity: Nanos,
    slots: u32,
    has_queues: bool,
}
