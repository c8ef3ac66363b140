//! The rates that `narrows show` states: what passed in the last second.

use narrows_shaper::Side;
use narrows_units::{Bytes, Nanos, Rate};

/// The byte counts of both ports at one moment.
#[derive(Clone, Copy, Default)]
struct Sample {
    at: Nanos,
    rx_bytes: [u64; 2],
    tx_bytes: [u64; 2],
}

/// Two samples of the byte counters, a second or so apart.
#[derive(Default)]
pub(crate) struct RateMeter {
    before: Sample,
    last: Sample,
}

impl RateMeter {
    /// Takes the counters, by port, at `at`.
    pub(crate) fn sample(&mut self, at: Nanos, rx_bytes: [u64; 2], tx_bytes: [u64; 2]) {
        self.before = self.last;
        self.last = Sample { at, rx_bytes, tx_bytes };
    }

    /// The rate of arrivals at `side`.
    pub(crate) fn rx(&self, side: Side) -> Rate {
        self.rate(|sample| sample.rx_bytes[side.index()])
    }

    /// The rate of departures at `side`.
    pub(crate) fn tx(&self, side: Side) -> Rate {
        self.rate(|sample| sample.tx_bytes[side.index()])
    }

    fn rate(&self, bytes: impl Fn(&Sample) -> u64) -> Rate {
        let passed = bytes(&self.last).saturating_sub(bytes(&self.before));
        Rate::of(Bytes(passed), self.last.at - self.before.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_difference_of_the_last_two_samples() {
        let mut meter = RateMeter::default();
        meter.sample(Nanos::from_secs(1), [0, 100], [0, 0]);
        meter.sample(Nanos::from_secs(2), [0, 350], [1000, 0]);
        assert_eq!(meter.rx(Side::B), Rate::from_bytes_per_sec(250));
        assert_eq!(meter.tx(Side::A), Rate::from_bytes_per_sec(1000));
        assert_eq!(meter.rx(Side::A), Rate::default());
    }
}
