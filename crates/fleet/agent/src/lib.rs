//! The agent of a fleet: limits that many boxes share.
//!
//! *Idea.* Beside each instance of Narrows runs an agent. In turns it tells the instance which
//! parts of the box's shares are lent and borrowed, and hears what is sent and waits there; it
//! tells the other agents, and hears from them. Which part belongs to whom is decided in
//! `narrows-lending`, which knows neither sockets nor clocks; here is what moves bytes.
//!
//! *Principles.* The data plane never waits for an agent: what an agent orders ends by itself.
//! Nothing is published that the data plane has not confirmed. Messages may be lost, late, doubled
//! and reordered, the engine and the instance may be away for any time, and the limit holds; the
//! agent says so and tries again, for ever. Who sent a message is what the engine attests.
//!
//! *Non-goals.* Agreement, storage, a wire protocol of its own: what must last stands in each box's
//! policy, and messages travel over an engine that exists ([`engine`]).

pub mod agent;
pub mod claims;
pub mod clock;
pub mod config;
pub mod engine;
pub mod init;
mod journal;
pub mod metrics;
pub mod name;
pub mod plane;
pub mod subjects;
pub mod table;
pub mod view;
mod whole_file;
