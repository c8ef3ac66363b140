//! What a purchase takes of the ledgers, from the class up to the root.
//!
//! The ceiling of each class on the way lets it pass, the lender sells it at its rate, and the
//! classes above the lender are charged at theirs, which may put them in debt. Where a ledger has
//! too little, because another queue was faster, what was taken below it goes back: a purchase is
//! whole or has no effect.

use super::ledger::Ledger;
use super::node::Node;
use super::terms::{Bucket, FRAME};
use narrows_units::{Bytes, Nanos};

/// Assured traffic may put the classes above in debt for this long: `mbuffer`, as in the kernel.
pub(super) const LONGEST_DEBT: Nanos = Nanos::from_secs(60);

/// What a purchase would take, as a look finds.
pub(super) struct Offer {
    /// How many classes above this one the lender stands.
    pub(super) lender: usize,
    /// Whether it may owe the lender a frame.
    pub(super) owes: bool,
}

impl Offer {
    /// Of the class itself.
    pub(super) const OWN: Self = Self { lender: 0, owes: false };
}

impl Node {
    /// How much the class has of its own for a queue that has bought `before`: `least` bytes, or up
    /// to `want`. `None` if it has too little.
    #[inline]
    pub(super) fn offer_own(
        &self,
        least: Bytes,
        want: Bytes,
        before: u64,
        now: Nanos,
    ) -> Option<Bytes> {
        let (ledger, Bucket { pace, depth }) = self.rate();
        let has = |bytes| {
            let span = pace.span(before, bytes);
            ledger.due(span.min(depth), depth, now) <= now
        };
        if !has(least) {
            return None;
        }
        if want > least {
            let most = want.min(self.most());
            if most > least && has(most) {
                return Some(want.min(self.most_on_path()).max(least));
            }
        }
        Some(least)
    }

    /// The most that may be bought at once, here and above.
    pub(super) fn most_on_path(&self) -> Bytes {
        self.path().map(Self::most).min().unwrap_or(Bytes::ZERO)
    }

    /// Buys `bytes`, which follow `before` others, by `offer`. Returns whether it could; otherwise
    /// nothing has been bought.
    pub(super) fn take(&self, bytes: Bytes, before: u64, offer: &Offer, now: Nanos) -> bool {
        // The look has seen that enough is left for others. This makes sure of the purchase itself.
        let sell = |ledger: &Ledger, Bucket { pace, depth }: Bucket, owes| {
            let span = pace.span(before, bytes);
            let least = if owes { span - pace.span(0, FRAME) } else { span };
            ledger.sell(span, least.min(depth), depth, now).then_some(span)
        };
        for (steps, at) in self.path().enumerate() {
            let mut sold = sell(&at.sales.ceil, at.terms.ceil(), false);
            if let Some(span) = sold
                && steps >= offer.lender
                && let Some((ledger, rate)) = at.rate_apart()
            {
                if steps > offer.lender {
                    let span = rate.pace.span(before, bytes);
                    ledger.charge(span, rate.depth, LONGEST_DEBT, now);
                } else if sell(ledger, rate, offer.owes).is_none() {
                    at.sales.ceil.take_back(span);
                    sold = None;
                }
            }
            if sold.is_none() {
                self.undo(bytes, before, offer.lender, steps);
                return false;
            }
        }
        true
    }

    /// Gives back `bytes` that followed `before` others, at the first `classes` on the way up.
    pub(super) fn undo(&self, bytes: Bytes, before: u64, lender: usize, classes: usize) {
        let back = |ledger: &Ledger, bucket: Bucket| {
            ledger.take_back(bucket.pace.span(before, bytes));
        };
        for (steps, at) in self.path().enumerate().take(classes) {
            back(&at.sales.ceil, at.terms.ceil());
            if steps >= lender
                && let Some((ledger, rate)) = at.rate_apart()
            {
                back(ledger, rate);
            }
        }
    }
}
