//! Checks that a limit was kept, in every window.
//!
//! In a window, a limit passes its rate times the window, and its burst. A frame counts when the
//! receiver's kernel gets it, which is within the system call with which Narrows sends it. A worker
//! may lose its core between deciding and sending. It then sends one batch late, and a window may
//! contain that batch in addition to its own. That is the only tolerance.

use super::span::Span;
use super::traffic::Received;
use crate::measure::fullest::most_within;
use narrows_units::{Bytes, Nanos, Rate};
use serde::Serialize;

/// The windows in which a limit is checked.
pub(super) const WINDOWS: [Nanos; 3] =
    [Nanos::from_millis(10), Nanos::from_millis(100), Nanos::from_millis(1000)];
/// Frames that a worker sends at once, at most.
const BATCH: u64 = 64;

/// A rate and what may leave at once above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) rate: Rate,
    pub(super) burst: Bytes,
}

impl Limit {
    /// The most that may pass in `window`.
    fn passes(&self, window: Nanos) -> u64 {
        self.rate.bytes_in(window).0 + self.burst.0
    }

    /// The looser of two limits, in each respect.
    pub(super) fn or(self, other: Self) -> Self {
        Self { rate: self.rate.max(other.rate), burst: self.burst.max(other.burst) }
    }
}

/// A time in which a limit held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shaped {
    pub(super) span: Span,
    pub(super) limit: Limit,
}

/// The fullest window of one length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Fullest {
    /// Its length.
    pub(super) window_ms: u64,
    /// The passed bytes, in percent of those that rate and burst allow.
    pub(super) percent: f64,
    /// Whether more passed than rate, burst and one late batch.
    pub(super) exceeded: bool,
}

/// The fullest window of each length in `shaped`, of frames in the order of their arrival.
pub(super) fn fullest(received: &[Received], shaped: &[Shaped]) -> [Fullest; 3] {
    WINDOWS.map(|window| {
        let mut fullest = Fullest { window_ms: window.0 / 1_000_000, ..Fullest::default() };
        for Shaped { span, limit } in shaped.iter().filter(|shaped| shaped.span.length() >= window)
        {
            let frames = received.iter().filter(|frame| span.holds(frame.at));
            let frames: Vec<(Nanos, u64)> =
                frames.map(|frame| (frame.at, u64::from(frame.sent.bytes))).collect();
            let passed = most_within(&frames, window);
            let longest = frames.iter().map(|(_, bytes)| *bytes).max();
            let late = BATCH * longest.unwrap_or_default();
            let allowed = limit.passes(window);
            fullest.percent = fullest.percent.max(passed as f64 / allowed as f64 * 100.0);
            fullest.exceeded |= passed > allowed + late;
        }
        fullest
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::sender::Sent;

    const LIMIT: Limit = Limit { rate: Rate::from_bits_per_sec(8_000_000), burst: Bytes(5_000) };

    /// Frames of 1000 bytes at these microseconds.
    fn at(micros: impl IntoIterator<Item = u64>) -> Vec<Received> {
        let frame = |micros| {
            let at = Nanos::from_micros(micros);
            Received { at, stream: 0, sent: Sent { at, flow: 0, bytes: 1000 }, hop: 3 }
        };
        micros.into_iter().map(frame).collect()
    }

    fn whole(limit: Limit) -> [Shaped; 1] {
        [Shaped { span: Span::new(Nanos::ZERO, Nanos::from_secs(3)), limit }]
    }

    #[test]
    fn traffic_at_the_rate_is_within_its_limit() {
        let found = fullest(&at((0..2000).map(|i| i * 1000)), &whole(LIMIT));
        assert!(found.iter().all(|window| !window.exceeded), "{found:?}");
        // 10 ms pass 10 frames, and 5 more are the burst's.
        assert!((found[0].percent - 10.0 / 15.0 * 100.0).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn a_rate_above_the_limit_shows_in_the_long_window_first() {
        // 20 % too fast: within the burst and a batch over 100 ms, far above them over a second.
        let found = fullest(&at((0..2000).map(|i| i * 833)), &whole(LIMIT));
        assert_eq!(found.map(|window| window.exceeded), [false, false, true]);
    }

    #[test]
    fn a_burst_above_the_limit_shows_in_the_short_window() {
        let burst = (0..90).map(|i| 500_000 + i).chain((0..10).map(|i| 600_000 + i * 1000));
        let found = fullest(&at(burst), &whole(LIMIT));
        assert_eq!(found.map(|window| window.exceeded), [true, false, false]);
    }

    #[test]
    fn at_most_one_batch_may_be_late() {
        let burst = |frames: u64| at((0..frames).map(|i| 500_000 + i));
        // 15 frames are allowed in 10 ms, and 64 that are late.
        assert!(!fullest(&burst(79), &whole(LIMIT))[0].exceeded);
        assert!(fullest(&burst(80), &whole(LIMIT))[0].exceeded);
    }

    #[test]
    fn traffic_without_a_shaper_is_not_judged() {
        let early =
            [Shaped { span: Span::new(Nanos::ZERO, Nanos::from_millis(400)), limit: LIMIT }];
        let burst = at((0..300).map(|i| 500_000 + i));
        assert!(!fullest(&burst, &early)[0].exceeded);
        assert!(fullest(&burst, &whole(LIMIT))[0].exceeded);
    }
}
