//! `autorate-ingress`: how fast packets come in, and so how fast they may leave.
//!
//! On the receiving side of a slow link packets come in at the link's rate while it is busy. The
//! peaks of that, over windows between pauses, are averaged; 15/16 of the average is kept as the
//! limit, so that the queue forms here and not before the link.
//!
//! Source: `tc-cake(8)`, which advises against it but for links whose rate nobody knows.

use super::average;
use narrows_units::{Bytes, Nanos, Rate};

/// The longest pause that says anything.
const PAUSE_MAX: Nanos = Nanos::from_secs(1);
/// How often the rate may change.
const PERIOD: Nanos = Nanos::from_millis(250);
/// Averages follow what speaks for a slower link, or a faster one, by 1/4 and the rest by 1/256.
const FAST: u32 = 2;
const SLOW: u32 = 8;

/// What has been seen.
pub(super) struct Estimator {
    last_arrival: Nanos,
    interval: u64,
    window_began: Nanos,
    window: Bytes,
    peak: u64,
    changed: Nanos,
}

impl Estimator {
    /// One that believes in `rate` for now.
    pub(super) fn new(rate: Rate) -> Self {
        Self {
            last_arrival: Nanos::ZERO,
            interval: 0,
            window_began: Nanos::ZERO,
            window: Bytes::ZERO,
            peak: rate.bytes_per_sec(),
            changed: Nanos::ZERO,
        }
    }

    /// The capacity that it has seen.
    pub(super) fn capacity(&self) -> Rate {
        Rate::from_bytes_per_sec(self.peak)
    }

    /// A packet of `len` came in at `now`: the rate to keep from now on, if it is to change.
    pub(super) fn arrived(&mut self, len: Bytes, now: Nanos) -> Option<Rate> {
        let pause = now.since(self.last_arrival).min(PAUSE_MAX).0;
        self.last_arrival = now;
        let shift = if pause > self.interval { FAST } else { SLOW };
        self.interval = average(self.interval, pause, shift);
        self.window += len;
        // The window ends where packets come less densely than on average: a burst of them says
        // nothing of the link.
        if pause <= self.interval {
            return None;
        }
        let rate = Rate::of(self.window, now.since(self.window_began)).bytes_per_sec();
        self.peak = average(self.peak, rate, if rate > self.peak { FAST } else { SLOW });
        self.window = Bytes::ZERO;
        self.window_began = now;
        if now.since(self.changed) <= PERIOD {
            return None;
        }
        self.changed = now;
        Some(Rate::from_bytes_per_sec(self.peak / 16 * 15))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_what_comes_in() {
        let mut estimator = Estimator::new(Rate::from_bits_per_sec(1_000_000_000));
        let mut set = Rate::default();
        let mut now = Nanos::from_secs(1);
        // 12 Mbit/s, a little unevenly.
        for packet in 0..20_000u64 {
            now += Nanos(1_000_000 + (packet * 7_919 % 200) * 1000 - 100_000);
            set = estimator.arrived(Bytes(1500), now).unwrap_or(set);
        }
        let mbit = set.bits_per_sec() as f64 / 1e6;
        assert!((10.5..12.5).contains(&mbit), "{mbit} Mbit/s");
        assert!(estimator.capacity() > set);
    }

    #[test]
    fn the_rate_changes_at_most_four_times_a_second() {
        let mut estimator = Estimator::new(Rate::default());
        let mut changes = 0;
        for packet in 1..=10_000u64 {
            let now = Nanos(packet * 1_000_000 + packet % 3 * 300_000);
            changes += u32::from(estimator.arrived(Bytes(1500), now).is_some());
        }
        assert!((20..=40).contains(&changes), "{changes} in ten seconds");
    }
}
