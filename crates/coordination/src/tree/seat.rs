//! A queue's seat at a class: how it buys.
//!
//! First it looks, by loads alone: whether the ceilings on the way to the root have credit, and who
//! lends, which is the lowest class that has enough. Then it buys, from the leaf up; where another
//! queue was faster at some class, it gives back what it has bought below.

use super::ledger::Ledger;
use super::node::Node;
use super::race::{Race, laps};
use super::terms::{Bucket, FRAME};
use crate::sync::Ordering;
use narrows_qdisc::htb::{ClassMeter, Grant};
use narrows_units::{Bytes, Nanos};
use std::sync::Arc;

/// Who borrows from a root leaves this part of a bucket to those who come first: a power of two.
/// Who borrows from a class below it leaves half as much, and so on: what is lent lower down goes
/// before what is lent higher up. What is assured leaves nothing.
const CUSHION_PART: u64 = 8;
const CUSHIONS: usize = 4;

/// Above its lender, where there are no races, a class leaves this part more for each priority that
/// is better than its own.
const PRIORITY_PART: u64 = 256;

/// Who has no right leaves all but what would be lost soon. In sixteenths of a bucket, from where
/// on he may buy: one who has had his share and waits for others of his priority,
const LATE: u64 = 12;
/// one who is outranked,
const OUTRANKED: u64 = 13;
/// and one who is both.
const LAST: u64 = 14;

/// What is assured may leave those above in debt for so long: `mbuffer`'s, as in the kernel.
const LONGEST_DEBT: Nanos = Nanos::from_secs(60);

/// By what right something is bought.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Right {
    /// It is assured.
    Assured,
    /// It is borrowed, within a share. This is the binary logarithm of the part that it leaves.
    Shared(u32),
    /// It is lent further down. The same, and the priority.
    Lent(u32, u8),
    /// By none: from this many sixteenths of a bucket on nobody else wants it.
    None(u64),
}

impl Right {
    /// That of one who borrows from `lender`, within his share.
    #[inline]
    fn shared(lender: &Node) -> Self {
        Self::Shared(CUSHION_PART.trailing_zeros() + lender.depth().min(CUSHIONS - 1) as u32)
    }

    /// What it is above the lender, for a class of priority `prio`.
    #[inline]
    fn above(self, prio: usize) -> Self {
        match self {
            Self::Shared(part) => Self::Lent(part, prio as u8),
            other => other,
        }
    }

    /// What has to be in credit for a purchase of `span`.
    #[inline]
    fn least(self, span: Nanos, depth: Nanos) -> Nanos {
        let least = match self {
            Self::Assured => span,
            Self::Shared(part) => span + Nanos(depth.0 >> part),
            Self::Lent(part, prio) => {
                span + Nanos((depth.0 >> part) + depth.0 / PRIORITY_PART * u64::from(prio))
            }
            Self::None(sixteenths) => span.max(Nanos(depth.0 / 16 * sixteenths)),
        };
        least.min(depth)
    }
}

/// See the module's documentation.
pub(super) struct Seat {
    node: Arc<Node>,
    /// Bought so far, in bytes.
    total: u64,
    /// Its place in the race of the class's queues.
    place: u64,
    /// Its weight there; 0 while nothing is queued.
    weight: u64,
    /// Who lent the last time.
    lender: usize,
}

/// What a purchase would take.
struct Offer {
    /// How many classes above this one the lender stands.
    lender: usize,
    /// By the same count, where the class is ahead of others; at 0 the queue.
    ahead: u32,
}

/// What cannot be bought now.
struct Refusal {
    /// When to ask again.
    until: Nanos,
    /// Who has too little, each a bit by how far above the class it stands.
    by: u32,
}

/// What a class may say at another one, or at itself, when it wants to buy.
#[derive(Clone, Copy)]
struct Claim {
    right: Right,
    /// The right that it has again,
    later: Right,
    /// not before this time.
    at: Nanos,
    /// Whether others have had less.
    is_ahead: bool,
}

impl Claim {
    const fn only(right: Right) -> Self {
        Self { right, later: right, at: Nanos::ZERO, is_ahead: false }
    }
}

/// What a ledger answers.
struct Answer {
    /// When it sells.
    when: Nanos,
    /// Whether there is something now, be it for others.
    has: bool,
}

impl Seat {
    pub(super) fn new(node: Arc<Node>) -> Self {
        Self { node, total: 0, place: 0, weight: 0, lender: 0 }
    }

    /// What the queue may say for its class.
    #[inline]
    fn own_claim(&self, now: Nanos) -> Claim {
        let queues = &self.node.sales.queues;
        let Some(ahead) = queues.ahead(self.place, self.weight) else {
            return Claim::only(Right::Assured);
        };
        let until = queues.due_until();
        if until <= now {
            // Nobody else waits: the others have had what they want.
            return Claim { is_ahead: true, ..Claim::only(Right::Assured) };
        }
        // Before then the other queues of the class have not bought their shares.
        let others = self.node.terms.ceil().pace.span(0, queues.bytes(ahead));
        Claim {
            right: Right::None(LATE),
            later: Right::Assured,
            at: until.max(now + others),
            is_ahead: true,
        }
    }

    /// What the class may say at `lender`, `steps` above it, where `own` is what the queue may say
    /// for it.
    #[inline]
    fn claim(&self, lender: &Node, steps: usize, own: Claim, now: Nanos) -> Claim {
        let races = lender.borrowers();
        let prio = self.node.terms.prio();
        let race = &races[prio];
        let weight = u64::from(self.node.terms.quantum());
        let ahead = race.ahead(self.node.place(steps).load(Ordering::Relaxed), weight);
        let outranked = races[..prio].iter().map(Race::wanted_until).max().unwrap_or_default();
        let mut at = outranked.max(own.at);
        let mut is_late = own.right != Right::Assured;
        let due = race.due_until();
        if let Some(ahead) = ahead
            && due > now
        {
            is_late = true;
            at = at.max(due).max(now + lender.terms.ceil().pace.span(0, race.bytes(ahead)));
        }
        let later = Right::shared(lender);
        let right = match (is_late, outranked > now) {
            (true, true) => Right::None(LAST),
            (false, true) => Right::None(OUTRANKED),
            (true, false) => Right::None(LATE),
            (false, false) => later,
        };
        Claim { right, later, at, is_ahead: ahead.is_some() }
    }

    /// Asks `ledger` for `bytes`.
    #[inline]
    fn ask(
        &self,
        ledger: &Ledger,
        bucket: Bucket,
        bytes: Bytes,
        claim: Claim,
        now: Nanos,
    ) -> Answer {
        let span = bucket.pace.span(self.total, bytes);
        // Who has short packets is not to be the first each time.
        let frame = bucket.pace.span(0, FRAME);
        let due = |right: Right| {
            let span = if right == Right::Assured { span } else { span.max(frame) };
            ledger.due(right.least(span, bucket.depth), bucket.depth, now)
        };
        let when = due(claim.right);
        if when <= now {
            return Answer { when, has: true };
        }
        let later = due(claim.later);
        Answer { when: when.min(claim.at.max(later)), has: later <= now }
    }

    /// Whether `bytes` can be had at `now`, and from whom: from the class itself or, where `borrow`
    /// is true, from one above it.
    ///
    /// # Errors
    /// When to ask again.
    fn look(&self, bytes: Bytes, borrow: bool, now: Nanos) -> Result<Offer, Refusal> {
        let own = self.own_claim(now);
        let (mut lender, mut ahead) = (None, 0u32);
        // When somebody lends, and when all ceilings let it pass.
        let (mut lent, mut passed) = (Nanos::MAX, Nanos::ZERO);
        let (mut short, mut held) = (0u32, 0u32);
        for (steps, at) in self.node.path().enumerate() {
            let claim = match lender {
                // What is lent further down is as good as assured here.
                Some((_, cushion)) => Claim::only(cushion),
                None if steps == 0 => own,
                None => self.claim(at, steps, own, now),
            };
            let bit = 1 << steps;
            let (ceil, pass) = (at.terms.ceil(), &at.sales.ceil);
            if lender.is_none() {
                let (ledger, bucket) = at.rate();
                let answer = self.ask(ledger, bucket, bytes, claim, now);
                if answer.when <= now {
                    lender = Some((steps, claim.later.above(self.node.terms.prio())));
                } else {
                    lent = lent.min(answer.when);
                    short |= bit;
                    if answer.has || (steps == 0 && !borrow) {
                        // Who lends is the lowest that has something, and not whoever is less in
                        // demand.
                        break;
                    }
                }
                ahead |= if claim.is_ahead { bit } else { 0 };
            }
            let answer = self.ask(pass, ceil, bytes, claim, now);
            if answer.when > now {
                passed = passed.max(answer.when);
                held |= bit;
            }
        }
        match lender {
            Some((lender, _)) if held == 0 => {
                if lender > 0 {
                    self.node.enter();
                }
                Ok(Offer { lender, ahead })
            }
            // One that waits for its own ceiling waits for nobody. Any other has its share coming
            // at those who would lend, too.
            _ if held & 1 != 0 => Err(Refusal { until: passed, by: 0 }),
            Some((lender, _)) => Err(Refusal { until: passed, by: held | ((2 << lender) - 2) }),
            None => Err(Refusal { until: lent.max(passed), by: short | held }),
        }
    }

    /// Has those who refused know that it waits for them to have more, and the other queues of the
    /// class.
    #[cold]
    fn want(&self, refusal: &Refusal) {
        self.node.sales.queues.want(self.place, self.weight, refusal.until);
        if refusal.by == 0 {
            return;
        }
        self.node.enter();
        let (prio, weight) = (self.node.terms.prio(), u64::from(self.node.terms.quantum()));
        for (steps, above) in self.node.path().enumerate().skip(1) {
            if refusal.by & (1 << steps) != 0 {
                let place = self.node.place(steps).load(Ordering::Relaxed);
                above.borrowers()[prio].want(place, weight, refusal.until);
            }
        }
    }

    /// Buys `bytes` as `offer` has it. Whether it could: otherwise nothing has been bought.
    fn take(&self, bytes: Bytes, offer: &Offer, now: Nanos) -> bool {
        // What has to be left to others has been seen to be there; here it is certain that what is
        // bought is.
        let sell = |ledger: &Ledger, Bucket { pace, depth }: Bucket| {
            let span = pace.span(self.total, bytes);
            ledger.sell(span, span.min(depth), depth, now).then_some(span)
        };
        for (steps, at) in self.node.path().enumerate() {
            let mut sold = sell(&at.sales.ceil, at.terms.ceil());
            if let Some(span) = sold
                && steps >= offer.lender
                && let Some((ledger, rate)) = at.rate_apart()
            {
                if steps > offer.lender {
                    let span = rate.pace.span(self.total, bytes);
                    ledger.charge(span, rate.depth, LONGEST_DEBT, now);
                } else if sell(ledger, rate).is_none() {
                    at.sales.ceil.take_back(span);
                    sold = None;
                }
            }
            if sold.is_none() {
                self.undo(bytes, self.total, offer.lender, steps);
                return false;
            }
        }
        true
    }

    /// Gives back `bytes` that followed `before` others, at the first `classes` on the way up.
    fn undo(&self, bytes: Bytes, before: u64, lender: usize, classes: usize) {
        let back = |ledger: &Ledger, bucket: Bucket| {
            ledger.take_back(bucket.pace.span(before, bytes));
        };
        for (steps, at) in self.node.path().enumerate().take(classes) {
            back(&at.sales.ceil, at.terms.ceil());
            if steps >= lender
                && let Some((ledger, rate)) = at.rate_apart()
            {
                back(ledger, rate);
            }
        }
    }

    /// Moves the races on for `bytes` that were bought as `offer` has it.
    fn run(&mut self, bytes: Bytes, offer: &Offer) {
        let node = &self.node;
        let queues = &node.sales.queues;
        queues.sold(bytes, self.weight);
        self.place = self.place.wrapping_add(laps(bytes, self.weight));
        if offer.ahead & 1 != 0 {
            queues.follow(self.place, self.weight);
        }
        let weight = u64::from(node.terms.quantum());
        let laps = laps(bytes, weight);
        for (steps, above) in node.path().enumerate().take(offer.lender + 1).skip(1) {
            let race = &above.borrowers()[node.terms.prio()];
            race.sold(bytes, weight);
            let place = node.place(steps).fetch_add(laps, Ordering::Relaxed);
            if offer.ahead & (1 << steps) != 0 {
                race.follow(place.wrapping_add(laps), weight);
            }
        }
    }

    /// The most that may be bought at once.
    fn most(&self) -> Bytes {
        self.node.path().map(|at| at.terms.most()).min().unwrap_or(Bytes::ZERO)
    }

    fn try_to_buy(&mut self, bytes: Bytes, borrow: bool, now: Nanos) -> Result<Grant, Refusal> {
        let offer = self.look(bytes, borrow, now)?;
        if !self.take(bytes, &offer, now) {
            // Somebody was faster.
            return Err(Refusal { until: now + Nanos(1), by: 0 });
        }
        self.run(bytes, &offer);
        self.total = self.total.wrapping_add(bytes.0);
        self.lender = offer.lender;
        Ok(Grant { bytes, lender: u8::try_from(offer.lender).unwrap_or(u8::MAX) })
    }
}

impl ClassMeter for Seat {
    fn buy(&mut self, least: Bytes, want: Bytes, borrow: bool, now: Nanos) -> Result<Grant, Nanos> {
        let want = want.min(self.most());
        if want > least
            && let Ok(grant) = self.try_to_buy(want, borrow, now)
        {
            return Ok(grant);
        }
        self.try_to_buy(least, borrow, now).map_err(|refusal| {
            if borrow {
                self.want(&refusal);
            }
            refusal.until
        })
    }

    fn give_back(&mut self, bytes: Bytes) {
        self.total = self.total.wrapping_sub(bytes.0);
        self.undo(bytes, self.total, self.lender, usize::MAX);
        self.node.sales.queues.returned(bytes, self.weight);
        self.place = self.place.wrapping_sub(laps(bytes, self.weight));
        let (node, weight) = (&self.node, u64::from(self.node.terms.quantum()));
        for (steps, above) in node.path().enumerate().take(self.lender + 1).skip(1) {
            above.borrowers()[node.terms.prio()].returned(bytes, weight);
            node.place(steps).fetch_sub(laps(bytes, weight), Ordering::Relaxed);
        }
    }

    fn set_active(&mut self, active: bool) {
        if active == (self.weight != 0) {
            return;
        }
        let sales = &self.node.sales;
        if active {
            self.weight = u64::from(self.node.terms.quantum());
            sales.queues.join(self.weight);
            self.place = sales.queues.start(self.place, self.weight);
            sales.active.fetch_add(1, Ordering::Relaxed);
        } else {
            sales.queues.leave(std::mem::take(&mut self.weight));
            if sales.active.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.node.retire();
            }
        }
    }

    fn tokens(&self, now: Nanos) -> Vec<[i64; 2]> {
        let tokens = |at: &Node| {
            let (ledger, bucket) = at.rate();
            let ceil = at.terms.ceil();
            [ledger.level(bucket.depth, now), at.sales.ceil.level(ceil.depth, now)]
        };
        self.node.path().map(tokens).collect()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.set_active(false);
    }
}
