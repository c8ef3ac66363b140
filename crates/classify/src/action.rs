//! What a filter does with what it matches, as data.
//!
//! An action has a kind and a number, and any number of filters may have the same one: then they
//! share its counters and, of a policer, its rate.
//!
//! Source: `tc-actions(8)`, `tc-police(8)`, `tc-skbedit(8)`, `net/sched/act_gact.c`, `act_police.c`,
//! `act_skbedit.c`.

use crate::Mark;
use narrows_units::{Bytes, Rate, wire::Overhead};

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
    /// What becomes of packets that do not conform.
    pub exceed: Control,
    /// What becomes of those that do.
    pub conform: Control,
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
}
