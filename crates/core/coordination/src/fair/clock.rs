//! A common time for meters whose clocks differ.
//!
//! The clocks of a machine's cores agree within a microsecond, but nothing guarantees it. A core
//! whose clock is ahead would see credit before all others and take it every time. So a meter
//! tracks how far its clock is behind the time at which others bought, and adds that: every meter
//! follows the most advanced clock. Which clock that is does not matter; the common time only has
//! to run at the right speed. Since offsets only grow, no meter's time ever runs backwards.
//!
//! *Never ahead of the most advanced clock.* A worker reads its clock once per batch and may be
//! interrupted before it reads the others' time, so that time can be later than its own reading
//! although the clocks agree. Following it would make the common time run too fast, slightly more
//! with each interruption. So a meter compares the time that it has seen with the *next* reading of
//! its own clock, which was certainly taken after it: if that is earlier all the same, its clock is
//! behind.
//!
//! A meter whose clock is ahead of all others advances the time of all when it first buys, once:
//! then as much more than promised can leave, up to the ledger's depth. Starting at the others'
//! time instead would be worse if clocks do agree, as they nearly always do. The others may not
//! have bought for a while, so their time is old; as soon as one of them buys again, the common
//! time jumps, and the time in between has been sold twice.

use narrows_units::Nanos;

/// The common time of a clock that shows zero and has seen no other: 2.3 years. So earlier times
/// have a number, too, and a ledger is full from the start.
const EPOCH: i64 = 1 << 56;

/// How a meter's clock differs from the common time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// To be added to its own time, in nanoseconds.
    ahead: i64,
    /// When it was last read; zero before the first time.
    read: Nanos,
    /// The latest purchase of any meter by then, in common time.
    seen: Nanos,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { ahead: EPOCH, read: Nanos::ZERO, seen: Nanos::ZERO }
    }

    /// The common time at `now` of the meter's clock.
    #[inline]
    pub(super) fn common(&self, now: Nanos) -> Nanos {
        Nanos(now.0.saturating_add_signed(self.ahead))
    }

    /// The time of the meter's clock at `common`.
    #[inline]
    pub(super) fn own(&self, common: Nanos) -> Nanos {
        match common {
            Nanos::MAX => common,
            Nanos(common) => Nanos(common.saturating_add_signed(self.ahead.saturating_neg())),
        }
    }

    /// Records the latest time at which any meter bought, and returns the common time.
    #[inline]
    pub(super) fn follow(&mut self, latest: Nanos, now: Nanos) -> Nanos {
        let common = self.common(now);
        if now > self.read {
            if self.seen > common {
                self.ahead = self.seen.0.wrapping_sub(now.0) as i64;
            }
            self.read = now;
        }
        self.seen = self.seen.max(latest);
        self.common(now)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_millis(1);
    const COMMON: Nanos = Nanos(EPOCH as u64 + NOW.0);

    #[test]
    fn a_clock_that_is_behind_is_put_forward_once_and_for_all() {
        let mut clock = Clock::new();
        let latest = COMMON + Nanos(90_000);
        assert_eq!(clock.follow(latest, NOW), COMMON, "it may have been read long ago");
        assert_eq!(clock.follow(latest, NOW + Nanos(5)), latest);
        assert_eq!(clock.common(NOW + Nanos(10)), latest + Nanos(5));
        assert_eq!(clock.own(latest + Nanos(5)), NOW + Nanos(10));
        assert_eq!(clock.follow(latest, NOW + Nanos(12)), latest + Nanos(7));
    }

    #[test]
    fn a_meter_that_is_interrupted_does_not_run_ahead() {
        let mut clock = Clock::new();
        clock.follow(COMMON - Nanos(500_000), NOW);
        // Read at 10, interrupted; others bought at 90 meanwhile; read again at 100.
        let at = |nanos| (COMMON + Nanos(nanos), NOW + Nanos(nanos));
        assert_eq!(clock.follow(at(90).0, at(10).1), at(10).0);
        assert_eq!(clock.follow(at(90).0, at(10).1), at(10).0, "still the same batch");
        assert_eq!(clock.follow(at(95).0, at(100).1), at(100).0);
    }

    #[test]
    fn a_newcomer_does_not_take_the_time_of_the_last_purchase_for_the_present() {
        let mut clock = Clock::new();
        assert_eq!(clock.follow(COMMON - Nanos(90_000), NOW), COMMON);
        assert_eq!(clock.own(COMMON), NOW);
        assert_eq!(clock.own(Nanos::MAX), Nanos::MAX);
    }
}
