//! The hosts and flows with the most bytes recently, and how long their packets stayed in Narrows.
//!
//! They belong to the last complete window, so they are up to one window old. Only hosts and flows
//! whose bytes are known accurately enough are listed; the port's rate includes the rest.

use crate::{Losses, RoundTrip};
use serde::{Deserialize, Serialize};

/// The heaviest of one port, in descending order for each kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heaviest {
    /// The length of the window in seconds.
    pub window_s: f64,
    /// Hosts, by the bytes that they sent.
    pub sources: Vec<Heavy>,
    /// Hosts, by the bytes sent to them.
    pub destinations: Vec<Heavy>,
    /// Flows.
    pub flows: Vec<Heavy>,
}

/// A host or a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heavy {
    /// `192.0.2.1`, or `udp 192.0.2.1:53 > 192.0.2.2:4711`.
    pub name: String,
    /// Its rate through this port, in bits per second of frames.
    pub bps: u64,
    /// The mean delay of its bytes, in microseconds.
    pub delay_mean_us: u64,
    /// The longest delay among the sampled packets, in microseconds.
    pub delay_max_us: u64,
    /// The median delay by bytes, in microseconds. Percentiles are to within 12.5 %.
    pub delay_p50_us: u64,
    /// The 99th percentile by bytes, in microseconds.
    pub delay_p99_us: u64,
    /// The 99.9th percentile by bytes, in microseconds.
    pub delay_p999_us: u64,
    /// For a host, its round trips on its side of the port, without the time in Narrows. Only if
    /// the instance measures them and saw one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<RoundTrip>,
    /// For a host, the losses of TCP segments from it or to it that left through this port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
}

impl Heaviest {
    /// The three lists with their names.
    pub fn kinds(&self) -> [(&'static str, &[Heavy]); 3] {
        [("from", &self.sources), ("to", &self.destinations), ("flow", &self.flows)]
    }
}
