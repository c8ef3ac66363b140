//! What an operator should know.

use compact_str::CompactString;
use std::fmt;

/// Something happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A box was heard for the first time, or again.
    Heard(String),
    /// A box was not heard for a lease.
    Silent(String),
    /// A box's agent began anew.
    Restarted(String),
    /// A message was not understood.
    Malformed {
        /// Its sender.
        from: String,
        /// What is wrong with it.
        why: String,
    },
    /// Two boxes have different rates for one limit. The smaller one holds.
    Differs {
        /// The limit.
        limit: CompactString,
        /// The other box.
        at: String,
        /// Its rate in bits per second.
        theirs_bps: u64,
        /// The rate here.
        ours_bps: u64,
    },
    /// The safe shares of all boxes exceed the limit. All are reduced by the same part.
    Oversubscribed {
        /// The limit.
        limit: CompactString,
        /// The sum of the safe shares in bits per second.
        sum_bps: u64,
        /// The limit in bits per second.
        limit_bps: u64,
    },
    /// This box claimed the share of one that is off.
    Claimed(String),
    /// A box that was off is back, and has its share back.
    Returned(String),
    /// This box claims the share of one that is off no more.
    NotClaimed {
        /// The box that is off.
        of: String,
        /// Why.
        why: NotClaimed,
    },
    /// This box started, and has its share.
    Cleared,
    /// Another agent speaks under this box's name.
    Twin,
    /// The instance began anew, or forgot what was ordered.
    InstanceRestarted,
}

/// Why a share is not claimed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotClaimed {
    /// Another box claims it, too.
    By(String),
    /// This box was off itself.
    WasOff,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = |bps: &u64| *bps as f64 / 1e6;
        match self {
            Self::Heard(name) => write!(f, "{name} is heard"),
            Self::Silent(name) => {
                write!(
                    f,
                    "{name} is silent: what it lent is returned, its safe share stays its own"
                )
            }
            Self::Restarted(name) => write!(f, "the agent of {name} started again"),
            Self::Malformed { from, why } => write!(f, "a message of {from} was dropped: {why}"),
            Self::Differs { limit, at, theirs_bps, ours_bps } => write!(
                f,
                "{limit} is {:.3} Mbit/s here and {:.3} Mbit/s at {at}: the smaller rate holds; set the same on both",
                mbit(ours_bps),
                mbit(theirs_bps)
            ),
            Self::Oversubscribed { limit, sum_bps, limit_bps } => write!(
                f,
                "the safe shares of {limit} are {:.3} Mbit/s together, and the limit is {:.3} Mbit/s: each is reduced; set `safe` or `boxes` so that they fit",
                mbit(sum_bps),
                mbit(limit_bps)
            ),
            Self::Claimed(of) => {
                write!(f, "{of} is off, as an operator said: its share is used by others")
            }
            Self::Returned(of) => write!(f, "{of} is back: its share is its own again"),
            Self::NotClaimed { of, why: NotClaimed::By(by) } => write!(
                f,
                "{of} is off, and {by} has its share, or wants it, too; if its share stays unused, say `narrows fleet forget {of}` on one box"
            ),
            Self::NotClaimed { of, why: NotClaimed::WasOff } => write!(
                f,
                "this box was off itself, so it no longer has the share of {of}; if {of} is still off, say `narrows fleet forget {of}` again"
            ),
            Self::Cleared => {
                write!(f, "this box has its share back after its start: nobody else uses it")
            }
            Self::Twin => {
                write!(f, "another agent has this box's name: stop one of them, or rename it")
            }
            Self::InstanceRestarted => {
                write!(f, "the instance started again; its limits are set anew")
            }
        }
    }
}
