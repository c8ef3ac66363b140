//! Who has had its share: virtual times.
//!
//! Runners share what is sold here in proportion to their weights. The race has a virtual time that
//! moves on with what is sold, divided by the weights of all who run; a runner has one that moves
//! on with what it buys, divided by its own weight. One that is not further than two frames ahead
//! of the race has a right to buy.
//!
//! Weights come and go without anybody's leave, and what is read may be a moment old: then shares
//! are a little wrong for a moment. The ledger does not depend on them.
//!
//! Who waits for a sale says until when. Those of worse priorities, and those who are ahead of one
//! who is not, leave everything to him that would not be lost. One who does not ask again, or is
//! held up by his own ceiling, is in nobody's way.
//!
//! Memory ordering: relaxed. The words are hints; nothing is reached through them.

use crate::sync::{AtomicU64, Ordering};
use narrows_units::{Bytes, Nanos};

/// By so many bytes a runner may be ahead, whatever it weighs: two full frames.
const LEAD: Bytes = Bytes(2 * 1514);

/// By how much one may be late who said when he would ask again.
const SLACK: Nanos = Nanos::from_micros(50);

/// Who starts again, and was so many leads ahead or more, starts from here.
const START_LEADS: u64 = 3;

#[derive(Default)]
pub(super) struct Race {
    time: AtomicU64,
    /// The sum over all who run.
    weight: AtomicU64,
    /// Until when somebody waits for what is sold here,
    wanted: AtomicU64,
    /// and somebody who is not ahead.
    due: AtomicU64,
}

/// The time that `bytes` take one who weighs `weight`.
#[inline]
pub(super) fn laps(bytes: Bytes, weight: u64) -> u64 {
    (bytes.0 << 32) / weight.max(1)
}

impl Race {
    pub(super) fn join(&self, weight: u64) {
        self.weight.fetch_add(weight, Ordering::Relaxed);
    }

    pub(super) fn leave(&self, weight: u64) {
        self.weight.fetch_sub(weight, Ordering::Relaxed);
    }

    /// One at `time` waits for what is sold here, until he asks again at `until`.
    #[inline]
    pub(super) fn want(&self, time: u64, weight: u64, until: Nanos) {
        let until = (until + SLACK).0;
        if self.wanted.load(Ordering::Relaxed) < until {
            self.wanted.store(until, Ordering::Relaxed);
        }
        if self.ahead(time, weight).is_none() && self.due.load(Ordering::Relaxed) < until {
            self.due.store(until, Ordering::Relaxed);
        }
    }

    /// Until when somebody waits for it.
    #[inline]
    pub(super) fn wanted_until(&self) -> Nanos {
        Nanos(self.wanted.load(Ordering::Relaxed))
    }

    /// The same of those who are not ahead.
    #[inline]
    pub(super) fn due_until(&self) -> Nanos {
        Nanos(self.due.load(Ordering::Relaxed))
    }

    /// Where a runner that was at `time` starts again. What it left unused meanwhile has gone to
    /// others.
    #[inline]
    pub(super) fn start(&self, time: u64, weight: u64) -> u64 {
        let race = self.time.load(Ordering::Relaxed);
        let ahead = time.wrapping_sub(race) as i64;
        race.wrapping_add_signed(ahead.clamp(0, (START_LEADS * laps(LEAD, weight)) as i64))
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
        let weight = u128::from(self.weight.load(Ordering::Relaxed));
        Bytes(((u128::from(laps) * weight) >> 32) as u64)
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
        race.want(1 << 40, 1_514, Nanos(1_000));
        assert!(race.wanted_until() > Nanos(1_000));
        assert_eq!(race.due_until(), Nanos::ZERO, "he is ahead");
        race.want(0, 1_514, Nanos(2_000));
        assert!(race.due_until() > Nanos(2_000));
    }
}
