//! How long to wait for an acknowledgement (RFC 6298).
//!
//! Every transmission has a number of its own, so a sample is never ambiguous (Karn's rule,
//! section 3, has nothing to forbid).

use narrows_units::Nanos;

/// Before anything has been measured (section 2.1).
const INITIAL: Nanos = Nanos::from_secs(1);
/// Shorter than the second of section 2.4, as in Linux.
const LEAST: Nanos = Nanos::from_millis(200);
/// Section 2.5 allows it.
const MOST: Nanos = Nanos::from_secs(60);

/// Estimates of the round trip.
pub(crate) struct RoundTrip {
    /// Smoothed.
    mean: Nanos,
    variation: Nanos,
    measured: bool,
    time_out: Nanos,
    least: Nanos,
}

impl RoundTrip {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        let (mean, variation) = (Nanos::ZERO, Nanos::ZERO);
        Self { mean, variation, measured: false, time_out: INITIAL, least: LEAST }
    }

    /// Nothing yet, for a stack whose time-out is only `least` if round trips are short.
    pub(crate) fn with_least(least: Nanos) -> Self {
        Self { least, ..Self::new() }
    }

    /// It took `sample` (sections 2.2 and 2.3).
    pub(crate) fn measure(&mut self, sample: Nanos) {
        if self.measured {
            let off = self.mean.0.abs_diff(sample.0);
            self.variation = Nanos((self.variation.0 * 3 + off) / 4);
            self.mean = Nanos((self.mean.0 * 7 + sample.0) / 8);
        } else {
            (self.mean, self.variation, self.measured) = (sample, Nanos(sample.0 / 2), true);
        }
        self.time_out = (self.mean + Nanos(self.variation.0 * 4)).clamp(self.least, MOST);
    }

    /// Smoothed.
    pub(crate) fn mean(&self) -> Nanos {
        self.mean
    }

    /// How long to wait.
    pub(crate) fn time_out(&self) -> Nanos {
        self.time_out
    }

    /// It was not enough: twice as long (section 5.5), until something is measured.
    pub(crate) fn back_off(&mut self) {
        self.time_out = (self.time_out + self.time_out).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_counts_in_full_and_the_others_by_an_eighth() {
        let mut round_trip = RoundTrip::new();
        assert_eq!(round_trip.time_out(), Nanos::from_secs(1));
        round_trip.measure(Nanos::from_millis(800));
        assert_eq!(round_trip.time_out(), Nanos::from_millis(800 + 4 * 400));
        round_trip.measure(Nanos::from_millis(1600));
        assert_eq!(round_trip.mean(), Nanos::from_millis(900));
        assert_eq!(round_trip.time_out(), Nanos::from_millis(900 + 4 * 500));
    }

    #[test]
    fn waits_are_never_below_200_ms_and_double_until_something_is_heard() {
        let mut round_trip = RoundTrip::new();
        round_trip.measure(Nanos::from_millis(10));
        assert_eq!(round_trip.time_out(), Nanos::from_millis(200));
        round_trip.back_off();
        round_trip.back_off();
        assert_eq!(round_trip.time_out(), Nanos::from_millis(800));
        round_trip.measure(Nanos::from_millis(10));
        assert_eq!(round_trip.time_out(), Nanos::from_millis(200));
    }
}
