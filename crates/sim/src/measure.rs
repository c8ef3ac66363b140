//! What is measured of a run.

use serde::{Deserialize, Serialize};

/// A measure, and a column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// What left, as a part of the limit (1 is all of it).
    Utilization,
    /// How far what left is from the limit, in per cent of it; above is positive.
    DeviationPercent,
    /// What left.
    MbitPerSec,
    /// Packets that left, in millions a second.
    Mpps,
    /// The most by which what left after the event (or the start) exceeded the limit, over any
    /// window that begins there: bytes that only less than the limit later makes good.
    OvershootBytes,
    /// The most that stood in the next hop after the event.
    InducedQueueBytes,
    /// The longest that anything waited in the next hop after the event.
    InducedDelayUs,
    /// How long after the event until no more stands in the next hop than stood before it
    /// on average, or one packet more.
    StandingUs,
    /// How long after the event until what leaves is, and stays for a millisecond, within 2 % of the limit.
    SettleUs,
    /// Delay of the packets of `ping` traffic, or of all where there is none: median.
    P50Us,
    /// 99th percentile of the same.
    P99Us,
    /// Jain's index over the queues that were offered more than an equal part (by weight); 1 is fair.
    Jain,
    /// The same over flows of closed-loop traffic.
    JainFlows,
    /// By how much the fullest window of 1 ms exceeded the limit, in per cent.
    #[serde(rename = "window_1ms_percent")]
    Window1ms,
    /// The same of 10 ms.
    #[serde(rename = "window_10ms_percent")]
    Window10ms,
    /// The same of 100 ms.
    #[serde(rename = "window_100ms_percent")]
    Window100ms,
    /// Time that a core is busy, a packet.
    NsPerPacket,
    /// Steps of all cores, a packet that left.
    StepsPerPacket,
}

/// What came of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Every measure that applies.
    pub measures: std::collections::BTreeMap<Measure, f64>,
    /// By queue: what left, in per cent of the limit.
    pub queue_percent: Vec<f64>,
    /// Lines to plot.
    pub series: Vec<Series>,
    /// Packets of which no trace is left, over all workers: 0, or something is wrong.
    pub unaccounted: i64,
}

/// Something over time.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// What, with its unit: `rate, Gbit/s`, `next hop, kB`, `delay, us`.
    pub name: String,
    /// Milliseconds from the start of the run, and the value.
    pub points: Vec<(f64, f64)>,
}
