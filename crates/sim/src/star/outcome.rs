//! What came of a run.

use super::setup::Setup;
use narrows_units::{Bytes, Rate};

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Which part of the packets came marked, in per cent.
    MarkedPercent,
    /// What came, in per cent of what the senders may send.
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

/// Where all packets of data are, of the whole run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Books {
    /// That TCP sent, repairs included.
    pub sent: u64,
    /// That came to the receiver.
    pub delivered: u64,
    /// That a qdisc or a port had no room for.
    pub dropped: u64,
    /// That still are in a qdisc or on a link.
    pub under_way: u64,
}

impl Books {
    /// Whether no trace of any is missing.
    pub fn add_up(&self) -> bool {
        self.sent == self.delivered + self.dropped + self.under_way
    }
}

/// What came of a run. All but the books is of the time that is measured.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    /// Packets that came.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of them that came marked.
    pub marked: u64,
    /// How often hosts sent something.
    pub batches: u64,
    /// How many packets.
    pub sent: u64,
    /// Packets that came back and said that what goes there meets on the way, as qdiscs heard it; of the
    /// whole run.
    pub congestion: u64,
    /// How many runs this is of.
    pub runs: u32,
    /// All data.
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
        self.books.sent += other.books.sent;
        self.books.delivered += other.books.delivered;
        self.books.dropped += other.books.dropped;
        self.books.under_way += other.books.under_way;
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
