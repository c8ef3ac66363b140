//! The books: where every packet went.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Packets received = sent + queued + dropped, in both directions together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conservation {
    /// Packets that the workers received.
    pub received: u64,
    /// Packets that they handed to a device.
    pub sent: u64,
    /// Packets queued.
    pub queued: u64,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets of which no trace is left: 0, or Narrows has a fault.
    pub unaccounted: i64,
    /// Packets that bypassed the workers and are none of the above: their queue had no worker, or
    /// a silent one.
    #[serde(default)]
    pub bypassed: u64,
}
