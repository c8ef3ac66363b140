//! The directory of a provider: its sites and subscribers.
//!
//! *Idea.* Plain data that says who there is, at which site, with which plan and addresses. All
//! sources (files, APIs, sessions) produce it, and it compiles into the policy of two ports.
//!
//! *Principles.* No I/O, no clock. An identity (a key of [`Directory::subscribers`]) never changes: a subscriber keeps
//! its class, counters, queues and history under it, whatever other rows come and go.

mod model;

pub use model::{Directory, Plan, Prefix, Queueing, Site, Subscriber};
