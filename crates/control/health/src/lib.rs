//! Health checks of the servers that an instance balances connections over.
//!
//! *Idea.* A process beside the data plane asks each server of each service at an interval, and
//! tells the instance over its control socket which servers are down, as `narrows balance edit …
//! --down` does. What counts as down is decided by [`Servers`], which knows neither time nor
//! sockets.
//!
//! *Principles.* The data plane never waits for it and does not know it. It states what it knows
//! again and again: services, servers and the process of the instance may come and go. It begins
//! with what the instance says is down, and leaves it so when it ends. A service always keeps a
//! server. What fails for a reason of this machine (no descriptors, a firewall) says nothing about
//! a server.
//!
//! A check goes the way of clients' packets, so that it fails where they would be lost.
//!
//! *Non-goals.* Weights and the list of servers: they are the operator's. TLS, and what a page
//! says.
//!
//! Source: the words are those of HAProxy's `rise`, `fall`, `inter`, and of `ipvsadm(8)`.

mod check;
mod client_path;
mod config;
mod instance;
mod monitor;
mod network;
mod once;
mod probe;
mod rise_fall;
mod task;
mod way;

pub use check::{Check, DEFAULT, HttpRequest, Probe};
pub use config::{Config, ConfigError, Unchecked};
pub use monitor::run;
pub use once::{Report, once};
pub use rise_fall::{Member, Servers, Thresholds};

/// What keeps checks from being made at all.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// The runtime cannot start.
    #[error("cannot start: {0}")]
    Start(std::io::Error),
    /// Answers to checks cannot be received.
    #[error("{0}: run it as root or with CAP_NET_RAW, or say --direct for each service")]
    Answers(narrows_link::LinkError),
    /// The kernel does not say how servers are reached.
    #[error(transparent)]
    Way(#[from] narrows_link::LinkError),
    /// The instance does not say which services it has.
    #[error("{0}")]
    Instance(String),
}
