//! The hosts and flows with the most bytes of late, and how long their packets stayed here.
//!
//! They are of the last window that was over, so up to a window old. Those are told whose bytes are
//! known well enough; the rest of a port is in its rate.

use crate::{Losses, RoundTrip};
use serde::{Deserialize, Serialize};

/// Of one port, each kind with the heaviest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heaviest {
    /// How long the window was, in seconds.
    pub window_s: f64,
    /// Hosts by what they sent.
    pub sources: Vec<Heavy>,
    /// Hosts by what was sent to them.
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
    /// What left of it, in bits per second of frames.
    pub bps: u64,
    /// How long its bytes stayed here on average, in microseconds.
    pub delay_mean_us: u64,
    /// The longest that a packet of those looked at stayed, in microseconds.
    pub delay_max_us: u64,
    /// Half of its bytes stayed no longer, in microseconds. Percentiles are within an eighth.
    pub delay_p50_us: u64,
    /// 99 % of its bytes stayed no longer, in microseconds.
    pub delay_p99_us: u64,
    /// 99.9 % of its bytes stayed no longer, in microseconds.
    pub delay_p999_us: u64,
    /// Of a host, its round trips on the far side of the port that it is at: not of packets that
    /// were in Narrows. Only where the instance measures them and there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<RoundTrip>,
    /// Of a host, what became of TCP segments of it, or to it, that left through this port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
}

impl Heaviest {
    /// Its kinds by what they are called.
    pub fn kinds(&self) -> [(&'static str, &[Heavy]); 3] {
        [("from", &self.sources), ("to", &self.destinations), ("flow", &self.flows)]
    }
}
