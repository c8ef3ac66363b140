//! CAKE as Linux has it beside ours, in one guest: which systems, under which loads, and what is
//! measured of each. The guest [measures](crate::guest), the host [judges](judge) and
//! [shows](table).

pub mod judge;
mod medians;
mod rows;
pub mod table;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

pub use medians::Medians;
pub use rows::{Row, Rows};

/// The name of the cell.
pub const NAME: &str = "cake";
/// The limits, in Mbit/s.
const LIMITS: [Option<u64>; 2] = [Some(20), Some(50)];
/// Rounds, in which everything has its turn.
pub const ROUNDS: u32 = 3;
/// How long the path takes without queues, in milliseconds.
pub const ONE_WAY_MS: u64 = 10;
/// Flows of the many, beside one.
pub const MANY: u16 = 8;

/// What forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// The kernel's bridge, without a limit.
    Bridge,
    /// The same with one `cake` over all queues of its port.
    LinuxCake,
    /// The same with `cake_mq`: one CAKE on each of 4 queues.
    LinuxCakeMq,
    /// Narrows with `cake` on one queue.
    NarrowsOne,
    /// Narrows with `cake` on each of 4 queues.
    NarrowsFour,
}

impl System {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Bridge, Self::LinuxCake, Self::LinuxCakeMq, Self::NarrowsOne, Self::NarrowsFour];
    /// Ours.
    pub const OURS: [Self; 2] = [Self::NarrowsOne, Self::NarrowsFour];
    /// What ours is held against.
    pub const REFERENCE: Self = Self::LinuxCake;

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bridge => "Linux bridge",
            Self::LinuxCake => "Linux cake",
            Self::LinuxCakeMq => "Linux cake_mq, 4 queues",
            Self::NarrowsOne => "Narrows, 1 queue",
            Self::NarrowsFour => "Narrows, 4 queues",
        }
    }
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// 8 TCP flows over all queues, without a limit: what the guest is able to do.
    Unlimited,
    /// The light flow of the next, and nothing else.
    Alone,
    /// UDP, 110 % of the limit: one frame of five on one queue, the others on another.
    Light,
    /// 8 TCP flows over all queues, and one marked EF.
    Tcp,
    /// The same with ECN.
    TcpEcn,
    /// One TCP flow to a host, and 8 over all queues to another, under `dual-dsthost`.
    HostsTcp,
    /// The same with UDP, each host's flows offering what the limit is.
    HostsUdp,
}

impl Load {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Unlimited,
        Self::Alone,
        Self::Light,
        Self::Tcp,
        Self::TcpEcn,
        Self::HostsTcp,
        Self::HostsUdp,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unlimited => "8 TCP flows, no limit",
            Self::Alone => "light flow alone",
            Self::Light => "light flow beside bulk",
            Self::Tcp => "8 TCP flows",
            Self::TcpEcn => "8 TCP flows, ECN",
            Self::HostsTcp => "1 beside 8, TCP",
            Self::HostsUdp => "1 beside 8, UDP",
        }
    }

    /// Its name where one is typed.
    const fn word(self) -> &'static str {
        match self {
            Self::Unlimited => "unlimited",
            Self::Alone => "alone",
            Self::Light => "light",
            Self::Tcp => "tcp",
            Self::TcpEcn => "tcp-ecn",
            Self::HostsTcp => "hosts-tcp",
            Self::HostsUdp => "hosts-udp",
        }
    }

    /// The systems that it is for.
    pub const fn systems(self) -> &'static [System] {
        match self {
            Self::Unlimited => &[System::Bridge, System::NarrowsOne, System::NarrowsFour],
            Self::Alone => &System::ALL,
            _ => System::ALL.split_at(1).1, // what limits
        }
    }

    /// The limits under which it is sent, in Mbit/s.
    pub const fn limits(self) -> &'static [Option<u64>] {
        match self {
            Self::Unlimited => &[None],
            _ => &LIMITS,
        }
    }

    /// How often it has its turn: once where nothing is judged.
    pub const fn rounds(self) -> u32 {
        match self {
            Self::Unlimited | Self::Alone => 1,
            _ => ROUNDS,
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Median of what queues add to the bulk flows' round trip, in milliseconds.
    QueueMedian,
    /// Its 99th percentile.
    QueueP99,
    /// Median of the light or marked flow's delay, one way, beyond that of the path, in
    /// milliseconds.
    LightMedian,
    /// Its 99th percentile.
    LightP99,
    /// What the one flow has of all that arrives, in per cent.
    Share,
    /// What arrives of all flows but the marked one, in Mbit/s: payload of TCP, frames of UDP.
    Delivered,
}

impl Figure {
    /// Its name, and its unit, in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueMedian => "queue, median ms",
            Self::QueueP99 => "queue, p99 ms",
            Self::LightMedian => "delay, median ms",
            Self::LightP99 => "delay, p99 ms",
            Self::Share => "share, %",
            Self::Delivered => "delivered, Mbit/s",
        }
    }
}

/// One system under one load in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The load.
    pub load: Load,
    /// The limit, in Mbit/s.
    pub limit: Option<u64>,
    /// The system.
    pub system: System,
    /// The round.
    pub round: u32,
    /// What was measured.
    pub figures: BTreeMap<Figure, f64>,
}

/// A limit, for people.
pub fn shown(limit: Option<u64>) -> String {
    limit.map_or("none".to_owned(), |limit| format!("{limit} Mbit/s"))
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { load, limit, system, round, figures } = self;
        let limit = shown(*limit);
        write!(f, "{}, {limit}, {}, round {round}:", load.name(), system.name())?;
        figures.iter().try_for_each(|(figure, value)| write!(f, " {} {value:.2};", figure.name()))
    }
}
