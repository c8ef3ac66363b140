//! A token bucket that is refilled once per epoch, by the first core that finds it due.
//!
//! A refill takes a division and reads of other classes; metering takes an update of one word. So
//! one core refills, under a try-lock: the others do not wait, and meter with the tokens that are
//! left.
//!
//! Memory ordering: taking the lock acquires and leaving it releases, so the next refill sees the
//! results of the last one. The other words are read without the lock, each by itself, and may be
//! an epoch old; FlowValve is no more precise than that. The tokens need no ordering, because
//! compare-and-swap acts on the newest value.

use crate::sync::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use narrows_units::{Bytes, Nanos};

/// How long an epoch is: the unit of time of FlowValve's code, 2^18 times 16 cycles of 1.2 GHz.
pub(super) const EPOCH: Nanos = Nanos(3_495_253);

/// State that was not refreshed for this long is forgotten: 16 units, as in FlowValve's code for a
/// parent's state. (There a lender's state lasts 256 units, so 0.9 s pass before the rate of a
/// class that stops is lent.)
pub(super) const EXPIRY: Nanos = Nanos(16 * EPOCH.0);

/// Bytes at `rate`, in bytes per second, over `span`.
pub(super) fn earned(rate: u64, span: Nanos) -> i64 {
    let bytes = u128::from(rate) * u128::from(span.0) / 1_000_000_000;
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// A token bucket that one core refills once per epoch.
#[derive(Default)]
pub(super) struct Bucket {
    filling: AtomicBool,
    /// When it was filled last, in nanoseconds.
    filled: AtomicU64,
    /// How fast it is filled, in bytes per second.
    rate: AtomicU64,
    tokens: AtomicI64,
}

/// An epoch that has ended: the exclusive right to fill the bucket.
pub(super) struct Turn<'a> {
    bucket: &'a Bucket,
    now: Nanos,
    /// Its duration.
    pub(super) span: Nanos,
}

impl Bucket {
    /// The right to fill it, if the epoch is over at `now` and no other core is filling it.
    #[inline]
    pub(super) fn turn(&self, now: Nanos) -> Option<Turn<'_>> {
        if now < self.next() {
            return None;
        }
        self.filling.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let span = now.since(self.filled());
        if span < EPOCH {
            // Another core has filled it in between.
            self.filling.store(false, Ordering::Release);
            return None;
        }
        Some(Turn { bucket: self, now, span })
    }

    /// Takes `cost` if there is enough.
    #[inline]
    pub(super) fn meter(&self, cost: Bytes) -> bool {
        let cost = i64::try_from(cost.0).unwrap_or(i64::MAX);
        let mut tokens = self.tokens.load(Ordering::Relaxed);
        while tokens >= cost {
            match self.tokens.compare_exchange_weak(
                tokens,
                tokens - cost,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(newer) => tokens = newer,
            }
        }
        false
    }

    /// Returns unused tokens.
    pub(super) fn put_back(&self, bytes: Bytes) {
        self.tokens.fetch_add(bytes.0 as i64, Ordering::Relaxed);
    }

    /// Adds `more`, up to `most` in all.
    pub(super) fn add(&self, more: i64, most: i64) {
        let mut tokens = self.tokens.load(Ordering::Relaxed);
        while let Err(newer) = self.tokens.compare_exchange_weak(
            tokens,
            tokens.saturating_add(more).min(most.max(tokens)),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            tokens = newer;
        }
    }

    /// The tokens in it, in bytes.
    pub(super) fn tokens(&self) -> i64 {
        self.tokens.load(Ordering::Relaxed)
    }

    /// How fast it is filled, in bytes per second.
    #[inline]
    pub(super) fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    fn filled(&self) -> Nanos {
        Nanos(self.filled.load(Ordering::Relaxed))
    }

    /// Whether it was not filled for so long that its state is forgotten.
    #[inline]
    pub(super) fn is_expired(&self, now: Nanos) -> bool {
        now.since(self.filled()) > EXPIRY
    }

    /// When the epoch is over.
    #[inline]
    pub(super) fn next(&self) -> Nanos {
        self.filled() + EPOCH
    }
}

impl Turn<'_> {
    /// Fills the bucket at `rate` for the time since the last refill, or for one epoch if that is
    /// forgotten. It holds an epoch's worth, and `burst`.
    pub(super) fn fill(self, rate: u64, burst: Bytes) {
        let span = if self.span > EXPIRY { EPOCH } else { self.span };
        let burst = i64::try_from(burst.0).unwrap_or(i64::MAX);
        self.bucket.rate.store(rate, Ordering::Relaxed);
        self.bucket.add(earned(rate, span), earned(rate, EPOCH).saturating_add(burst));
        self.bucket.filled.store(self.now.0, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.bucket.filling.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GBYTE: u64 = 1_000_000_000;
    const LATER: Nanos = Nanos::from_secs(100);

    #[test]
    fn a_bucket_is_filled_once_an_epoch() {
        let bucket = Bucket::default();
        bucket.turn(LATER).unwrap().fill(GBYTE, Bytes(1_000));
        assert_eq!(bucket.tokens(), EPOCH.0 as i64, "an epoch's worth to begin with");
        assert!(bucket.turn(LATER + Nanos(EPOCH.0 - 1)).is_none());
        assert!(bucket.meter(Bytes(EPOCH.0)) && !bucket.meter(Bytes(1)));
        let turn = bucket.turn(LATER + EPOCH + Nanos(500)).unwrap();
        assert_eq!(turn.span, EPOCH + Nanos(500));
        turn.fill(GBYTE, Bytes(1_000));
        assert_eq!(bucket.tokens(), EPOCH.0 as i64 + 500);
    }

    #[test]
    fn while_one_fills_others_meter() {
        let bucket = Bucket::default();
        bucket.add(100, 100);
        let turn = bucket.turn(LATER).unwrap();
        assert!(bucket.turn(LATER).is_none());
        assert!(bucket.meter(Bytes(60)) && !bucket.meter(Bytes(60)));
        drop(turn);
        assert!(bucket.turn(LATER).is_some(), "who gives up has filled nothing");
    }

    #[test]
    fn it_holds_an_epoch_and_a_burst() {
        let bucket = Bucket::default();
        for epoch in 0..5 {
            bucket.turn(LATER + Nanos(epoch * 2 * EPOCH.0)).unwrap().fill(GBYTE, Bytes(700));
        }
        assert_eq!(bucket.tokens(), EPOCH.0 as i64 + 700);
    }

    proptest! {
        /// With late refills and any requests, no more passes than the earned tokens, an initial
        /// epoch's worth, and a burst.
        #[test]
        fn no_more_passes_than_has_been_earned(
            acts in prop::collection::vec((0..3 * EPOCH.0, 1u64..100_000), 1..100),
            rate in 1u64..GBYTE,
            burst in 0u64..1_000_000,
        ) {
            let (bucket, mut now, mut passed) = (Bucket::default(), LATER, 0);
            for (later, cost) in acts {
                now += Nanos(later);
                if let Some(turn) = bucket.turn(now) {
                    turn.fill(rate, Bytes(burst));
                }
                passed += if bucket.meter(Bytes(cost)) { cost as i64 } else { 0 };
                prop_assert!(passed <= earned(rate, now - LATER + EPOCH) + burst as i64);
                prop_assert!((0..=earned(rate, EPOCH) + burst as i64).contains(&bucket.tokens()));
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    const NOW: Nanos = Nanos::from_secs(100);

    /// Whether it has filled the bucket, and whether it has got tokens.
    fn work(bucket: &Bucket) -> (u64, u64) {
        let filled = bucket.turn(NOW).map(|turn| turn.fill(100_000, Bytes(0))).is_some();
        (u64::from(filled), u64::from(bucket.meter(Bytes(200))))
    }

    #[test]
    fn loom_an_epoch_is_filled_once_and_no_token_is_spent_twice() {
        loom::model(|| {
            let bucket = Arc::new(Bucket::default());
            let other = {
                let bucket = Arc::clone(&bucket);
                thread::spawn(move || work(&bucket))
            };
            let (filled, metered) = work(&bucket);
            let (others, theirs) = other.join().unwrap();
            assert_eq!(filled + others, 1, "one of them fills");
            // An epoch at 100 kB/s.
            let left = bucket.tokens();
            assert_eq!(left, 349 - 200 * (metered + theirs) as i64);
            assert!(left >= 0);
            assert!(bucket.turn(NOW).is_none(), "the epoch has begun");
            assert!(bucket.turn(NOW + EPOCH).is_some(), "and the lock is free again");
        });
    }
}
