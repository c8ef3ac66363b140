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
    /// What is read earlier in a phase says nothing of accuracy.
    pub settle: Nanos,
    /// When the first packets leave follows from it.
    pub seed: u64,
    /// What is run, one after the other.
    pub cases: Vec<Case>,
}

/// Connections of one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// What it is called.
    pub name: String,
    /// By connection: the host that it goes to.
    pub hosts: Vec<u32>,
    /// What estimates begin with; from what is known where there is none.
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
    /// All together by one, of which nobody knows which part is whose.
    Together(Rate),
}

impl Case {
    /// How long it takes.
    pub fn length(&self) -> Nanos {
        self.phases.iter().fold(Nanos::ZERO, |sum, phase| sum + phase.length)
    }
}
