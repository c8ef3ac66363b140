//! Everything that is visible of a running instance, at one moment.
//!
//! *Idea.* One set of structures is the source of every view. The instance fills a [`Snapshot`] and
//! sends it over the control socket as JSON. `narrows show`, `narrows top`, an exporter and the
//! testbed read it as clients: none of them runs in the process that forwards.
//!
//! *Principles.* Counters run over the instance's whole life, also when a port disappears and
//! returns, and when another process takes over. Names carry units: `_bps` is bits per second,
//! `_bytes` bytes, `_s` seconds. A qdisc or class is what `tc -s -d -j` prints for it, so a program
//! that reads tc's JSON reads this. A field that was added later has a default, so a newer client
//! can read an older instance.
//!
//! *Non-goals.* How the figures are counted (`dataplane`), what `tc` prints as text (`tc`).

mod change;
mod conservation;
mod counts;
mod delays;
mod fields;
mod fleet;
mod heaviest;
mod line_figures;
mod names;
mod packed;
mod port;
mod qdisc;
mod queue;
mod round_trips;
mod text;
mod tin;
mod worker;

pub mod fleet_agent;

pub use change::{Change, FigureRates, QueueRates};
pub use conservation::Conservation;
pub use counts::Counts;
pub use delays::Delays;
pub use fields::Fields;
pub use fleet::{
    FLEET_FLOOR, FLEET_HOLD_NS, FleetFacts, FleetOrder, FleetShare, FleetStanding, SharedLimit,
};
pub use heaviest::{Heaviest, Heavy};
pub use line_figures::LineFigures;
pub use port::{ConnectionIds, CountedBy, DeviceLosses, KernelDrops, OwnTraffic, Port, SlowPath};
pub use qdisc::{Class, ClassStats, Figures, Qdisc};
pub use queue::Queue;
pub use round_trips::{Losses, RoundTrip, RoundTrips};
pub use tin::Tin;
pub use worker::Worker;

use narrows_balance::ListedService;
use serde::{Deserialize, Serialize};

/// An instance at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// `running`, or `waiting` for a port to be usable again.
    pub state: String,
    /// What the instance waits for, if anything.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for: Option<String>,
    /// How long the instance has run, in seconds.
    #[serde(default)]
    pub uptime_s: f64,
    /// What forwards when this process is gone: `open`, `open (bridge NAME)`, `closed`.
    #[serde(default)]
    pub fail: String,
    /// The process that keeps this one: it has started it for a device that matches a pattern,
    /// starts it again, and ends it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kept_by: Option<i32>,
    /// Present problems of the ports: traffic that bypasses the limit, cannot pass, or is
    /// corrupted.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub warnings: Vec<String>,
    /// What `narrows doctor` found when the process started; empty after an upgrade.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub findings: Vec<Finding>,
    /// The ports.
    pub ports: Vec<Port>,
    /// The worker of each queue.
    #[serde(default)]
    pub workers: Vec<Worker>,
    /// The services that a host's port balances, and their servers. Only beside the trees of qdiscs
    /// and classes: `narrows balance list -j` has them for scripts.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub services: Vec<ListedService>,
    /// The limits that a fleet of boxes shares; at most 1,000 without the trees of qdiscs and
    /// classes.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub fleet: Vec<FleetStanding>,
    /// What the fleet's agent on this box says of these limits, if a client asked it: the instance
    /// does not know.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fleet_agent: Option<Box<fleet_agent::Shown>>,
    /// Where every packet went.
    #[serde(default)]
    pub conservation: Conservation,
    /// The latest events, oldest first.
    #[serde(default)]
    pub events: Vec<String>,
}

/// One check of `narrows doctor`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Finding {
    /// An interface's name, or `kernel`, `cpu`, `process` or `box`.
    pub subject: String,
    /// `ok`, `note` or `warning`; with a blocker the process would not have started.
    pub severity: String,
    /// The observation and its consequence.
    pub what: String,
    /// The command to type, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remedy: Option<String>,
}

impl Snapshot {
    /// The port with this name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// Whether its ports are joined.
    pub fn is_running(&self) -> bool {
        self.state == "running"
    }

    /// Its state in words, with `age`: how long ago the process began, which is not how long it
    /// waits.
    pub fn state_with(&self, age: &str) -> String {
        match self.is_running() {
            true => format!("running for {age}"),
            false => format!("{}, started {age} ago", narrows_escape::line(&self.state)),
        }
    }

    /// Whether packets are dropped when this process is gone (fail-closed).
    pub fn fails_closed(&self) -> bool {
        self.fail.starts_with("closed")
    }

    /// The standby bridge.
    pub fn standby(&self) -> Option<&str> {
        self.fail.strip_prefix("open (bridge ")?.strip_suffix(')')
    }

    /// Whether a worker is silent.
    pub fn has_silent_worker(&self) -> bool {
        self.workers.iter().any(|worker| worker.silent_s.is_some())
    }

    /// Whether every worker answers and none has a queued packet.
    pub fn is_at_rest(&self) -> bool {
        let is_empty = |port: &Port| port.total.backlog_packets == 0;
        self.ports.iter().all(is_empty) && !self.has_silent_worker()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of an instance with one worker and nothing queued.
    const SHOW: &str = r#"{"state":"running","fail":"open (bridge nrwbr2)","workers":[{}],
        "ports":[{"name":"port-a","queues":2,"per_queue":[],"to_self":0,"unserved":0,
        "total":{"tx_packets":1,"tx_bytes":60,"backlog_packets":0,"drops":0}}]}"#;

    fn show(was: &str, is: &str) -> Snapshot {
        assert!(SHOW.contains(was), "{was}");
        serde_json::from_str(&SHOW.replace(was, is)).unwrap()
    }

    #[test]
    fn an_instance_is_at_rest_without_queued_packets_and_silent_workers() {
        assert!(show("{}", "{}").is_at_rest());
        assert!(!show(r#""backlog_packets":0"#, r#""backlog_packets":1"#).is_at_rest());
        assert!(!show("{}", r#"{"silent_s":0.6}"#).is_at_rest());
    }

    #[test]
    fn the_bridge_that_stands_by_is_named() {
        assert_eq!(show("{}", "{}").standby(), Some("nrwbr2"));
        assert_eq!(show("open (bridge nrwbr2)", "closed").standby(), None);
    }
}
