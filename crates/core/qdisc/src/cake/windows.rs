//! Time in windows: a state in this window or in the previous one counts as present.
//!
//! A flow with a window of two or three packets has a backlog for a moment once per round trip. If
//! its host forgot it in between, the host's flows would together count for more than one host.
//!
//! Source: ours; Linux counts the flows that have a backlog right now.
//!
//! Cost: a comparison per batch.

use narrows_units::{Bytes, Nanos, Rate};

/// How long a window is: as long as a long round trip.
const LENGTH: Nanos = Nanos::from_millis(100);
/// At low rates it lasts for this many bytes: some turns of some flows.
const LEAST: Bytes = Bytes(64 * 1514);

/// The present window.
pub(super) struct Windows {
    /// Wrapping.
    number: u16,
    ends: Nanos,
}

impl Windows {
    pub(super) const fn new() -> Self {
        Self { number: 0, ends: Nanos::ZERO }
    }

    /// Whether the present one is over.
    #[inline(always)]
    pub(super) fn is_over(&self, now: Nanos) -> bool {
        now >= self.ends
    }

    /// Starts the window at `now`; the sum of rates is `rate`.
    pub(super) fn begin(&mut self, now: Nanos, rate: Option<Rate>) {
        let length = rate.map_or(LENGTH, |rate| LENGTH.max(rate.time_for(LEAST))).0;
        let number = now.0 / length;
        self.number = number as u16;
        self.ends = Nanos((number + 1).saturating_mul(length));
    }

    /// The number of the present window: that of the previous one plus 1.
    #[inline]
    pub(super) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the window at `ms`.
    fn number(ms: u64, mbit: u64) -> u16 {
        let mut windows = Windows::new();
        windows.begin(Nanos::from_millis(ms), Some(Rate::from_bits_per_sec(mbit * 1_000_000)));
        assert!(!windows.is_over(Nanos::from_millis(ms)));
        windows.number()
    }

    #[test]
    fn a_window_is_a_long_round_trip_or_some_turns() {
        assert_eq!([0, 99, 100, 1000].map(|ms| number(ms, 20)), [0, 0, 1, 10]);
        assert_eq!([0, 774, 776].map(|ms| number(ms, 1)), [0, 0, 1]);
    }

    #[test]
    fn a_window_ends_when_the_next_one_begins() {
        let mut windows = Windows::new();
        assert!(windows.is_over(Nanos::ZERO));
        windows.begin(Nanos::from_millis(130), None);
        assert!(!windows.is_over(Nanos::from_millis(199)));
        assert!(windows.is_over(Nanos::from_millis(200)));
    }
}
