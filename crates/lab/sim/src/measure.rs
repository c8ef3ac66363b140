//! The measures of a run.
//!
//! Bytes are frame lengths, which is how limits without overhead charge them. Measures cover the
//! time from the end of the warm-up to the end of the run, those of an event the time from the
//! event on (without an event, also from the end of the warm-up on). A measure that does not apply
//! to a run is absent, never zero.
//!
//! Each measure is computed during the run, by a small meter in a file of its own; no per-packet
//! data is kept.

mod delays;
mod fairness;
mod fullest;
mod groups;
mod hosts;
mod overshoot;
mod pacing;
mod recorder;
mod settling;
mod standing;
mod timeline;

pub use groups::{Group, GroupMeasure};
pub(crate) use recorder::Recorder;

use narrows_packet::DropCounters;
use serde::{Deserialize, Serialize};

/// A measure, and a column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The departures, as a part of the limit (1 is all of it).
    Utilization,
    /// The deviation of departures from the limit, in percent of it; above is positive.
    DeviationPercent,
    /// What left.
    MbitPerSec,
    /// Packets that left, in millions a second.
    Mpps,
    /// The overshoot: the most bytes by which departures in any window that begins after the event
    /// exceeded the limit. Equal to the longest backlog, as seen by an arriving packet, of a queue
    /// that drains at the limit and is empty at the event. So one packet at a time is no overshoot.
    OvershootBytes,
    /// The most that a packet found standing in the next hop after the event.
    InducedQueueBytes,
    /// The longest that anything waited in the next hop after the event.
    InducedDelayUs,
    /// The longest unbroken time, after the event, for which the next hop's backlog exceeded its
    /// earlier average plus one packet. (Not the last such time: a queue that comes and goes is not
    /// standing.)
    StandingUs,
    /// The time after the event until the departures stay within 2 % of the limit: from then on
    /// every window of a millisecond that begins in the next millisecond is within 2 % or a packet.
    /// If a millisecond is less than 100 packets at the limit, it is the time of these. A load that
    /// never settles takes until the end of the run.
    SettleUs,
    /// Delay of the packets of `ping` traffic, or of all packets without such traffic: median.
    P50Us,
    /// 99th percentile of the same.
    P99Us,
    /// Jain's index over the queues that were offered more than their share, each by the ratio of
    /// what it got to its max–min fair share of the limit, by weight. 1 is fair.
    Jain,
    /// Jain's index over what the flows of closed-loop traffic got.
    JainFlows,
    /// Jain's index over the source hosts that want more than their share, each by the ratio of
    /// what it got to its max–min fair share of the limit. Open-loop traffic wants its configured
    /// rate.
    JainHosts,
    /// By how much the fullest window of 1 ms exceeded the limit, in percent; below is negative.
    /// Windows begin at every fiftieth of their length.
    #[serde(rename = "window_1ms_percent")]
    Window1ms,
    /// By how much the fullest window of 10 ms exceeded the limit, in percent.
    #[serde(rename = "window_10ms_percent")]
    Window10ms,
    /// By how much the fullest window of 100 ms exceeded the limit, in percent.
    #[serde(rename = "window_100ms_percent")]
    Window100ms,
    /// By how much the rate of a flow is off its pace over windows of a millisecond, either way, in
    /// percent: the mean of all flows' windows. Flows that have a pace are `backlogged` ones.
    #[serde(rename = "off_1ms_percent")]
    Off1ms,
    /// By how much the rate of a flow is off its pace in the worst window of a millisecond, in
    /// percent.
    #[serde(rename = "off_most_1ms_percent")]
    OffMost1ms,
    /// The mean over windows of 10 ms.
    #[serde(rename = "off_10ms_percent")]
    Off10ms,
    /// The mean over windows of 100 ms.
    #[serde(rename = "off_100ms_percent")]
    Off100ms,
    /// By how much the rate of all flows together, as if they were one, is off its pace over
    /// windows of 100 ms, in percent.
    #[serde(rename = "all_off_100ms_percent")]
    AllOff100ms,
    /// How many of all gaps between a packet and the next but one of its flow are below a quarter
    /// of two packets' time at its pace, in percent.
    #[serde(rename = "three_at_once_percent")]
    ThreeAtOnce,
    /// The mean number of packets that leave in a step, over steps in which any does: the batch
    /// that goes to the device.
    PacketsPerBatch,
    /// Time that a core is busy, a packet.
    NsPerPacket,
    /// Steps of all cores, a packet that left.
    StepsPerPacket,
    /// The part of the cores' time in which they are busy, in percent.
    CpuPercent,
    /// How often any core wakes up, because its time has come or a packet has, a second: the
    /// interrupts of a machine.
    WakesPerSec,
}

/// The outcome of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Every measure that applies.
    pub measures: std::collections::BTreeMap<Measure, f64>,
    /// By queue: the departures, in percent of the limit.
    pub queue_percent: Vec<f64>,
    /// Lines to plot.
    pub series: Vec<Series>,
    /// By group of the traffic.
    pub groups: Vec<Group>,
    /// By flow: bytes that left while it was measured.
    pub flow_bytes: Vec<u64>,
    /// By source host, those of a group together: bytes that left while it was measured.
    pub host_bytes: Vec<u64>,
    /// The workers' drops in the whole run, by reason.
    pub drops: DropCounters,
    /// Where all packets are.
    pub books: Books,
    /// Packets of which no trace is left, over all workers: 0, or something is wrong.
    pub unaccounted: i64,
}

/// Where the packets are that were offered until the end of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Books {
    /// All of them.
    pub offered: u64,
    /// Did not fit into a RX ring: lost before the shaper.
    pub overflowed: u64,
    /// Still in a RX ring.
    pub waiting: u64,
    /// Copied by a qdisc, besides those offered.
    pub copied: u64,
    /// Left the shaper.
    pub sent: u64,
    /// Dropped by a worker.
    pub dropped: u64,
    /// Still queued.
    pub queued: u64,
    /// Were with a worker when it died, or were sent to it by closed-loop traffic afterwards.
    /// (Open-loop traffic is not offered to a queue whose worker is dead.)
    pub lost_to_fault: u64,
}

impl Books {
    /// Adds those of another core.
    pub fn merge(&mut self, other: &Self) {
        self.offered += other.offered;
        self.overflowed += other.overflowed;
        self.waiting += other.waiting;
        self.copied += other.copied;
        self.sent += other.sent;
        self.dropped += other.dropped;
        self.queued += other.queued;
        self.lost_to_fault += other.lost_to_fault;
    }

    /// Packets of which no trace is left: 0, or something is wrong.
    pub fn unaccounted(&self) -> i64 {
        let before = self.overflowed + self.waiting + self.lost_to_fault;
        let accounted = before + self.sent + self.dropped + self.queued;
        (self.offered + self.copied).wrapping_sub(accounted) as i64
    }
}

/// Something over time.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// What, with its unit: `rate, Gbit/s`, `next hop, kB`, `delay, us`.
    pub name: String,
    /// Milliseconds from the start of the run, and the value.
    pub points: Vec<(f64, f64)>,
}
