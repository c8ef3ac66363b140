//! The results of a run.

use super::setup::Setup;
use crate::fabric::Books;
use narrows_units::{Bytes, Rate};

/// The system that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Which part of the packets came marked, in percent.
    MarkedPercent,
    /// The delivered rate, in percent of the senders' rates.
    ThroughputPercent,
    /// Packets that a host sent at once, on average.
    PacketsPerBatch,
}

impl Measure {
    /// All of them.
    pub const ALL: [Self; 3] =
        [Self::MarkedPercent, Self::ThroughputPercent, Self::PacketsPerBatch];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::MarkedPercent => "Packets marked, %",
            Self::ThroughputPercent => "Throughput at the receiver, % of what the senders may send",
            Self::PacketsPerBatch => "Packets a batch",
        }
    }
}

/// The outcome of a run. All but the packet balance is of the measured time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    /// Packets that came.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The marked ones of these.
    pub marked: u64,
    /// How often hosts sent something.
    pub batches: u64,
    /// How many packets.
    pub sent: u64,
    /// Returned packets that reported congestion towards their senders, as counted by the qdiscs
    /// over the whole run.
    pub congestion: u64,
    /// How many runs this is of.
    pub runs: u32,
    /// All data, of the whole run.
    pub books: Books,
}

impl Outcome {
    /// Counts another run in.
    pub(super) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.marked += other.marked;
        self.batches += other.batches;
        self.sent += other.sent;
        self.congestion += other.congestion;
        self.runs += 1;
        self.books.add(&other.books);
    }

    /// The value of `measure` in a network of `setup`.
    pub fn value(&self, measure: Measure, setup: &Setup) -> f64 {
        match measure {
            Measure::MarkedPercent => self.marked as f64 * 100.0 / self.packets.max(1) as f64,
            Measure::ThroughputPercent => {
                let rate = Rate::of(Bytes(self.bytes), setup.length).bits_per_sec() as f64;
                let most = setup.rate.bits_per_sec() as f64 * f64::from(setup.senders);
                rate * 100.0 / most / f64::from(self.runs.max(1))
            }
            Measure::PacketsPerBatch => self.sent as f64 / self.batches.max(1) as f64,
        }
    }
}
