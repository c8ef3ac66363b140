//! Qdiscs and classes as `tc -s -d -j qdisc show` and `class show` print them.
//!
//! What all kinds have is typed here. What one kind has is kept as the JSON that tc prints, by key,
//! so that a new kind needs no change here.

use crate::{Delays, Losses, RoundTrip};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A qdisc. Its keys are tc's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Qdisc {
    /// Its kind.
    pub kind: String,
    /// Its handle: `1:`.
    pub handle: String,
    /// Whether it is the root.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub root: bool,
    /// The class that it hangs from, where it is not the root.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<String>,
    /// Its parameters. Rates are bytes per second, times microseconds, as in tc's JSON.
    #[serde(default)]
    pub options: Map<String, Value>,
    /// What all kinds count.
    #[serde(flatten)]
    pub figures: Figures,
    /// What its kind counts beside that.
    #[serde(flatten)]
    pub detail: Map<String, Value>,
}

/// A class. Its keys are tc's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// Its kind.
    #[serde(rename = "class")]
    pub kind: String,
    /// Its id: `1:10`.
    pub handle: String,
    /// The name that the operator gave it. The instance does not know it: whoever asks adds it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// Whether it hangs from the qdisc itself.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub root: bool,
    /// The class that it hangs from, where it does not hang from the qdisc.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<String>,
    /// The major number of the qdisc below it, where there is one with a handle: `0x10`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leaf: Option<String>,
    /// Its assured rate, in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<u64>,
    /// Its ceiling, in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ceil: Option<u64>,
    /// Its priority among classes that borrow; 0 is the best.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prio: Option<u64>,
    /// What it counts.
    #[serde(default)]
    pub stats: ClassStats,
    /// Its other parameters.
    #[serde(flatten)]
    pub options: Map<String, Value>,
}

impl Class {
    /// The two numbers of its id, which are written hexadecimal: of its qdisc, and its own.
    pub fn id(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.handle.split_once(':')?;
        let number = |text| u32::from_str_radix(text, 16).ok();
        number(major).zip(number(minor))
    }
}

/// What a class counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassStats {
    /// What all kinds count.
    #[serde(flatten)]
    pub figures: Figures,
    /// How long what the class sent had stayed, each packet within an eighth: the times are the
    /// middles of buckets. Of a class below another qdisc up to when it gave its packets to that.
    #[serde(skip_serializing_if = "Delays::is_empty", default)]
    pub delays: Delays,
    /// Round trips beyond the port of what the class sent, in the last window; where the instance
    /// measures them and there were any. Only of classes of the outermost qdisc that has some.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub round_trip: Option<RoundTrip>,
    /// What became of TCP segments that the class sent, likewise.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub losses: Option<Losses>,
    /// What its kind counts beside that, such as `lended` and `borrowed`.
    #[serde(flatten)]
    pub detail: Map<String, Value>,
}

/// What every qdisc and every class counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Times that a packet had to wait for the rate.
    pub overlimits: u64,
    /// Packets taken back.
    pub requeues: u64,
    /// Bytes queued.
    pub backlog: u64,
    /// Packets queued.
    pub qlen: u64,
}
