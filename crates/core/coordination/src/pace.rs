//! How long packets take at a rate.

use narrows_units::{Bytes, Nanos, Rate};

/// How long packets take at a rate, exact over any number of them: the fraction of a nanosecond is
/// carried to the next.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    rate: Rate,
    /// Bits per second times nanoseconds that the packets so far have been charged short of
    /// one nanosecond more; starts so that the sum is rounded up.
    carry: u64,
}

impl Pace {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, carry: rate.bits_per_sec().saturating_sub(1) }
    }

    /// The time for `cost`, and how to go on once it has been charged; `None` at a rate of zero.
    pub(crate) fn delay(&self, cost: Bytes) -> Option<(Nanos, Self)> {
        let rate = self.rate.bits_per_sec();
        if rate == 0 {
            return None;
        }
        let owed = u128::from(cost.0) * 8_000_000_000 + u128::from(self.carry);
        // 64-bit division is several times faster, and enough for packets below 2 GB.
        let (delay, carry) = match u64::try_from(owed) {
            Ok(owed) => (owed / rate, owed % rate),
            Err(_) => {
                let rate = u128::from(rate);
                (u64::try_from(owed / rate).unwrap_or(u64::MAX), (owed % rate) as u64)
            }
        };
        Some((Nanos(delay), Self { carry, ..*self }))
    }

    /// The least refund for `bytes` that were charged and not used.
    pub(crate) fn refund(&self, bytes: Bytes) -> Nanos {
        let rate = u128::from(self.rate.bits_per_sec().max(1));
        let paid = u128::from(bytes.0) * 8_000_000_000 / rate;
        Nanos(u64::try_from(paid).unwrap_or(u64::MAX))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_rounded_up_once_and_not_for_every_packet() {
        let mut pace = Pace::new(Rate::from_bits_per_sec(3_000_000_000));
        let mut sum = 0;
        for packets in 1..=100u64 {
            let (delay, next) = pace.delay(Bytes(64)).unwrap();
            sum += delay.0;
            pace = next;
            assert_eq!(sum, (packets * 64 * 8_000_000_000).div_ceil(3_000_000_000));
        }
    }

    #[test]
    fn nothing_is_ever_paid_at_no_rate() {
        assert!(Pace::new(Rate::default()).delay(Bytes(1)).is_none());
    }
}
