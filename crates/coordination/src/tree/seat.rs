//! A queue's seat at a class: how it buys.
//!
//! A seat buys what its class has of its own at once, from the leaf up. Otherwise it looks first,
//! with loads alone: do the ceilings on the way to the root have credit, and which class lends (the
//! lowest with enough credit)? If a ceiling has too little, or another queue was faster at some
//! class, it returns the credit that it has bought below.

use super::ledger::Ledger;
use super::node::Node;
use super::race::{RETURN, Race, bytes, laps};
use super::terms::{Bucket, FRAME};
use crate::sync::Ordering;
use narrows_qdisc::htb::{ClassMeter, Grant, Line};
use narrows_qdisc::{RANKS, Weight};
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

/// At its lender a borrower leaves a step more for each better priority that runs, and one if it is
/// ahead of others: whoever was held up by its own ceiling finds credit when it may go on. A step
/// is this part of a bucket, and at least a full frame.
const STEP_PART: u64 = 16;
/// More steps than these would leave too little to one who wakes up late.
const STEPS_MOST: u8 = 2;

/// Who has no right leaves all but what would be lost soon. In sixteenths of a bucket, from where
/// on he may buy: one who has had his share and waits for others of his priority,
const LATE: u8 = 12;
/// one who is outranked,
const OUTRANKED: u8 = 13;
/// and one who is both.
const LAST: u8 = 14;

/// Of a deep bucket one who is outranked uses no more than what would be lost so soon: a worker
/// that comes late finds the rest.
const SOON: Nanos = Nanos::from_micros(50);

/// What is assured may leave those above in debt for so long: `mbuffer`'s, as in the kernel.
const LONGEST_DEBT: Nanos = Nanos::from_secs(60);

/// By what right something is bought.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Right {
    /// It is assured.
    Assured,
    /// It is borrowed, within a share. This is the binary logarithm of the part that it leaves, and
    /// how many steps it leaves besides.
    Shared(u8, u8),
    /// It is lent further down. The same, and the priority.
    Lent(u8, u8),
    /// By none: from this many sixteenths of a bucket on nobody else wants it.
    None(u8),
}

impl Right {
    /// That of one who borrows from `lender`, within his share, and leaves so many `steps` to
    /// others.
    #[inline]
    fn shared(lender: &Node, steps: u8) -> Self {
        Self::Shared(
            CUSHION_PART.trailing_zeros() as u8 + lender.depth().min(CUSHIONS - 1) as u8,
            steps,
        )
    }

    /// Whether somebody better waits.
    #[inline]
    fn is_outranked(self) -> bool {
        matches!(self, Self::None(OUTRANKED | LAST))
    }

    /// What it is above the lender, for a class of priority `prio`.
    #[inline]
    fn above(self, prio: usize) -> Self {
        match self {
            Self::Shared(part, _) => Self::Lent(part, prio as u8),
            other => other,
        }
    }

    /// What has to be in credit for a purchase of `span`, where a full frame takes `frame`.
    #[inline]
    fn least(self, span: Nanos, frame: Nanos, depth: Nanos) -> Nanos {
        let least = match self {
            Self::Assured => span,
            Self::Shared(part, steps) => {
                span + Nanos(
                    (depth.0 >> part) + (depth.0 / STEP_PART).max(frame.0) * u64::from(steps),
                )
            }
            Self::Lent(part, prio) => {
                span + Nanos((depth.0 >> part) + depth.0 / PRIORITY_PART * u64::from(prio))
            }
            Self::None(sixteenths) => {
                let rest = Nanos(depth.0 / 16 * (16 - u64::from(sixteenths)));
                let rest = if sixteenths == LATE { rest } else { rest.min(SOON) };
                span.max(depth - rest)
            }
        };
        least.min(depth)
    }
}

/// See the module's documentation.
///
/// A purchase of what the class has itself touches the first of its two cache lines.
#[repr(C, align(64))]
pub(super) struct Seat {
    node: Arc<Node>,
    /// Bought so far, in bytes.
    total: u64,
    /// Its place in the race of the class's queues.
    place: u64,
    /// Its weight there; 0 while nothing is queued.
    weight: u64,
    /// The rank of what it sends next: there is a race for each.
    rank: usize,
    /// Who lent the last time.
    lender: usize,
    /// What the queue weighs beside the others.
    part: Weight,
    /// At whom it has claimed since it was refused to come before worse priorities, by bits as in
    /// [`Refusal::by`]; 0 is the class itself, where it comes before worse ranks,
    wanted_by: u32,
    /// Whether it was refused the last time.
    was_refused: bool,
    /// Whether what it had of its own did not pass the ceilings above it: it looks first, until it
    /// is not refused any more.
    was_held: bool,

    /// what it has said there,
    wanted: Nanos,
    /// and at the class.
    wanted_here: Nanos,
    /// Its places in races of other ranks. Made with the first other rank.
    places: Option<Box<[u64; RANKS]>>,
    /// What it waits for since it was refused, where others wait for the same.
    line: Option<Waiting>,
}

/// What a purchase would take.
struct Offer {
    /// How many classes above this one the lender stands.
    lender: usize,
    /// By the same count, where the class is ahead of others; at 0 the queue.
    ahead: u32,
    /// And those below the lender that had too little.
    short: u32,
}

/// What cannot be bought now.
struct Refusal {
    /// When to ask again.
    until: Nanos,
    /// Who has too little, each a bit by how far above the class it stands.
    by: u32,
    /// What is waited for, where others wait for the same.
    line: Option<Waiting>,
}

impl Refusal {
    /// One that is a matter of the class alone.
    const fn alone(until: Nanos) -> Self {
        Self { until, by: 0, line: None }
    }
}

/// What a class waits for, where others do.
struct Waiting {
    line: Line,
    /// In the races of so many classes above it it has its turn.
    races: usize,
}

/// Whom a class waits for, as it finds out on the way to the root.
struct Binding {
    /// How many classes above it.
    steps: usize,
    claim: Claim,
    when: Nanos,
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

impl Right {
    /// A number that all have who need as much credit to be left.
    #[inline]
    fn rank(self) -> u8 {
        match self {
            Self::Assured => 0,
            Self::Shared(..) => 1,
            Self::None(_) => 2,
            Self::Lent(part, _) => 3 + part,
        }
    }
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
        Self {
            node,
            total: 0,
            place: 0,
            weight: 0,
            rank: 0,
            places: None,
            part: Weight::ONE,
            lender: 0,
            line: None,
            was_refused: false,
            was_held: false,
            wanted_by: 0,
            wanted: Nanos::ZERO,
            wanted_here: Nanos::ZERO,
        }
    }

    fn weight_among_queues(&self) -> u64 {
        let quantum = u64::from(self.node.terms.quantum());
        (quantum * u64::from(self.part.0) / u64::from(Weight::ONE.0)).max(1)
    }

    /// What the queue may say for its class.
    #[inline]
    fn own_claim(&self, now: Nanos) -> Claim {
        let queues = self.queues();
        let ahead = queues.ahead(self.place, self.weight);
        let is_ahead = ahead.is_some();
        let outranked = if self.rank == 0 { Nanos::ZERO } else { self.outranked_until() };
        let is_outranked = outranked > now;
        let Some((of_last, until)) = queues.ahead_of_last(self.place, self.weight, now) else {
            if is_outranked {
                let (right, later) = (Right::None(OUTRANKED), Right::Assured);
                return Claim { right, later, at: outranked, is_ahead };
            }
            // Nobody else waits: the others have had what they want.
            return Claim { is_ahead, ..Claim::only(Right::Assured) };
        };
        // Before then the other queues of the class have not bought their shares.
        let others = queues.bytes(ahead.unwrap_or_default()).max(bytes(of_last, self.weight));
        let others = self.node.terms.ceil().pace.span(0, others);
        let at = until.max(now + others).max(outranked);
        let right = Right::None(if is_outranked { LAST } else { LATE });
        Claim { right, later: Right::Assured, at, is_ahead }
    }

    /// The race of the queues of the class that are of its rank.
    #[inline]
    fn queues(&self) -> &Race {
        self.node.queues(self.rank)
    }

    /// Has queues of worse ranks know that it stands in line until `due`.
    #[inline]
    fn comes(&mut self, due: Nanos) {
        if self.node.has_ranks() {
            self.wanted_here = self.queues().comes(due);
            self.wanted_by |= 1;
        }
    }

    /// Until when a queue of the class waits that is of a better rank.
    #[inline(never)]
    fn outranked_until(&self) -> Nanos {
        let better = (0..self.rank).map(|rank| self.node.queues(rank).wanted_until());
        better.max().unwrap_or_default()
    }

    /// What the class may say at `lender`, `steps` above it, where `own` is what the queue may say
    /// for it.
    #[inline]
    fn claim(&self, lender: &Node, steps: usize, own: Claim, now: Nanos) -> Claim {
        let races = lender.borrowers();
        let prio = self.node.terms.prio();
        let race = &races[prio];
        let weight = u64::from(self.node.terms.quantum());
        let place = self.node.place(steps).load(Ordering::Relaxed);
        let ahead = race.ahead(place, weight);
        let outranked = races[..prio].iter().map(Race::wanted_until).max().unwrap_or_default();
        let mut at = outranked.max(own.at);
        let mut is_late = own.right != Right::Assured;
        let is_outranked = outranked > now || own.right.is_outranked();
        if let Some((of_last, due)) = race.ahead_of_last(place, weight, now) {
            is_late = true;
            let others = race.bytes(ahead.unwrap_or_default()).max(bytes(of_last, weight));
            at = at.max(due).max(now + lender.terms.ceil().pace.span(0, others));
        }
        let better = races[..prio].iter().filter(|race| !race.is_empty()).count() as u8;
        let later = Right::shared(lender, (better + u8::from(ahead.is_some())).min(STEPS_MOST));
        let right = match (is_late, is_outranked) {
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
            ledger.due(right.least(span, frame, bucket.depth), bucket.depth, now)
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
        // Who lends first, and who of those above lets it pass last.
        let (mut lends, mut passes): (Option<Binding>, Option<Binding>) = (None, None);
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
                let Answer { when, has } = self.ask(ledger, bucket, bytes, claim, now);
                if when <= now {
                    lender = Some((steps, claim.later.above(self.node.terms.prio())));
                } else {
                    if lends.as_ref().is_none_or(|first| when < first.when) {
                        lends = Some(Binding { steps, claim, when });
                    }
                    short |= bit;
                    if has || (steps == 0 && !borrow) {
                        // Who lends is the lowest that has something, and not whoever is less in
                        // demand.
                        break;
                    }
                }
                ahead |= if claim.is_ahead { bit } else { 0 };
            }
            let Answer { when, .. } = self.ask(pass, ceil, bytes, claim, now);
            if when > now {
                if passes.as_ref().is_none_or(|last| when >= last.when) {
                    passes = Some(Binding { steps, claim, when });
                }
                held |= bit;
            }
        }
        let (binding, by) = match (lender, lends, passes) {
            (Some((lender, _)), _, None) => {
                if lender > 0 {
                    self.node.enter();
                }
                return Ok(Offer { lender, ahead, short });
            }
            // One that waits for its own ceiling waits for nobody. Any other has its share coming
            // at those who would lend, too; but not above a ceiling that holds it up.
            (_, _, Some(passes)) if held & 1 != 0 => return Err(Refusal::alone(passes.when)),
            (Some((lender, _)), _, Some(passes)) => {
                let below = (2 << lender.min(passes.steps)) - 2;
                (passes, held | below)
            }
            (None, Some(lends), Some(passes)) if passes.when > lends.when => (passes, short | held),
            (None, Some(lends), _) => (lends, short | held),
            // There is no class, but there is always this one.
            (None, None, _) => return Err(Refusal::alone(now + Nanos(1))),
        };
        let lender = lender.map(|(lender, _)| lender);
        let line = borrow.then(|| self.waits_for(&binding, lender)).flatten();
        Err(Refusal { until: binding.when, by, line })
    }

    /// What the class waits for, where others do: neither where it waits for itself nor where it
    /// has had more than others. `lender` is how many classes above this one the lender stands, if
    /// there is one.
    fn waits_for(&self, binding: &Binding, lender: Option<usize>) -> Option<Waiting> {
        let Binding { steps, claim, .. } = binding;
        let is_late = matches!(claim.right, Right::None(sixteenths) if sixteenths != OUTRANKED);
        if *steps == 0 || is_late {
            return None;
        }
        let rank = claim.right.rank() << 3 | self.node.terms.prio() as u8;
        let levels = u8::try_from(*steps).unwrap_or(u8::MAX);
        let borrows = claim.right != Right::Assured;
        let races = if borrows { lender.unwrap_or(*steps) } else { 0 };
        Some(Waiting { line: Line { rank, levels, borrows }, races })
    }

    /// Has those who refused know that it waits for them to have more, and the other queues of the
    /// class.
    #[cold]
    fn want(&mut self, refusal: &Refusal, now: Nanos) {
        self.wanted_here = self.queues().want(self.place, refusal.until, now);
        let here = u32::from(self.node.has_ranks());
        if refusal.by == 0 {
            self.wanted_by |= here;
            return;
        }
        self.wanted_by = refusal.by & !1 | here;
        self.node.enter();
        let (prio, weight) = (self.node.terms.prio(), u64::from(self.node.terms.quantum()));
        for (steps, above) in self.node.path().enumerate().skip(1) {
            if refusal.by & (1 << steps) != 0 {
                let (race, place) = (&above.borrowers()[prio], self.node.place(steps));
                let from = place.load(Ordering::Relaxed);
                let to = race.floor(from, weight);
                if to != from {
                    // Where another queue has bought meanwhile, it is no longer so far behind.
                    let _ = place.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
                }
                self.wanted = race.want(to, refusal.until, now);
            }
        }
    }

    /// Has them know that it does not wait any more.
    #[cold]
    fn has_had(&mut self, now: Nanos) {
        let (prio, by) = (self.node.terms.prio(), std::mem::take(&mut self.wanted_by));
        if by & 1 != 0 {
            self.queues().has_had(self.wanted_here, now);
        }
        for (steps, above) in self.node.path().enumerate().skip(1) {
            if by & (1 << steps) != 0 {
                above.borrowers()[prio].has_had(self.wanted, now);
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
    fn run(&mut self, bytes: Bytes, offer: &Offer, now: Nanos) {
        let node = &self.node;
        let queues = node.queues(self.rank);
        queues.sold(bytes, self.weight);
        let before = self.place;
        self.place = self.place.wrapping_add(laps(bytes, self.weight));
        queues.moved(before, self.place);
        if offer.ahead & 1 != 0 {
            queues.follow(self.place, self.weight);
        }
        let weight = u64::from(node.terms.quantum());
        let laps = laps(bytes, weight);
        for (steps, above) in node.path().enumerate().take(offer.lender + 1).skip(1) {
            let race = &above.borrowers()[node.terms.prio()];
            race.sold(bytes, weight);
            let place = node.place(steps).fetch_add(laps, Ordering::Relaxed);
            race.moved(place, place.wrapping_add(laps));
            if offer.short & (1 << steps) != 0 {
                let gap = node.terms.ceil().pace.span(0, bytes);
                race.passed_over(gap, now);
            }
            if offer.ahead & (1 << steps) != 0 {
                race.follow(place.wrapping_add(laps), weight);
            }
        }
    }

    /// Buys `least` bytes, or up to `want`, of what the class has of its own, where its queues have
    /// no claims on each other: there is nothing then to look at but credit. `None` where it has
    /// none, or what it has does not pass the ceilings above it.
    #[inline]
    fn buy_own(&mut self, least: Bytes, want: Bytes, own: Claim, now: Nanos) -> Option<Grant> {
        let (ledger, bucket) = self.node.rate();
        let has = |bytes| self.ask(ledger, bucket, bytes, own, now).when <= now;
        if !has(least) {
            return None;
        }
        let most = want.min(self.node.terms.most());
        // Who was refused has rarely more than what it needs.
        let has_more = !self.was_refused && most > least && has(most);
        let bytes = if has_more { want.min(self.most()).max(least) } else { least };
        let offer = Offer { lender: 0, ahead: u32::from(own.is_ahead), short: 0 };
        if !self.take(bytes, &offer, now) {
            self.was_held = true;
            return None;
        }
        Some(self.has_bought(bytes, &offer, now))
    }

    /// When the class, which may say `own` for itself, will have `least` bytes at its own rate.
    fn own_due(&self, least: Bytes, own: Claim, now: Nanos) -> Nanos {
        let (ledger, bucket) = self.node.rate();
        self.ask(ledger, bucket, least, own, now).when
    }

    /// The most that may be bought at once.
    fn most(&self) -> Bytes {
        self.node.path().map(|at| at.terms.most()).min().unwrap_or(Bytes::ZERO)
    }

    fn try_to_buy(&mut self, bytes: Bytes, borrow: bool, now: Nanos) -> Result<Grant, Refusal> {
        let offer = self.look(bytes, borrow, now)?;
        if !self.take(bytes, &offer, now) {
            // Somebody was faster.
            return Err(Refusal::alone(now + Nanos(1)));
        }
        // Who waited for a ceiling is likely to do so again.
        self.was_held &= self.was_refused;
        Ok(self.has_bought(bytes, &offer, now))
    }

    /// It has bought `bytes` as `offer` has it.
    #[inline]
    fn has_bought(&mut self, bytes: Bytes, offer: &Offer, now: Nanos) -> Grant {
        self.run(bytes, offer, now);
        if self.wanted_by != 0 {
            self.has_had(now);
        }
        self.total = self.total.wrapping_add(bytes.0);
        self.lender = offer.lender;
        Grant { bytes, lender: u8::try_from(offer.lender).unwrap_or(u8::MAX) }
    }
}

impl ClassMeter for Seat {
    fn buy(&mut self, least: Bytes, want: Bytes, borrow: bool, now: Nanos) -> Result<Grant, Nanos> {
        let own = self.own_claim(now);
        if own.right == Right::Assured && !self.was_held {
            if let Some(grant) = self.buy_own(least, want, own, now) {
                self.was_refused = false;
                return Ok(grant);
            }
            if !borrow && !self.was_held {
                if !self.was_refused {
                    // It has had something since: what it waited for before says nothing.
                    (self.was_refused, self.line) = (true, None);
                }
                return Err(self.own_due(least, own, now));
            }
        } else if !borrow && self.was_refused {
            let due = self.own_due(least, own, now);
            if due > now {
                return Err(due);
            }
        }
        if want > least && !self.was_refused {
            let want = want.min(self.most());
            if want > least
                && let Ok(grant) = self.try_to_buy(want, borrow, now)
            {
                return Ok(grant);
            }
        }
        let refusal = match self.try_to_buy(least, borrow, now) {
            Ok(grant) => {
                self.was_refused = false;
                return Ok(grant);
            }
            Err(refusal) => refusal,
        };
        self.was_refused = true;
        if borrow {
            self.want(&refusal, now);
        }
        self.line = refusal.line;
        Err(refusal.until)
    }

    fn line(&self) -> Option<Line> {
        self.line.as_ref().map(|waiting| waiting.line)
    }

    fn place_in_line(&self, level: u8, now: Nanos) -> (u64, u64) {
        let Some(Waiting { line, races }) = &self.line else { return (0, 0) };
        let steps = usize::from(level);
        let id = self.node.path().nth(steps).map_or(0, |above| above.id);
        // Who has not to share comes when it came.
        let turn =
            if steps <= *races { self.node.place(steps).load(Ordering::Relaxed) } else { now.0 };
        (u64::from(id) << 8 | u64::from(line.rank), turn)
    }

    fn due_below(&mut self, level: u8, least: Bytes, now: Nanos) -> Nanos {
        match &self.line {
            Some(Waiting { line, .. }) if !line.borrows => {
                self.comes(now + RETURN);
                return Nanos::MAX;
            }
            _ => {}
        }
        let own = self.own_claim(now);
        let mut due = Nanos::MAX;
        let below = || self.node.path().enumerate().take(usize::from(level));
        for (steps, at) in below() {
            let claim = if steps == 0 { own } else { self.claim(at, steps, own, now) };
            let (ledger, bucket) = at.rate();
            due = due.min(self.ask(ledger, bucket, least, claim, now).when);
        }
        for (_, at) in below().skip(1) {
            at.borrowers()[self.node.terms.prio()].comes(due);
        }
        self.comes(due);
        due
    }

    #[inline]
    fn expect(&self) {
        self.node.prefetch();
    }

    fn give_back(&mut self, bytes: Bytes) {
        self.total = self.total.wrapping_sub(bytes.0);
        self.undo(bytes, self.total, self.lender, usize::MAX);
        self.queues().returned(bytes, self.weight);
        self.place = self.place.wrapping_sub(laps(bytes, self.weight));
        let (node, weight) = (&self.node, u64::from(self.node.terms.quantum()));
        for (steps, above) in node.path().enumerate().take(self.lender + 1).skip(1) {
            above.borrowers()[node.terms.prio()].returned(bytes, weight);
            node.place(steps).fetch_sub(laps(bytes, weight), Ordering::Relaxed);
        }
    }

    fn weigh(&mut self, weight: Weight) {
        self.part = weight;
        if self.weight != 0 {
            let weight = self.weight_among_queues();
            self.queues().join(weight);
            let before = std::mem::replace(&mut self.weight, weight);
            let _: bool = self.queues().leave(before);
        }
    }

    fn rank(&mut self, rank: u8, now: Nanos) {
        let rank = usize::from(rank).min(RANKS - 1);
        let before = std::mem::replace(&mut self.rank, rank);
        if rank == before {
            return;
        }
        if self.wanted_by & 1 != 0 {
            self.wanted_by &= !1;
            self.node.queues(before).has_had(self.wanted_here, now);
        }
        let places = self.places.get_or_insert_default();
        places[before] = self.place;
        self.place = places[rank];
        if self.weight != 0 {
            self.queues().join(self.weight);
            self.place = self.queues().start(self.place, self.weight);
            let _: bool = self.node.queues(before).leave(self.weight);
        }
    }

    fn seat_of(&self) -> u64 {
        self.node.serial
    }

    fn set_active(&mut self, active: bool) {
        if active == (self.weight != 0) {
            return;
        }
        if active {
            self.weight = self.weight_among_queues();
            self.queues().join(self.weight);
            self.place = self.queues().start(self.place, self.weight);
        } else {
            let weight = std::mem::take(&mut self.weight);
            if self.queues().leave(weight) {
                self.node.retire();
            }
        }
    }

    fn rests(&mut self) -> bool {
        // Alone in its race, and where it would start again, it can as well not run. A class that
        // runs in races above it lingers there.
        let queues = self.node.queues(self.rank);
        let rests = queues.is_alone(self.weight)
            && queues.start(self.place, self.weight) == self.place
            && !self.node.has_entered();
        if rests {
            self.set_active(false);
        }
        rests
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use narrows_qdisc::htb::Class;
    use narrows_units::{Rate, wire::Overhead};
    use std::mem::offset_of;

    const NOW: Nanos = Nanos::from_secs(1);
    const PACKET: Bytes = Bytes(1_500);

    fn class(mbit: u64) -> Class {
        let (rate, ceil) =
            (Rate::from_bits_per_sec(mbit * 1_000_000), Rate::from_bits_per_sec(1 << 30));
        let (burst, cburst) = (Bytes(10_000), Bytes(1 << 20));
        let overhead = Overhead::NONE;
        Class { parent: None, rate, ceil, burst, cburst, prio: 0, quantum: 10_000, overhead }
    }

    fn seats<const COUNT: usize>(node: &Arc<Node>) -> [Seat; COUNT] {
        std::array::from_fn(|_| Seat::new(Arc::clone(node)))
    }

    #[test]
    fn a_purchase_touches_one_cache_line_of_a_seat() {
        assert_eq!(offset_of!(Seat, wanted), 64);
    }

    #[test]
    fn a_queue_rests_at_once_where_it_is_alone() {
        let node = Arc::new(Node::new(1, 1, &class(1_000), None));
        let [mut one, mut other] = seats(&node);
        one.set_active(true);
        one.buy(PACKET, PACKET, false, NOW).unwrap();
        assert!(one.rests() && node.queues(0).is_empty());
        one.set_active(true);
        other.set_active(true);
        assert!(!one.rests() && !other.rests(), "each would leave its part to the other");
        other.set_active(false);
        assert!(one.rests());
    }

    #[test]
    fn a_queue_that_has_less_or_more_than_it_would_start_with_does_not_rest_at_once() {
        let node = Arc::new(Node::new(1, 1, &class(1_000), None));
        let [mut one, mut other] = seats(&node);
        one.set_active(true);
        other.set_active(true);
        other.buy(PACKET, PACKET, false, NOW).unwrap();
        other.set_active(false);
        assert!(!one.rests(), "it is behind, and has a right to more");
    }

    #[test]
    fn a_class_that_has_borrowed_does_not_rest_at_once() {
        let root = Arc::new(Node::new(1, 1, &class(1_000), None));
        let node = Arc::new(Node::new(2, 2, &class(1), Some(root)));
        let [mut seat] = seats(&node);
        seat.set_active(true);
        while seat.buy(PACKET, PACKET, false, NOW).is_ok() {}
        assert!(seat.buy(PACKET, PACKET, true, NOW).unwrap().lender > 0);
        assert!(!seat.rests(), "it runs in the race of its lender");
        seat.set_active(false);
        seat.set_active(true);
        assert!(seat.rests());
    }
}
