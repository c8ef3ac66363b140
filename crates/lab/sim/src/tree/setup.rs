//! What to run.

use narrows_coordination::TreeStrategy;
use narrows_units::{Bytes, Nanos, Rate};

/// Applications, and the line that they share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// The line rate.
    pub line: Rate,
    /// The longest queue in front of it, for schedulers without queues.
    pub buffer: Bytes,
    /// From a packet's leaving to its acknowledgement.
    pub round_trip: Nanos,
    /// TCP's least time-out.
    pub time_out: Nanos,
    /// Of every packet.
    pub frame: Bytes,
    /// From the beginning of a phase, not measured.
    pub settle: Nanos,
    /// Over which the greatest rate is looked for.
    pub window: Nanos,
    /// Each on a queue of its own.
    pub apps: Vec<App>,
    /// One after the other.
    pub phases: Vec<Phase>,
    /// The seed of everything random.
    pub seed: u64,
}

/// An application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct App {
    /// Its name.
    pub name: String,
    /// The number of its class.
    pub class: u32,
    /// Its connections.
    pub flows: u32,
}

/// A time in which the same applications send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    /// How long it takes.
    pub length: Nanos,
    /// By application, whether it sends.
    pub sends: Vec<bool>,
}

/// The scheduler of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeper {
    /// The data plane's workers, by a strategy.
    Workers(TreeStrategy),
    /// The XDP plane's program, by HTB's rules or FlowValve's.
    Driver(TreeStrategy),
    /// The program that gives departure times to what a host sends.
    Departures,
}

impl Keeper {
    /// The one called so: a strategy's name, `xdp`, `xdp-flowvalve` or `departures`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "xdp" => Some(Self::Driver(TreeStrategy::Fair)),
            "xdp-flowvalve" => Some(Self::Driver(TreeStrategy::FlowValve)),
            "departures" => Some(Self::Departures),
            name => TreeStrategy::from_name(name).map(Self::Workers),
        }
    }

    /// The word of `htb coordination`. The program of departure times follows HTB's rules.
    pub(super) fn strategy(self) -> TreeStrategy {
        match self {
            Self::Workers(strategy) | Self::Driver(strategy) => strategy,
            Self::Departures => TreeStrategy::Fair,
        }
    }
}

/// The compared scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scheduler {
    /// Its name.
    pub name: String,
    /// A policy file for one port with an `htb`.
    pub policy: String,
    /// How its tree is kept.
    pub keeper: Keeper,
    /// Whether what gets no token is dropped at once, and nothing waits.
    pub drops: bool,
    /// By application, whether it goes before the tree.
    pub before: Vec<bool>,
    /// The line rate, if it differs from the setup.
    pub line: Option<Rate>,
}

impl Setup {
    /// When it is over.
    pub fn length(&self) -> Nanos {
        self.phases.iter().fold(Nanos::ZERO, |sum, phase| sum + phase.length)
    }
}
