//! The clock of a core: right but for a constant.

use narrows_units::Nanos;

/// The time that a correct clock shows at the start of a run. A clock that is off by no more than
/// this never shows less than zero.
pub(super) const EPOCH: Nanos = Nanos::from_secs(1);

/// A clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Its offset, in nanoseconds.
    offset: i64,
}

impl Clock {
    /// A clock that is `offset` nanoseconds fast (if negative, slow: at most by [`EPOCH`]).
    pub(super) fn new(offset: i64) -> Self {
        Self { offset }
    }

    /// The time that it shows at `at`.
    #[inline]
    pub(super) fn read(&self, at: Nanos) -> Nanos {
        Nanos((at + EPOCH).0.saturating_add_signed(self.offset))
    }

    /// When it shows `reading`: [`Nanos::MAX`] for never, the start of the run for earlier times.
    #[inline]
    pub(super) fn when(&self, reading: Nanos) -> Nanos {
        if reading == Nanos::MAX {
            return reading;
        }
        Nanos(reading.0.saturating_add_signed(-self.offset)) - EPOCH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_and_its_inverse_agree() {
        for offset in [-1_000_000_000, -7, 0, 100_000] {
            let clock = Clock::new(offset);
            assert_eq!(clock.when(clock.read(Nanos(12_345))), Nanos(12_345));
            assert_eq!(clock.when(Nanos::MAX), Nanos::MAX);
        }
        assert_eq!(Clock::new(5).read(Nanos::ZERO), EPOCH + Nanos(5));
        assert_eq!(Clock::new(0).when(Nanos(1)), Nanos::ZERO);
    }
}
