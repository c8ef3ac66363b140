//! What came of a run.

use super::setup::Setup;
use narrows_units::{Bytes, Rate};

/// The outcome of a run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    /// The departures in the measured time, by phase and application.
    pub bytes: Vec<Vec<Bytes>>,
    /// By window of the whole run, what the scheduler let pass.
    pub windows: Vec<Bytes>,
    /// All packets, of the whole run.
    pub books: Books,
}

/// The fate of packets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Books {
    /// Given to the scheduler.
    pub sent: u64,
    /// Packets that left.
    pub delivered: u64,
    /// Dropped by the scheduler.
    pub dropped: u64,
    /// Dropped in front of the line.
    pub overflowed: u64,
    /// Packets that wait.
    pub under_way: u64,
}

impl Books {
    /// Whether nothing is missing.
    pub fn add_up(&self) -> bool {
        self.sent == self.delivered + self.dropped + self.overflowed + self.under_way
    }

    /// Which part was dropped, in percent.
    pub fn lost_percent(&self) -> f64 {
        (self.dropped + self.overflowed) as f64 * 100.0 / self.sent.max(1) as f64
    }
}

fn gbit(bytes: Bytes, span: narrows_units::Nanos) -> f64 {
    Rate::of(bytes, span).bits_per_sec() as f64 / 1e9
}

impl Outcome {
    /// The rate of the application `app` in `phase`, in Gbit/s.
    pub fn rate(&self, setup: &Setup, phase: usize, app: usize) -> f64 {
        gbit(self.bytes[phase][app], setup.phases[phase].length - setup.settle)
    }

    /// The sum of all rates.
    pub fn sum(&self, setup: &Setup, phase: usize) -> f64 {
        (0..setup.apps.len()).map(|app| self.rate(setup, phase, app)).sum()
    }

    /// The most that was let pass in any window, in Gbit/s.
    pub fn most(&self, setup: &Setup) -> f64 {
        gbit(self.windows.iter().copied().max().unwrap_or_default(), setup.window)
    }
}
