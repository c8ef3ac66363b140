//! How long packets are queued, on average: as `tc -s` shows it.
//!
//! Three moving averages follow every packet that leaves, each at its own pace. No decision depends
//! on them, so they must cost little.
//!
//! Source: `tc-cake(8)` (`pk_delay`, `av_delay`, `sp_delay`).
//!
//! Cost: some twenty instructions per packet, no unpredictable branch.

use super::ewma::average;
use narrows_units::Nanos;

/// Averages follow a value beyond their purpose by 1/4, others by 1/256.
const FAST: u32 = 2;
const SLOW: u32 = 8;

/// Moving averages of sojourn times, in nanoseconds: the plain one, the one that follows peaks, the
/// one that follows minima, and an unused one, so that a processor can work on two at a time.
#[derive(Clone, Copy, Default)]
pub(super) struct Delays([u64; 4]);

impl Delays {
    const AVERAGE: usize = 0;
    const PEAK: usize = 1;
    const BASE: usize = 2;

    #[inline(always)]
    pub(super) fn follow(&mut self, Nanos(sojourn): Nanos) {
        let Self(delays) = self;
        let [peak, base] = [delays[Self::PEAK], delays[Self::BASE]];
        for delay in &mut *delays {
            *delay = average(*delay, sojourn, SLOW);
        }
        // Rare: a fast average soon catches up.
        if sojourn > peak {
            delays[Self::PEAK] = average(peak, sojourn, FAST);
        }
        if sojourn < base {
            delays[Self::BASE] = average(base, sojourn, FAST);
        }
    }

    /// The average, the peak and the least.
    pub(super) fn get(self) -> [Nanos; 3] {
        [Self::AVERAGE, Self::PEAK, Self::BASE].map(|at| Nanos(self.0[at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The oracle computes each average separately.
        #[test]
        fn each_average_follows_at_its_own_pace(
            sojourns in prop::collection::vec(0_u64..10_000_000, 1..500),
        ) {
            let mut delays = Delays::default();
            let [mut middle, mut peak, mut base] = [0; 3];
            for sojourn in sojourns {
                delays.follow(Nanos(sojourn));
                middle = average(middle, sojourn, 8);
                peak = average(peak, sojourn, if sojourn > peak { 2 } else { 8 });
                base = average(base, sojourn, if sojourn < base { 2 } else { 8 });
                prop_assert_eq!(delays.get(), [middle, peak, base].map(Nanos));
            }
        }
    }
}
