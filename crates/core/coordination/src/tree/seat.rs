//! A queue's seat at a class: how it buys.
//!
//! A seat buys what its class has of its own at once, from the leaf up. Otherwise it looks first,
//! with loads alone: do the ceilings on the way to the root have credit, and which class lends (the
//! lowest with enough credit)? If a ceiling has too little, or another queue was faster at some
//! class, it returns the credit that it has bought below.

use super::ledger::Ledger;
use super::node::{Limit, Node};
use super::purchase::Offer;
use super::race::{LEAD, RETURN, Race, bytes, laps};
use super::terms::{Bucket, FRAME};
use crate::sync::{AtomicU64, Ordering};
use narrows_qdisc::htb::{ClassMeter, Grant, Line, OwnCredit};
use narrows_qdisc::{RANKS, Weight};
use narrows_units::{Bytes, Nanos};
use std::sync::Arc;

/// A borrower from a root leaves this part of a bucket to traffic that goes first: a power of two.
/// A borrower from a class below it leaves half as much, and so on, so credit lent lower down goes
/// before credit lent higher up. Assured traffic leaves nothing.
const CUSHION_PART: u64 = 8;
const CUSHIONS: usize = 4;

/// Above its lender, if there are no races, a class leaves this part more for each priority that is
/// better than its own.
const PRIORITY_PART: u64 = 256;

/// At its lender a borrower leaves some steps more for each better priority that runs, and one if
/// it is ahead of others. So a class that its own ceiling held up finds credit when it continues,
/// and need not borrow further up. A step is this part of a bucket, and at least a full frame.
const STEP_PART: u64 = 16;
/// Steps left for each better priority. Fewer would leave it too little after a worse priority has
/// just bought, of what is lent and of its own. It would borrow further up, and the worse one would
/// have its share here.
const PRIORITY_STEPS: u8 = 3;
/// More steps than this would leave too little to a queue that wakes up late.
const STEPS_MOST: u8 = 5;

/// A buyer without a right takes only credit that would soon be lost. These are the levels, in
/// sixteenths of a bucket, from which it may buy. This one has had its share and waits for others
/// of its priority.
const LATE: u8 = 12;
/// This one is outranked.
const OUTRANKED: u8 = 13;
/// This one is both.
const LAST: u8 = 14;

/// From a deep bucket an outranked buyer takes no more than what would be lost this soon, so a late
/// worker finds the rest.
const SOON: Nanos = Nanos::from_micros(50);

/// The right by which a class buys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Right {
    /// Within the assured rate.
    Assured,
    /// Borrowed, within a share: the binary logarithm of the part that it leaves, and the steps
    /// that it leaves in addition.
    Shared(u8, u8),
    /// Borrowed by a class that is behind its share, where no better priority runs: the same
    /// logarithm. It leaves nothing to others, and may owe the lender a frame.
    Owed(u8),
    /// Lent further down: the same logarithm, and the priority.
    Lent(u8, u8),
    /// No right: it may buy from this many sixteenths of a bucket on, where no other wants the
    /// credit.
    None(u8),
}

impl Right {
    /// The right of a class that borrows from `lender` within its share and leaves `steps` to
    /// others, or that is owed some.
    #[inline]
    fn shared(lender: &Node, steps: u8, is_owed: bool) -> Self {
        let part = CUSHION_PART.trailing_zeros() as u8 + lender.depth().min(CUSHIONS - 1) as u8;
        if is_owed { Self::Owed(part) } else { Self::Shared(part, steps) }
    }

    /// Whether a better priority or rank waits.
    #[inline]
    fn is_outranked(self) -> bool {
        matches!(self, Self::None(OUTRANKED | LAST))
    }

    /// The right above the lender, for a class of priority `prio`.
    #[inline]
    fn above(self, prio: usize) -> Self {
        match self {
            Self::Shared(part, _) | Self::Owed(part) => Self::Lent(part, prio as u8),
            other => other,
        }
    }

    /// The credit that a purchase of `span` needs, if a full frame takes `frame`.
    #[inline]
    fn least(self, span: Nanos, frame: Nanos, depth: Nanos) -> Nanos {
        let least = match self {
            Self::Assured => span,
            Self::Owed(_) => span - frame,
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
    /// Its places in races of other ranks. Made with the first other rank.
    places: Option<Box<[u64; RANKS]>>,
    /// Its weight there; 0 while nothing is queued.
    weight: u64,
    /// How many classes above this one the last lender stands.
    lender: u32,
    /// The queue's weight among the queues of the class.
    part: Weight,
    /// The classes at which it has since its refusal claimed to come before worse priorities. For
    /// its own rate it comes before worse ranks there.
    wanted_by: By,
    /// The rank of its next packet: there is a race for each rank.
    rank: u8,
    /// Whether it runs in the race of the class's queues. A queue that alone has a seat does not.
    runs: bool,
    /// Whether it was refused the last time,
    was_refused: bool,
    /// and whether it was before its last purchase.
    had_to_wait: bool,
    /// Whether its own credit did not pass the ceilings above it. Then it looks first, until it is
    /// no longer refused.
    was_held: bool,
    /// Whether that was so at the last request.
    is_held: bool,

    /// The times that it announced with these claims,
    wanted: Nanos,
    /// and with the one at the class.
    wanted_here: Nanos,
    /// What it waits for since it was refused, if others wait for the same.
    waits: Option<Waiting>,
    /// What it waited for the last time without and with credit of its own.
    waited: [Option<Waiting>; 2],
}

/// Classes that have too little, one bit each, by how far above the class they stand.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct By {
    /// At their rates,
    rate: u32,
    /// and at their ceilings.
    ceil: u32,
}

impl By {
    #[inline]
    fn is_none(self) -> bool {
        self.rate | self.ceil == 0
    }

    /// The limits that hold it up at the class `steps` above it.
    fn at(self, steps: usize) -> impl Iterator<Item = Limit> {
        let has = move |limit: &Limit| {
            let by = match limit {
                Limit::Rate => self.rate,
                Limit::Ceil => self.ceil,
            };
            by & (1 << steps) != 0
        };
        Limit::BOTH.into_iter().filter(has)
    }
}

/// What cannot be bought now.
struct Refusal {
    /// When to ask again.
    until: Nanos,
    /// The classes that have too little.
    by: By,
    /// What it waits for, if others wait for the same.
    line: Option<Waiting>,
    /// Whether it has credit of its own.
    is_held: bool,
    /// Whether no class would lend.
    has_no_lender: bool,
}

impl Refusal {
    /// A refusal that concerns the class alone.
    fn alone(until: Nanos) -> Self {
        Self { until, by: By::default(), line: None, is_held: false, has_no_lender: false }
    }
}

/// What a class waits for together with others.
#[derive(Clone, Copy)]
struct Waiting {
    line: Line,
    /// The number of classes above it in whose races it has its turn.
    races: u8,
}

/// What a class waits for, found on the way to the root.
#[derive(Clone, Copy)]
struct Binding {
    /// How many classes above it.
    steps: usize,
    claim: Claim,
    when: Nanos,
}

impl Binding {
    /// This one, or `other` if that is later.
    fn or_later(self, other: Option<Self>) -> Self {
        other.filter(|other| other.when > self.when).unwrap_or(self)
    }
}

/// A lender, and what lets its credit pass.
#[derive(Clone, Copy)]
struct Way {
    lends: Binding,
    /// The last of these classes: those below the lender, and those above it, where its credit
    /// counts as lent further down.
    passes: Option<Binding>,
}

impl Way {
    /// What comes last.
    fn binding(&self) -> Binding {
        self.passes.map_or(self.lends, |passes| passes.or_later(Some(self.lends)))
    }
}

/// The claim of a class at a lender, or at itself, when it wants to buy.
#[derive(Clone, Copy)]
struct Claim {
    right: Right,
    /// The right that it gets back,
    later: Right,
    /// not before this time.
    at: Nanos,
}

impl Right {
    /// Equal for all claims that must leave the same credit.
    #[inline]
    fn rank(self) -> u8 {
        match self {
            Self::Assured => 0,
            Self::Shared(..) | Self::Owed(_) => 1,
            Self::None(_) => 2,
            Self::Lent(part, _) => 3 + part,
        }
    }
}

impl Claim {
    const fn only(right: Right) -> Self {
        Self { right, later: right, at: Nanos::ZERO }
    }
}

/// A ledger's answer.
struct Answer {
    /// When it sells.
    when: Nanos,
    /// Whether there is credit now, even if only for others.
    has: bool,
}

impl Seat {
    pub(super) fn new(node: Arc<Node>) -> Self {
        node.sit_down();
        Self {
            node,
            total: 0,
            place: 0,
            weight: 0,
            runs: false,
            rank: 0,
            places: None,
            part: Weight::ONE,
            lender: 0,
            waits: None,
            waited: [None; 2],
            was_refused: false,
            had_to_wait: false,
            was_held: false,
            is_held: false,
            wanted_by: By::default(),
            wanted: Nanos::ZERO,
            wanted_here: Nanos::ZERO,
        }
    }

    /// Has bought this much already.
    #[cfg(all(test, not(loom)))]
    pub(super) fn has_bought_before(&mut self, bytes: u64) {
        self.total = bytes;
    }

    fn weight_among_queues(&self) -> u64 {
        let quantum = u64::from(self.node.quantum());
        (quantum * u64::from(self.part.0) / u64::from(Weight::ONE.0)).max(1)
    }

    /// Runs in the race of the class's queues from now on, if others have a seat, too.
    #[inline]
    fn join(&mut self) {
        if !self.runs && self.node.is_shared() {
            self.runs = true;
            self.enter_race();
        }
    }

    /// Starts in the race of its rank.
    fn enter_race(&mut self) {
        self.queues().join(self.weight);
        self.place = self.queues().start(self.place, self.weight);
    }

    /// The queue's claim within its class.
    #[inline]
    fn own_claim(&self, now: Nanos) -> Claim {
        if !self.runs {
            return Claim::only(Right::Assured);
        }
        let queues = self.queues();
        let outranked = if self.rank == 0 { Nanos::ZERO } else { self.outranked_until() };
        let is_outranked = outranked > now;
        let Some((of_last, until)) = queues.ahead_of_last(self.place, self.weight, now) else {
            if is_outranked {
                let (right, later) = (Right::None(OUTRANKED), Right::Assured);
                return Claim { right, later, at: outranked };
            }
            // No other queue waits: the others have what they want.
            return Claim::only(Right::Assured);
        };
        // Before then the other queues of the class have not bought their shares.
        let ahead = queues.ahead(self.place, self.weight).unwrap_or_default();
        let others = queues.bytes(ahead).max(bytes(of_last, self.weight).min(LEAD));
        let others = self.node.terms.ceil().pace.span(0, others);
        let at = until.max(now + others).max(outranked);
        let right = Right::None(if is_outranked { LAST } else { LATE });
        Claim { right, later: Right::Assured, at }
    }

    /// The race of the queues of the class that are of its rank.
    #[inline]
    fn queues(&self) -> &Race {
        self.node.queues(self.rank.into())
    }

    /// Tells queues of worse ranks that it waits until `due`.
    #[inline]
    fn comes(&mut self, due: Nanos) {
        if self.runs && self.node.has_ranks() {
            self.wanted_here = self.queues().comes(due);
            self.wanted_by.rate |= 1;
        }
    }

    /// The time until which a queue of the class with a better rank waits.
    #[inline(never)]
    fn outranked_until(&self) -> Nanos {
        let better = 0..usize::from(self.rank);
        let better = better.map(|rank| self.node.queues(rank).wanted_until());
        better.max().unwrap_or_default()
    }

    /// The race in which the class runs for `limit`, as [`Node::counted`], of `above`, `steps`
    /// above it, and its virtual time there.
    #[inline]
    fn runs_for<'a>(
        &'a self,
        limit: Limit,
        above: &'a Node,
        steps: usize,
    ) -> (&'a Race, &'a AtomicU64) {
        (&above.borrowers(limit)[self.node.prio()], self.node.place(steps, limit))
    }

    /// The class's claim for `limit`, as [`Node::counted`], of `lender`, `steps` above it; `own` is
    /// the queue's claim within the class.
    #[inline]
    fn claim(&self, limit: Limit, lender: &Node, steps: usize, own: Claim, now: Nanos) -> Claim {
        let races = lender.borrowers(limit);
        let prio = self.node.prio();
        let race = &races[prio];
        let weight = u64::from(self.node.quantum());
        let place = self.node.place(steps, limit).load(Ordering::Relaxed);
        let ahead = race.ahead(place, weight);
        let outranked = races[..prio].iter().map(Race::wanted_until).max().unwrap_or_default();
        let mut at = outranked.max(own.at);
        let mut is_late = own.right != Right::Assured;
        let is_outranked = outranked > now || own.right.is_outranked();
        if let Some((of_last, due)) = race.ahead_of_last(place, weight, now) {
            is_late = true;
            let others =
                race.bytes(ahead.unwrap_or_default()).max(bytes(of_last, weight).min(LEAD));
            at = at.max(due).max(now + lender.terms.ceil().pace.span(0, others));
        }
        let better = races[..prio].iter().filter(|race| !race.is_empty()).count() as u8;
        let steps = PRIORITY_STEPS * better + u8::from(ahead.is_some());
        // What comes later is owed to it, too, until it has caught up.
        let is_owed = limit == Limit::Rate && better == 0 && race.is_behind(place, weight);
        let later = Right::shared(lender, steps.min(STEPS_MOST), is_owed);
        let right = match (is_late, is_outranked) {
            (true, true) => Right::None(LAST),
            (false, true) => Right::None(OUTRANKED),
            (true, false) => Right::None(LATE),
            (false, false) => later,
        };
        Claim { right, later, at }
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
        // Queues with short packets must not come first each time.
        let frame = bucket.pace.span(0, FRAME);
        let due = |right: Right| {
            let span = match right {
                Right::Assured | Right::Owed(_) => span,
                _ => span.max(frame),
            };
            ledger.due(right.least(span, frame, bucket.depth), bucket.depth, now)
        };
        let when = due(claim.right);
        if when <= now {
            return Answer { when, has: true };
        }
        let later = due(claim.later);
        Answer { when: when.min(claim.at.max(later)), has: later <= now }
    }

    /// Whether `ledger` sells `bytes` by any right.
    #[inline]
    fn passes_by_any_right(
        &self,
        ledger: &Ledger,
        Bucket { pace, depth }: Bucket,
        bytes: Bytes,
        now: Nanos,
    ) -> bool {
        let (span, frame) = (pace.span(self.total, bytes), pace.span(0, FRAME));
        ledger.due(Right::None(LAST).least(span.max(frame), frame, depth), depth, now) <= now
    }

    /// Whether `bytes` can be bought at `now`, and from which class: the class itself or, if
    /// `borrow` is true, one above it.
    ///
    /// # Errors
    /// When to ask again.
    fn look(&self, bytes: Bytes, borrow: bool, now: Nanos) -> Result<Offer, Refusal> {
        let own = self.own_claim(now);
        let (mut lender, mut owes) = (None, false);
        // The first lender, and the last of the classes above it to let the purchase pass.
        let (mut lends, mut passes): (Option<Binding>, Option<Binding>) = (None, None);
        let (mut short, mut held) = (0u32, 0u32);
        let mut own_due = Nanos::MAX;
        for (steps, at) in self.node.path().enumerate() {
            // Credit lent further down counts as assured here.
            let lent = lender.map(|(_, cushion)| Claim::only(cushion));
            let claim = |limit| match lent {
                Some(claim) => claim,
                None if steps == 0 => own,
                None => self.claim(limit, at, steps, own, now),
            };
            let bit = 1 << steps;
            if lent.is_none() {
                let (ledger, bucket) = at.rate();
                let claim = claim(at.counted(Limit::Rate));
                let Answer { when, has } = self.ask(ledger, bucket, bytes, claim, now);
                if when <= now {
                    owes = matches!(claim.right, Right::Owed(_));
                    lender = Some((steps, claim.later.above(self.node.prio())));
                } else {
                    if steps == 0 {
                        own_due = when;
                    }
                    if lends.as_ref().is_none_or(|first| when < first.when) {
                        lends = Some(Binding { steps, claim, when });
                    }
                    short |= bit;
                    if has || (steps == 0 && !borrow) {
                        // The lender is the lowest class with credit, not the one that is least in
                        // demand.
                        break;
                    }
                }
            }
            let (pass, ceil) = (&at.sales.ceil, at.terms.ceil());
            if self.passes_by_any_right(pass, ceil, bytes, now) {
                continue;
            }
            let claim = claim(Limit::Ceil);
            let Answer { when, .. } = self.ask(pass, ceil, bytes, claim, now);
            if when > now {
                if steps == 0 {
                    // It waits for its own ceiling only, and then looks again.
                    return Err(Refusal::alone(when));
                }
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
                return Ok(Offer { lender, owes, short });
            }
            // It has a share coming at its lenders, too, but not above a ceiling that holds it up.
            (Some((lender, _)), _, Some(passes)) => {
                let below = (2 << lender.min(passes.steps)) - 2;
                (passes, By { rate: below, ceil: held })
            }
            (None, Some(lends), Some(passes)) if passes.when >= lends.when => {
                let below = (2 << passes.steps) - 1;
                (passes, By { rate: short & below, ceil: held })
            }
            (None, Some(lends), _) => (lends, By { rate: short, ceil: held }),
            // Unreachable: the path always includes this class.
            (None, None, _) => return Err(Refusal::alone(now + Nanos(1))),
        };
        let lender = lender.map(|(lender, _)| lender);
        let is_held = lender == Some(0);
        let line = (borrow || is_held).then(|| self.waits_for(&binding, lender)).flatten();
        // Its own credit passes while borrowed credit has to wait.
        let until = binding.when.min(own_due);
        Err(Refusal { until, by, line, is_held, has_no_lender: borrow && lender.is_none() })
    }

    /// The way to borrow `bytes` that opens first; `None` if the class's own ceiling holds it up.
    fn first_way(&self, bytes: Bytes, now: Nanos) -> Option<Way> {
        let own = self.own_claim(now);
        let (mut first, mut passes): (Option<Way>, Option<Binding>) = (None, None);
        for (steps, at) in self.node.path().enumerate() {
            let claim =
                |limit| if steps == 0 { own } else { self.claim(limit, at, steps, own, now) };
            let lending = claim(at.counted(Limit::Rate));
            let (ledger, bucket) = at.rate();
            let Answer { when, has } = self.ask(ledger, bucket, bytes, lending, now);
            let way = Way { lends: Binding { steps, claim: lending, when }, passes };
            if first.is_none_or(|first| way.binding().when < first.binding().when) {
                first = Some(way);
            }
            if has {
                break;
            }
            let passing = |claim| {
                let when = self.ask(&at.sales.ceil, at.terms.ceil(), bytes, claim, now).when;
                (when > now).then_some(Binding { steps, claim, when })
            };
            let Some(here) = passing(claim(Limit::Ceil)) else { continue };
            if steps == 0 {
                return None;
            }
            passes = Some(here.or_later(passes));
            if let Some(first) = &mut first {
                if first.lends.steps == steps {
                    first.passes = passes;
                } else if let lent = first.lends.claim.later.above(self.node.prio())
                    && let Some(here) = passing(Claim::only(lent))
                {
                    first.passes = Some(here.or_later(first.passes));
                }
            }
        }
        first
    }

    /// What the class waits for together with others. Nothing if it waits for itself, or has had
    /// more than others. `lender` is how many classes above this one the lender stands, if there is
    /// one.
    fn waits_for(&self, binding: &Binding, lender: Option<usize>) -> Option<Waiting> {
        let Binding { steps, claim, .. } = binding;
        let is_late = matches!(claim.right, Right::None(sixteenths) if sixteenths != OUTRANKED);
        if *steps == 0 || is_late {
            return None;
        }
        let rank = claim.right.rank() << 3 | self.node.prio() as u8;
        let levels = u8::try_from(*steps).unwrap_or(u8::MAX);
        let borrows = claim.right != Right::Assured;
        let races = if borrows { lender.unwrap_or(*steps) } else { 0 };
        let races = u8::try_from(races).unwrap_or(u8::MAX);
        Some(Waiting { line: Line { rank, levels, borrows }, races })
    }

    /// Where no class lends: it waits for the lender that can lend `least` bytes first, not until
    /// all above are ready to lend, too.
    #[cold]
    fn hasten(&self, refusal: &mut Refusal, least: Bytes, now: Nanos) {
        let Some(way) = self.first_way(least, now) else { return };
        let (binding, lender) = (way.binding(), way.lends.steps);
        refusal.line = self.waits_for(&binding, Some(lender).filter(|steps| *steps > 0));
        if refusal.line.is_some() {
            refusal.until = refusal.until.min(binding.when).max(now + Nanos(1));
        }
    }

    /// Registers at the classes that refused, and at the other queues of the class, that it waits.
    #[cold]
    fn want(&mut self, refusal: &Refusal, now: Nanos) {
        if self.runs {
            self.wanted_here = self.queues().want(self.place, refusal.until, now);
        }
        let here = u32::from(self.runs && self.node.has_ranks());
        if refusal.by.is_none() {
            self.wanted_by.rate |= here;
            return;
        }
        self.wanted_by = By { rate: refusal.by.rate & !1 | here, ..refusal.by };
        self.node.enter();
        let weight = u64::from(self.node.quantum());
        for (steps, above) in self.node.path().enumerate().skip(1) {
            for limit in refusal.by.at(steps) {
                let (race, place) = self.runs_for(above.counted(limit), above, steps);
                let from = place.load(Ordering::Relaxed);
                let to = race.floor(from, weight);
                if to != from {
                    // If another queue has bought meanwhile, the class is less far behind.
                    let _ = place.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
                }
                self.wanted = race.want(to, refusal.until, now);
            }
        }
    }

    /// Withdraws these registrations.
    #[cold]
    fn has_had(&mut self, now: Nanos) {
        let by = std::mem::take(&mut self.wanted_by);
        if by.rate & 1 != 0 {
            self.queues().has_had(self.wanted_here, now);
        }
        for (steps, above) in self.node.path().enumerate().skip(1) {
            for limit in by.at(steps) {
                let (race, place) = self.runs_for(above.counted(limit), above, steps);
                race.has_had(self.wanted, now);
                race.rests(place.load(Ordering::Relaxed), now);
            }
        }
    }

    /// Advances the races for `bytes` that were bought by `offer`.
    fn run(&mut self, bytes: Bytes, offer: &Offer, now: Nanos) {
        if self.runs {
            let from = self.place;
            self.place = from.wrapping_add(laps(bytes, self.weight));
            self.queues().advance(from, self.place, bytes, self.weight);
        }
        let node = &self.node;
        let weight = u64::from(node.quantum());
        let laps = laps(bytes, weight);
        for (steps, above) in node.path().enumerate().take(offer.lender + 1).skip(1) {
            if offer.short & (1 << steps) != 0 {
                let gap = node.terms.ceil().pace.span(0, bytes);
                let (race, _) = self.runs_for(above.counted(Limit::Rate), above, steps);
                race.passed_over(gap, now);
            }
            for limit in Self::counts(offer.lender, above, steps) {
                let (race, place) = self.runs_for(limit, above, steps);
                let from = place.fetch_add(laps, Ordering::Relaxed);
                race.advance(from, from.wrapping_add(laps), bytes, weight);
            }
        }
    }

    /// For which limits of `above`, as [`Node::counted`], a purchase counts: `steps` above the
    /// class, which borrows from the one `lender` above it.
    #[inline]
    fn counts(lender: usize, above: &Node, steps: usize) -> impl Iterator<Item = Limit> {
        let lends = steps == lender && above.rate_apart().is_some();
        lends.then_some(Limit::Rate).into_iter().chain([Limit::Ceil])
    }

    /// Buys `least` bytes, or up to `want`, of the class's own credit, while its queues have no
    /// claims on each other, so only credit counts. `None` if it has none, or if the ceilings above
    /// do not let it pass.
    #[inline]
    fn buy_own(&mut self, least: Bytes, want: Bytes, now: Nanos) -> Option<Grant> {
        // A seat that was refused rarely has more than it needs.
        let want = if self.was_refused { least } else { want };
        let bytes = self.node.offer_own(least, want, self.total, now)?;
        if !self.node.take(bytes, self.total, &Offer::OWN, now) {
            self.was_held = true;
            return None;
        }
        Some(self.has_bought(bytes, &Offer::OWN, now))
    }

    /// When the class, with the claim `own`, will have `least` bytes at its own rate.
    fn own_due(&self, least: Bytes, own: Claim, now: Nanos) -> Nanos {
        let (ledger, bucket) = self.node.rate();
        self.ask(ledger, bucket, least, own, now).when
    }

    fn try_to_buy(&mut self, bytes: Bytes, borrow: bool, now: Nanos) -> Result<Grant, Refusal> {
        let offer = self.look(bytes, borrow, now)?;
        if !self.node.take(bytes, self.total, &offer, now) {
            // Another queue was faster.
            return Err(Refusal::alone(now + Nanos(1)));
        }
        // A class that waited for a ceiling is likely to do so again.
        self.was_held &= self.was_refused;
        Ok(self.has_bought(bytes, &offer, now))
    }

    /// Records that it has bought `bytes` by `offer`.
    #[inline]
    fn has_bought(&mut self, bytes: Bytes, offer: &Offer, now: Nanos) -> Grant {
        self.run(bytes, offer, now);
        if !self.wanted_by.is_none() {
            self.has_had(now);
        }
        self.had_to_wait = self.was_refused;
        self.total = self.total.wrapping_add(bytes.0);
        self.lender = offer.lender as u32;
        Grant { bytes, lender: u8::try_from(offer.lender).unwrap_or(u8::MAX) }
    }
}

impl ClassMeter for Seat {
    fn buy(&mut self, least: Bytes, want: Bytes, borrow: bool, now: Nanos) -> Result<Grant, Nanos> {
        self.join();
        let own = self.own_claim(now);
        self.is_held = false;
        let is_free = own.right == Right::Assured && !self.was_held;
        if is_free && let Some(grant) = self.buy_own(least, want, now) {
            self.was_refused = false;
            return Ok(grant);
        }
        if !borrow {
            let due = self.own_due(least, own, now);
            if due > now {
                if !self.was_refused {
                    // It has bought since, so its former wait is outdated.
                    (self.was_refused, self.waits) = (true, None);
                }
                return Err(due);
            }
        }
        if want > least && !self.was_refused && !self.was_held {
            let want = want.min(self.node.most_on_path());
            if want > least
                && let Ok(grant) = self.try_to_buy(want, borrow, now)
            {
                return Ok(grant);
            }
        }
        let mut refusal = match self.try_to_buy(least, borrow, now) {
            Ok(grant) => {
                self.was_refused = false;
                return Ok(grant);
            }
            Err(refusal) => refusal,
        };
        (self.was_refused, self.is_held) = (true, refusal.is_held);
        if refusal.has_no_lender {
            self.hasten(&mut refusal, least, now);
        }
        if borrow || refusal.is_held {
            self.want(&refusal, now);
        }
        self.waits = refusal.line;
        self.waited[usize::from(refusal.is_held)] = refusal.line;
        Err(refusal.until)
    }

    fn is_held(&self) -> bool {
        self.is_held
    }

    fn waits_again(&mut self, held: bool, level: u8, least: Bytes, now: Nanos) -> Option<Nanos> {
        let waits = self.waited[usize::from(held)]?;
        if held {
            let own = self.own_claim(now);
            if own.right != Right::Assured || self.own_due(least, own, now) > now {
                return None;
            }
        }
        self.waits = Some(waits);
        let due = self.due_below(level, least, now);
        if due <= now {
            return None;
        }
        self.was_refused = true;
        self.was_held |= held;
        Some(due)
    }

    fn line(&self) -> Option<Line> {
        self.waits.map(|waits| waits.line)
    }

    fn place_in_line(&self, level: u8, now: Nanos) -> (u64, u64) {
        let steps = usize::from(level);
        let id = self.node.path().nth(steps).map_or(0, |above| above.id);
        let (rank, races) = self.waits.map_or((0, 0), |waits| (waits.line.rank, waits.races));
        // Without others to share with, it comes when credit does.
        let turn = if level <= races {
            self.node.place(steps, Limit::Ceil).load(Ordering::Relaxed)
        } else {
            now.0
        };
        (u64::from(id) << 8 | u64::from(rank), turn)
    }

    fn due_below(&mut self, level: u8, least: Bytes, now: Nanos) -> Nanos {
        let races = match self.waits {
            Some(waits) if !waits.line.borrows => {
                self.comes(now + RETURN);
                return Nanos::MAX;
            }
            // From its lender on it has credit.
            waits => waits.map_or(level, |waits| waits.races.min(level)),
        };
        let own = self.own_claim(now);
        let mut due = Nanos::MAX;
        let below = || self.node.path().enumerate().take(usize::from(races));
        for (steps, at) in below() {
            let claim = if steps == 0 {
                own
            } else {
                self.claim(at.counted(Limit::Rate), at, steps, own, now)
            };
            let (ledger, bucket) = at.rate();
            due = due.min(self.ask(ledger, bucket, least, claim, now).when);
        }
        for (_, at) in below().skip(1) {
            for limit in Limit::BOTH {
                at.borrowers(limit)[self.node.prio()].comes(due);
            }
        }
        self.comes(due);
        due
    }

    #[inline]
    fn expect(&self) {
        self.node.prefetch();
    }

    #[inline]
    fn expect_above(&self) {
        if let Some(above) = &self.node.parent {
            above.prefetch();
        }
    }

    #[inline]
    fn expect_purchase(&self) {
        if !self.was_refused {
            self.node.expect_purchase();
        }
    }

    fn give_back(&mut self, bytes: Bytes) {
        self.total = self.total.wrapping_sub(bytes.0);
        self.node.undo(bytes, self.total, self.lender as usize, usize::MAX);
        if self.runs {
            self.queues().returned(bytes, self.weight);
            self.place = self.place.wrapping_sub(laps(bytes, self.weight));
        }
        let (lender, weight) = (self.lender as usize, u64::from(self.node.quantum()));
        for (steps, above) in self.node.path().enumerate().take(lender + 1).skip(1) {
            for limit in Self::counts(lender, above, steps) {
                let (race, place) = self.runs_for(limit, above, steps);
                race.returned(bytes, weight);
                place.fetch_sub(laps(bytes, weight), Ordering::Relaxed);
            }
        }
    }

    fn weigh(&mut self, weight: Weight) {
        self.part = weight;
        if self.weight != 0 {
            let weight = self.weight_among_queues();
            let before = std::mem::replace(&mut self.weight, weight);
            if self.runs {
                self.queues().join(weight);
                let _: bool = self.queues().leave(before);
            }
        }
    }

    fn rank(&mut self, rank: u8, now: Nanos) {
        let rank = rank.min(RANKS as u8 - 1);
        let before = std::mem::replace(&mut self.rank, rank);
        if rank == before {
            return;
        }
        let [before, rank] = [before, rank].map(usize::from);
        if self.wanted_by.rate & 1 != 0 {
            self.wanted_by.rate &= !1;
            self.node.queues(before).has_had(self.wanted_here, now);
        }
        let places = self.places.get_or_insert_default();
        places[before] = self.place;
        self.place = places[rank];
        if self.runs {
            self.enter_race();
            let _: bool = self.node.queues(before).leave(self.weight);
        }
    }

    fn seat_of(&self) -> u64 {
        self.node.serial
    }

    fn own_credit(&self) -> Option<Arc<dyn OwnCredit>> {
        Some(Arc::clone(&self.node) as Arc<dyn OwnCredit>)
    }

    fn buys_alone(&self) -> bool {
        // A class that had to wait is likely to be refused again.
        !self.runs && !self.was_held && !self.had_to_wait && self.wanted_by.is_none()
    }

    fn set_active(&mut self, active: bool) {
        if active == (self.weight != 0) {
            return;
        }
        if active {
            self.weight = self.weight_among_queues();
            return self.join();
        }
        let weight = std::mem::take(&mut self.weight);
        if !std::mem::take(&mut self.runs) || self.queues().leave(weight) {
            self.node.retire();
        }
    }

    fn rests(&mut self) -> bool {
        // Alone in its race, and where it would start again, it can as well not run. A class that
        // runs in races above it lingers there.
        let queues = self.queues();
        let is_free = !self.runs
            || (queues.is_alone(self.weight)
                && queues.start(self.place, self.weight) == self.place);
        let rests = is_free && !self.node.has_entered();
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
        self.node.stand_up();
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

    /// What `asking` seats buy of the class's own credit meanwhile, each as soon as it may.
    fn run(asking: &mut [&mut Seat], from: Nanos, span: Nanos) -> Vec<u64> {
        let (mut bought, mut due) = (vec![0; asking.len()], vec![from; asking.len()]);
        let mut now = from;
        while now < from + span {
            for (at, seat) in asking.iter_mut().enumerate() {
                if due[at] > now {
                    continue;
                }
                match seat.buy(PACKET, PACKET, true, now) {
                    Ok(grant) => bought[at] += grant.bytes.0,
                    Err(until) => due[at] = until,
                }
            }
            now += Nanos::from_micros(1);
        }
        bought
    }

    #[test]
    fn a_queue_shares_while_another_has_a_seat_and_takes_no_part_in_a_race_otherwise() {
        const SPAN: Nanos = Nanos::from_millis(10);
        // 125 bytes a microsecond.
        const ALL: u64 = 125 * SPAN.0 / 1_000;
        let within = |bought: u64, due: u64, frames: u64| bought.abs_diff(due) <= frames * PACKET.0;
        let node = Arc::new(Node::new(1, 1, &class(1_000), None));
        let race_time = || node.queues(0).start(0, 1);
        let [mut one] = seats(&node);
        one.set_active(true);
        run(&mut [&mut one], NOW, SPAN);
        let mut now = NOW + SPAN;
        for _ in 0..3 {
            let before = race_time();
            let bought = run(&mut [&mut one], now, SPAN);
            assert!(within(bought[0], ALL, 1), "alone: {bought:?} of {ALL}");
            assert!(node.queues(0).is_empty() && race_time() == before, "there is no race");
            let [mut other] = seats(&node);
            other.set_active(true);
            let bought = run(&mut [&mut one, &mut other], now + SPAN, SPAN);
            assert!(within(bought.iter().sum(), ALL, 1), "both: {bought:?} of {ALL}");
            assert!(within(bought[0], bought[1], 4), "in equal parts: {bought:?}");
            other.set_active(false);
            drop(other);
            let bought = run(&mut [&mut one], now + SPAN + SPAN, SPAN);
            assert!(within(bought[0], ALL, 1), "alone again: {bought:?} of {ALL}");
            one.set_active(false);
            one.set_active(true);
            now = now + SPAN + SPAN + SPAN;
        }
    }

    #[test]
    fn the_last_queue_to_rest_takes_the_class_out_of_the_races_above_whoever_put_it_there() {
        let root = Arc::new(Node::new(1, 1, &class(1_000), None));
        let node = Arc::new(Node::new(2, 2, &class(1), Some(Arc::clone(&root))));
        let [mut one] = seats(&node);
        one.set_active(true);
        while one.buy(PACKET, PACKET, true, NOW).unwrap().lender == 0 {}
        let [mut other] = seats(&node);
        other.set_active(true);
        // It has not asked since the other one came.
        one.set_active(false);
        assert!(!root.borrowers(Limit::Ceil)[0].is_empty(), "the other one has packets");
        other.set_active(false);
        assert!(root.borrowers(Limit::Ceil)[0].is_empty() && node.queues(0).is_empty());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::super::purchase::LONGEST_DEBT;
    use super::*;
    use loom::model::Builder;
    use loom::thread;
    use narrows_qdisc::htb::Class;
    use narrows_units::{Rate, wire::Overhead};

    const NOW: Nanos = Nanos::from_secs(1);
    const PACKET: Bytes = Bytes(1_500);

    fn class(parent: Option<u32>, mbit: u64) -> Class {
        let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
        let ceil = Rate::from_bits_per_sec(1_000_000_000);
        let (burst, overhead) = (Bytes(7_000), Overhead::NONE);
        Class { parent, rate, ceil, burst, cburst: burst, prio: 0, quantum: 10_000, overhead }
    }

    /// Two queues leave, and each may be the last. They may have seen that they share the class, or
    /// not.
    #[test]
    fn loom_a_class_that_has_entered_leaves_with_its_last_queue_whoever_put_it_there() {
        loom::model(|| {
            let root = Arc::new(Node::new(1, 1, &class(None, 1_000), None));
            let node = Arc::new(Node::new(2, 2, &class(Some(1), 1), Some(Arc::clone(&root))));
            assert!(root.borrowers(Limit::Ceil)[0].is_empty());
            let mut one = Seat::new(Arc::clone(&node));
            one.set_active(true);
            let other = {
                let node = Arc::clone(&node);
                thread::spawn(move || {
                    let mut seat = Seat::new(node);
                    seat.set_active(true);
                    seat.set_active(false);
                })
            };
            one.join();
            node.enter();
            one.set_active(false);
            other.join().unwrap();
            assert!(root.borrowers(Limit::Ceil)[0].is_empty() && node.queues(0).is_empty());
        });
    }

    /// Leaves `rest` in the ledger.
    fn drain((ledger, Bucket { pace, depth }): (&Ledger, Bucket), rest: Bytes) {
        ledger.charge(depth - pace.span(0, rest), depth, LONGEST_DEBT, NOW);
    }

    /// Two classes below `root` each want a packet, by credit of their own or (`borrow`) without,
    /// and the root has credit for one. One gets it. The other may find out only when it has bought
    /// at some ledgers: it gives that back.
    fn one_buys_and_the_other_gives_back(root: &Arc<Node>, borrow: bool) {
        let [mut one, mut other] = [2, 3].map(|id| {
            let node = Node::new(id, u64::from(id), &class(Some(1), 1), Some(Arc::clone(root)));
            if borrow {
                drain(node.rate(), Bytes::ZERO);
            }
            let mut seat = Seat::new(Arc::new(node));
            seat.set_active(true);
            seat
        });
        assert!(root.borrowers(Limit::Ceil)[0].is_empty());
        let before = one.tokens(NOW);
        let buy = move |seat: &mut Seat| {
            u32::from(
                seat.buy(PACKET, PACKET, borrow, NOW).is_ok_and(|grant| grant.bytes == PACKET),
            )
        };
        let other = thread::spawn(move || (buy(&mut other), other));
        let bought = buy(&mut one);
        let (bought_too, other) = other.join().unwrap();
        assert_eq!(bought + bought_too, 1, "there is credit for one");
        let buckets = [&one.node, root].map(|node| [node.rate().1, node.terms.ceil()]);
        let paid = |seat: &Seat, bought: u32| {
            // A borrower pays nothing at the rate of its class.
            let packets = [[if borrow { 0 } else { bought }, bought], [1, 1]];
            for (at, now) in seat.tokens(NOW).into_iter().enumerate() {
                for ledger in 0..2 {
                    let span = buckets[at][ledger].pace.span(0, PACKET).0 as i64;
                    let due = i64::from(packets[at][ledger]) * span;
                    assert_eq!(before[at][ledger] - now[ledger], due);
                }
            }
        };
        paid(&one, bought);
        paid(&other, bought_too);
    }

    #[test]
    fn loom_a_class_whose_ceiling_above_another_was_faster_at_gives_back_what_it_has_bought() {
        let mut model = Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let rate = Rate::from_bits_per_sec(10_000_000);
            let root = Node::new(1, 1, &Class { ceil: rate, ..class(None, 10) }, None);
            drain(root.rate(), Bytes(2_000));
            one_buys_and_the_other_gives_back(&Arc::new(root), false);
        });
    }

    #[test]
    fn loom_a_borrower_that_another_was_faster_than_gives_back_what_it_has_bought() {
        let mut model = Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let root = Node::new(1, 1, &class(None, 10), None);
            // Less than two packets, and more than one and what a borrower leaves.
            drain(root.rate(), Bytes(2_500));
            one_buys_and_the_other_gives_back(&Arc::new(root), true);
        });
    }

    /// One queue has the only seat at a class while another sits down, sends and goes. Both are
    /// counted or none, whatever each sees of the other: what they buy is what the ledgers have
    /// sold, and nothing of them is left in a race.
    #[test]
    fn loom_a_seat_that_comes_and_goes_leaves_nothing_behind() {
        let mut model = Builder::new();
        model.preemption_bound = Some(1);
        model.check(|| {
            let root = Arc::new(Node::new(1, 1, &class(None, 1_000), None));
            let node = Arc::new(Node::new(2, 2, &class(Some(1), 1), Some(Arc::clone(&root))));
            let levels = |node: &Node| {
                let (ledger, bucket) = node.rate();
                [ledger.level(bucket.depth, NOW), node.sales.ceil.level(bucket.depth, NOW)]
            };
            assert!(root.borrowers(Limit::Ceil)[0].is_empty());
            let mut one = Seat::new(Arc::clone(&node));
            one.set_active(true);
            // It has nothing of its own.
            drain(node.rate(), Bytes::ZERO);
            let before = levels(&root)[0];
            let buy = |seat: &mut Seat| seat.buy(PACKET, PACKET, true, NOW).map_or(0, |_| 1u64);
            let other = {
                let node = Arc::clone(&node);
                thread::spawn(move || {
                    let mut seat = Seat::new(node);
                    seat.set_active(true);
                    let bought = buy(&mut seat);
                    seat.set_active(false);
                    bought
                })
            };
            let bought = buy(&mut one);
            one.set_active(false);
            let bought = bought + other.join().unwrap();
            assert!(bought >= 1, "there is credit for both, and one was first");
            let span = root.terms.rate().pace.span(0, PACKET).0;
            assert_eq!(before - levels(&root)[0], (bought * span) as i64);
            assert!(node.queues(0).is_empty(), "nobody runs for the class");
            assert!(root.borrowers(Limit::Ceil)[0].is_empty(), "nor the class at its lender");
            // Alone again, it is held up by nothing that the other one has left.
            assert!(!node.is_shared());
            let later = NOW + Nanos::from_millis(1);
            one.set_active(true);
            assert!(one.buy(PACKET, PACKET, true, later).is_ok());
        });
    }
}
