//! Qdiscs and classes, as `tc -s -d -j qdisc show` and `class show` print them.
//!
//! Fields common to all kinds are typed. Those of a single kind are kept as the JSON object that tc
//! prints, so a new kind needs no change here.
//!
//! There may be tens of thousands, and views hold two snapshots. So kinds and handles, which have
//! up to 24 bytes, are kept in place, and all that has no fixed length takes few bytes.

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
    /// Whether its parent is the qdisc itself. Of an `hfsc`, whether it stands for the qdisc.
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

    /// The rate that it is assured, in bytes per second: its `rate`, or the second slope of its
    /// `rt`.
    pub fn assured(&self) -> Option<u64> {
        self.rate.or_else(|| self.slope("sc")).or_else(|| self.slope("rt"))
    }

    /// The most that it gets by sharing, in bytes per second: its `ceil`, or the second slope of
    /// its `ul`.
    pub fn most(&self) -> Option<u64> {
        self.ceil.or_else(|| self.slope("ul"))
    }

    /// The second slope of a service curve.
    fn slope(&self, curve: &str) -> Option<u64> {
        self.options.get(curve)?.get("m2")?.as_u64()
    }

    /// Whether it is a class of an `hfsc` below the root class, which stands for the qdisc.
    pub(crate) fn is_below_root(&self) -> bool {
        self.parent.as_ref().is_some_and(|parent| parent.ends_with(':'))
    }
}

/// The counters of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassStats {
    /// The counters of all kinds.
    #[serde(flatten)]
    pub figures: Figures,
    /// The delays of the packets that the class sent, to within 12.5 %: the times are the middles
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;

    /// What is read from `text` is written as the same bytes.
    #[track_caller]
    fn check<T: DeserializeOwned + Serialize>(text: &str) {
        let read: Vec<T> = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }

    #[test]
    fn qdiscs_are_written_as_they_are_read() {
        check::<Qdisc>(concat!(
            r#"[{"kind":"htb","handle":"1:","root":true,"options":{"r2q":10,"default":"0x10","#,
            r#""direct_packets_stat":0,"direct_qlen":1000},"bytes":18446744073709551615,"#,
            r#""packets":4294967296,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0,"#,
            r#""refcnt":2},"#,
            r#"{"kind":"cake","handle":"11:","parent":"1:11","options":{"bandwidth":"unlimited","#,
            r#""nat":false,"split_gso":true,"fwmark":"0","deep":{"list":[null,-1,2.5,"a\"b"],"#,
            r#""empty":{},"none":[]}},"bytes":1,"packets":2,"drops":3,"overlimits":4,"#,
            r#""requeues":5,"backlog":6,"qlen":7,"memory_used":131072,"tins":["#,
            r#"{"threshold_rate":1250000,"avg_delay_us":97,"delays":{"p50_us":24.584,"p99_us":5,"#,
            r#""p999_us":0.001,"max_us":1e+300,"counts":[[3.0,1],[14417.919,70000]]}},{}]}]"#,
        ));
    }

    #[test]
    fn classes_are_written_as_they_are_read() {
        check::<Class>(concat!(
            r#"[{"class":"htb","handle":"1:10","name":"a name of more than 24 bytes: Zürich","#,
            r#""parent":"1:1","leaf":"0x10","rate":625000,"ceil":2500000,"prio":0,"stats":{"#,
            r#""bytes":123456789012,"packets":2,"drops":3,"overlimits":4,"requeues":5,"backlog":6,"#,
            r#""qlen":7,"delays":{"p50_us":24.584,"p99_us":812.125,"p999_us":3604.479,"#,
            r#""max_us":14417.919,"counts":[[24.584,7],[812.125,70000]]},"#,
            r#""round_trip":{"min_us":20100,"p50_us":24000,"p99_us":60000},"#,
            r#""losses":{"segments":5000,"before":1,"beyond":12},"lended":7,"borrowed":0,"#,
            r#""giants":0,"tokens":-40000,"ctokens":10000},"burst":1600,"cburst":1600}]"#,
        ));
        check::<Class>(concat!(
            r#"[{"class":"hfsc","handle":"1:1","parent":"1:","stats":{"bytes":1,"packets":2,"#,
            r#""drops":3,"overlimits":4,"requeues":5,"backlog":6,"qlen":7,"period":1,"work":2,"#,
            r#""rtwork":0,"level":0},"sc":{"m1":0,"d":7600,"m2":625000}}]"#,
        ));
    }

    #[test]
    fn the_curves_of_a_class_say_what_it_gets() {
        let class = |curves: &str| -> (Option<u64>, Option<u64>) {
            let text = format!(r#"{{"class":"hfsc","handle":"1:1","parent":"1:"{curves}}}"#);
            let class: Class = serde_json::from_str(&text).unwrap();
            (class.assured(), class.most())
        };
        let curve = |name: &str| format!(r#","{name}":{{"m1":9,"d":1,"m2":5}}"#);
        assert_eq!(class(&(curve("sc") + &curve("ul"))), (Some(5), Some(5)));
        assert_eq!(class(&curve("rt")), (Some(5), None));
        assert_eq!(class(&curve("ls")), (None, None));
        assert_eq!(class(r#","rate":7,"ceil":8"#), (Some(7), Some(8)));
    }
}
