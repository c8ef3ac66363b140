//! Delays, and their percentiles.
//!
//! Kept in a histogram of logarithmic bins with three decimal digits (HdrHistogram).

use hdrhistogram::Histogram;
use narrows_units::Nanos;

/// The longest delay that is distinguished from longer ones.
const LONGEST: Nanos = Nanos::from_secs(1000);

/// Delays so far.
pub(super) struct Delays {
    histogram: Histogram<u64>,
}

impl Delays {
    pub(super) fn new() -> Self {
        // Never fails with bounds and digits like these.
        let histogram = Histogram::new_with_bounds(1, LONGEST.0, 3);
        Self { histogram: histogram.expect("constant bounds are valid") }
    }

    #[inline]
    pub(super) fn record(&mut self, delay: Nanos) {
        self.histogram.saturating_record(delay.0.max(1));
    }

    /// The delay, in microseconds, that `percent` of the packets do not exceed; `None` without
    /// packets.
    pub(super) fn percentile_us(&self, percent: f64) -> Option<f64> {
        let known = !self.histogram.is_empty();
        known.then(|| self.histogram.value_at_percentile(percent) as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_thousandth() {
        let mut delays = Delays::new();
        assert_eq!(delays.percentile_us(50.0), None);
        (1..=1000).for_each(|micros| delays.record(Nanos::from_micros(micros)));
        for (percent, exact) in [(50.0, 500.0), (99.0, 990.0), (100.0, 1000.0)] {
            let found = delays.percentile_us(percent).unwrap_or_default();
            assert!((found - exact).abs() <= exact / 1000.0, "{percent} %: {found} us");
        }
        delays.record(Nanos::MAX);
        assert!(delays.percentile_us(100.0) >= Some(LONGEST.0 as f64 / 1e3));
    }
}
