//! The time that a byte takes at a rate: what makes a rate a multiplication per packet.

use crate::{Nanos, Rate};

/// 8 bits a byte, 10^9 ns a second.
const BIT_NANOS: u128 = 8_000_000_000;

/// The time that a byte takes, exact to 2^-64 ns. The greater of two is that of the lower rate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ByteTime {
    /// Whole nanoseconds,
    whole: u64,
    /// and 2^-64 of them.
    part: u64,
}

impl ByteTime {
    /// No time: there is no rate.
    pub const ZERO: Self = Self { whole: 0, part: 0 };

    /// The time of a byte at `rate`, rounded down; [`ByteTime::ZERO`] at a rate of zero, which
    /// stands for none.
    pub const fn of(rate: Rate) -> Self {
        if rate.is_zero() {
            return Self::ZERO;
        }
        let byte = (BIT_NANOS << 64) / rate.bits_per_sec() as u128;
        Self { whole: (byte >> 64) as u64, part: byte as u64 }
    }

    /// The time of `len` bytes: whole nanoseconds, and 2^-32 of them. Saturates.
    #[inline]
    pub fn of_bytes(self, len: u32) -> (u64, u32) {
        let part = u128::from(len) * u128::from(self.part);
        let nanos = u64::from(len).saturating_mul(self.whole).saturating_add((part >> 64) as u64);
        (nanos, (part >> 32) as u32)
    }

    /// The time of `len` bytes, rounded up to whole nanoseconds. [`Nanos::MAX`] where it is longer.
    #[inline]
    pub fn rounded_up(self, len: u32) -> Nanos {
        let (nanos, fraction) = self.of_bytes(len);
        Nanos(nanos.saturating_add(u64::from(fraction != 0)))
    }

    /// The time of a byte in 2^-32 ns, rounded up. Saturates.
    #[inline]
    pub const fn in_fractions(self) -> u64 {
        if self.whole >> 32 != 0 {
            return u64::MAX;
        }
        let fractions = self.whole << 32 | self.part >> 32;
        fractions.saturating_add((self.part as u32 != 0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;
    use proptest::prelude::*;

    proptest! {
        /// The oracle divides, in 128 bits.
        #[test]
        fn a_multiplication_is_the_division_that_it_replaces(
            bps in 8u64..2_000_000_000_000, len in 0u32..100_000,
        ) {
            let rate = Rate::from_bits_per_sec(bps);
            let (nanos, fraction) = ByteTime::of(rate).of_bytes(len);
            let got = u128::from(nanos) << 32 | u128::from(fraction);
            let exact = ((u128::from(len) * BIT_NANOS) << 32) / u128::from(bps);
            prop_assert!(got <= exact && exact - got <= 1, "{got} is not {exact}");
            let up = ByteTime::of(rate).rounded_up(len);
            prop_assert!(up <= rate.time_for(Bytes(len.into())));
            prop_assert!(up.0 + 1 >= rate.time_for(Bytes(len.into())).0);
        }

        #[test]
        fn a_lower_rate_takes_more_time(one in 1u64..1 << 40, other in 1u64..1 << 40) {
            let [one_time, other_time] =
                [one, other].map(|bps| ByteTime::of(Rate::from_bits_per_sec(bps)));
            prop_assert_eq!(one.cmp(&other), other_time.cmp(&one_time));
        }

        #[test]
        fn fractions_are_rounded_up(bps in 2u64..u64::MAX) {
            let exact = (BIT_NANOS << 32).div_ceil(u128::from(bps));
            let got = u128::from(ByteTime::of(Rate::from_bits_per_sec(bps)).in_fractions());
            prop_assert!(got == exact || got == exact + 1, "{got} is not {exact}");
        }
    }

    #[test]
    fn no_rate_takes_no_time_and_the_lowest_saturates() {
        assert_eq!(ByteTime::of(Rate::default()), ByteTime::ZERO);
        assert_eq!(ByteTime::ZERO.rounded_up(u32::MAX), Nanos::ZERO);
        let lowest = ByteTime::of(Rate::from_bits_per_sec(1));
        assert_eq!(lowest.of_bytes(2), (16_000_000_000, 0));
        assert_eq!(lowest.in_fractions(), u64::MAX);
    }
}
