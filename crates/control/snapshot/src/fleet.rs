//! Limits that a fleet of boxes shares: what an agent orders, and what the instance says of them.
//!
//! *Idea.* Each box owns a safe share of a shared limit, and may lend a part of it to another box
//! for a lease. An agent beside the instance decides how much. The instance enforces *safe share −
//! lent + borrowed*, whatever the agent does, and falls back by itself when the agent is silent.
//!
//! *Principles.* Times are absolute, in nanoseconds of `CLOCK_BOOTTIME`, and never leave the box.
//! Rates are bits per second. An order says only what changes; the answer says only what has
//! changed since the agent last asked.
//!
//! *Non-goals.* Who should have how much, and how agents talk to each other: the agent's. What a
//! shared limit is in the configuration: the policy's.

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

/// How long parts stay lent after the deadline of the last order, in nanoseconds: 3 s. A loan ends
/// before, so the lender takes its part back only when the borrower has stopped using it.
pub const FLEET_HOLD_NS: u64 = 3_000_000_000;

/// Before an agent has spoken, this part of the safe share is in force: what an agent had lent
/// earlier is unknown.
pub const FLEET_FLOOR: u64 = 128;

/// What the agent orders: the parts lent and borrowed, of names that changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetOrder {
    /// The names that change. A name of which the instance knows nothing is passed over.
    pub shares: Vec<FleetShare>,
    /// Until when this and all earlier orders hold; after that, what is borrowed is void. An order
    /// whose deadline has passed changes nothing.
    pub deadline_ns: u64,
    /// The cursor of the last answer; 0 asks for all limits.
    pub since: u64,
}

/// The parts of one shared limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetShare {
    /// The limit's name.
    pub name: CompactString,
    /// What other boxes have of this box's safe share.
    pub lent_bps: u64,
    /// What this box has of the safe shares of others.
    pub borrowed_bps: u64,
}

/// What the instance answers: the shared limits that changed after the cursor `since`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetFacts {
    /// The time now.
    pub now_ns: u64,
    /// Until when the orders of the agent hold; 0 if none has spoken.
    pub deadline_ns: u64,
    /// The cursor for the next order.
    pub cursor: u64,
    /// The limits that are new, or of which counters, shares or configuration changed.
    pub limits: Vec<SharedLimit>,
    /// The names that are in the order or were there before, and are no shared limits now.
    pub gone: Vec<CompactString>,
}

/// One shared limit, as the policy and the agent have set it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SharedLimit {
    /// Its name.
    pub name: CompactString,
    /// The port that has it.
    pub port: CompactString,
    /// Where it is there: `1:` is a qdisc, `1:10` a class.
    pub at: CompactString,
    /// The name of the nearest shared limit above it on its port.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub within: Option<CompactString>,
    /// The rate of all boxes together.
    pub limit_bps: u64,
    /// This box's safe share of it.
    pub safe_bps: u64,
    /// What is lent now.
    pub lent_bps: u64,
    /// What is borrowed now.
    pub borrowed_bps: u64,
    /// The rate that is enforced now.
    pub in_force_bps: u64,
    /// If no agent has set it yet: since when the instance has it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unset_since_ns: Option<u64>,
    /// What a class is assured in all boxes together, its `rate`; 0 for a qdisc.
    pub assured_bps: u64,
    /// A class's `prio`, 0 to 7; 0 for a qdisc.
    pub prio: u8,
    /// Whether the box waits for its agent's word after a start, since others may use its share.
    #[serde(default)]
    pub rejoins: bool,
    /// Bytes sent by the qdisc or class, with all below it.
    pub sent_bytes: u64,
    /// Bytes queued there now.
    pub backlog_bytes: u64,
    /// Packets dropped there.
    pub dropped_packets: u64,
    /// How many flows take turns there now. None if not all qdiscs there can tell, or if boxes
    /// share the limit by box, not by flow.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flows: Option<u32>,
}

/// One shared limit in a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetStanding {
    /// Its name.
    pub name: CompactString,
    /// The port that has it.
    pub port: CompactString,
    /// Where it is there: `1:` is a qdisc, `1:10` a class.
    pub at: CompactString,
    /// The rate of all boxes together.
    pub limit_bps: u64,
    /// This box's safe share of it.
    pub safe_bps: u64,
    /// The rate that is enforced now.
    pub in_force_bps: u64,
    /// Why that much: `agent` if an agent orders it; `alone` if no agent has spoken for too long;
    /// `start` if the limit is new here, and no agent has spoken yet.
    pub because: CompactString,
    /// For how long no order of an agent has held, in seconds; none if one does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub alone_s: Option<f64>,
}
