//! The measures of each traffic group.

use super::delays::Delays;
use super::fairness;
use narrows_units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A measure of one group, and a column of the table of groups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupMeasure {
    /// What left.
    MbitPerSec,
    /// Packets that left.
    Packets,
    /// Packets that a worker dropped.
    Drops,
    /// Packets that left with a mark of the shaper.
    Marks,
    /// Time between arrival and departure: median.
    P50Us,
    /// 99th percentile of the same.
    P99Us,
    /// The longest.
    MaxUs,
    /// Jain's index over what the group's flows got.
    JainFlows,
    /// By how much a flow's rate is off its pace over windows of a millisecond, either way: the
    /// mean.
    #[serde(rename = "off_1ms_percent")]
    Off1ms,
    /// By how much a flow's rate is off its pace over windows of 10 ms, either way: the mean.
    #[serde(rename = "off_10ms_percent")]
    Off10ms,
    /// The shortest gap between a packet and the next but one of its flow.
    #[serde(rename = "gap_least_us")]
    GapLeast,
    /// One gap of a thousand is shorter.
    #[serde(rename = "gap_p0_1_us")]
    GapP01,
    /// One of a hundred is.
    #[serde(rename = "gap_p1_us")]
    GapP1,
    /// Half of them are.
    #[serde(rename = "gap_p50_us")]
    GapP50,
    /// One of a hundred is longer.
    #[serde(rename = "gap_p99_us")]
    GapP99,
    /// Gaps below a quarter of two packets' time at the pace, in percent of all.
    #[serde(rename = "three_at_once_percent")]
    ThreeAtOnce,
}

/// The outcome of a group.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Every measure that applies.
    pub measures: BTreeMap<GroupMeasure, f64>,
}

/// Measures a group.
pub(super) struct Meter {
    bytes: u64,
    packets: u64,
    drops: u64,
    marks: u64,
    delays: Delays,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self { bytes: 0, packets: 0, drops: 0, marks: 0, delays: Delays::new() }
    }

    /// A packet left after `delay`.
    #[inline]
    pub(super) fn left(&mut self, len: u32, marked: bool, delay: Nanos) {
        self.bytes += u64::from(len);
        self.packets += 1;
        self.marks += u64::from(marked);
        self.delays.record(delay);
    }

    /// A packet was dropped.
    pub(super) fn dropped(&mut self) {
        self.drops += 1;
    }

    /// Its outcome over `secs`, with the rate and pacing of each of its flows.
    pub(super) fn finish(
        &self,
        name: &str,
        secs: f64,
        flows: &[u64],
        paced: BTreeMap<GroupMeasure, f64>,
    ) -> Group {
        let flows: Vec<f64> = flows.iter().map(|bytes| *bytes as f64).collect();
        let measures = [
            (GroupMeasure::MbitPerSec, Some(self.bytes as f64 * 8.0 / secs / 1e6)),
            (GroupMeasure::Packets, Some(self.packets as f64)),
            (GroupMeasure::Drops, Some(self.drops as f64)),
            (GroupMeasure::Marks, Some(self.marks as f64)),
            (GroupMeasure::P50Us, self.delays.percentile_us(50.0)),
            (GroupMeasure::P99Us, self.delays.percentile_us(99.0)),
            (GroupMeasure::MaxUs, self.delays.percentile_us(100.0)),
            (GroupMeasure::JainFlows, fairness::jain(&flows)),
        ];
        let known = measures.into_iter().filter_map(|(it, value)| Some((it, value?)));
        Group { name: name.to_owned(), measures: known.chain(paced).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_sums_its_packets_and_is_empty_without_any() {
        let mut meter = Meter::new();
        meter.left(1000, false, Nanos::from_micros(10));
        meter.left(500, true, Nanos::from_micros(30));
        meter.dropped();
        let group = meter.finish("mice", 0.5, &[1000, 500], BTreeMap::new());
        let get = |measure| group.measures[&measure];
        assert_eq!(get(GroupMeasure::MbitPerSec), 0.024);
        assert_eq!(get(GroupMeasure::Packets), 2.0);
        assert_eq!((get(GroupMeasure::Drops), get(GroupMeasure::Marks)), (1.0, 1.0));
        assert!((get(GroupMeasure::MaxUs) - 30.0).abs() < 0.1);
        assert!((get(GroupMeasure::JainFlows) - 0.9).abs() < 1e-9);
        let nothing = Meter::new().finish("silent", 1.0, &[0], BTreeMap::new());
        assert!(!nothing.measures.contains_key(&GroupMeasure::P50Us));
        assert!(!nothing.measures.contains_key(&GroupMeasure::JainFlows));
    }
}
