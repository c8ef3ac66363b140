//! The kernel's rounding of a burst.
//!
//! The kernel does not store a bucket's size but the time in which it fills, computed with a
//! multiplier and a shift (`psched_ratecfg_precompute()`) and reported in ticks of 64 ns. `tc`
//! converts these to whole microseconds and back to a size. So `burst 32k` at 1 Gbit/s is shown as
//! 32750 bytes, and an overhead is added to it. The same computation is done here, so that the same
//! command shows the same value. Only values that overflow the kernel's 32 bits are shown as they
//! are, without wrapping.

use narrows_units::{Bytes, Rate, wire::Overhead};

/// Nanoseconds per tick.
const TICK: u64 = 64;
/// Ticks per microsecond, as `tc` reads it from `/proc/net/psched`.
const TICKS_PER_MICRO: f64 = 1000.0 / TICK as f64;

/// The size of a bucket, as the kernel's clock measures it.
#[derive(Clone, Copy)]
pub(crate) struct Bucket {
    ticks: u64,
}

impl Bucket {
    /// A bucket of `size` that fills at `rate`; frames have this `overhead`.
    pub(crate) fn new(size: Bytes, rate: Rate, overhead: &Overhead) -> Self {
        let (multiplier, shift) = precompute(rate.bytes_per_sec());
        let cost = u128::from(overhead.cost(size).0);
        let nanos = (cost * u128::from(multiplier)) >> shift;
        Self { ticks: u64::try_from(nanos).unwrap_or(u64::MAX) / TICK }
    }

    /// Whether it fills within a tick.
    pub(crate) fn is_nothing(self) -> bool {
        self.ticks == 0
    }

    /// The time in which it fills, in whole microseconds.
    pub(crate) fn micros(self) -> u64 {
        (self.ticks as f64 / TICKS_PER_MICRO) as u64
    }

    /// The size, computed back from the time.
    pub(crate) fn size(self, rate: Rate) -> u64 {
        (rate.bytes_per_sec() as f64 * self.micros() as f64 / 1e6) as u64
    }
}

/// Nanoseconds per byte as a 32-bit multiplier and a shift, as precise as they can be.
fn precompute(bytes_per_sec: u64) -> (u32, u32) {
    let mut factor: u64 = 1_000_000_000;
    let mut shift = 0;
    loop {
        // The kernel keeps only the lower half. Rates below 1 byte/s, which would lose more, do not
        // exist.
        let multiplier = (factor / bytes_per_sec.max(1)) as u32;
        if multiplier >> 31 == 1 || factor >> 63 == 1 {
            return (multiplier, shift);
        }
        factor <<= 1;
        shift += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(size: u64, bits: u64) -> u64 {
        let rate = Rate::from_bits_per_sec(bits);
        Bucket::new(Bytes(size), rate, &Overhead::NONE).size(rate)
    }

    #[test]
    fn sizes_come_back_as_whole_microseconds() {
        assert_eq!(shown(32_768, 1_000_000), 32_768);
        assert_eq!(shown(32_768, 1_000_000_000), 32_750);
        assert_eq!(shown(1_540, 100_000_000), 1_537);
        assert_eq!(shown(1_048_576, 40_000_000_000), 1_045_000);
        assert_eq!(shown(100, 10_000_000_000), 0);
    }
}
