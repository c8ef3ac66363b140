//! A number and its time in one word, so that a reader always gets both together.
//!
//! Two halves of 32 bits: the number, and the time in units of 1 us or 1 ms (powers of two of
//! nanoseconds), which wraps after 73 minutes or 52 days. Elapsed times are right up to that. A
//! word that was not written for exactly that long looks fresh again for its validity (`BELIEVED`,
//! `TIMEOUT`): at worst one probe is not sent, or one round trip is compared with an old one.
//! Congestion keeps 61 bits of time, in units of 65 us, and never wraps: it must not come back by
//! itself.
//!
//! 0 is empty. What would be packed to 0 is empty, too: one probe in 2^64.

use super::{CONGESTION, LONGEST};
use narrows_units::Nanos;

/// Units of time by the power of two: 1.02 us for what is measured,
const FINE: u32 = 10;
/// 1.05 ms for what only has to be recent,
const COARSE: u32 = 20;
/// and 65.5 us for a value that every packet would otherwise write.
const EXTENSION: u32 = 16;
/// Clocks may be apart by fewer units than this. A time that seems to be ahead by less has just
/// been.
const APART: u32 = 1 << 16;

/// A time stamp that is under way, and when it left.
pub(super) type Probe = Timed<FINE>;
/// The newest time stamp, and when one of its value left last.
pub(super) type Newest = Timed<COARSE>;
/// How many nanoseconds a round trip took, and when it was seen.
pub(super) type RoundTrip = Timed<COARSE>;

/// A number and its time in units of two to the power of `UNIT` nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Timed<const UNIT: u32>(u64);

impl<const UNIT: u32> Timed<UNIT> {
    pub(super) const NONE: Self = Self(0);

    pub(super) const fn new(number: u32, at: Nanos) -> Self {
        Self((number as u64) << 32 | (at.0 >> UNIT) & u32::MAX as u64)
    }

    pub(super) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(super) const fn word(self) -> u64 {
        self.0
    }

    pub(super) const fn is_none(self) -> bool {
        self.0 == Self::NONE.0
    }

    pub(super) const fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// What has passed since its time.
    pub(super) const fn age(self, now: Nanos) -> Nanos {
        let units = ((now.0 >> UNIT) as u32).wrapping_sub(self.0 as u32);
        let is_ahead = units > u32::MAX - APART;
        Nanos(if is_ahead { 0 } else { (units as u64) << UNIT })
    }
}

/// The bits of the number of doublings plus one: 0 means never congested.
const DOUBLINGS: u32 = 3;
/// The most doublings.
const MOST: u64 = (LONGEST.0 / CONGESTION.0).ilog2() as u64 + 1;

const _: () = assert!(MOST < 1 << DOUBLINGS, "the bits are enough");
const _: () = assert!(CONGESTION.0 << (MOST - 1) == LONGEST.0, "it is reached by doubling");

/// The time until which a destination is congested, and how long that lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Congestion(u64);

impl Congestion {
    pub(super) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(super) const fn word(self) -> u64 {
        self.0
    }

    /// When it is over, or was; zero if there was none.
    pub(super) const fn until(self) -> Nanos {
        Nanos(self.0 >> DOUBLINGS << EXTENSION)
    }

    const fn times(self) -> u64 {
        self.0 & ((1 << DOUBLINGS) - 1)
    }

    /// Its value after a sign at `now`. It never ends sooner than before.
    pub(super) fn heard(self, now: Nanos) -> Self {
        let until = self.until();
        let times = match self.times() {
            times if now < until => times,
            0 => 1,
            times if now.since(until) < LONGEST => (times + 1).min(MOST),
            _ => 1,
        };
        // A word from anywhere has some time that it lasts.
        let times = times.max(1);
        let lasts = Nanos(CONGESTION.0 << (times - 1));
        let until = until.max(now + lasts);
        Self(until.0 >> EXTENSION << DOUBLINGS | times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WRAP: u64 = 1 << (32 + FINE);

    proptest! {
        #[test]
        fn elapsed_time_is_right_across_a_wrap_of_the_clock(
            left in 0..4 * WRAP,
            passes in 0..WRAP - (u64::from(APART) << FINE) * 2,
            value: u32,
        ) {
            let probe = Probe::new(value, Nanos(left));
            prop_assert_eq!(probe.number(), value);
            let age = Probe::from_word(probe.word()).age(Nanos(left + passes));
            prop_assert!(age.0.abs_diff(passes) < 1 << FINE, "{:?} and not {}", age, passes);
        }

        #[test]
        fn a_time_that_is_a_little_ahead_is_now(left in 1u64 << 30..4 * WRAP, ahead in 0u64..50_000_000) {
            let now = Nanos(left - ahead);
            prop_assert_eq!(Probe::new(1, Nanos(left)).age(now), Nanos::ZERO);
            prop_assert_eq!(Newest::new(1, Nanos(left)).age(now), Nanos::ZERO);
        }

        #[test]
        fn congestion_is_heard_of_as_by_a_slow_model(
            steps in prop::collection::vec((0u64..300_000_000, 0u64..20_000), 1..60),
        ) {
            let mut now = Nanos::from_secs(1);
            let mut packed = Congestion::from_word(0);
            let (mut until, mut lasts) = (Nanos::ZERO, Nanos::ZERO);
            for (passes, apart) in steps {
                now += Nanos(passes);
                // Some other queue's clock.
                let now = Nanos(now.0 - apart);
                if until <= now {
                    let is_back = lasts > Nanos::ZERO && now.since(until) < LONGEST;
                    lasts = if is_back { (lasts + lasts).min(LONGEST) } else { CONGESTION };
                }
                until = until.max(Nanos((now + lasts).0 >> EXTENSION << EXTENSION));
                packed = packed.heard(now);
                prop_assert_eq!(packed.until(), until);
                prop_assert_eq!(Nanos(CONGESTION.0 << (packed.times() - 1)), lasts);
                prop_assert!(now < until, "it has begun");
            }
        }

        #[test]
        fn every_word_has_an_answer(word: u64, now: u64) {
            let heard = Congestion::from_word(word).heard(Nanos(now));
            prop_assert!(heard.until() >= Congestion::from_word(word).until());
            Probe::from_word(word).age(Nanos(now));
            RoundTrip::from_word(word).age(Nanos(now));
        }
    }
}
