//! Filters: which class a packet belongs to.
//!
//! A [`Filter`] is data, in the terms of `tc filter`: a priority, a protocol, a condition and the
//! class that it assigns. A [`Classifier`] compiles all filters of a qdisc and is evaluated once
//! per packet. As in the kernel, filters apply in the order of their priorities, and the first that
//! matches decides.
//!
//! *Tables, not a walk.* Filters that test the same fields under the same mask share a hash table,
//! so a look-up visits at most as many tables as there are masks. Filters that test only a prefix
//! share one trie for many lengths. Where there are many filters, packets are looked up
//! together. [`Filter::matches`] is the plain rule, one filter and packet at a time; everything
//! else is tested against it.
//!
//! *Versions share memory.* Each change copies the policy, which may have 100,000 filters. A
//! [`PersistentMap`] makes that copy cheap, and the tables are divided into pieces for the same
//! reason.
//!
//! *Non-goals.* Filters that modify a packet. Hash tables laid out by the operator (`u32`'s links
//! and hash keys): every filter is in a hash table anyway.
//!
//! Source: `tc-flower(8)`, `tc-u32(8)`, `tc-matchall(8)`, `tc-fw(8)`, `tc-route(8)`, `tc-basic(8)`,
//! `tc-ematch(8)`.

mod action;
mod ahead;
mod block;
mod classification;
mod classifier;
mod device;
mod expression;
mod fields;
mod filter;
mod flower;
mod group;
mod mark;
mod member_rates;
mod persistent_map;
mod prefix;
mod priority;
pub mod route;
mod running;
mod selector;
mod set_name;
mod shape;
mod sieve;
mod subject;
mod table;
mod trie;

pub use action::{
    AccountKey, Action, ActionId, ActionKind, Control, Idle, Mirred, PaceRate, Per, Police, Random,
};
pub use ahead::{AHEAD, Found};
pub use classification::{Classification, Otherwise, Path, Rules};
pub use classifier::{Actions, Blocks, Classifier, Verdict};
pub use device::DeviceName;
pub use expression::{
    EXPRESSION_DEPTH_MAX, End, Expression, Layer, Meta, Relation, SetMatch, Spot,
};
pub use filter::{
    ANY_PROTOCOL, Filter, Filters, Matches, Network, SERVICE_VLAN, VLAN, is_tag, order,
};
pub use flower::{Flower, PortRange};
pub use mark::Mark;
pub use member_rates::MemberRates;
pub use narrows_packet::dissect::Keys;
pub use persistent_map::PersistentMap;
pub use prefix::Prefix;
pub use priority::{PRIORITY_MASK, priority};
pub use route::Route;
pub use running::{ActionStats, Counters, Policer, Running};
pub use selector::Selector;
pub use set_name::SetName;
pub use subject::Subject;
