//! The credit that a meter may still buy within its share.
//!
//! A clock of the meter's own: the time up to which it has used its share. The span from it to now
//! is what the meter may still buy with priority. It is counted in time and not in bytes, so what
//! was saved under too large a share is worth no more than the present share.
//!
//! A waiting queue saves its share, so that a late core does not lose it to cores that come more
//! often. A resting queue does not: it returns with the right to one packet; otherwise queues that
//! slept would together claim much more than there is when they wake up.
//!
//! What a meter buys beyond its share counts against its future share, up to the same bound: a
//! lucky meter yields for a while, so luck does not add up.

use narrows_qdisc::Weight;
use narrows_units::{Bytes, Nanos, Rate};

/// For how long a waiting queue saves its share: longer than cores usually sleep.
const LONGEST_SAVED: Nanos = Nanos::from_micros(500);

#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    rate: Rate,
    /// In common time.
    used_until: Nanos,
    /// The most that is saved or borrowed, in time.
    depth: Nanos,
}

impl Allowance {
    /// At `rate`, and good for `least` at any rate.
    pub(super) fn new(rate: Rate, least: Bytes) -> Self {
        let depth = LONGEST_SAVED.max(rate.time_for(least));
        Self { rate, used_until: Nanos::ZERO, depth }
    }

    /// This share at another rate: savings scale with it.
    pub(super) fn at_rate(self, rate: Rate, least: Bytes) -> Self {
        Self { used_until: self.used_until, ..Self::new(rate, least) }
    }

    /// The share is worth `new` instead of `old` from `now` on. Overuse was counted in bytes, so it
    /// weighs less in a larger share; in a smaller one it stays as it is.
    pub(super) fn reweigh(&mut self, old: Weight, new: Weight, now: Nanos) {
        let borrowed = self.used_until.since(now);
        if new > old && borrowed != Nanos::ZERO {
            let less = u128::from(borrowed.0) * u128::from(old.0) / u128::from(new.0);
            self.used_until = now + Nanos(less as u64);
        }
    }

    /// The queue was at rest until `now`: it has saved `packet` at most.
    pub(super) fn rest(&mut self, packet: Bytes, now: Nanos) {
        self.used_until = self.used_until.max(now - self.rate.time_for(packet));
    }

    /// Whether `bytes` are within the share at `now`. More than can be saved count as within if all
    /// savings are there.
    ///
    /// # Errors
    /// When they are.
    pub(super) fn affords(&self, bytes: Bytes, now: Nanos) -> Result<(), Nanos> {
        let start = self.used_until.max(now - self.depth);
        let when = start + self.rate.time_for(bytes).min(self.depth);
        if when <= now { Ok(()) } else { Err(when) }
    }

    /// The span that is left within the share at `now`.
    pub(super) fn worth(&self, now: Nanos) -> Bytes {
        self.rate.bytes_in(now.since(self.used_until).min(self.depth))
    }

    /// How much of the share to come has been used.
    pub(super) fn borrowed(&self, now: Nanos) -> Nanos {
        self.used_until.since(now)
    }

    /// Uses the share for `bytes`.
    pub(super) fn charge(&mut self, bytes: Bytes, now: Nanos) {
        self.used_until = self.used_until.max(now - self.depth) + self.rate.time_for(bytes);
    }

    /// Uses the others' surplus for `bytes`.
    pub(super) fn borrow(&mut self, bytes: Bytes, now: Nanos) {
        let before = self.used_until;
        self.charge(bytes, now);
        self.used_until = self.used_until.min(now + self.depth).max(before);
    }

    /// Has not used the share for `bytes` after all.
    pub(super) fn refund(&mut self, bytes: Bytes) {
        self.used_until = self.used_until - self.rate.time_for(bytes);
    }

    /// Starts over: no savings and no debt.
    pub(super) fn clear(&mut self, now: Nanos) {
        self.used_until = now;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LEAST: Bytes = Bytes(3_000);
    const NOW: Nanos = Nanos::from_secs(1);

    fn gigabyte() -> Allowance {
        Allowance::new(Rate::from_bytes_per_sec(1_000_000_000), LEAST)
    }

    #[test]
    fn debt_from_a_small_share_is_repaid_sooner_under_a_large_one() {
        let mut allowance = gigabyte();
        allowance.clear(NOW);
        allowance.charge(Bytes(1_600), NOW);
        allowance.reweigh(Weight(16), Weight(256), NOW);
        assert_eq!(allowance.borrowed(NOW), Nanos(100));
        allowance.reweigh(Weight(256), Weight(16), NOW);
        assert_eq!(allowance.borrowed(NOW), Nanos(100));
        // Savings are kept.
        let later = NOW + Nanos(5_000);
        allowance.reweigh(Weight(16), Weight(32), later);
        assert_eq!(allowance.worth(later), Bytes(4_900));
    }

    #[test]
    fn a_queue_that_waits_saves_up_for_half_a_millisecond() {
        let mut allowance = gigabyte();
        allowance.charge(Bytes(499_000), NOW);
        assert_eq!(allowance.affords(Bytes(1_000), NOW), Ok(()));
        assert_eq!(allowance.worth(NOW), Bytes(1_000));
        assert_eq!(allowance.affords(Bytes(1_500), NOW), Err(NOW + Nanos(500)));
    }

    #[test]
    fn a_queue_that_rested_has_one_packet() {
        let mut allowance = gigabyte();
        allowance.rest(Bytes(1_500), NOW);
        assert_eq!(allowance.affords(Bytes(1_500), NOW), Ok(()));
        allowance.charge(Bytes(1_500), NOW);
        assert_eq!(allowance.affords(Bytes(100), NOW), Err(NOW + Nanos(100)));
    }

    #[test]
    fn savings_shrink_with_the_share() {
        let mut allowance = gigabyte();
        allowance.clear(NOW);
        let later = NOW + Nanos(100_000);
        assert_eq!(allowance.affords(Bytes(100_000), later), Ok(()));
        let allowance = allowance.at_rate(Rate::from_bytes_per_sec(10_000_000), LEAST);
        assert_eq!(allowance.affords(Bytes(1_000), later), Ok(()));
        assert_eq!(allowance.affords(Bytes(1_001), later), Err(later + Nanos(100)));
    }

    #[test]
    fn debt_lasts_half_a_millisecond_at_most() {
        let mut allowance = gigabyte();
        allowance.clear(NOW);
        allowance.borrow(Bytes(100_000), NOW);
        assert_eq!(allowance.affords(Bytes(1_000), NOW), Err(NOW + Nanos(101_000)));
        allowance.refund(Bytes(1_000));
        assert_eq!(allowance.affords(Bytes(1_000), NOW), Err(NOW + Nanos(100_000)));
        allowance.borrow(Bytes(900_000), NOW);
        assert_eq!(allowance.affords(Bytes(1_000), NOW), Err(NOW + Nanos(501_000)));
    }

    #[test]
    fn a_packet_longer_than_all_savings_leaves_a_debt() {
        let mut allowance = Allowance::new(Rate::from_bytes_per_sec(1_000_000), LEAST);
        assert_eq!(allowance.affords(Bytes(9_000), NOW), Ok(()));
        allowance.charge(Bytes(9_000), NOW);
        assert_eq!(allowance.affords(Bytes(1), NOW), Err(NOW + Nanos(6_001_000)));
    }
}
