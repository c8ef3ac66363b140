//! The tins of a `cake`, as tc prints them.

use crate::{Delays, Qdisc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Names of the tins by how many there are, as `tc -s` heads its columns; others are numbered.
const THREE: [&str; 3] = ["Bulk", "Best Effort", "Voice"];
const FOUR: [&str; 4] = ["Bulk", "Best Effort", "Video", "Voice"];

/// A tin of a `cake`. Its keys are tc's; rates are bytes per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tin {
    /// What it may send before it has to wait for other tins, in bytes per second.
    pub threshold_rate: u64,
    /// Bytes that came to it. `cake` counts them as they come, so packets that it dropped later are
    /// among them, whatever tc calls it.
    pub sent_bytes: u64,
    /// Packets that came to it, likewise.
    pub sent_packets: u64,
    /// Bytes queued.
    pub backlog_bytes: u64,
    /// The delay that its queues are held to, in microseconds.
    pub target_us: u64,
    /// The longest delays of late, in microseconds, as an exponentially weighted mean.
    pub peak_delay_us: u64,
    /// The mean delay of late, in microseconds.
    pub avg_delay_us: u64,
    /// The delay of sparse flows of late, in microseconds.
    pub base_delay_us: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Packets marked instead (ECN).
    pub ecn_mark: u64,
    /// Acknowledgements dropped since a later one says the same.
    pub ack_drops: u64,
    /// Flows with little to send.
    pub sparse_flows: u64,
    /// Flows that always have a packet queued.
    pub bulk_flows: u64,
    /// Flows that do not react to drops.
    pub unresponsive_flows: u64,
    /// How long the packets stayed that left, each within an eighth.
    #[serde(skip_serializing_if = "Delays::is_empty")]
    pub delays: Delays,
}

impl Qdisc {
    /// Its tins, each with its name. None where it is no `cake`.
    pub fn tins(&self) -> Vec<(String, Tin)> {
        let tins = self.detail.get("tins").and_then(Value::as_array);
        let tins: Vec<Tin> =
            tins.into_iter().flatten().filter_map(|tin| Tin::deserialize(tin).ok()).collect();
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
