//! A ledger: a token bucket in one word.
//!
//! The word holds the time up to which the rate has been sold. Between it and now lies the credit,
//! never more than a depth. A buyer advances the word by the time that its bytes take at the rate.
//! Any number of queues may buy at once, with any view of each other: the sum cannot exceed the
//! credit.
//!
//! Memory ordering: relaxed throughout. The word is complete in itself (compare-and-swap acts on
//! the newest value with any ordering), and no other memory is reached through it.

use crate::sync::{AtomicU64, Ordering};
use narrows_qdisc::OWED_MAX;
use narrows_units::Nanos;

#[derive(Default)]
pub(crate) struct Ledger(AtomicU64);

impl Ledger {
    /// Up to when it is sold, unless its credit is whole.
    pub(crate) fn spent(&self, depth: Nanos, now: Nanos) -> Option<Nanos> {
        let start = self.start(depth, now);
        (start > now - depth).then_some(start)
    }

    /// The time up to which it is sold, however long ago that is.
    pub(crate) fn sold(&self) -> Nanos {
        Nanos(self.0.load(Ordering::Relaxed))
    }

    /// Is sold up to `spent`, before any queue buys.
    pub(crate) fn resume(&self, spent: Nanos) {
        self.0.store(spent.0, Ordering::Relaxed);
    }

    /// When `least` is in credit if no queue buys before; `least` is at most `depth`.
    #[inline]
    pub(crate) fn due(&self, least: Nanos, depth: Nanos, now: Nanos) -> Nanos {
        self.start(depth, now) + least
    }

    /// The credit at `now`, unless it has none.
    #[inline]
    pub(crate) fn credit(&self, depth: Nanos, now: Nanos) -> Option<Nanos> {
        now.0.checked_sub(self.start(depth, now).0).map(Nanos)
    }

    /// The time up to which it is sold, at most `depth` in the past.
    #[inline]
    fn start(&self, depth: Nanos, now: Nanos) -> Nanos {
        Nanos(self.0.load(Ordering::Relaxed)).max(now - depth)
    }

    /// Sells `span` at `now` if `least` is in credit. A larger span leaves a debt.
    #[inline]
    pub(crate) fn sell(&self, span: Nanos, least: Nanos, depth: Nanos, now: Nanos) -> bool {
        let oldest = now - depth;
        let mut sold = self.0.load(Ordering::Relaxed);
        loop {
            let start = sold.max(oldest.0);
            if start + least.0 > now.0 {
                return false;
            }
            match self.0.compare_exchange_weak(
                sold,
                start + span.0,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(newer) => sold = newer,
            }
        }
    }

    /// Sells `span` unconditionally. The debt never exceeds `most`.
    #[inline]
    pub(crate) fn charge(&self, span: Nanos, depth: Nanos, most: Nanos, now: Nanos) {
        let (oldest, latest) = (now - depth, now + most);
        let mut sold = self.0.load(Ordering::Relaxed);
        while let Err(newer) = self.0.compare_exchange_weak(
            sold,
            (Nanos(sold).max(oldest) + span).min(latest.max(Nanos(sold))).0,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            sold = newer;
        }
    }

    /// Sells `span` from where it is sold up to, however long ago that is, so credit that it could
    /// not store pays first. What is sold beyond `now` is at most [`OWED_MAX`] more.
    pub(crate) fn owe(&self, span: Nanos, now: Nanos) {
        let latest = now + OWED_MAX;
        let mut sold = self.0.load(Ordering::Relaxed);
        while let Err(newer) = self.0.compare_exchange_weak(
            sold,
            (Nanos(sold) + span).min(latest.max(Nanos(sold))).0,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            sold = newer;
        }
    }

    /// Sells `span` unconditionally, and returns the time from which it is paid for.
    pub(crate) fn promise(&self, span: Nanos, depth: Nanos, now: Nanos) -> Nanos {
        let oldest = now - depth;
        let mut sold = self.0.load(Ordering::Relaxed);
        loop {
            let end = Nanos(sold).max(oldest) + span;
            match self.0.compare_exchange_weak(sold, end.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return end,
                Err(newer) => sold = newer,
            }
        }
    }

    /// Forgives what was sold beyond `now`: at another rate it would be another time.
    pub(crate) fn forgive(&self, now: Nanos) {
        self.0.fetch_min(now.0, Ordering::Relaxed);
    }

    /// Takes back the unused `span`.
    #[inline]
    pub(crate) fn take_back(&self, span: Nanos) {
        // Nothing is ever sold before a depth has passed since the epoch.
        self.0.fetch_sub(span.0, Ordering::Relaxed);
    }

    /// The credit in nanoseconds; negative for a debt.
    pub(crate) fn level(&self, depth: Nanos, now: Nanos) -> i64 {
        now.0.wrapping_sub(self.start(depth, now).0) as i64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const DEPTH: Nanos = Nanos(100);

    #[test]
    fn sales_never_exceed_the_depth_and_the_elapsed_time() {
        let ledger = Ledger::default();
        let sell = |now| ledger.sell(Nanos(40), Nanos(40), DEPTH, Nanos(now));
        assert_eq!([sell(1_000), sell(1_000), sell(1_000)], [true, true, false]);
        assert_eq!(ledger.due(Nanos(40), DEPTH, Nanos(1_000)), Nanos(1_020));
        assert!(!sell(1_019) && sell(1_020));
    }

    #[test]
    fn a_debt_is_paid_before_anything_else_is_sold() {
        let ledger = Ledger::default();
        let sell = |span, least, now| ledger.sell(Nanos(span), Nanos(least), DEPTH, Nanos(now));
        assert!(sell(250, 100, 1_000) && !sell(10, 10, 1_159) && sell(10, 10, 1_160));
        ledger.forgive(Nanos(1_160));
        assert!(sell(10, 10, 1_170));
    }

    #[test]
    fn a_promise_never_fails_and_comes_later_and_later() {
        let ledger = Ledger::default();
        let promise = || ledger.promise(Nanos(60), DEPTH, Nanos(1_000));
        assert_eq!([promise(), promise(), promise()], [Nanos(960), Nanos(1_020), Nanos(1_080)]);
    }

    #[test]
    fn what_is_owed_is_paid_with_credit_that_would_be_lost_and_then_is_debt() {
        let ledger = Ledger::default();
        let sell = |now| ledger.sell(Nanos(40), Nanos(40), DEPTH, Nanos(now));
        assert!(sell(1_000));
        // It was sold up to 940.
        ledger.owe(Nanos(500), Nanos(2_000));
        assert_eq!(ledger.level(DEPTH, Nanos(2_000)), 100, "of a thousand it could store 100");
        ledger.owe(Nanos(600), Nanos(2_000));
        assert_eq!(ledger.level(DEPTH, Nanos(2_000)), -40);
        assert!(!sell(2_079) && sell(2_080));
        ledger.owe(Nanos::from_secs(9), Nanos(3_000));
        assert_eq!(ledger.sold(), Nanos(3_000) + OWED_MAX);
        ledger.owe(Nanos(1), Nanos(2_000));
        assert_eq!(ledger.sold(), Nanos(3_000) + OWED_MAX);
    }

    #[test]
    fn a_charge_becomes_debt_up_to_the_limit() {
        let ledger = Ledger::default();
        let level = || ledger.level(DEPTH, Nanos(1_000));
        ledger.charge(Nanos(250), DEPTH, Nanos(500), Nanos(1_000));
        assert_eq!(level(), -150);
        ledger.charge(Nanos(900), DEPTH, Nanos(500), Nanos(1_000));
        assert_eq!(level(), -500);
        ledger.take_back(Nanos(550));
        assert_eq!(level(), 50);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    #[test]
    fn loom_two_queues_never_buy_more_than_there_is() {
        loom::model(|| {
            let ledger = Arc::new(Ledger::default());
            let buy = |ledger: &Ledger, now| {
                u64::from(ledger.sell(Nanos(40), Nanos(40), Nanos(100), Nanos(now)))
            };
            let other = {
                let ledger = Arc::clone(&ledger);
                thread::spawn(move || buy(&ledger, 1_000) + buy(&ledger, 1_010))
            };
            let bought = buy(&ledger, 1_000);
            ledger.take_back(Nanos(20 * bought));
            let bought = bought + other.join().unwrap();
            assert!(bought * 40 - 20 <= 110, "{bought} times 40, of which 20 came back");
            assert!(bought >= 2);
        });
    }
}
