//! The clock of a core: right but for a constant.

use narrows_units::Nanos;

/// What a clock that is right shows at the start of a run. Nobody's clock ever shows less than
/// zero, as long as it is off by no more than this.
pub(super) const EPOCH: Nanos = Nanos::from_secs(1);

/// A clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// What it shows too much, in nanoseconds.
    offset: i64,
}

impl Clock {
    /// One that is `offset` nanoseconds fast, and at most [`EPOCH`] slow.
    pub(super) fn new(offset: i64) -> Self {
        Self { offset }
    }

    /// What it shows at `at`.
    #[inline]
    pub(super) fn read(&self, at: Nanos) -> Nanos {
        Nanos((at + EPOCH).0.saturating_add_signed(self.offset))
    }

    /// When it shows `reading`: [`Nanos::MAX`] for what never comes, the start of the run for
    /// what was before.
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
    fn what_a_clock_shows_is_when_it_shows_it() {
        for offset in [-1_000_000_000, -7, 0, 100_000] {
            let clock = Clock::new(offset);
            assert_eq!(clock.when(clock.read(Nanos(12_345))), Nanos(12_345));
            assert_eq!(clock.when(Nanos::MAX), Nanos::MAX);
        }
        assert_eq!(Clock::new(5).read(Nanos::ZERO), EPOCH + Nanos(5));
        assert_eq!(Clock::new(0).when(Nanos(1)), Nanos::ZERO);
    }
}
