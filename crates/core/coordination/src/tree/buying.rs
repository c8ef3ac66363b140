//! How a queue buys for a leaf class: of what the class has of its own, or from one lender.
//!
//! Has each class on the way to the root credit, after what goes first? Then credit is taken at
//! each of them, which is whole or has no effect ([`Node::take`]). A queue that alone sends for a
//! class looks and takes at once when it borrows ([`Node::take_by_right`]); others look at all
//! classes before, with loads alone. If one has no credit, the class that has it last is what the
//! leaf waits for.

use super::claim::{Claim, Right, due_by_any_right, passes_by_any_right};
use super::node::{Limit, Node};
use super::purchase::Offer;
use super::queue_handle::QueueHandle;
use super::terms::Bucket;
use super::virtual_time::virtual_span;
use crate::ledger::Ledger;
use crate::sync::Ordering;
use narrows_units::{Bytes, Nanos};

/// What a leaf lacks, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lack {
    /// At which class, counted from the leaf.
    pub(super) steps: usize,
    /// Which of its limits.
    pub(super) limit: Limit,
    /// When it has credit.
    pub(super) until: Nanos,
    /// The ceilings that have none either, one bit for each class, by the same count.
    pub(super) ceilings: u32,
    /// Whether others of its class or priority go first: then the leaf waits alone.
    pub(super) is_late: bool,
    /// Whether better ones go first, so that it does not wait for credit alone.
    pub(super) is_outranked: bool,
}

impl Lack {
    /// Of one limit, and nothing else.
    const fn of(steps: usize, limit: Limit, until: Nanos) -> Self {
        Self { steps, limit, until, ceilings: 0, is_late: false, is_outranked: false }
    }
}

/// What a leaf has borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Loan {
    pub(super) bytes: Bytes,
    /// How many classes above it the lender stands,
    pub(super) lender: usize,
    /// and by what right it has sold.
    pub(super) right: Right,
}

/// Collects what is lacking on the way up.
struct Search<'a> {
    handle: &'a QueueHandle,
    bytes: Bytes,
    now: Nanos,
    last: Option<Lack>,
    ceilings: u32,
    is_late: bool,
    is_outranked: bool,
}

impl Search<'_> {
    fn add(&mut self, steps: usize, limit: Limit, until: Nanos) {
        if until <= self.now {
            return;
        }
        if limit == Limit::Ceil {
            self.ceilings |= 1 << steps;
        }
        if self.last.is_none_or(|last| until >= last.until) {
            self.last = Some(Lack::of(steps, limit, until));
        }
    }

    /// One `limit` of the class `steps` above, for this claim. Where it does not let pass `most`,
    /// that becomes the least.
    #[inline(always)]
    fn limit(
        &mut self,
        (steps, limit): (usize, Limit),
        (ledger, bucket): (&Ledger, Bucket),
        claim: Claim,
        most: &mut Bytes,
    ) {
        let (before, now) = (self.handle.total, self.now);
        if claim.right.due(ledger, bucket, before, *most, now) > now {
            self.lacks((steps, limit), (ledger, bucket), claim, most);
        }
    }

    /// One `limit` where this claim's right does not suffice for `most`.
    #[inline(never)]
    fn lacks(
        &mut self,
        (steps, limit): (usize, Limit),
        (ledger, bucket): (&Ledger, Bucket),
        claim: Claim,
        most: &mut Bytes,
    ) {
        let (before, now) = (self.handle.total, self.now);
        // By a right for less it may need more of a small bucket than by none.
        let passes =
            |bytes| limit == Limit::Ceil && passes_by_any_right(ledger, bucket, before, bytes, now);
        if passes(*most) {
            return;
        }
        *most = self.bytes;
        let until = claim.due(ledger, bucket, before, self.bytes, now);
        if until <= now {
            return;
        }
        self.add(steps, limit, until);
    }

    fn end(self) -> Result<(), Lack> {
        match self.last {
            None => Ok(()),
            Some(last) => {
                let Self { ceilings, is_late, is_outranked, .. } = self;
                Err(Lack { ceilings, is_late, is_outranked, ..last })
            }
        }
    }
}

impl QueueHandle {
    fn search(&self, bytes: Bytes, now: Nanos) -> Search<'_> {
        Search {
            handle: self,
            bytes,
            now,
            last: None,
            ceilings: 0,
            is_late: false,
            is_outranked: false,
        }
    }

    /// When the class has `bytes` at its own rate.
    #[inline(always)]
    pub(super) fn own_due(&self, bytes: Bytes, now: Nanos) -> Nanos {
        if self.is_shared() {
            return self.own_due_among_queues(bytes, now);
        }
        let (ledger, bucket) = self.node.rate();
        bucket.due(ledger, self.total, bytes, now)
    }

    /// [`own_due`](Self::own_due) where other queues send for the class, too.
    #[inline(never)]
    fn own_due_among_queues(&self, bytes: Bytes, now: Nanos) -> Nanos {
        self.own_due_by(self.claim(now), bytes, now)
    }

    /// When the class has `bytes` at its own rate for `claim`, among its queues.
    #[inline]
    fn own_due_by(&self, claim: Claim, bytes: Bytes, now: Nanos) -> Nanos {
        let (ledger, bucket) = self.node.rate();
        claim.due(ledger, bucket, self.total, bytes, now)
    }

    /// When the class has `bytes` at its own ceiling.
    #[inline(always)]
    pub(super) fn ceil_due(&self, bytes: Bytes, now: Nanos) -> Nanos {
        if self.is_shared() {
            return self.ceil_due_among_queues(bytes, now);
        }
        self.node.terms.ceil().due(&self.node.sales.ceil, self.total, bytes, now)
    }

    /// [`ceil_due`](Self::ceil_due) where other queues send for the class, too.
    #[inline(never)]
    fn ceil_due_among_queues(&self, bytes: Bytes, now: Nanos) -> Nanos {
        let (ledger, bucket) = (&self.node.sales.ceil, self.node.terms.ceil());
        if passes_by_any_right(ledger, bucket, self.total, bytes, now) {
            return Nanos::ZERO;
        }
        self.claim(now).due(ledger, bucket, self.total, bytes, now)
    }

    /// When the ceiling of `above` lets pass `bytes` of the class's own.
    #[inline]
    pub(super) fn ceil_of_due(&self, above: &Node, bytes: Bytes, now: Nanos) -> Nanos {
        above.terms.ceil().due(&above.sales.ceil, self.total, bytes, now)
    }

    /// Buys `least` bytes, or up to `want`, of what the class has of its own.
    pub(super) fn buy_own(&mut self, least: Bytes, want: Bytes, now: Nanos) -> Result<Bytes, Lack> {
        self.buy_own_and_more(least, want, (|| false, true), now).map(|(bytes, _)| bytes)
    }

    /// Buys `least` bytes, or up to `want`, of what the class has of its own. If that is less than
    /// its ceiling lets pass, the class would come back at once to borrow: where the one directly
    /// above it lends at once (`is_lent`), it buys the rest of a batch from that. Returns how much
    /// in all, and how much of it is lent. Whether it is lent is asked first if that is in a cache
    /// (`is_near`), and last otherwise.
    #[inline]
    pub(super) fn buy_own_and_more(
        &mut self,
        least: Bytes,
        want: Bytes,
        (is_lent, is_near): (impl Fn() -> bool, bool),
        now: Nanos,
    ) -> Result<(Bytes, Bytes), Lack> {
        self.join();
        // A queue that others went before rarely finds more than it needs.
        let want = if self.was_refused() { least } else { want };
        let is_assured = !self.is_shared() || self.claim_among_queues(now).right == Right::Assured;
        if is_assured && let Some(own) = self.node.offer_own(least, want, self.total, now) {
            if own < want
                && !self.is_shared()
                && (!is_near || is_lent())
                && let Some(lent) = self.buy_and_borrow(own, least, want, is_lent, now)
            {
                return Ok((own + lent, lent));
            }
            if self.node.take(own, self.total, &Offer::OWN, now) {
                self.bought(own, now);
                return Ok((own, Bytes::ZERO));
            }
        } else if !self.is_shared() {
            return Err(Lack::of(0, Limit::Rate, self.own_due(least, now)));
        }
        self.buy_least_own(least, now).map(|()| (least, Bytes::ZERO))
    }

    /// Buys `own` bytes of what the class has of its own, and the rest of the batch that its
    /// ceiling lets pass from the class directly above it, all or nothing. Returns how much is
    /// lent.
    #[inline(never)]
    fn buy_and_borrow(
        &mut self,
        own: Bytes,
        least: Bytes,
        want: Bytes,
        is_lent: impl FnOnce() -> bool,
        now: Nanos,
    ) -> Option<Bytes> {
        let bytes = self.node.batch(Limit::Ceil, least, want);
        // A class whose rate is its ceiling borrows nothing.
        if bytes < own + least || self.node.rate_apart().is_none() {
            return None;
        }
        let lent = bytes - own;
        let right = self.lent_besides(own, lent, is_lent, now)?;
        let offer = Offer { own, lender: 1, owes: right.owes() };
        if !self.node.take(bytes, self.total, &offer, now) {
            return None;
        }
        self.node.enter();
        self.bought(bytes, now);
        self.advance(1, lent, now);
        Some(lent)
    }

    /// Buys `bytes` of what the class has of its own where others of its class go first, or the
    /// classes above do not let more pass.
    #[inline(never)]
    fn buy_least_own(&mut self, bytes: Bytes, now: Nanos) -> Result<(), Lack> {
        let own = self.claim(now);
        let until = self.own_due_by(own, bytes, now);
        if until > now {
            return Err(Lack::of(0, Limit::Rate, until));
        }
        let mut search = self.search(bytes, now);
        for (steps, at) in self.node.path().enumerate() {
            // Between its queues it has been decided already.
            let claim = if steps == 0 { own } else { Claim::ASSURED };
            let ceil = (&at.sales.ceil, at.terms.ceil());
            search.limit((steps, Limit::Ceil), ceil, claim, &mut { bytes });
        }
        search.end()?;
        self.take(bytes, &Offer::OWN, now)
    }

    /// Buys `want` bytes, or at least `least`, from the class `lender` above this one, or from one
    /// below that has credit now.
    pub(super) fn borrow_up_to(
        &mut self,
        lender: usize,
        least: Bytes,
        want: Bytes,
        now: Nanos,
    ) -> Result<Loan, Lack> {
        let lender = self.lowest_lender(lender, least, now);
        let (bytes, right) = self.borrow_by_right(lender, least, want, now)?;
        Ok(Loan { bytes, lender, right })
    }

    /// The class that has credit for it now below the one `lender` above it, or that one.
    fn lowest_lender(&self, lender: usize, bytes: Bytes, now: Nanos) -> usize {
        if lender == 1 {
            return lender;
        }
        let own = self.claim(now);
        let below = self.node.path().enumerate().take(lender).skip(1);
        let mut below = below.filter(|(_, at)| {
            let (ledger, bucket) = at.rate();
            let claim = Claim::at(at.counted(Limit::Rate), at, &self.node, own, now);
            claim.due(ledger, bucket, self.total, bytes, now) <= now
        });
        below.next().map_or(lender, |(steps, _)| steps)
    }

    /// Buys `want` bytes, or at least `least`, from the class `lender` above this one.
    pub(super) fn borrow(
        &mut self,
        lender: usize,
        least: Bytes,
        want: Bytes,
        now: Nanos,
    ) -> Result<Bytes, Lack> {
        self.borrow_by_right(lender, least, want, now).map(|(bytes, _)| bytes)
    }

    /// [`borrow`](Self::borrow), with the right by which the lender has sold.
    fn borrow_by_right(
        &mut self,
        lender: usize,
        least: Bytes,
        want: Bytes,
        now: Nanos,
    ) -> Result<(Bytes, Right), Lack> {
        self.join();
        let most = if self.is_shared() && !self.was_refused() {
            // A purchase writes what other cores have written before: it had better be a large one.
            want.min(self.node.most_on_path()).max(least)
        } else {
            self.batch(Limit::Ceil, least, want)
        };
        let (bytes, right) = match self.borrow_at_once(lender, least, most, now) {
            Some((bytes, right)) => {
                self.bought(bytes, now);
                (bytes, right)
            }
            None => {
                let (bytes, right) = self.search_on_path(lender, least, most, now)?;
                self.node.enter();
                self.take(bytes, &Offer { own: Bytes::ZERO, lender, owes: right.owes() }, now)?;
                (bytes, right)
            }
        };
        self.advance(lender, bytes, now);
        Ok((bytes, right))
    }

    /// Whether the class `lender` above this one, which has just sold by `right`, has nothing left
    /// by that right for another packet of `bytes`.
    #[inline]
    pub(super) fn is_last_loan(&self, loan: &Loan, bytes: Bytes, now: Nanos) -> bool {
        let Some(lender) = self.node.path().nth(loan.lender) else { return false };
        let (ledger, bucket) = lender.rate();
        loan.right.due(ledger, bucket, self.total, bytes, now) > now
    }

    /// What the class lacks of the class `lender` above it, whatever those above that one let pass.
    /// [`None`] if it lacks nothing there, or others go first.
    #[inline(never)]
    pub(super) fn lacks_of(&self, lender: usize, bytes: Bytes, now: Nanos) -> Option<Lack> {
        let at = self.node.path().nth(lender)?;
        let limit = at.counted(Limit::Rate);
        let claim = Claim::at(limit, at, &self.node, self.claim(now), now);
        let (ledger, bucket) = at.rate();
        let until = claim.due(ledger, bucket, self.total, bytes, now);
        let ceilings = if limit == Limit::Ceil { 1 << lender } else { 0 };
        let lacks = until > now && !claim.right.is_late();
        let is_outranked = claim.right.is_outranked();
        lacks.then_some(Lack { ceilings, is_outranked, ..Lack::of(lender, limit, until) })
    }

    /// What the class lacks to borrow `bytes` from the class `lender` above it.
    #[inline(never)]
    pub(super) fn lacks(&self, lender: usize, bytes: Bytes, now: Nanos) -> Option<Lack> {
        self.search_on_path(lender, bytes, bytes, now).err()
    }

    /// Borrows up to `most` bytes, or at least `least`, from the class `lender` above this one, if
    /// there is enough for this class and no other queue sends for it: then each class on the way
    /// is looked at once, and nothing has to be collected.
    #[inline(always)]
    fn borrow_at_once(
        &mut self,
        lender: usize,
        least: Bytes,
        most: Bytes,
        now: Nanos,
    ) -> Option<(Bytes, Right)> {
        if self.is_shared() {
            return None;
        }
        let (node, before) = (&*self.node, self.total);
        let at = node.path().nth(lender)?;
        let right = Claim::at(at.counted(Limit::Rate), at, node, Claim::ASSURED, now).right;
        let (ledger, bucket) = at.rate();
        let bytes = right.most(ledger, bucket, before, (least, most), now)?;
        let ceil = node.terms.ceil();
        let bytes = if node.is_covered(ceil) {
            bytes
        } else {
            Right::Assured.most(&node.sales.ceil, ceil, before, (least, bytes), now)?
        };
        node.enter();
        let is_sold = node.take_by_right(bytes, before, (lender, right), now);
        is_sold.then_some((bytes, right))
    }

    /// How much of `most` bytes, or of `least`, the class `lender` above this one has, and by what
    /// right it sells that.
    #[inline(never)]
    fn search_on_path(
        &self,
        lender: usize,
        least: Bytes,
        mut most: Bytes,
        now: Nanos,
    ) -> Result<(Bytes, Right), Lack> {
        let (own, before) = (self.claim(now), self.total);
        let mut search = self.search(least, now);
        let (mut right, mut lent) = (Right::Assured, Claim::ASSURED);
        for (steps, at) in self.node.path().enumerate() {
            let (rate, bucket) = (at.terms.rate(), at.terms.ceil());
            let is_apart = rate != bucket;
            // What the class above lets pass, this one does.
            let mut is_settled = is_apart && at.is_covered(bucket);
            let ceil = (&at.sales.ceil, bucket);
            if steps == lender {
                // What a ceiling below the lender holds up wants nothing of it yet.
                if search.last.is_some() {
                    return search.end().map(|()| (least, right));
                }
                let claim = Claim::at(at.counted(Limit::Rate), at, &self.node, own, now);
                (right, lent) = (claim.right, claim.above(self.node.prio()));
                (search.is_late, search.is_outranked) = (right.is_late(), right.is_outranked());
                let sells = if is_apart { (&at.sales.rate, rate) } else { ceil };
                search.limit((steps, Limit::Rate), sells, claim, &mut most);
                // If the ceiling stands for both, both lack the same.
                is_settled |= !is_apart;
                if !is_apart && let Some(lack) = &mut search.last {
                    lack.limit = Limit::Ceil;
                    search.ceilings |= 1 << steps;
                }
            }
            if is_settled {
                continue;
            }
            if steps == 0 {
                search.limit((steps, Limit::Ceil), ceil, own, &mut most);
            } else if steps > lender {
                search.limit((steps, Limit::Ceil), ceil, lent, &mut most);
            } else if !passes_by_any_right(ceil.0, bucket, before, most, now) {
                let claim = Claim::at(Limit::Ceil, at, &self.node, own, now);
                search.limit((steps, Limit::Ceil), ceil, claim, &mut most);
            }
        }
        search.end().map(|()| (most, right))
    }

    /// By what right the class directly above this one lends `lent` bytes that follow `own` ones,
    /// if all let them pass. No other queue sends for this class.
    #[inline]
    fn lent_besides(
        &self,
        own: Bytes,
        lent: Bytes,
        is_lent: impl FnOnce() -> bool,
        now: Nanos,
    ) -> Option<Right> {
        let (node, total) = (&self.node, self.total);
        if node.terms.ceil().due(&node.sales.ceil, total, own + lent, now) > now {
            return None;
        }
        let before = total.wrapping_add(own.0);
        let has = |due: Nanos, bucket: Bucket| due + bucket.pace.span(total, own) <= now;
        let lender = node.parent.as_deref()?;
        let ceil = (&lender.sales.ceil, lender.terms.ceil());
        let apart = lender.rate_apart();
        let (ledger, bucket) = apart.unwrap_or(ceil);
        // Even one that is owed a frame needs this much. Where it is not there, no more cache lines
        // are touched than by a purchase of its own.
        if !has(Right::Owed(0).due(ledger, bucket, before, lent, now), bucket) || !is_lent() {
            return None;
        }
        let limit = lender.counted(Limit::Rate);
        let right = Claim::at(limit, lender, node, Claim::ASSURED, now).right;
        if !has(right.due(ledger, bucket, before, lent, now), bucket) {
            return None;
        }
        // Where the ceiling stands for both, it has let them pass already.
        let mut next = if apart.is_some() { Some(lender) } else { lender.parent.as_deref() };
        while let Some(at) = next {
            let bucket = at.terms.ceil();
            if !has(due_by_any_right(&at.sales.ceil, bucket, before, lent, now), bucket) {
                return None;
            }
            next = at.parent.as_deref();
        }
        Some(right)
    }

    fn take(&mut self, bytes: Bytes, offer: &Offer, now: Nanos) -> Result<(), Lack> {
        if !self.node.take(bytes, self.total, offer, now) {
            // Another queue was faster.
            return Err(Lack::of(offer.lender, Limit::Rate, now + Nanos(1)));
        }
        self.bought(bytes, now);
        Ok(())
    }

    /// Advances its virtual times for `bytes` from the class `lender` above this one.
    fn advance(&self, lender: usize, bytes: Bytes, now: Nanos) {
        let node = &self.node;
        let (prio, weight) = (node.prio(), u64::from(node.quantum()));
        let span = virtual_span(bytes, weight);
        let (mut above, mut steps) = (node.parent.as_deref(), 1);
        while let Some(at) = above
            && steps <= lender
        {
            if steps < lender {
                // It keeps its priority where it found nothing.
                let gap = node.terms.ceil().pace.span(0, bytes);
                at.borrowers(at.counted(Limit::Rate))[prio].passed_over(gap, now);
            }
            for limit in counts(lender, at, steps) {
                let from = node.place(steps, limit).fetch_add(span, Ordering::Relaxed);
                let to = from.wrapping_add(span);
                at.borrowers(limit)[prio].advance(from, to, bytes, weight);
            }
            (above, steps) = (at.parent.as_deref(), steps + 1);
        }
    }

    /// Gives back `bytes` of the last purchase, of which the lender stands `lender` above the
    /// class.
    pub(super) fn give_back(&mut self, lender: usize, bytes: Bytes) {
        self.returned(bytes);
        let node = &self.node;
        node.undo(bytes, self.total, lender, usize::MAX);
        let (prio, weight) = (node.prio(), u64::from(node.quantum()));
        for (steps, above) in node.path().enumerate().take(lender + 1).skip(1) {
            for limit in counts(lender, above, steps) {
                above.borrowers(limit)[prio].returned(bytes, weight);
                node.place(steps, limit).fetch_sub(virtual_span(bytes, weight), Ordering::Relaxed);
            }
        }
    }
}

/// For which limits of `above`, as [`Node::counted`], a purchase counts: `steps` above the class,
/// which borrows from the one `lender` above it.
#[inline]
fn counts(lender: usize, above: &Node, steps: usize) -> impl Iterator<Item = Limit> {
    let lends = steps == lender && above.rate_apart().is_some();
    lends.then_some(Limit::Rate).into_iter().chain([Limit::Ceil])
}
