//! The rate of what passes no meter, and uses up the limit all the same: so much less is divided.
//!
//! Without it the shares would add up to more than the meters can have, and luck would decide.
//!
//! Memory ordering: relaxed. It is an estimate; of two meters that look at once, one is late.

use crate::line::Line;
use crate::sync::{AtomicU64, Ordering};
use narrows_units::{Bytes, Nanos, Rate};

/// The least time over which it is measured: workers learn of it a batch at a time.
const SAMPLE: Nanos = Nanos::from_millis(10);
/// What was measured before this is forgotten.
const OLD: Nanos = Nanos::from_millis(100);

#[derive(Default)]
struct Words {
    /// Bytes, in total, and as of the last sample.
    total: AtomicU64,
    sampled: AtomicU64,
    /// When that was, by the common time, and the rate since then, in bits per second.
    at: AtomicU64,
    rate: AtomicU64,
}

/// How many bytes per second pass no meter.
pub(super) struct Beside(Line<Words>);

impl Beside {
    pub(super) fn new() -> Self {
        Self(Line(Words::default()))
    }

    /// So many bytes more have left.
    pub(super) fn add(&self, bytes: Bytes) {
        self.0.total.fetch_add(bytes.0, Ordering::Relaxed);
    }

    /// The rate at `now`.
    pub(super) fn rate(&self, now: Nanos) -> Rate {
        let Words { total, sampled, at, rate } = &*self.0;
        let before = Rate::from_bits_per_sec(rate.load(Ordering::Relaxed));
        let (total, since) = (total.load(Ordering::Relaxed), Nanos(at.load(Ordering::Relaxed)));
        let passed = now.since(since);
        if total == 0 || passed < SAMPLE {
            return before;
        }
        let new = Bytes(total.wrapping_sub(sampled.swap(total, Ordering::Relaxed)));
        at.store(now.0, Ordering::Relaxed);
        let measured = Rate::of(new, passed).bits_per_sec();
        let mean = if passed > OLD { measured } else { before.bits_per_sec().midpoint(measured) };
        rate.store(mean, Ordering::Relaxed);
        Rate::from_bits_per_sec(mean)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_found_and_forgotten() {
        let beside = Beside::new();
        assert_eq!(beside.rate(Nanos::from_secs(1)), Rate::default());
        let mut now = Nanos::from_secs(1);
        for _ in 0..200 {
            now += Nanos::from_millis(1);
            beside.add(Bytes(1_000));
            beside.rate(now);
        }
        let rate = beside.rate(now).bits_per_sec();
        assert!(rate.abs_diff(8_000_000) < 400_000, "{rate}");
        assert_eq!(beside.rate(now + Nanos::from_secs(1)).bits_per_sec() / 100_000, 0);
    }
}
