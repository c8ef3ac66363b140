//! What a filter does with what it matches, as data.
//!
//! An action has a kind and a number, and any number of filters may have the same one: then they
//! share its counters and, of a policer, its rate.
//!
//! Source: `tc-actions(8)`, `tc-police(8)`, `tc-skbedit(8)`, `net/sched/act_gact.c`, `act_police.c`,
//! `act_skbedit.c`.

use crate::Mark;
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};

/// An action, by kind and index, as `tc actions` names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ActionId {
    /// What it does.
    pub kind: ActionKind,
    /// Its number among those that do the same; from 1.
    pub index: u32,
}

/// What an action does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ActionKind {
    /// Decides what becomes of the packet.
    Gact = 1,
    /// Tells packets within a rate from others.
    Police,
    /// Sets what is known of the packet.
    Skbedit,
}

impl ActionKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Gact, Self::Police, Self::Skbedit];

    /// As `tc` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gact => "gact",
            Self::Police => "police",
            Self::Skbedit => "skbedit",
        }
    }
}

impl ActionId {
    /// Its key in a [`Sheaf`](crate::Sheaf).
    pub fn key(self) -> u64 {
        (self.kind as u64) << 32 | u64::from(self.index)
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// It has the class that its filter assigns (`pass`, `ok`).
    Pass,
    /// It is dropped (`drop`, `shot`).
    Drop,
    /// The next filter is asked.
    Continue,
    /// All filters are asked again from the first one on.
    Reclassify,
    /// The next action is taken; behind the last one it is as with `Pass`.
    Pipe,
}

/// An action's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// `gact`
    Gact {
        /// What becomes of a packet,
        control: Control,
        /// but for some.
        random: Option<Random>,
    },
    /// `police`
    Police(Police),
    /// `skbedit`
    Skbedit {
        /// The class of a qdisc, major number above, minor below.
        priority: Option<u32>,
        /// Bits of the mark.
        mark: Option<Mark>,
        /// What becomes of the packet then.
        control: Control,
    },
}

/// What becomes of one of so many packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Random {
    /// Whether it is every so manieth one (`determ`), or any with that probability (`netrand`).
    pub is_determined: bool,
    /// Of how many; from 1.
    pub of: u16,
    /// What becomes of it.
    pub control: Control,
}

/// Up to what packets conform.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Police {
    /// Bytes on the wire, over time;
    pub rate: Option<Rate>,
    /// how many of them may come at once.
    pub burst: Bytes,
    /// The same without a burst of more than `mtu`.
    pub peak_rate: Option<Rate>,
    /// The longest packet, in bytes; [`Bytes::default`] for any.
    pub mtu: Bytes,
    /// Packets a second, and how many may come at once.
    pub packets: Option<(u64, u64)>,
    /// What is counted of a packet.
    pub overhead: Overhead,
    /// A rate for each of many, instead of one for all.
    pub per: Option<Per>,
    /// What becomes of packets that do not conform.
    pub exceed: Control,
    /// What becomes of those that do.
    pub conform: Control,
}

/// A policer's rate for each of many, which is kept in the driver: there is room for so many, and
/// who comes when it is used up takes the place of whom it does not hurt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Per {
    /// Of whom there are many.
    pub who: Who,
    /// How long who exceeds the rate is blocked; [`Nanos::ZERO`] for not at all.
    pub block: Nanos,
    /// For how many there is room.
    pub room: u32,
    /// How many may come in a second of whom nothing is known.
    pub newcomers: u32,
}

/// Who has a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// Each source: an IPv4 address, or the first 64 bits of an IPv6 address.
    Source,
    /// Each destination's whole address.
    Destination,
    /// Each flow: both addresses, protocol and ports.
    Flow,
}

impl Per {
    /// The least and the most for which there is room.
    pub const ROOM: std::ops::RangeInclusive<u32> = 1024..=1 << 22;
    /// For how many there is room unless somebody says otherwise.
    pub const ROOM_DEFAULT: u32 = 1 << 16;
    /// It takes newcomers so many seconds at least to come into all of it.
    const TURNOVER_SECS: u64 = 16;

    /// How many may come in a second unless somebody says otherwise.
    pub fn newcomers_default(room: u32, block: Nanos) -> u32 {
        let slowest = u64::from(room) / Self::TURNOVER_SECS;
        slowest.min(Self::newcomers_max(room, block)).max(1) as u32
    }

    /// How many may come at most: were all of them blocked, half of it would still be free.
    pub fn newcomers_max(room: u32, block: Nanos) -> u64 {
        let half = u128::from(room / 2);
        match block.0 {
            0 => half as u64,
            block => (half * 1_000_000_000 / u128::from(block)).clamp(1, half) as u64,
        }
    }
}

impl Who {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Source, Self::Destination, Self::Flow];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "src",
            Self::Destination => "dst",
            Self::Flow => "flow",
        }
    }
}

impl Action {
    /// What it does.
    pub fn kind(&self) -> ActionKind {
        match self {
            Self::Gact { .. } => ActionKind::Gact,
            Self::Police(_) => ActionKind::Police,
            Self::Skbedit { .. } => ActionKind::Skbedit,
        }
    }

    /// What becomes of packets: of those that conform or are any, and of some others.
    pub fn controls(&self) -> [Control; 2] {
        match self {
            Self::Gact { control, random } => {
                [*control, random.map_or(*control, |random| random.control)]
            }
            Self::Police(police) => [police.conform, police.exceed],
            Self::Skbedit { control, .. } => [*control; 2],
        }
    }

    /// A rate for each of many, where it polices so.
    pub fn per(&self) -> Option<Per> {
        match self {
            Self::Police(police) => police.per,
            _ => None,
        }
    }
}
