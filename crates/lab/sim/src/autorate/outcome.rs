//! What a run shows.

use hdrhistogram::Histogram;
use narrows_units::Nanos;

/// The longest delay that is told from longer ones.
const LONGEST: Nanos = Nanos::from_secs(60);

/// Delays so far, to three digits.
pub(super) struct Delays(Histogram<u64>);

impl Delays {
    pub(super) fn new() -> Self {
        // Never fails with bounds and digits like these.
        Self(Histogram::new_with_bounds(1, LONGEST.0, 3).expect("constant bounds are valid"))
    }

    pub(super) fn record(&mut self, delay: Nanos) {
        self.0.saturating_record(delay.0.max(1));
    }

    /// In milliseconds; nothing without delays.
    pub(super) fn percentile_ms(&self, percent: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_percentile(percent) as f64 / 1e6)
    }
}

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Row {
    /// The part of what the line could carry that it did carry.
    pub used: f64,
    /// Added delay in milliseconds: the median.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// In the second after a fall to less than two thirds: the median. None without falls.
    pub fall_p50_ms: Option<f64>,
    /// The 99th percentile in that second.
    pub fall_p99_ms: Option<f64>,
    /// How often the rate in force changed, a second.
    pub changes_s: f64,
}
