//! Linux's CAKE beside Narrows', in one guest: the systems, the loads, and the figures. The guest
//! [measures](crate::guest), the host [judges](judge) and [shows](table).

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
/// The number of rounds; everything takes its turn in each.
pub const ROUNDS: u32 = 3;
/// The delay of the path without queues, in milliseconds.
pub const ONE_WAY_MS: u64 = 10;
/// The flows of the host with many, beside a host with one.
pub const MANY: u16 = 8;

/// The forwarders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// The kernel's bridge, without a limit.
    Bridge,
    /// The kernel's bridge with one `cake` over all queues of its port.
    LinuxCake,
    /// The kernel's bridge with `cake_mq`: one CAKE on each of 4 queues.
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
    /// Narrows'.
    pub const OURS: [Self; 2] = [Self::NarrowsOne, Self::NarrowsFour];
    /// The reference for Narrows.
    pub const REFERENCE: Self = Self::LinuxCake;

    /// The name in tables.
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

/// The loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// 8 TCP flows over all queues, without a limit: the capacity of the guest.
    Unlimited,
    /// The light flow of the next load, and nothing else.
    Alone,
    /// UDP, 110 % of the limit: one frame of five on one queue, the others on another.
    Light,
    /// 8 TCP flows over all queues, and one marked EF.
    Tcp,
    /// 8 TCP flows with ECN over all queues, and one marked EF.
    TcpEcn,
    /// One TCP flow to a host, and 8 over all queues to another, under `dual-dsthost`.
    HostsTcp,
    /// One UDP flow to a host, and 8 over all queues to another, under `dual-dsthost`; each host's
    /// flows offer the limit.
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

    /// The name in tables.
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

    /// The name on the command line.
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

    /// The systems that it is sent through.
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

    /// The number of rounds: one if nothing is judged.
    pub const fn rounds(self) -> u32 {
        match self {
            Self::Unlimited | Self::Alone => 1,
            _ => ROUNDS,
        }
    }
}

/// The figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// The median of the queueing delay in the bulk flows' round trip, in milliseconds.
    QueueMedian,
    /// Its 99th percentile.
    QueueP99,
    /// The median of the light or marked flow's one-way delay, beyond that of the path, in
    /// milliseconds.
    LightMedian,
    /// Its 99th percentile.
    LightP99,
    /// The single flow's share of everything that arrives, in percent.
    Share,
    /// The rate of all flows but the marked one, in Mbit/s: payload of TCP, frames of UDP.
    Delivered,
}

impl Figure {
    /// The name in tables, with its unit.
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
    /// The figures.
    pub figures: BTreeMap<Figure, f64>,
}

/// A limit as text.
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
