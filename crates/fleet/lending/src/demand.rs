//! From counters to demand.
//!
//! A limit that does not hold its box back tells the demand: it is what is sent, and a little more,
//! so that it can grow. A limit that does hold it back hides the demand. Then the demand is without
//! bound, and the max–min shares of all boxes decide. A limit holds back if packets wait or are
//! dropped at it, or if nearly all of it is sent.
//!
//! The demand of a limit with shared classes below it is told by tier, from what the classes
//! demand: what is assured to them comes first.

use crate::flows::{Count, Flows};
use crate::shares::{Demand, GREEDY};
use narrows_snapshot::SharedLimit;

/// How much more than what is sent is demanded: a 64th. Nobody uses it, where others want more.
const HEADROOM: u64 = 64;

/// A limit of which more than this many 128ths are sent holds its box back.
const BOUND_128THS: u128 = 127;

/// A limit that begins to bind asks for a quarter more at first, and for what nobody else wants.
/// What is sent in an interval fluctuates by more than the headroom, and a demand without bound
/// moves the shares of all boxes.
const STEP: u64 = 4;

/// A limit that binds asks for this many times what the box owns or has, before it asks for all: of
/// a hundred boxes, all but one would lend it nearly all they own, and get it back as soon as it is
/// measured what it sends.
const REACH: u64 = 8;

/// The shortest time over which a rate is measured, in nanoseconds: 25 ms. In less, a burst looks
/// like a rate.
const SHORTEST_NS: u64 = 25_000_000;

/// The longest: half a second.
const LONGEST_NS: u64 = 500_000_000;

/// In between, so many bytes are enough for a rate: 32 packets of 1,500 bytes.
const ENOUGH_BYTES: u64 = 48_000;

/// The headroom of a small demand, in bits per second, as far as it is at most a 64th of the safe
/// share: 1 Mbit/s, four packets in 50 ms.
const HEADROOM_BPS: u64 = 1_000_000;

/// What is known of the traffic of one limit.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// The sample before this one: time, bytes sent and packets dropped.
    last: Option<(u64, u64, u64)>,
    /// What was in force then.
    in_force_bps: u64,
    /// What was sent since the sample before.
    sent_bps: u64,
    /// What this box owns.
    safe_bps: u64,
    /// Whether packets waited then.
    waits: bool,
    is_bound: bool,
    demand_bps: u64,
    /// Whether the demand is a quarter more than what was in force when the limit began to bind.
    has_stepped: bool,
    /// Whether it asked for [`REACH`] times what it had, since it binds.
    has_reached: bool,
    /// Whether the demand is that of a limit that binds.
    holds_back: bool,
    count: Count,
}

impl Meter {
    /// A sample of the counters, taken at `now`.
    pub fn sample(&mut self, now: u64, limit: &SharedLimit) {
        let sample = (now, limit.sent_bytes, limit.dropped_packets);
        self.waits = limit.backlog_bytes > 0;
        self.count.sample(now, limit.flows, self.waits || self.is_bound);
        let Some((time, sent, dropped)) = self.last else {
            self.last = Some(sample);
            self.in_force_bps = limit.in_force_bps;
            self.is_bound = self.waits;
            return;
        };
        let elapsed_ns = now.saturating_sub(time);
        // Counters begin anew with the instance.
        let bytes = limit.sent_bytes.checked_sub(sent).unwrap_or(limit.sent_bytes);
        let bps = u128::from(bytes) * 8_000_000_000 / u128::from(elapsed_ns.max(1));
        // A rate far below what is in force needs no precision, and a limit that binds has none.
        let is_low = bps * 4 < u128::from(limit.in_force_bps);
        let drops = limit.dropped_packets > dropped;
        let is_enough = bytes >= ENOUGH_BYTES || is_low || self.waits || drops;
        if elapsed_ns < SHORTEST_NS || (elapsed_ns < LONGEST_NS && !is_enough) {
            return;
        }
        self.last = Some(sample);
        self.safe_bps = limit.safe_bps;
        self.sent_bps = u64::try_from(bps).unwrap_or(u64::MAX);
        let is_full = bps * 128 > u128::from(limit.in_force_bps) * BOUND_128THS && bytes > 0;
        // A limit that was just raised was lower for a part of the time. What was sent then is no
        // demand: if it bound, it counts as binding until it did not for a whole interval.
        let before = std::mem::replace(&mut self.in_force_bps, limit.in_force_bps);
        let was_lower =
            self.is_bound && limit.in_force_bps > before.saturating_add(before / HEADROOM);
        self.is_bound = self.waits || drops || is_full || was_lower;
    }

    /// Nothing changed since the last sample: nothing was sent, and what waited waits.
    pub fn idle(&mut self, now: u64) {
        if let Some((time, ..)) = &mut self.last
            && now.saturating_sub(*time) >= SHORTEST_NS
        {
            *time = now;
            self.sent_bps = 0;
            self.is_bound = self.waits;
        }
    }

    /// What was sent lately.
    pub fn sent_bps(&self) -> u64 {
        self.sent_bps
    }

    /// Takes the last sample as demand, of a box that should have `share_bps`.
    ///
    /// A limit that binds since the share is not here yet, because a loan is on its way, tells
    /// nothing: the demand is what it was.
    pub fn appraise(&mut self, share_bps: u64) {
        // Loans are not changed for less than a 512th of what a box owns.
        let slack_bps = (share_bps / 16).max(self.safe_bps / 256);
        if !self.is_bound {
            let small_bps = HEADROOM_BPS.min(self.safe_bps / HEADROOM);
            let headroom_bps = small_bps.max(self.sent_bps / HEADROOM);
            self.demand_bps = self.sent_bps.saturating_add(headroom_bps);
            self.has_stepped = false;
            self.has_reached = false;
            self.holds_back = false;
        } else if self.in_force_bps.saturating_add(slack_bps) >= share_bps {
            self.holds_back = true;
            // A box that wakes has a small part of what it owns, which tells nothing either.
            let was_known = self.demand_bps != GREEDY
                && self.demand_bps > self.in_force_bps / 2
                && self.in_force_bps > self.safe_bps / STEP;
            self.has_stepped = was_known && !self.has_stepped && !self.has_reached;
            self.demand_bps = if self.has_stepped {
                self.in_force_bps.saturating_add(self.in_force_bps / STEP)
            } else if self.has_reached {
                GREEDY
            } else {
                self.has_reached = true;
                self.reach_bps()
            };
        }
    }

    /// The demand without regard to tiers.
    pub fn demand_bps(&self) -> u64 {
        self.demand_bps
    }

    /// How much it would use of what nobody else wants, too.
    pub fn rest_bps(&self) -> u64 {
        if self.has_stepped { self.reach_bps() } else { 0 }
    }

    /// Whether the limit held back what was sent in the last sample.
    pub fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// The flows that share the limit here.
    pub fn flows(&self) -> Flows {
        self.count.flows(self.holds_back)
    }

    fn reach_bps(&self) -> u64 {
        self.in_force_bps.max(self.safe_bps).saturating_mul(REACH)
    }
}

/// A shared class below the limit whose demand is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Below {
    /// What it demands.
    pub demand_bps: u64,
    /// What it is assured on this box.
    pub assured_bps: u64,
    /// Its priority.
    pub prio: u8,
}

/// The demand of a limit by tier: `demand_bps` in all, of which shared classes below it demand
/// some. What the others demand has the best priority of those that borrow.
pub fn by_tier(demand_bps: u64, below: &[Below]) -> Demand {
    let mut tiers = Demand::default();
    // What is not demanded of the limit itself, no class demands of it.
    let mut left = demand_bps;
    let mut take = |tier: usize, wanted: u64| {
        let taken = wanted.min(left);
        tiers.0[tier] = tiers.0[tier].saturating_add(taken);
        if left != GREEDY {
            left -= taken;
        }
    };
    for class in below {
        take(0, class.demand_bps.min(class.assured_bps));
    }
    for class in below {
        let borrows = if class.demand_bps == GREEDY {
            GREEDY
        } else {
            class.demand_bps.saturating_sub(class.assured_bps)
        };
        take(1 + usize::from(class.prio.min(7)), borrows);
    }
    let classes: u64 = below.iter().fold(0, |sum: u64, class| sum.saturating_add(class.demand_bps));
    if demand_bps != GREEDY {
        take(1, demand_bps.saturating_sub(classes));
    } else if classes != GREEDY {
        take(1, GREEDY);
    }
    tiers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(sent_bytes: u64, backlog_bytes: u64) -> SharedLimit {
        SharedLimit { in_force_bps: 8_000_000, sent_bytes, backlog_bytes, ..SharedLimit::default() }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn what_is_sent_below_the_limit_is_the_demand_and_a_64th() {
        let mut meter = Meter::default();
        meter.sample(0, &limit(0, 0));
        meter.sample(50 * MS, &limit(10_000, 0));
        meter.appraise(0);
        assert_eq!(meter.sent_bps(), 1_600_000);
        assert_eq!(meter.demand_bps(), 1_625_000);
    }

    #[test]
    fn a_limit_that_binds_asks_for_eight_times_what_it_has_and_then_for_all() {
        let mut meter = Meter::default();
        meter.sample(0, &limit(0, 0));
        meter.sample(50 * MS, &limit(10_000, 1));
        meter.appraise(0);
        assert_eq!(meter.demand_bps(), 64_000_000);
        meter.sample(100 * MS, &limit(60_000, 0));
        meter.appraise(0);
        assert_eq!(meter.demand_bps(), GREEDY, "nearly all of the limit was sent");
        meter.sample(150 * MS, &limit(61_000, 0));
        meter.appraise(0);
        assert_eq!(meter.demand_bps(), 162_500);
        meter.sample(200 * MS, &limit(71_000, 1));
        meter.appraise(0);
        assert_eq!(meter.demand_bps(), 64_000_000, "it begins anew");
    }

    #[test]
    fn a_limit_that_binds_while_a_loan_is_on_its_way_tells_nothing() {
        let mut meter = Meter::default();
        meter.sample(0, &limit(0, 0));
        meter.sample(50 * MS, &limit(10_000, 0));
        meter.appraise(20_000_000);
        meter.sample(100 * MS, &limit(20_000, 1));
        meter.appraise(20_000_000);
        assert_eq!(meter.demand_bps(), 1_625_000);
        meter.appraise(8_000_000);
        assert_eq!(meter.demand_bps(), 64_000_000);
    }

    #[test]
    fn counters_that_begin_anew_are_no_flood() {
        let mut meter = Meter::default();
        meter.sample(0, &limit(1_000_000, 0));
        meter.sample(50 * MS, &limit(1_000, 0));
        meter.appraise(0);
        assert_eq!(meter.sent_bps(), 160_000);
    }

    #[test]
    fn assured_rates_of_classes_are_the_first_tier() {
        let gold = Below { demand_bps: GREEDY, assured_bps: 600, prio: 0 };
        let bulk = Below { demand_bps: 500, assured_bps: 100, prio: 3 };
        let demand = by_tier(GREEDY, &[gold, bulk]);
        assert_eq!(demand.0, [700, GREEDY, 0, 0, 400, 0, 0, 0, 0]);
    }

    #[test]
    fn a_limit_that_does_not_bind_demands_no_more_than_it_sends() {
        let gold = Below { demand_bps: GREEDY, assured_bps: 600, prio: 1 };
        let demand = by_tier(900, &[gold]);
        assert_eq!(demand.0, [600, 0, 300, 0, 0, 0, 0, 0, 0]);
        assert_eq!(by_tier(900, &[]).0, [0, 900, 0, 0, 0, 0, 0, 0, 0]);
    }
}
