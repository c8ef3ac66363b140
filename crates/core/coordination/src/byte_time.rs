//! How long bytes take at a rate, exact over any number of them.

use narrows_units::{Bytes, Nanos, Rate};

/// Nanoseconds a byte have this many binary places.
const PLACES: u32 = 32;

/// The time that a byte takes. Rates below 2 bit/s count as that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ByteTime(u64);

impl ByteTime {
    pub(crate) fn of(rate: Rate) -> Self {
        let bits = u128::from(rate.bits_per_sec().max(1));
        Self(u64::try_from((8_000_000_000u128 << PLACES) / bits).unwrap_or(u64::MAX))
    }

    /// From one word of shared memory.
    #[inline]
    pub(crate) const fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// As one word of shared memory.
    #[inline]
    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    /// Whether a byte takes no longer than at `other`.
    #[inline]
    pub(crate) const fn is_no_slower(self, other: Self) -> bool {
        self.0 <= other.0
    }

    /// How many bytes take no longer than `span`, whatever others they follow.
    #[inline]
    pub(crate) fn bytes(self, span: Nanos) -> Bytes {
        // The time of any of them may be rounded up by a nanosecond.
        let span = span.0.saturating_sub(1).min(u64::from(u32::MAX));
        Bytes((span << PLACES) / self.0.max(1))
    }

    /// How long `bytes` take that follow `before` others. The sum over them is rounded once.
    #[inline]
    pub(crate) fn span(self, before: u64, bytes: Bytes) -> Nanos {
        let end = |bytes: u64| ((u128::from(bytes) * u128::from(self.0)) >> PLACES) as u64;
        Nanos(end(before.wrapping_add(bytes.0)).wrapping_sub(end(before)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_sum_of_packet_times_is_rounded_once() {
        for mbit in [1, 7, 100, 3_333, 100_000] {
            let pace = ByteTime::of(Rate::from_bits_per_sec(mbit * 1_000_000));
            let sum: u64 = (0..100_000u64).map(|packet| pace.span(packet * 64, Bytes(64)).0).sum();
            let exact = 100_000 * 64 * 8_000 / mbit;
            assert!(sum.abs_diff(exact) <= 1 + exact / 10_000_000, "{mbit}: {sum} and {exact}");
        }
    }
    proptest! {
        #[test]
        fn as_many_bytes_take_no_longer_than_the_span_and_hardly_more_would(
            kbit in 1u64..400_000_000,
            span in 0u64..4_000_000_000,
            before in 0u64..1 << 50,
        ) {
            let pace = ByteTime::of(Rate::from_bits_per_sec(kbit * 1_000));
            let bytes = pace.bytes(Nanos(span));
            prop_assert!(pace.span(before, bytes) <= Nanos(span));
            let two = pace.bytes(Nanos(2)).0;
            prop_assert!(pace.span(before, Bytes(bytes.0 + 2 + two)) >= Nanos(span));
        }
    }
}
