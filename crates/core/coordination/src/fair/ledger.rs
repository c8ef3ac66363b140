//! The ledger: the exact half of `fair`.
//!
//! One word holds the time up to which the limit is sold. The span from it to now is the credit, at
//! most one depth. A buyer advances the word by the time that its bytes take at the rate. Any
//! number of meters may buy at once, with any view of each other: the sum cannot exceed the credit.
//! It is a token bucket in one word.
//!
//! Beside it, on the same line and so at no further cost, is the latest time at which any meter
//! bought. Meters read it to agree on the time; see [`super::clock`].
//!
//! Memory ordering: relaxed throughout. Each word is complete in itself (compare-and-swap acts on
//! the newest value with any ordering), and no other memory is reached through it.

use crate::line::Line;
use crate::sync::{AtomicU64, Ordering};
use narrows_units::Nanos;

pub(super) struct Ledger(Line<Words>);

struct Words {
    sold: AtomicU64,
    latest: AtomicU64,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self(Line(Words { sold: AtomicU64::new(0), latest: AtomicU64::new(0) }))
    }

    /// The latest purchase of any meter, in common time.
    pub(super) fn latest(&self) -> Nanos {
        Nanos(self.0.latest.load(Ordering::Relaxed))
    }

    /// The time up to which the limit is sold.
    pub(super) fn sold(&self) -> Nanos {
        Nanos(self.0.sold.load(Ordering::Relaxed))
    }

    /// Marks it as sold until `time`, unconditionally.
    pub(super) fn sell_until(&self, time: Nanos) {
        self.0.sold.store(time.0, Ordering::Relaxed);
    }

    /// How much credit there is at `now`.
    pub(super) fn credit(&self, now: Nanos) -> Nanos {
        now.since(Nanos(self.0.sold.load(Ordering::Relaxed)))
    }

    /// Sells `span` at `now` if at least `least` is in credit, which is at most `depth`. A span
    /// longer than the credit leaves a debt.
    ///
    /// # Errors
    /// Not enough credit: when there will be, if no other meter buys.
    pub(super) fn sell(
        &self,
        span: Nanos,
        least: Nanos,
        depth: Nanos,
        now: Nanos,
    ) -> Result<(), Nanos> {
        let oldest = now - depth;
        let mut sold = self.0.sold.load(Ordering::Relaxed);
        loop {
            let start = Nanos(sold).max(oldest);
            let due = start + least;
            if due > now {
                return Err(due);
            }
            match self.0.sold.compare_exchange_weak(
                sold,
                (start + span).0,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(newer) => sold = newer,
            }
        }
        // A plain store that a slower core's may overtake: meters only ever take the later of
        // this and their own time.
        if self.latest() < now {
            self.0.latest.store(now.0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sells `span` unconditionally, and returns the time from which it is paid for. For the peak
    /// rate, which delays what the average has granted.
    pub(super) fn promise(&self, span: Nanos, depth: Nanos, now: Nanos) -> Nanos {
        let oldest = now - depth;
        let mut sold = self.0.sold.load(Ordering::Relaxed);
        loop {
            let end = Nanos(sold).max(oldest) + span;
            let exchange = self.0.sold.compare_exchange_weak(
                sold,
                end.0,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match exchange {
                Ok(_) => return end,
                Err(newer) => sold = newer,
            }
        }
    }

    /// Takes back the unused `span`.
    pub(super) fn take_back(&self, span: Nanos) {
        let mut sold = self.0.sold.load(Ordering::Relaxed);
        // The debt may have been forgiven meanwhile, and be less than the returned credit.
        while let Err(newer) = self.0.sold.compare_exchange_weak(
            sold,
            sold.saturating_sub(span.0),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            sold = newer;
        }
    }

    /// Forgives what was sold beyond `now`: at another rate it would be another time.
    pub(super) fn forgive(&self, now: Nanos) {
        self.0.sold.fetch_min(now.0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const DEPTH: Nanos = Nanos(100);

    #[test]
    fn sales_never_exceed_the_depth_and_the_elapsed_time() {
        let ledger = Ledger::new();
        let sell = |now| ledger.sell(Nanos(40), Nanos(40), DEPTH, Nanos(now));
        assert_eq!([sell(1_000), sell(1_000)], [Ok(()), Ok(())]);
        assert_eq!(sell(1_000), Err(Nanos(1_020)));
        assert_eq!(sell(1_020), Ok(()));
        assert_eq!(ledger.latest(), Nanos(1_020));
    }

    #[test]
    fn returned_credit_can_be_sold_again() {
        let ledger = Ledger::new();
        assert_eq!(ledger.sell(DEPTH, DEPTH, DEPTH, Nanos(1_000)), Ok(()));
        ledger.take_back(Nanos(30));
        assert_eq!(ledger.credit(Nanos(1_000)), Nanos(30));
        assert_eq!(ledger.sell(Nanos(30), Nanos(30), DEPTH, Nanos(1_000)), Ok(()));
        assert!(ledger.sell(Nanos(1), Nanos(1), DEPTH, Nanos(1_000)).is_err());
    }

    #[test]
    fn a_debt_is_paid_before_anything_else_is_sold() {
        let ledger = Ledger::new();
        assert_eq!(ledger.sell(Nanos(250), DEPTH, DEPTH, Nanos(1_000)), Ok(()));
        assert_eq!(ledger.sell(Nanos(10), Nanos(10), DEPTH, Nanos(1_000)), Err(Nanos(1_160)));
        ledger.forgive(Nanos(1_000));
        assert_eq!(ledger.sell(Nanos(10), Nanos(10), DEPTH, Nanos(1_010)), Ok(()));
    }

    #[test]
    fn a_promise_never_fails_and_comes_later_and_later() {
        let ledger = Ledger::new();
        let promise = || ledger.promise(Nanos(60), DEPTH, Nanos(1_000));
        assert_eq!([promise(), promise(), promise()], [Nanos(960), Nanos(1_020), Nanos(1_080)]);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    #[test]
    fn loom_two_meters_never_buy_more_than_there_is() {
        loom::model(|| {
            let ledger = Arc::new(Ledger::new());
            let buy = |ledger: &Ledger, now| {
                u64::from(ledger.sell(Nanos(40), Nanos(40), Nanos(100), Nanos(now)).is_ok())
            };
            let other = {
                let ledger = Arc::clone(&ledger);
                thread::spawn(move || buy(&ledger, 1_000) + buy(&ledger, 1_010))
            };
            let bought = buy(&ledger, 1_000);
            // A buyer gives half back.
            ledger.take_back(Nanos(20 * bought));
            let bought = bought + other.join().unwrap();
            assert!(bought * 40 - 20 <= 110, "{bought} times 40, of which 20 came back");
            assert!(bought >= 2);
            assert!([1_000, 1_010].contains(&ledger.latest().0));
        });
    }
}
