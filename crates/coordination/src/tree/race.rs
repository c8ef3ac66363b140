//! Whose turn it is: virtual times.
//!
//! Borrowers share what a lender sells in proportion to their weights. The race has a virtual time,
//! which advances by the bytes sold divided by the weights of all runners. Each runner has a
//! virtual time, which advances by the bytes that it buys divided by its own weight.
//!
//! A runner that waits for a sale publishes its virtual time, and until when it waits. The race
//! remembers the waiting runner that is furthest behind. A runner more than two frames ahead of it
//! buys only credit that would otherwise be lost. So no two runners that want more are further
//! apart than that, however many there are. (When the distance was measured from the race's own
//! time, one of 64 runners was seen 70 frames behind: each of the others was a little ahead.)
//! Runners of worse priorities leave the credit to any that waits, and for some milliseconds longer
//! if it comes late. A runner that does not ask again, or that its own ceiling delays, holds up no
//! other.
//!
//! Weights change without coordination, and a reader may see a value that is a moment old. Then
//! shares are slightly wrong for a moment. The ledger does not depend on them.
//!
//! Memory ordering: relaxed. The words are hints; nothing is reached through them.

use crate::sync::{AtomicU64, Ordering};
use narrows_units::{Bytes, Nanos};

/// By so many bytes a runner may be ahead, whatever it weighs: two full frames.
const LEAD: Bytes = Bytes(2 * 1514);

/// For so long at most one comes before worse priorities where it has not waited.
pub(super) const RETURN: Nanos = Nanos::from_millis(1);

/// By how much one may be late who said when he would ask again.
const SLACK: Nanos = Nanos::from_micros(50);

/// For so long one who does not ask again when he said still comes before those of worse
/// priorities: a worker that shares its core comes late by less. One that is gone has a claim no
/// longer.
const PATIENCE: Nanos = Nanos::from_millis(4);

/// Who wants less than its share, or is held up elsewhere, falls behind. So many leads behind it
/// starts again: what it left has gone to others.
const LAG_LEADS: u64 = 64;

/// Who starts again, and was so many leads ahead or more, starts from here.
const START_LEADS: u64 = 3;

#[derive(Default)]
pub(super) struct Race {
    time: AtomicU64,
    /// The sum over all who run.
    weight: AtomicU64,
    /// Until when somebody waits for what is sold here,
    wanted: AtomicU64,
    /// and until when the last of them,
    due: AtomicU64,
    /// who is here.
    last: AtomicU64,
}

/// The time that `bytes` take one who weighs `weight`.
#[inline]
pub(super) fn laps(bytes: Bytes, weight: u64) -> u64 {
    (bytes.0 << 32) / weight.max(1)
}

/// What one who weighs `weight` buys in the time `laps`.
#[inline]
pub(super) fn bytes(laps: u64, weight: u64) -> Bytes {
    Bytes(((u128::from(laps) * u128::from(weight)) >> 32) as u64)
}

/// By how much `time` is behind `other`, if it is.
#[inline]
fn behind(time: u64, other: u64) -> Option<u64> {
    u64::try_from(other.wrapping_sub(time) as i64).ok().filter(|behind| *behind > 0)
}

impl Race {
    pub(super) fn join(&self, weight: u64) {
        self.weight.fetch_add(weight, Ordering::Relaxed);
    }

    /// Whether nobody runs.
    pub(super) fn is_empty(&self) -> bool {
        self.weight.load(Ordering::Relaxed) == 0
    }

    /// Whether nobody else runs than one who weighs `weight`.
    #[inline]
    pub(super) fn is_alone(&self, weight: u64) -> bool {
        self.weight.load(Ordering::Relaxed) == weight
    }

    /// Whether nobody else runs.
    pub(super) fn leave(&self, weight: u64) -> bool {
        self.weight.fetch_sub(weight, Ordering::Relaxed) == weight
    }

    /// One at `time` waits at `now` for what is sold here, until he asks again at `until`. Returns
    /// what he says when he does not wait any more.
    #[inline]
    pub(super) fn want(&self, time: u64, until: Nanos, now: Nanos) -> Nanos {
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

    /// One who stands in line elsewhere comes at `until`, and goes before worse priorities. Returns
    /// what he says when he does not wait any more.
    #[inline]
    pub(super) fn comes(&self, until: Nanos) -> Nanos {
        let wanted = until + SLACK;
        if self.wanted.load(Ordering::Relaxed) < wanted.0 {
            self.wanted.store(wanted.0, Ordering::Relaxed);
        }
        wanted
    }

    /// One whom it had nothing for buys elsewhere, and comes back after `gap`.
    #[inline]
    pub(super) fn passed_over(&self, gap: Nanos, now: Nanos) {
        let until = now + Nanos(2 * gap.0).max(SLACK).min(RETURN);
        // Each time would be more often than it takes.
        let half = Nanos(now.0 + (until - now).0 / 2);
        if self.wanted.load(Ordering::Relaxed) < half.0 {
            self.wanted.store(until.0, Ordering::Relaxed);
        }
    }

    /// One who said `wanted` does not wait any more at `now`. If nobody has said so of a later time
    /// those of worse priorities need not wait for him.
    #[inline]
    pub(super) fn has_had(&self, wanted: Nanos, now: Nanos) {
        if self.wanted.load(Ordering::Relaxed) == wanted.0 {
            self.wanted.store((now + SLACK).0, Ordering::Relaxed);
        }
    }

    /// Until when somebody waits for it.
    #[inline]
    pub(super) fn wanted_until(&self) -> Nanos {
        Nanos(self.wanted.load(Ordering::Relaxed))
    }

    /// By how much one at `time` is further ahead of the last who waits than he may be, and until
    /// when that one does.
    #[inline]
    pub(super) fn ahead_of_last(&self, time: u64, weight: u64, now: Nanos) -> Option<(u64, Nanos)> {
        let due = Nanos(self.due.load(Ordering::Relaxed));
        if due <= now {
            return None;
        }
        let ahead = behind(self.last.load(Ordering::Relaxed), time)?;
        Some((ahead.checked_sub(laps(LEAD, weight)).filter(|ahead| *ahead > 0)?, due))
    }

    /// One has moved on `from` a time `to` another one: if he was the last who waits, that one is
    /// where he is now until somebody says that he is further back.
    #[inline]
    pub(super) fn moved(&self, from: u64, to: u64) {
        if self.last.load(Ordering::Relaxed) == from {
            self.last.store(to, Ordering::Relaxed);
        }
    }

    /// Where a runner that was at `time` starts again. What it left unused meanwhile has gone to
    /// others.
    #[inline]
    pub(super) fn start(&self, time: u64, weight: u64) -> u64 {
        let race = self.time.load(Ordering::Relaxed);
        let ahead = time.wrapping_sub(race) as i64;
        race.wrapping_add_signed(ahead.clamp(0, (START_LEADS * laps(LEAD, weight)) as i64))
    }

    /// From where one at `time` runs on: not from further back than who has a right to more.
    #[inline]
    pub(super) fn floor(&self, time: u64, weight: u64) -> u64 {
        let race = self.time.load(Ordering::Relaxed);
        let least = race.wrapping_sub(LAG_LEADS * laps(LEAD, weight));
        if behind(time, least).is_some() { least } else { time }
    }

    /// By how much one at `time` is further ahead than it may be.
    #[inline]
    pub(super) fn ahead(&self, time: u64, weight: u64) -> Option<u64> {
        let ahead = time.wrapping_sub(self.time.load(Ordering::Relaxed)) as i64;
        u64::try_from(ahead - laps(LEAD, weight) as i64).ok().filter(|ahead| *ahead > 0)
    }

    /// How many bytes others buy while the race moves on by `laps`.
    #[inline]
    pub(super) fn bytes(&self, laps: u64) -> Bytes {
        bytes(laps, self.weight.load(Ordering::Relaxed))
    }

    /// One of those who run, who weighs `weight`, has bought `bytes`.
    #[inline]
    pub(super) fn sold(&self, bytes: Bytes, weight: u64) {
        let all = self.weight.load(Ordering::Relaxed).max(weight);
        self.time.fetch_add(laps(bytes, all), Ordering::Relaxed);
    }

    /// The same back again.
    #[inline]
    pub(super) fn returned(&self, bytes: Bytes, weight: u64) {
        let all = self.weight.load(Ordering::Relaxed).max(weight);
        self.time.fetch_sub(laps(bytes, all), Ordering::Relaxed);
    }

    /// One at `time`, who had no right to, has bought what nobody else wanted.
    #[inline]
    pub(super) fn follow(&self, time: u64, weight: u64) {
        let race = self.time.load(Ordering::Relaxed);
        let to = time.wrapping_sub(laps(LEAD, weight));
        if to.wrapping_sub(race) as i64 > 0 {
            // Where it has just moved on there is nothing to do.
            let _ = self.time.compare_exchange(race, to, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_is_ahead_waits_for_the_others() {
        let race = Race::default();
        race.join(1_000);
        race.join(3_000);
        let mut time = race.start(0, 1_000);
        for _ in 0..3 {
            assert_eq!(race.ahead(time, 1_000), None);
            time += laps(Bytes(1_514), 1_000);
            race.sold(Bytes(1_514), 1_000);
        }
        // Three frames of its own, three quarters of one for each of the four thousand.
        let ahead = race.ahead(time, 1_000).unwrap();
        assert_eq!(race.bytes(ahead), Bytes(1_514));
        race.sold(Bytes(1_520), 3_000);
        assert_eq!(race.ahead(time, 1_000), None);
    }

    #[test]
    fn alone_nobody_is_ahead() {
        let race = Race::default();
        race.join(10);
        let mut time = race.start(0, 10);
        for _ in 0..100 {
            time = time.wrapping_add(laps(Bytes(1_500), 10));
            race.sold(Bytes(1_500), 10);
            assert_eq!(race.ahead(time, 10), None);
        }
    }

    #[test]
    fn who_slept_starts_from_where_the_race_is() {
        let race = Race::default();
        race.join(1_514);
        race.sold(Bytes(1_514_000), 1_514);
        let lap = 1 << 32;
        assert_eq!(race.start(0, 1_514), 1_000 * lap);
        assert_eq!(race.start(1_001 * lap, 1_514), 1_001 * lap);
        assert_eq!(race.start(5_000 * lap, 1_514), 1_006 * lap);
    }

    #[test]
    fn the_race_follows_one_whom_nobody_contests() {
        let race = Race::default();
        race.join(1_514);
        race.join(15_140);
        let lap = 1 << 32;
        race.follow(5 * lap, 1_514);
        assert_eq!(race.ahead(5 * lap, 1_514), None);
        race.follow(4 * lap, 1_514);
        assert_eq!(race.start(0, 1_514), 3 * lap, "it never goes back");
    }

    #[test]
    fn what_is_wanted_is_wanted_until_he_asks_again() {
        let race = Race::default();
        race.join(1_514);
        race.want(1 << 40, Nanos(1_000), Nanos(0));
        assert_eq!(race.wanted_until(), Nanos(1_000) + PATIENCE, "late he has it, too");
        race.has_had(race.wanted_until(), Nanos(900));
        assert_eq!(race.wanted_until(), Nanos(900) + SLACK);
    }

    #[test]
    fn who_is_ahead_of_the_last_who_waits_leaves_it_to_him() {
        let race = Race::default();
        let (lap, now) = (1 << 32, Nanos(100));
        race.want(10 * lap, Nanos(1_000), now);
        race.want(20 * lap, Nanos(900), now);
        assert_eq!(race.ahead_of_last(12 * lap, 1_514, now), None);
        let due = Nanos(1_000) + SLACK;
        assert_eq!(race.ahead_of_last(15 * lap, 1_514, now), Some((3 * lap, due)));
        race.moved(10 * lap, 14 * lap);
        assert_eq!(race.ahead_of_last(15 * lap, 1_514, now), None, "he has moved on");
        assert_eq!(race.ahead_of_last(99 * lap, 1_514, due), None, "he has not come");
    }
}
