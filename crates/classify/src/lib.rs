//! Filters: which class a packet belongs to.
//!
//! A [`Filter`] is data, in the terms of `tc filter`: a priority, a protocol, what it matches and
//! the class that it assigns. A [`Classifier`] is made of all filters of a qdisc and asked once for
//! each packet; the first filter that matches decides, in the order of their priorities, as in the
//! kernel.
//!
//! *Tables, not a walk.* Filters that ask the same of a packet, under the same mask, share a hash
//! table; a look-up asks as many tables as there are masks, at most. [`Filter::matches`] is the rule
//! to which the tables are held, one filter after the other.
//!
//! *Versions share.* A policy with 100,000 filters is copied for each change; [`Sheaf`] is what makes
//! that cheap, and the tables are cut into pieces for the same reason.
//!
//! *Non-goals.* Filters that change a packet; tables that the operator lays out himself (`u32`'s
//! links and hash keys): every filter is in a table anyway.
//!
//! Source: `tc-flower(8)`, `tc-u32(8)`, `tc-matchall(8)`, `tc-fw(8)`, `tc-basic(8)`, `tc-ematch(8)`.

mod action;
mod block;
mod classification;
mod classifier;
mod expression;
mod fields;
mod filter;
mod flower;
mod group;
mod mark;
mod prefix;
mod priority;
mod running;
mod selector;
mod shape;
mod sheaf;
mod sieve;
mod subject;
mod table;

pub use action::{Action, ActionId, ActionKind, Control, Per, Police, Random, Who};
pub use classification::{Classification, Otherwise, Path, Rules};
pub use classifier::{Actions, Blocks, Classifier, Verdict};
pub use expression::{
    EXPRESSION_DEPTH_MAX, End, Expression, Layer, Meta, Relation, SetMatch, Spot,
};
pub use filter::{ANY_PROTOCOL, Filter, Filters, Matches, VLAN, order};
pub use flower::{Flower, PortRange};
pub use mark::Mark;
pub use narrows_packet::dissect::Keys;
pub use prefix::Prefix;
pub use priority::{PRIORITY_MASK, priority};
pub use running::{ActionStats, Counters, Policer, Running};
pub use selector::Selector;
pub use sheaf::Sheaf;
pub use subject::Subject;
