//! The token bucket, exact.
//!
//! A bucket fills at a rate up to a size and pays for departures. All arithmetic is in integers, in
//! the unit in which a rate and a clock multiply without rounding: one bit per second for one
//! nanosecond, of which a byte costs 8 x 10^9. Credit is therefore exact to the last unit over any
//! number of packets and over any change of rate; only a waiting time is rounded, and upwards, so
//! that nothing leaves early.
//!
//! The peak rate of `tc-tbf(8)` is a second, smaller bucket; a packet leaves when both can
//! pay, and then both do.
//!
//! *Range.* Credit is 128 bits wide: any [`Rate`], any size and pauses of 146 years stay below
//! 2^127. In 64 bits, 1 Tbit/s would overflow after 18 ms and a burst of 4 GiB at once.
//!
//! *Cost.* A packet takes one widening multiplication for its price and, when time has passed,
//! one for the refill; no division. A refusal divides once.
//!
//! Non-goals: sharing (a bucket has one owner; see the `coordination` layer), reading a clock.

use crate::tbf::Peak;
use crate::{Meter, OWED_MAX, Share, Take};
use narrows_packet::Backlog;
use narrows_units::{Bytes, Nanos, Rate};

/// The cost of a byte, in bits per second times nanoseconds.
const UNITS_PER_BYTE: i128 = 8 * 1_000_000_000;

/// The longest pause that is credited, 146 years: below it rate x pause is below 2^126.
const LONGEST_PAUSE: u64 = 1 << 62;

/// How fast a bucket fills and how much it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The rate that is kept on average.
    pub rate: Rate,
    /// How much may leave at once after a pause.
    pub burst: Bytes,
    /// A rate that is never exceeded, not even by the burst.
    pub peak: Option<Peak>,
}

impl Shape {
    /// The longest packet that passes without debt: the size of the smaller bucket.
    pub fn longest(&self) -> Bytes {
        self.peak.map_or(self.burst, |peak| peak.mtu.min(self.burst))
    }
}

/// One of the two buckets: the average's or the peak's.
#[derive(Clone, Copy, Debug)]
struct Level {
    rate: Rate,
    /// Credit when full.
    full: i128,
    /// Credit now; negative while in debt.
    credit: i128,
}

impl Level {
    fn full(rate: Rate, size: Bytes) -> Self {
        let full = units(size);
        Self { rate, full, credit: full }
    }

    #[inline]
    fn refill(&mut self, pause: u64) {
        let earned = u128::from(self.rate.bits_per_sec()) * u128::from(pause.min(LONGEST_PAUSE));
        self.credit = (self.credit + earned as i128).min(self.full);
    }

    /// Whether it can pay `price`. A price above its size is paid when it is full.
    #[inline]
    fn affords(&self, price: i128) -> bool {
        self.credit >= price.min(self.full)
    }

    fn resize(&mut self, rate: Rate, size: Bytes) {
        self.rate = rate;
        self.full = units(size);
        self.credit = self.credit.min(self.full);
    }

    /// How long until it has earned `credit`, rounded up.
    fn time_until(&self, credit: i128) -> Nanos {
        let missing = credit - self.credit;
        if missing <= 0 {
            return Nanos::ZERO;
        }
        let rate = self.rate.bits_per_sec();
        if rate == 0 {
            return Nanos::MAX;
        }
        // A packet's missing credit almost always fits 64 bits, whose division is several times
        // faster than that of 128.
        Nanos(match u64::try_from(missing) {
            Ok(missing) => missing.div_ceil(rate),
            Err(_) => {
                u64::try_from((missing as u128).div_ceil(u128::from(rate))).unwrap_or(u64::MAX)
            }
        })
    }
}

#[inline]
fn units(bytes: Bytes) -> i128 {
    i128::from(bytes.0) * UNITS_PER_BYTE
}

/// A token bucket, with a second one for the peak rate, if any. Starts full.
///
/// It is also the [`Meter`] of a limit that is not shared.
#[derive(Clone, Debug)]
pub struct Bucket {
    average: Level,
    peak: Option<Level>,
    /// The time up to which credit has been earned.
    refilled: Nanos,
    longest: Bytes,
}

impl Bucket {
    /// A full bucket.
    pub fn new(shape: Shape) -> Self {
        Self {
            average: Level::full(shape.rate, shape.burst),
            peak: shape.peak.map(|peak| Level::full(peak.rate, peak.mtu)),
            refilled: Nanos::ZERO,
            longest: shape.longest(),
        }
    }

    /// The time up to which it is used, as of the last refill: earlier than that refill by its
    /// credit, or later by its debt.
    pub fn spent_until(&self) -> Nanos {
        let level = &self.average;
        if level.credit <= 0 {
            return self.refilled + level.time_until(0);
        }
        // Rounded down.
        let earned_in = match u128::from(level.rate.bits_per_sec()) {
            0 => 0,
            rate => u64::try_from(level.credit as u128 / rate).unwrap_or(u64::MAX),
        };
        Nanos(self.refilled.0.saturating_sub(earned_in))
    }

    /// Empties it as of `spent`: its credit is what it earns from then on.
    pub fn spend_until(&mut self, spent: Nanos) {
        self.average.credit = 0;
        if let Some(peak) = &mut self.peak {
            peak.credit = 0;
        }
        self.refilled = spent;
    }

    /// Changes its shape at `now`. Time until then is credited at the old rate; credit and debt
    /// stay, credit up to the new size.
    pub fn reshape(&mut self, shape: Shape, now: Nanos) {
        self.refill(now);
        self.average.resize(shape.rate, shape.burst);
        self.peak = shape.peak.map(|peak| match self.peak {
            Some(mut level) => {
                level.resize(peak.rate, peak.mtu);
                level
            }
            None => Level::full(peak.rate, peak.mtu),
        });
        self.longest = shape.longest();
    }

    /// Credits what was earned until `now`. A clock that runs backwards earns nothing.
    #[inline]
    pub fn refill(&mut self, now: Nanos) {
        if now <= self.refilled {
            return;
        }
        let pause = now.since(self.refilled).0;
        self.refilled = now;
        self.average.refill(pause);
        if let Some(peak) = &mut self.peak {
            peak.refill(pause);
        }
    }

    /// Whether it can pay for `cost` as of the last refill. A cost above its size is paid when it
    /// is full.
    #[inline]
    pub fn affords(&self, cost: Bytes) -> bool {
        let price = units(cost);
        self.average.affords(price) && self.peak.as_ref().is_none_or(|peak| peak.affords(price))
    }

    /// Whether it holds credit for all of `bytes` as of the last refill, however small it is.
    pub fn holds(&self, bytes: Bytes) -> bool {
        let price = units(bytes);
        self.average.credit >= price && self.peak.as_ref().is_none_or(|peak| peak.credit >= price)
    }

    /// Pays for `cost`, into debt if necessary.
    #[inline]
    pub fn charge(&mut self, cost: Bytes) {
        let price = units(cost);
        self.average.credit -= price;
        if let Some(peak) = &mut self.peak {
            peak.credit -= price;
        }
    }

    /// Pays for `bytes` as of the last refill, into a debt of at most [`OWED_MAX`] at `now`. The
    /// peak is for single packets.
    pub fn owe(&mut self, bytes: Bytes, now: Nanos) {
        let Level { rate, credit, .. } = &mut self.average;
        let time = u128::from(now.since(self.refilled).0) + u128::from(OWED_MAX.0);
        let most = i128::try_from(u128::from(rate.bits_per_sec()) * time).unwrap_or(i128::MAX);
        *credit = (*credit - units(bytes)).max(-most).min(*credit);
    }

    /// When it can pay for `cost`: [`Bucket::affords`] is true from then on.
    pub fn when_affords(&self, cost: Bytes) -> Nanos {
        let price = units(cost);
        let average = self.average.time_until(price.min(self.average.full));
        let peak = self.peak.map_or(Nanos::ZERO, |peak| peak.time_until(price.min(peak.full)));
        self.refilled + average.max(peak)
    }

    /// The answer to a packet that the bucket cannot pay for yet. Apart, because the caller's loop
    /// ends with it.
    #[inline(never)]
    fn wait_for(&self, cost: Bytes) -> Take {
        Take::Wait(self.when_affords(cost))
    }

    /// When it will have earned `bytes` beyond its debt, if it could hold them.
    pub fn when_earned(&self, bytes: Bytes) -> Nanos {
        let price = units(bytes);
        let peak = self.peak.map_or(Nanos::ZERO, |peak| peak.time_until(price));
        self.refilled + self.average.time_until(price).max(peak)
    }
}

impl Meter for Bucket {
    #[inline]
    fn stamp(&mut self, _cost: Bytes, _now: Nanos) -> Option<Nanos> {
        Some(Nanos::ZERO)
    }

    #[inline]
    fn take(&mut self, cost: Bytes, _edt: Nanos, now: Nanos) -> Take {
        self.refill(now);
        if self.affords(cost) {
            self.charge(cost);
            Take::Granted
        } else {
            self.wait_for(cost)
        }
    }

    fn owe(&mut self, bytes: Bytes, now: Nanos) {
        Self::owe(self, bytes, now);
    }

    #[inline]
    fn report(&mut self, _backlog: Backlog, _now: Nanos) {}

    #[inline]
    fn share(&self) -> Share {
        Share::WHOLE
    }

    #[inline]
    fn longest(&self) -> Bytes {
        self.longest
    }
}
