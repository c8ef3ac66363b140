//! A fluid queue that drains at a rate, exact.
//!
//! The next hop is one, and so is the virtual queue that measures an overshoot. All in the unit in
//! which a rate and a clock multiply without rounding: one bit per second for one nanosecond, of
//! which a byte has 8 x 10^9.

use narrows_units::{Bytes, Nanos, Rate};

const UNITS_PER_BYTE: u64 = 8_000_000_000;

/// The backlog, and its drain rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    rate: Rate,
    standing: u128,
    at: Nanos,
}

impl Drain {
    /// Empty.
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, standing: 0, at: Nanos::ZERO }
    }

    /// Lets it drain until `at`.
    #[inline]
    pub(crate) fn until(&mut self, at: Nanos) {
        let drained = u128::from(self.rate.bits_per_sec()) * u128::from(at.since(self.at).0);
        self.standing = self.standing.saturating_sub(drained);
        self.at = self.at.max(at);
    }

    /// Adds `bytes`.
    #[inline]
    pub(crate) fn add(&mut self, bytes: Bytes) {
        self.standing += u128::from(bytes.0) * u128::from(UNITS_PER_BYTE);
    }

    /// The backlog, rounded up.
    #[inline]
    pub(crate) fn bytes(&self) -> Bytes {
        // 64 bits hold 2 GB, and divide much faster.
        Bytes(match u64::try_from(self.standing) {
            Ok(standing) => standing.div_ceil(UNITS_PER_BYTE),
            Err(_) => {
                let bytes = self.standing.div_ceil(u128::from(UNITS_PER_BYTE));
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        })
    }

    /// How long until nothing does, rounded up; [`Nanos::MAX`] at a rate of zero.
    #[inline]
    pub(crate) fn time(&self) -> Nanos {
        let rate = self.rate.bits_per_sec();
        if self.standing == 0 {
            return Nanos::ZERO;
        } else if rate == 0 {
            return Nanos::MAX;
        }
        Nanos(match u64::try_from(self.standing) {
            Ok(standing) => standing.div_ceil(rate),
            Err(_) => {
                let time = self.standing.div_ceil(u128::from(rate));
                u64::try_from(time).unwrap_or(u64::MAX)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_at_the_rate_never_queue() {
        // 7 bytes take 18 2/3 ns: three of them 56.
        let mut drain = Drain::new(Rate::from_bits_per_sec(3_000_000_000));
        for number in 0..3_000_u64 {
            drain.until(Nanos(number * 56 / 3 + 1));
            assert!(drain.bytes() <= Bytes(1), "{number}: {}", drain.bytes());
            drain.add(Bytes(7));
        }
        assert!(drain.time() <= Nanos(20));
    }

    #[test]
    fn nothing_drains_at_no_rate_and_nothing_overflows() {
        let mut drain = Drain::new(Rate::default());
        assert_eq!(drain.time(), Nanos::ZERO);
        drain.add(Bytes(u64::MAX));
        drain.until(Nanos::MAX);
        assert_eq!((drain.bytes(), drain.time()), (Bytes(u64::MAX), Nanos::MAX));
    }
}
