//! Packet conservation: where every packet went.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Packets received + copied = sent + queued + dropped, in both directions together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conservation {
    /// Packets that the workers received.
    pub received: u64,
    /// Copies that a qdisc made (`netem duplicate`), those without a frame included.
    #[serde(default)]
    pub copied: u64,
    /// Packets that they passed to a device.
    pub sent: u64,
    /// Packets queued.
    pub queued: u64,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets that are missing from this balance: 0, or Narrows has a bug.
    pub unaccounted: i64,
    /// Packets that bypassed the workers and are in none of the other counts: their queue had no
    /// worker, or a silent one.
    #[serde(default)]
    pub bypassed: u64,
}

impl Conservation {
    /// The copies in a line of the balance; empty without any, as almost always.
    pub fn copies(&self) -> String {
        match self.copied {
            0 => String::new(),
            copied => format!(" + copied {copied}"),
        }
    }
}
