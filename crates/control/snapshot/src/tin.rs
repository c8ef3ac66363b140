//! The tins of a `cake`, as tc prints them.

use crate::{Delays, Qdisc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The names of three or four tins, as in the column heads of `tc -s`; other tins are numbered.
const THREE: [&str; 3] = ["Bulk", "Best Effort", "Voice"];
const FOUR: [&str; 4] = ["Bulk", "Best Effort", "Video", "Voice"];

/// A tin of a `cake`. Its keys are tc's; rates are bytes per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tin {
    /// The rate from which it yields to other tins, in bytes per second.
    pub threshold_rate: u64,
    /// Bytes that arrived. `cake` counts on arrival, so packets that it dropped later are included,
    /// despite tc's name for it.
    pub sent_bytes: u64,
    /// Packets that arrived, in the same way.
    pub sent_packets: u64,
    /// Bytes queued.
    pub backlog_bytes: u64,
    /// CoDel's target, in microseconds.
    pub target_us: u64,
    /// The peak delay, in microseconds, as an exponentially weighted mean.
    pub peak_delay_us: u64,
    /// The mean delay, in microseconds, in the same way.
    pub avg_delay_us: u64,
    /// The delay of sparse flows, in microseconds, in the same way.
    pub base_delay_us: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Packets marked instead of dropped (ECN).
    pub ecn_mark: u64,
    /// Acknowledgements dropped because a later one supersedes them.
    pub ack_drops: u64,
    /// Sparse flows.
    pub sparse_flows: u64,
    /// Bulk flows: they always have a packet queued.
    pub bulk_flows: u64,
    /// Flows that do not respond to drops.
    pub unresponsive_flows: u64,
    /// The delays of the packets that left, to within 12.5 %.
    #[serde(skip_serializing_if = "Delays::is_empty")]
    pub delays: Delays,
}

impl Qdisc {
    /// Its tins with their names. None if it is not a `cake`.
    pub fn tins(&self) -> Vec<(String, Tin)> {
        let tins = match self.detail.get("tins") {
            Some(Value::Array(tins)) => tins,
            _ => Vec::new(),
        };
        let tins: Vec<Tin> =
            tins.into_iter().filter_map(|tin| serde_json::from_value(tin).ok()).collect();
        let name = |number: usize| match tins.len() {
            3 => THREE[number].to_owned(),
            4 => FOUR[number].to_owned(),
            _ => format!("Tin {number}"),
        };
        let names: Vec<String> = (0..tins.len()).map(name).collect();
        names.into_iter().zip(tins).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tins_have_the_names_that_tc_prints() {
        let qdisc = |tins: usize| -> Qdisc {
            let tins =
                vec![r#"{"threshold_rate":125000,"drops":3,"way_misses":1}"#; tins].join(",");
            serde_json::from_str(&format!(r#"{{"kind":"cake","handle":"1:","tins":[{tins}]}}"#))
                .unwrap()
        };
        let names = |tins| qdisc(tins).tins().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(1), ["Tin 0"]);
        assert_eq!(names(3), ["Bulk", "Best Effort", "Voice"]);
        assert_eq!(names(4)[2], "Video");
        assert_eq!(names(8)[7], "Tin 7");
        assert_eq!(qdisc(1).tins()[0].1.drops, 3);
        assert!(Qdisc::default().tins().is_empty());
    }
}
