//! Qdiscs and classes, as `tc -s -d -j qdisc show` and `class show` print them.
//!
//! Fields common to all kinds are typed. Those of a single kind are kept as the JSON object that tc
//! prints, so a new kind needs no change here.
//!
//! There may be tens of thousands, and views hold two snapshots. So kinds and handles, which have up
//! to 24 bytes, are kept in place, and all that has no fixed length takes few bytes.

use crate::{Delays, Fields, Losses, RoundTrip};
use compact_str::CompactString;
use serde::{Deserialize, Serialize};

/// A qdisc. Its keys are tc's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Qdisc {
    /// Its kind.
    pub kind: CompactString,
    /// Its handle: `1:`.
    pub handle: CompactString,
    /// Whether it is the root.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub root: bool,
    /// The class that it is attached to, unless it is the root.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<CompactString>,
    /// Its parameters. Rates are bytes per second, times microseconds, as in tc's JSON.
    #[serde(default)]
    pub options: Fields,
    /// The counters of all kinds.
    #[serde(flatten)]
    pub figures: Figures,
    /// Further counters of its kind.
    #[serde(flatten)]
    pub detail: Fields,
}

/// A class. Its keys are tc's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// Its kind.
    #[serde(rename = "class")]
    pub kind: CompactString,
    /// Its id: `1:10`.
    pub handle: CompactString,
    /// The operator's name for it. The instance does not know it; the client adds it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<CompactString>,
    /// Whether its parent is the qdisc itself.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub root: bool,
    /// Its parent class, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<CompactString>,
    /// The major number of its child qdisc, if that has a handle: `0x10`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leaf: Option<CompactString>,
    /// Its assured rate, in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<u64>,
    /// Its ceiling, in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ceil: Option<u64>,
    /// Its priority among classes that borrow; 0 is the best.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prio: Option<u64>,
    /// Its counters.
    #[serde(default)]
    pub stats: ClassStats,
    /// Its other parameters.
    #[serde(flatten)]
    pub options: Fields,
}

impl Class {
    /// The two numbers of its id, which is hexadecimal: the qdisc's and its own.
    pub fn id(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.handle.split_once(':')?;
        let number = |text| u32::from_str_radix(text, 16).ok();
        number(major).zip(number(minor))
    }
}

/// The counters of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassStats {
    /// The counters of all kinds.
    #[serde(flatten)]
    pub figures: Figures,
    /// The delays of the packets that the class sent, within an eighth: the times are the middles
    /// of histogram buckets. For a class below another qdisc, the delay ends when that qdisc takes
    /// the packet.
    #[serde(skip_serializing_if = "Delays::is_empty", default)]
    pub delays: Delays,
    /// Round trips beyond the port of the packets that the class sent, in the last window; if the
    /// instance measures them and saw any. Only for classes of the outermost classful qdisc.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub round_trip: Option<RoundTrip>,
    /// The losses of TCP segments that the class sent, in the same way.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub losses: Option<Losses>,
    /// Further counters of its kind, such as `lended` and `borrowed`.
    #[serde(flatten)]
    pub detail: Fields,
}

/// The counters of every qdisc and class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// How often a packet had to wait for the rate.
    pub overlimits: u64,
    /// Packets requeued.
    pub requeues: u64,
    /// Bytes queued.
    pub backlog: u64,
    /// Packets queued.
    pub qlen: u64,
}
