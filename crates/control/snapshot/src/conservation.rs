//! Packet conservation: where every packet went.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Packets received + copied = sent + to the box + queued + dropped, in both directions together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conservation {
    /// Packets that the workers received.
    pub received: u64,
    /// Copies that a qdisc made (`netem duplicate`), those without a frame included.
    #[serde(default)]
    pub copied: u64,
    /// Packets that they passed to a device.
    pub sent: u64,
    /// Packets that filters at a host's port passed to this box's own stack. Those that come to the
    /// box from a port that forwards are not received in this sense.
    #[serde(default, skip_serializing_if = "is_none")]
    pub to_box: u64,
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

/// Whether there are none.
fn is_none(packets: &u64) -> bool {
    *packets == 0
}

impl Conservation {
    /// What went to the box, in a line of the balance; empty where ports forward.
    pub fn kept(&self) -> String {
        match self.to_box {
            0 => String::new(),
            kept => format!(" + to this box {kept}"),
        }
    }

    /// The copies in a line of the balance; empty without any, as almost always.
    pub fn copies(&self) -> String {
        match self.copied {
            0 => String::new(),
            copied => format!(" + copied {copied}"),
        }
    }
}
