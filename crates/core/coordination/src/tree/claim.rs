//! By what right a class buys from a class above it, and how much credit that takes.

use super::node::{Limit, Node};
use super::terms::{Bucket, FRAME};
use super::virtual_time::{LEAD, VirtualTimeGroup, bytes};
use crate::ledger::Ledger;
use crate::sync::Ordering;
use narrows_units::{Bytes, Nanos};

/// A borrower from a root leaves this part of a bucket to traffic that goes first: a power of two.
/// A borrower from a class below it leaves half as much, and so on, so credit lent lower down goes
/// before credit lent higher up. Assured traffic leaves nothing.
const CUSHION_PART: u64 = 8;
const CUSHIONS: usize = 4;

/// Above its lender, if there are no groups, a class leaves this part more for each priority that
/// is better than its own.
const PRIORITY_PART: u64 = 256;

/// At its lender a borrower leaves some steps more for each better priority that is active, and one
/// if it is ahead of others. So a class that its own ceiling held up finds credit when it
/// continues, and need not borrow further up. A step is this part of a bucket, and at least a full
/// frame.
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Right {
    /// Within the assured rate.
    Assured,
    /// Borrowed, within a share: the binary logarithm of the part that it leaves, and the steps
    /// that it leaves in addition.
    Shared(u8, u8),
    /// Borrowed by a class that is behind its share, where no better priority is active: the same
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

    /// Without one, because others of the class or priority, or better ones, go first.
    #[inline]
    pub(super) const fn without(is_late: bool, is_outranked: bool) -> Self {
        Self::None(match (is_late, is_outranked) {
            (true, true) => LAST,
            (_, true) => OUTRANKED,
            (_, false) => LATE,
        })
    }

    /// Whether a better priority or rank waits.
    #[inline]
    pub(super) fn is_outranked(self) -> bool {
        matches!(self, Self::None(OUTRANKED | LAST))
    }

    /// Whether it may owe the lender a frame.
    #[inline]
    pub(super) fn owes(self) -> bool {
        matches!(self, Self::Owed(_))
    }

    /// Whether it has had its share, and waits for others of its class or priority.
    #[inline]
    pub(super) fn is_late(self) -> bool {
        matches!(self, Self::None(LATE | LAST))
    }

    /// The right above the lender, for a class of priority `prio`.
    #[inline]
    pub(super) fn above(self, prio: usize) -> Self {
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

    /// When `ledger` sells `bytes`, which follow `before` others, by this right.
    #[inline]
    pub(super) fn due(
        self,
        ledger: &Ledger,
        bucket: Bucket,
        before: u64,
        bytes: Bytes,
        now: Nanos,
    ) -> Nanos {
        let span = bucket.pace.span(before, bytes);
        ledger.due(self.needs(span, bucket), bucket.depth, now)
    }

    /// The credit that a purchase of `span` needs.
    #[inline]
    fn needs(self, span: Nanos, bucket: Bucket) -> Nanos {
        // Queues with short packets must not come first each time.
        let frame = bucket.pace.span(0, FRAME);
        let least = match self {
            Self::Assured | Self::Owed(_) => span,
            _ => span.max(frame),
        };
        self.least(least, frame, bucket.depth)
    }

    /// Buys `bytes`, which follow `before` others, of `ledger` at `now`, if it sells them by this
    /// right.
    #[inline]
    pub(super) fn buys(
        self,
        ledger: &Ledger,
        bucket: Bucket,
        before: u64,
        bytes: Bytes,
        now: Nanos,
    ) -> bool {
        let span = bucket.pace.span(before, bytes);
        ledger.sell(span, self.needs(span, bucket), bucket.depth, now)
    }

    /// How much of `most` bytes `ledger` sells by this right at `now`, at least `least`, in packets
    /// of that size.
    #[inline]
    pub(super) fn most(
        self,
        ledger: &Ledger,
        bucket: Bucket,
        before: u64,
        (least, most): (Bytes, Bytes),
        now: Nanos,
    ) -> Option<Bytes> {
        let due = |bytes| self.due(ledger, bucket, before, bytes, now);
        if due(most) <= now {
            return Some(most);
        }
        let from = due(least);
        if from > now {
            return None;
        }
        let more = bucket.pace.bytes(now - from).0 / least.0.max(1) * least.0;
        Some(Bytes(least.0 + more).min(most))
    }
}

/// The claim of a class at a lender, or at itself, when it wants to buy.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    pub(super) right: Right,
    /// The right that it gets back,
    pub(super) later: Right,
    /// not before this time.
    pub(super) at: Nanos,
}

impl Claim {
    /// What it has anyway.
    pub(super) const ASSURED: Self = Self::only(Right::Assured);

    const fn only(right: Right) -> Self {
        Self { right, later: right, at: Nanos::ZERO }
    }

    /// Above the lender, where credit counts as lent further down.
    pub(super) fn above(self, prio: usize) -> Self {
        Self::only(self.later.above(prio))
    }

    /// The claim for `limit`, as [`Node::counted`], of `lender`, of a class of which a queue has
    /// the claim `own` within the class.
    #[inline]
    pub(super) fn at(limit: Limit, lender: &Node, class: &Node, own: Self, now: Nanos) -> Self {
        let groups = lender.borrowers(limit);
        let (prio, weight) = (class.prio(), u64::from(class.quantum()));
        let group = &groups[prio];
        let steps = class.depth() - lender.depth();
        let place = class.place(steps, limit).load(Ordering::Relaxed);
        let ahead = group.ahead(place, weight);
        let outranked =
            groups[..prio].iter().map(VirtualTimeGroup::wanted_until).max().unwrap_or_default();
        let mut at = outranked.max(own.at);
        let mut is_late = own.right != Right::Assured;
        let is_outranked = outranked > now || own.right.is_outranked();
        if let Some((of_last, due)) = group.ahead_of_last(place, weight, now) {
            is_late = true;
            let others =
                group.bytes(ahead.unwrap_or_default()).max(bytes(of_last, weight).min(LEAD));
            at = at.max(due).max(now + lender.terms.ceil().pace.span(0, others));
        }
        let better = groups[..prio].iter().filter(|group| !group.is_empty()).count() as u8;
        let steps = PRIORITY_STEPS * better + u8::from(ahead.is_some());
        // What comes later is owed to it, too, until it has caught up.
        let is_owed = limit == Limit::Rate && better == 0 && group.is_behind(place, weight);
        let later = Right::shared(lender, steps.min(STEPS_MOST), is_owed);
        let right =
            if is_late || is_outranked { Right::without(is_late, is_outranked) } else { later };
        Self { right, later, at }
    }

    /// When `ledger` sells `bytes`, which follow `before` others, to this claim.
    #[inline]
    pub(super) fn due(
        self,
        ledger: &Ledger,
        bucket: Bucket,
        before: u64,
        bytes: Bytes,
        now: Nanos,
    ) -> Nanos {
        let due = |right: Right| right.due(ledger, bucket, before, bytes, now);
        let when = due(self.right);
        if when <= now { when } else { when.min(self.at.max(due(self.later))) }
    }
}

/// Whether `ledger` sells `bytes`, which follow `before` others, by any right.
#[inline]
pub(super) fn passes_by_any_right(
    ledger: &Ledger,
    bucket: Bucket,
    before: u64,
    bytes: Bytes,
    now: Nanos,
) -> bool {
    due_by_any_right(ledger, bucket, before, bytes, now) <= now
}

/// When it does.
#[inline]
pub(super) fn due_by_any_right(
    ledger: &Ledger,
    bucket: Bucket,
    before: u64,
    bytes: Bytes,
    now: Nanos,
) -> Nanos {
    Right::without(true, true).due(ledger, bucket, before, bytes, now)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::byte_time::ByteTime;
    use narrows_units::Rate;
    use proptest::prelude::*;

    fn any_right() -> impl Strategy<Value = Right> {
        prop_oneof![
            Just(Right::Assured),
            (3u8..7, 0u8..6).prop_map(|(part, steps)| Right::Shared(part, steps)),
            (3u8..7).prop_map(Right::Owed),
            (3u8..7, 0u8..8).prop_map(|(part, prio)| Right::Lent(part, prio)),
            (12u8..15).prop_map(Right::None),
        ]
    }

    proptest! {
        /// The oracle asks for one packet more each time.
        #[test]
        fn a_ledger_sells_as_many_packets_as_it_has_after_what_goes_first(
            right in any_right(),
            mbit in 1u64..100_000,
            depth in 250_000u64..20_000_000,
            sold in 0u64..30_000_000,
            before in 0u64..1 << 40,
            least in 64u64..1_515,
            packets in 1u64..40,
            rest in 0u64..64,
        ) {
            let pace = ByteTime::of(Rate::from_bits_per_sec(mbit * 1_000_000));
            let bucket = Bucket { pace, depth: Nanos(depth) };
            let now = Nanos::from_secs(1);
            let ledger = Ledger::default();
            ledger.resume(now - Nanos(sold));
            let sells = |bytes| right.due(&ledger, bucket, before, Bytes(bytes), now) <= now;
            let most = packets * least + rest;
            let bytes = right.most(&ledger, bucket, before, (Bytes(least), Bytes(most)), now);
            let Some(Bytes(bytes)) = bytes else {
                prop_assert!(!sells(least));
                return Ok(());
            };
            prop_assert!(sells(bytes) && least <= bytes && bytes <= most);
            // A short packet has to leave as much as a full one, which pays for some more of them.
            let whole = (1..).map(|packets| packets * least).take_while(|bytes| *bytes < most);
            let all = if sells(most) { most } else { whole.filter(|one| sells(*one)).last().unwrap() };
            let spare = least * (2 + FRAME.0 / least);
            prop_assert!(bytes <= all && all - bytes <= spare, "{bytes} of {all}");
            prop_assert!(right.buys(&ledger, bucket, before, Bytes(bytes), now));
        }
    }
}
