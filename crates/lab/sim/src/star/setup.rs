//! What to run.

use crate::fabric::Buffer;
use narrows_units::{Nanos, Rate};

/// A network, and the measured time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// Hosts that send.
    pub senders: u32,
    /// The rate of each, for any number of flows.
    pub rate: Rate,
    /// Of every link.
    pub line: Rate,
    /// The rate of the switch's port to the receiver.
    pub buffer: Buffer,
    /// Of every link.
    pub propagation: Nanos,
    /// A host's time to send or to receive.
    pub host_delay: Nanos,
    /// From the start, not measured.
    pub warmup: Nanos,
    /// Measured.
    pub length: Nanos,
    /// The number of runs that are added up: within a run, the slots of two hosts keep the random
    /// offset of their clocks.
    pub runs: u32,
    /// The seed of everything random.
    pub seed: u64,
}

/// A run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Flows of each sender.
    pub flows: u32,
    /// The words of its qdisc.
    pub qdisc: Vec<String>,
}

impl Setup {
    /// When it is over.
    pub fn end(&self) -> Nanos {
        self.warmup + self.length
    }
}
