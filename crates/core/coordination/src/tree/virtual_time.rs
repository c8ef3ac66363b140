//! The order in which borrowers buy: virtual times, as in start-time fair queueing.
//!
//! Borrowers share what a lender sells in proportion to their weights. They are a group with a
//! virtual time, which advances by the bytes sold divided by the weights of all members. Each
//! member has a virtual time, which advances by the bytes that it buys divided by its own weight.
//!
//! A member that waits for a sale publishes its virtual time, and until when it waits. The group
//! remembers the waiting member that is furthest behind. A member more than two frames ahead of it
//! buys only credit that would otherwise be lost. So no two members that want more are further
//! apart than that, however many there are. (When the distance was measured from the group's own
//! time, one of 64 members was seen 70 frames behind: each of the others was a little ahead.)
//! Members of worse priorities leave the credit to any that waits, and for some milliseconds longer
//! if it comes late. A member that does not ask again, or that its own ceiling delays, holds up no
//! other.
//!
//! Weights change without coordination, and a reader may see a value that is a moment old. Then
//! shares are slightly wrong for a moment. The ledger does not depend on them.
//!
//! Memory ordering: relaxed. The words are hints; nothing is reached through them. Only the sum of
//! weights is released by a member that leaves, and acquired by one that finds it 0: the last to
//! leave knows what the others did before.

use crate::sync::{AtomicU64, Ordering};
use narrows_units::{Bytes, Nanos};

/// The bytes by which a member may be ahead, at any weight: two full frames.
pub(crate) const LEAD: Bytes = Bytes(2 * 1514);

/// For at most this long, a member that has not waited comes before worse priorities.
pub(crate) const RETURN: Nanos = Nanos::from_millis(1);

/// How late a member may be that said when it would ask again.
const SLACK: Nanos = Nanos::from_micros(50);

/// How long a member that is late still comes before worse priorities. A worker that shares its
/// core is late by less. After that the claim ends, so a lost member blocks none.
const PATIENCE: Nanos = Nanos::from_millis(4);

/// A member that wants less than its share, or is held up elsewhere, falls behind. This many leads
/// behind, it starts anew: others have had what it left.
const LAG_LEADS: u64 = 64;

/// A member that starts anew, and was this many leads ahead or more, starts this far ahead.
const START_LEADS: u64 = 3;

/// The classes of one priority that share what a lender sells, or the queues of a class that share
/// its rate, by virtual time.
#[derive(Default)]
pub(crate) struct VirtualTimeGroup {
    time: AtomicU64,
    /// The sum of all members' weights.
    weight: AtomicU64,
    /// The time until which any member waits for a sale here.
    wanted: AtomicU64,
    /// The time until which the hindmost waiting member waits.
    due: AtomicU64,
    /// The virtual time of the hindmost waiting member.
    last: AtomicU64,
}

/// The virtual time that `bytes` take at weight `weight`.
#[inline]
pub(crate) fn virtual_span(bytes: Bytes, weight: u64) -> u64 {
    (bytes.0 << 32) / weight.max(1)
}

/// The bytes that `span` of virtual time are worth at weight `weight`.
#[inline]
pub(crate) fn bytes(span: u64, weight: u64) -> Bytes {
    Bytes(((u128::from(span) * u128::from(weight)) >> 32) as u64)
}

/// By how much `time` is behind `other`, if it is.
#[inline]
fn behind(time: u64, other: u64) -> Option<u64> {
    u64::try_from(other.wrapping_sub(time) as i64).ok().filter(|behind| *behind > 0)
}

impl VirtualTimeGroup {
    pub(crate) fn join(&self, weight: u64) {
        self.weight.fetch_add(weight, Ordering::Relaxed);
    }

    /// Whether there are no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.weight.load(Ordering::Acquire) == 0
    }

    /// Whether the member of weight `weight` is the only one.
    #[inline]
    pub(crate) fn is_alone(&self, weight: u64) -> bool {
        self.weight.load(Ordering::Relaxed) == weight
    }

    /// Whether no other member is left.
    pub(crate) fn leave(&self, weight: u64) -> bool {
        self.weight.fetch_sub(weight, Ordering::AcqRel) == weight
    }

    /// At `now`, a member at `time` waits for a sale, and asks again at `until`. Returns the time
    /// to pass to [`Self::withdraw`] when it no longer waits.
    #[inline]
    pub(crate) fn want(&self, time: u64, until: Nanos, now: Nanos) -> Nanos {
        let wanted = until + PATIENCE;
        if self.wanted.load(Ordering::Relaxed) < wanted.0 {
            self.wanted.store(wanted.0, Ordering::Relaxed);
        }
        let until = (until + SLACK).0;
        let due = self.due.load(Ordering::Relaxed);
        if due <= now.0 || behind(self.last.load(Ordering::Relaxed), time).is_none() {
            self.last.store(time, Ordering::Relaxed);
            if due < until {
                self.due.store(until, Ordering::Relaxed);
            }
        }
        wanted
    }

    /// A member that waits elsewhere comes at `until`, and goes before worse priorities. Returns
    /// the time to pass to [`Self::withdraw`] when it no longer waits.
    #[inline]
    pub(crate) fn announce_arrival(&self, until: Nanos) -> Nanos {
        let wanted = until + SLACK;
        if self.wanted.load(Ordering::Relaxed) < wanted.0 {
            self.wanted.store(wanted.0, Ordering::Relaxed);
        }
        wanted
    }

    /// A member that found no credit here buys elsewhere, and comes back after `gap`.
    #[inline]
    pub(crate) fn passed_over(&self, gap: Nanos, now: Nanos) {
        let until = now + Nanos(2 * gap.0).max(SLACK).min(RETURN);
        // Storing each time would be more often than necessary.
        let half = Nanos(now.0 + (until - now).0 / 2);
        if self.wanted.load(Ordering::Relaxed) < half.0 {
            self.wanted.store(until.0, Ordering::Relaxed);
        }
    }

    /// The member that announced the time `wanted` no longer waits at `now`. If no other has
    /// announced a later time, worse priorities need not wait any more.
    #[inline]
    pub(crate) fn withdraw(&self, wanted: Nanos, now: Nanos) {
        if self.wanted.load(Ordering::Relaxed) == wanted.0 {
            self.wanted.store((now + SLACK).0, Ordering::Relaxed);
        }
    }

    /// The member at `time` no longer waits. If it was the last, those ahead need not wait for it.
    #[inline]
    pub(crate) fn stop_waiting(&self, time: u64, now: Nanos) {
        if self.last.load(Ordering::Relaxed) == time && self.due.load(Ordering::Relaxed) > now.0 {
            self.due.store(now.0, Ordering::Relaxed);
        }
    }

    /// The time until which a member waits.
    #[inline]
    pub(crate) fn wanted_until(&self) -> Nanos {
        Nanos(self.wanted.load(Ordering::Relaxed))
    }

    /// By how much a member at `time` is too far ahead of the hindmost waiting member, and the time
    /// until which that one waits.
    #[inline]
    pub(crate) fn ahead_of_last(&self, time: u64, weight: u64, now: Nanos) -> Option<(u64, Nanos)> {
        let due = Nanos(self.due.load(Ordering::Relaxed));
        if due <= now {
            return None;
        }
        let ahead = behind(self.last.load(Ordering::Relaxed), time)?;
        Some((ahead.checked_sub(virtual_span(LEAD, weight)).filter(|ahead| *ahead > 0)?, due))
    }

    /// The virtual time of the hindmost member that waits at `now`.
    #[inline]
    pub(crate) fn hindmost(&self, now: Nanos) -> Option<u64> {
        let waits = self.due.load(Ordering::Relaxed) > now.0;
        waits.then(|| self.last.load(Ordering::Relaxed))
    }

    /// The member that was at `from` is at `to` now. If it was the hindmost, its new time is the
    /// reference until a member further back announces itself.
    #[inline]
    pub(crate) fn moves(&self, from: u64, to: u64) {
        if self.last.load(Ordering::Relaxed) == from {
            self.last.store(to, Ordering::Relaxed);
        }
    }

    /// Where a member that was at `time` starts again. Others have had its unused share meanwhile.
    #[inline]
    pub(crate) fn start(&self, time: u64, weight: u64) -> u64 {
        let present = self.time.load(Ordering::Relaxed);
        let ahead = time.wrapping_sub(present) as i64;
        present
            .wrapping_add_signed(ahead.clamp(0, (START_LEADS * virtual_span(LEAD, weight)) as i64))
    }

    /// The time from which a member at `time` continues: never further back than a member that is
    /// entitled to more.
    #[inline]
    pub(crate) fn floor(&self, time: u64, weight: u64) -> u64 {
        let present = self.time.load(Ordering::Relaxed);
        let least = present.wrapping_sub(LAG_LEADS * virtual_span(LEAD, weight));
        if behind(time, least).is_some() { least } else { time }
    }

    /// By how much a member at `time` is too far ahead.
    #[inline]
    pub(crate) fn ahead(&self, time: u64, weight: u64) -> Option<u64> {
        let ahead = behind(self.time.load(Ordering::Relaxed), time)?;
        ahead.checked_sub(virtual_span(LEAD, weight)).filter(|ahead| *ahead > 0)
    }

    /// Whether a member at `time` is too far behind.
    #[inline]
    pub(crate) fn is_behind(&self, time: u64, weight: u64) -> bool {
        let behind = behind(time, self.time.load(Ordering::Relaxed));
        behind.is_some_and(|behind| behind > virtual_span(LEAD, weight))
    }

    /// How many bytes others buy while the group's time advances by `span`.
    #[inline]
    pub(crate) fn bytes(&self, span: u64) -> Bytes {
        bytes(span, self.weight.load(Ordering::Relaxed))
    }

    /// A member of weight `weight` has bought `bytes`, for which it has moved `from` one time `to`
    /// another.
    #[inline]
    pub(crate) fn advance(&self, from: u64, to: u64, bytes: Bytes, weight: u64) {
        let was_ahead = self.ahead(from, weight).is_some();
        let all = self.weight.load(Ordering::Relaxed).max(weight);
        self.time.fetch_add(virtual_span(bytes, all), Ordering::Relaxed);
        self.moves(from, to);
        if was_ahead {
            self.follow(to, weight);
        }
    }

    /// Undoes the group's part of [`Self::advance`].
    #[inline]
    pub(crate) fn returned(&self, bytes: Bytes, weight: u64) {
        let all = self.weight.load(Ordering::Relaxed).max(weight);
        self.time.fetch_sub(virtual_span(bytes, all), Ordering::Relaxed);
    }

    /// A member at `time` has bought, without a claim, credit that no other wanted. It stays ahead:
    /// if the group's time caught up, every other purchase would leave nothing to those behind.
    #[inline]
    fn follow(&self, time: u64, weight: u64) {
        let present = self.time.load(Ordering::Relaxed);
        let to = time.wrapping_sub(2 * virtual_span(LEAD, weight));
        if to.wrapping_sub(present) as i64 > 0 {
            // If it has just advanced there is nothing to do.
            let _ = self.time.compare_exchange(present, to, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_ahead_waits_for_the_others() {
        let group = VirtualTimeGroup::default();
        group.join(1_000);
        group.join(3_000);
        let mut time = group.start(0, 1_000);
        for _ in 0..3 {
            assert_eq!(group.ahead(time, 1_000), None);
            let from = time;
            time += virtual_span(Bytes(1_514), 1_000);
            group.advance(from, time, Bytes(1_514), 1_000);
        }
        // Three frames of its own, three quarters of one for each of the four thousand.
        let ahead = group.ahead(time, 1_000).unwrap();
        assert_eq!(group.bytes(ahead), Bytes(1_514));
        group.advance(0, virtual_span(Bytes(1_520), 3_000), Bytes(1_520), 3_000);
        assert_eq!(group.ahead(time, 1_000), None);
    }

    #[test]
    fn a_lone_member_is_never_ahead() {
        let group = VirtualTimeGroup::default();
        group.join(10);
        let mut time = group.start(0, 10);
        for _ in 0..100 {
            let from = time;
            time = time.wrapping_add(virtual_span(Bytes(1_500), 10));
            group.advance(from, time, Bytes(1_500), 10);
            assert_eq!(group.ahead(time, 10), None);
        }
    }

    #[test]
    fn a_member_that_slept_starts_at_the_group_s_time() {
        let group = VirtualTimeGroup::default();
        group.join(1_514);
        group.advance(0, 1_000 << 32, Bytes(1_514_000), 1_514);
        let unit = 1 << 32;
        assert_eq!(group.start(0, 1_514), 1_000 * unit);
        assert_eq!(group.start(1_001 * unit, 1_514), 1_001 * unit);
        assert_eq!(group.start(5_000 * unit, 1_514), 1_006 * unit);
    }

    #[test]
    fn the_group_follows_an_uncontested_member() {
        let group = VirtualTimeGroup::default();
        group.join(1_514);
        group.join(15_140);
        let unit = 1 << 32;
        group.follow(9 * unit, 1_514);
        assert_eq!(group.start(0, 1_514), 5 * unit);
        assert_eq!(group.ahead(9 * unit, 1_514), Some(2 * unit), "those behind keep their credit");
        group.follow(8 * unit, 1_514);
        assert_eq!(group.start(0, 1_514), 5 * unit, "it never goes back");
    }

    #[test]
    fn a_claim_lasts_until_its_member_asks_again() {
        let group = VirtualTimeGroup::default();
        group.join(1_514);
        group.want(1 << 40, Nanos(1_000), Nanos(0));
        assert_eq!(
            group.wanted_until(),
            Nanos(1_000) + PATIENCE,
            "its claim lasts a little longer"
        );
        group.withdraw(group.wanted_until(), Nanos(900));
        assert_eq!(group.wanted_until(), Nanos(900) + SLACK);
    }

    #[test]
    fn a_member_ahead_of_the_hindmost_leaves_the_credit_to_it() {
        let group = VirtualTimeGroup::default();
        let (unit, now) = (1 << 32, Nanos(100));
        group.want(10 * unit, Nanos(1_000), now);
        group.want(20 * unit, Nanos(900), now);
        assert_eq!(group.ahead_of_last(12 * unit, 1_514, now), None);
        let due = Nanos(1_000) + SLACK;
        assert_eq!(group.ahead_of_last(15 * unit, 1_514, now), Some((3 * unit, due)));
        group.advance(10 * unit, 14 * unit, Bytes(4 * 1_514), 1_514);
        assert_eq!(group.ahead_of_last(15 * unit, 1_514, now), None, "it has moved on");
        assert_eq!(group.ahead_of_last(99 * unit, 1_514, due), None, "it has not come");
        group.stop_waiting(13 * unit, now);
        assert!(group.ahead_of_last(99 * unit, 1_514, now).is_some(), "it is elsewhere");
        group.stop_waiting(14 * unit, now);
        assert_eq!(group.ahead_of_last(99 * unit, 1_514, now), None, "it no longer waits");
    }
}
