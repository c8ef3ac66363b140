//! A limit whose rate follows that of a line.

use serde::{Deserialize, Serialize};

/// The bounds of the rate, the rate in force, and why it is what it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LineFigures {
    /// The least rate, in bits per second.
    pub least_bps: u64,
    /// The highest.
    pub most_bps: u64,
    /// The rate in force.
    pub rate_bps: u64,
    /// What set it last: `holds`, `rises`, `delay`, `drained`, `loss`, `path` or `idle`.
    pub reason: String,
}
