//! Time in slots of equal length.
//!
//! Cost: two multiplications and a comparison where a division would stand, which takes several
//! times as long; so the granularity may be anything and not only a power of two.

use narrows_units::Nanos;

/// Counts time in units of a granularity, from zero on.
pub(super) struct Ticks {
    granularity: u64,
    /// 2^64 divided by the granularity, at most one too small.
    reciprocal: u64,
}

impl Ticks {
    /// Ticks of `granularity`, at least one nanosecond.
    pub(super) fn of(granularity: Nanos) -> Self {
        let granularity = granularity.0.max(1);
        Self { granularity, reciprocal: u64::MAX / granularity }
    }

    /// The last tick at `time` or before it.
    #[inline]
    pub(super) fn last(&self, time: Nanos) -> u64 {
        // The quotient, or one less: the reciprocal is too small by less than one, and so the
        // product by less than 2^64.
        let quotient = ((u128::from(time.0) * u128::from(self.reciprocal)) >> 64) as u64;
        quotient + u64::from(time.0 - quotient * self.granularity >= self.granularity)
    }

    /// The first tick at `time` or after it.
    #[inline]
    pub(super) fn first(&self, time: Nanos) -> u64 {
        let last = self.last(time);
        last + u64::from(last * self.granularity < time.0)
    }

    /// The time of `tick`; [`Nanos::MAX`] if it is out of range.
    #[inline]
    pub(super) fn time(&self, tick: u64) -> Nanos {
        Nanos(tick.saturating_mul(self.granularity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_size() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0_u32..64).prop_map(|(value, shift)| value >> shift)
    }

    fn assert_is_division(granularity: u64, time: u64) {
        let ticks = Ticks::of(Nanos(granularity));
        assert_eq!(ticks.last(Nanos(time)), time / granularity, "{time} / {granularity}");
        assert_eq!(ticks.first(Nanos(time)), time.div_ceil(granularity), "{time} / {granularity}");
    }

    #[test]
    fn the_ends_of_the_range_are_divided_well() {
        let ends = [1, 2, 3, 100, 1 << 32, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX];
        for granularity in ends {
            assert_is_division(granularity, 0);
            for time in ends {
                assert_is_division(granularity, time);
            }
        }
    }

    #[test]
    fn a_tick_takes_some_time_at_least() {
        assert_eq!(Ticks::of(Nanos::ZERO).last(Nanos(7)), 7);
    }

    #[test]
    fn a_time_too_far_away_is_never() {
        let ticks = Ticks::of(Nanos(100));
        assert_eq!(ticks.time(ticks.first(Nanos::MAX)), Nanos::MAX);
    }

    proptest! {
        #[test]
        fn a_multiplication_divides(granularity in any_size(), time in any_size()) {
            assert_is_division(granularity.max(1), time);
        }

        #[test]
        fn whole_ticks_are_divided_well(granularity in 1_u64..1 << 32, tick in 1_u64..1 << 31) {
            for time in [tick * granularity - 1, tick * granularity, tick * granularity + 1] {
                assert_is_division(granularity, time);
            }
        }
    }
}
