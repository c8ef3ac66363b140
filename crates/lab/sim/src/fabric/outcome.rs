//! The results of a run.

use super::workload::Pattern;
use narrows_units::Nanos;

/// Flows by how much they carry, as the paper's figure has them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Up to 100 KB.
    Short,
    /// Up to 1 MB.
    Medium,
    /// Up to 10 MB.
    Long,
    /// More.
    Longest,
}

impl Class {
    /// From the shortest on.
    pub const ALL: [Self; 4] = [Self::Short, Self::Medium, Self::Long, Self::Longest];

    /// That of a flow of `bytes`.
    pub fn of(bytes: u64) -> Self {
        match bytes {
            0..=100_000 => Self::Short,
            100_001..=1_000_000 => Self::Medium,
            1_000_001..=10_000_000 => Self::Long,
            _ => Self::Longest,
        }
    }

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Short => "up to 100 KB",
            Self::Medium => "up to 1 MB",
            Self::Long => "up to 10 MB",
            Self::Longest => "longer",
        }
    }
}

/// Completion times of some flows.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Completion {
    /// How many.
    pub flows: u64,
    /// All their times together.
    total: Nanos,
}

impl Completion {
    pub(super) fn add(&mut self, took: Nanos) {
        self.flows += 1;
        self.total += took;
    }

    fn and(self, other: Self) -> Self {
        Self { flows: self.flows + other.flows, total: self.total + other.total }
    }

    /// In microseconds; none if there was no flow.
    pub fn mean_us(&self) -> Option<f64> {
        (self.flows > 0).then(|| self.total.0 as f64 / 1000.0 / self.flows as f64)
    }
}

/// Batches of some hosts.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Batches {
    /// How many.
    pub batches: u64,
    /// Packets in all of them.
    pub packets: u64,
}

impl Batches {
    /// Packets in one; none if there was none.
    pub fn mean(&self) -> Option<f64> {
        (self.batches > 0).then(|| self.packets as f64 / self.batches as f64)
    }
}

/// Where all packets of data are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Books {
    /// Packets sent by TCP, including retransmissions.
    pub sent: u64,
    /// Packets that reached their hosts.
    pub delivered: u64,
    /// Packets that a port or a qdisc had no room for.
    pub dropped: u64,
    /// Packets still in a host's calendar or qdisc, or on a link.
    pub under_way: u64,
}

impl Books {
    /// Counts those of another run in.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.dropped += other.dropped;
        self.under_way += other.under_way;
    }

    /// Whether no trace of any is missing.
    pub fn add_up(&self) -> bool {
        self.sent == self.delivered + self.dropped + self.under_way
    }
}

/// The outcome of a run.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Outcome {
    /// By pattern and class.
    pub(super) completions: [[Completion; 4]; 2],
    /// By pattern of the host.
    pub(super) batches: [Batches; 2],
    /// All data.
    pub books: Books,
    /// Packets of data that were marked.
    pub marked: u64,
    /// The simulator's work: arrivals at the end of a link, looks at a calendar, starts and
    /// time-outs.
    pub events: u64,
    /// When the last flow was complete.
    pub end: Nanos,
}

impl Outcome {
    /// Flows of this pattern and class.
    pub fn completion(&self, pattern: Pattern, class: Class) -> Completion {
        self.completions[pattern as usize][class as usize]
    }

    /// All flows of this pattern.
    pub fn all(&self, pattern: Pattern) -> Completion {
        self.completions[pattern as usize].into_iter().fold(Completion::default(), Completion::and)
    }

    /// At hosts of this pattern.
    pub fn batches(&self, pattern: Pattern) -> Batches {
        self.batches[pattern as usize]
    }

    /// The marked part of delivered packets, in percent.
    pub fn marked_percent(&self) -> f64 {
        self.marked as f64 * 100.0 / self.books.delivered.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_in_the_classes_of_the_figure() {
        let classes = [1, 100_000, 100_001, 1_000_000, 1_000_001, 10_000_000, 10_000_001];
        let classes = classes.map(|bytes| Class::of(bytes) as usize);
        assert_eq!(classes, [0, 0, 1, 1, 2, 2, 3]);
    }
}
