//! The parameters of `fq_codel`, as an operator states them: `tc-fq_codel(8)`.

use crate::codel::{Aqm, CeThreshold, Terms};
use narrows_packet::Reading;
use narrows_units::{Bytes, Nanos};

/// The most flows, as in Linux.
pub const FLOWS_MAX: u32 = 65_536;
/// The least quantum, as in Linux: a smaller one is raised to it.
pub const QUANTUM_MIN: u32 = 256;
/// The largest quantum, as in Linux.
pub const QUANTUM_MAX: u32 = 1 << 20;

/// Among whom the rate is shared first. Not in Linux's `fq_codel`; as `dual-srchost` and
/// `dual-dsthost` of `cake`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Hosts {
    /// Flows alone, whatever hosts they are of.
    #[default]
    None,
    /// Hosts by the source address, then each host's flows.
    Sources,
    /// Hosts by the destination address, then each host's flows.
    Destinations,
    /// Hosts by the source address before network address translation.
    SourcesInside,
    /// Hosts by the destination address before network address translation: by that of the host
    /// whose connection the kernel translates.
    DestinationsInside,
}

impl Hosts {
    /// These hosts by their addresses before network address translation; none if there are none.
    pub fn inside(self) -> Option<Self> {
        match self {
            Self::None => None,
            Self::Sources | Self::SourcesInside => Some(Self::SourcesInside),
            Self::Destinations | Self::DestinationsInside => Some(Self::DestinationsInside),
        }
    }

    /// Whether they have their addresses before network address translation.
    pub fn is_inside(self) -> bool {
        self.inside() == Some(self)
    }
}

/// The parameters of an instance. Plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// How many packets may be queued (`limit`).
    pub limit: u32,
    /// How many queues packets are spread over, at least 1 (`flows`).
    pub flows: u32,
    /// The memory limit of queued packets (`memory_limit`).
    pub memory_limit: Bytes,
    /// The sojourn time that is aimed at (`target`).
    pub target: Nanos,
    /// About the longest round trip of the senders (`interval`).
    pub interval: Nanos,
    /// Bytes that a flow may send in its turn, at least 1 (`quantum`).
    pub quantum: u32,
    /// Whether ECN-capable packets are marked instead of dropped (`ecn`, `noecn`).
    pub ecn: bool,
    /// The delay from which packets are marked regardless of CoDel (`ce_threshold`), and which
    /// packets (`ce_threshold_selector`).
    pub ce_threshold: Option<CeThreshold>,
    /// How many packets are dropped at once where there are too many, at least 1 (`drop_batch`).
    pub drop_batch: u32,
    /// Among whom the rate is shared first. Only where packets get departure times: queues share
    /// among flows alone.
    pub hosts: Hosts,
    /// The longest frame of the port, in bytes: this much behind a packet does not count as a
    /// queue.
    pub frame: u32,
}

impl Config {
    /// The packet fields that it reads.
    pub(crate) const READING: Reading = Reading { headers: true, ..Reading::NOTHING };

    /// `fq_codel` without any word, for frames of up to `frame` bytes.
    pub fn for_frames_of(frame: u32) -> Self {
        Self {
            limit: 10_240,
            flows: 1024,
            memory_limit: Bytes(32 << 20),
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
            quantum: frame.clamp(QUANTUM_MIN, QUANTUM_MAX),
            ecn: true,
            ce_threshold: None,
            drop_batch: 64,
            hosts: Hosts::None,
            frame,
        }
    }

    /// The part of a configuration that assigns packets to queues. If it changes, the instance
    /// cannot keep its queues: another must adopt the packets.
    pub fn sorting(&self) -> u32 {
        self.flows
    }

    pub(super) fn aqm(&self) -> Aqm {
        let Self { target, interval, ecn, ce_threshold, .. } = *self;
        Aqm { terms: Terms { target, interval, frame: u64::from(self.frame) }, ecn, ce_threshold }
    }
}

impl Default for Config {
    /// `fq_codel` without any word, on Ethernet.
    fn default() -> Self {
        Self::for_frames_of(1514)
    }
}
