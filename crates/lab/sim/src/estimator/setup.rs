//! What to run.

use narrows_units::{Bytes, Nanos, Rate};

/// All of a scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// Of every packet.
    pub frame: Bytes,
    /// Packets that a connection has in the host.
    pub ahead: u32,
    /// How often the estimate is read.
    pub every: Nanos,
    /// How long the rate is measured that it is held against.
    pub window: Nanos,
    /// Earlier readings in a phase say nothing about accuracy.
    pub settle: Nanos,
    /// When the first packets leave follows from it.
    pub seed: u64,
    /// The phases, one after the other.
    pub cases: Vec<Case>,
}

/// Connections of one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// By connection: the host that it goes to.
    pub hosts: Vec<u32>,
    /// The initial estimates; if absent, derived from the configuration.
    pub start: Option<Rate>,
    /// One after the other.
    pub phases: Vec<Phase>,
    /// How soon the paper's estimate is right in the first phase.
    pub paper: Option<Nanos>,
}

/// A time in which rates stay as they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    /// How long it takes.
    pub length: Nanos,
    /// How packets are stamped.
    pub shaping: Shaping,
}

/// How packets are stamped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shaping {
    /// By connection: its rate.
    Each(Vec<Rate>),
    /// One rate for all together, without their individual parts.
    Together(Rate),
}

impl Case {
    /// How long it takes.
    pub fn length(&self) -> Nanos {
        self.phases.iter().fold(Nanos::ZERO, |sum, phase| sum + phase.length)
    }
}
