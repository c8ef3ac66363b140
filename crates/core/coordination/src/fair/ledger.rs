//! What the meters of a limit share: its [ledger](crate::ledger), and the time.
//!
//! Beside the time up to which the limit is sold, on the same line and so at no further cost, is
//! the latest time at which any meter bought. Meters read it to agree on the time; see
//! [`super::clock`].
//!
//! Memory ordering: relaxed throughout. Each word is complete in itself, and no other memory is
//! reached through it.

use crate::line::Line;
use crate::sync::{AtomicU64, Ordering};
use narrows_units::Nanos;

/// The ledger of a limit, and the newest time that any meter has seen.
pub(super) struct Ledger(Line<Words>);

struct Words {
    limit: crate::ledger::Ledger,
    latest: AtomicU64,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self(Line(Words { limit: crate::ledger::Ledger::default(), latest: AtomicU64::new(0) }))
    }

    /// The ledger of the limit.
    pub(super) fn limit(&self) -> &crate::ledger::Ledger {
        &self.0.limit
    }

    /// The latest purchase of any meter, in common time.
    pub(super) fn latest(&self) -> Nanos {
        Nanos(self.0.latest.load(Ordering::Relaxed))
    }

    /// How much credit there is at `now`.
    pub(super) fn credit(&self, now: Nanos) -> Nanos {
        now.since(self.limit().sold())
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
        if !self.limit().sell(span, least, depth, now) {
            return Err(self.limit().due(least, depth, now));
        }
        // A plain store that a slower core's may overtake: meters only ever take the later of
        // this and their own time.
        if self.latest() < now {
            self.0.latest.store(now.0, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const DEPTH: Nanos = Nanos(100);

    #[test]
    fn a_sale_says_when_it_was_or_when_it_can_be() {
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
        ledger.limit().take_back(Nanos(30));
        assert_eq!(ledger.credit(Nanos(1_000)), Nanos(30));
        assert_eq!(ledger.sell(Nanos(30), Nanos(30), DEPTH, Nanos(1_000)), Ok(()));
        assert!(ledger.sell(Nanos(1), Nanos(1), DEPTH, Nanos(1_000)).is_err());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    #[test]
    fn loom_the_latest_purchase_is_one_of_those_that_were_made() {
        loom::model(|| {
            let ledger = Arc::new(Ledger::new());
            let buy = |ledger: &Ledger, now| {
                u64::from(ledger.sell(Nanos(40), Nanos(40), Nanos(100), Nanos(now)).is_ok())
            };
            let other = {
                let ledger = Arc::clone(&ledger);
                thread::spawn(move || buy(&ledger, 1_000) + buy(&ledger, 1_010))
            };
            let bought = buy(&ledger, 1_000) + other.join().unwrap();
            assert!(bought >= 2);
            assert!([1_000, 1_010].contains(&ledger.latest().0));
        });
    }
}
