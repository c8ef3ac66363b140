//! COBALT: CoDel and BLUE, per flow.
//!
//! *CoDel* looks at how long a packet was queued. If that stays above a target for an interval, it
//! signals (marks or drops), and again at ever shorter distances, interval / sqrt(count), until the
//! queue is short. Then it counts back at the pace at which it counted up, so that a flow whose
//! queue soon stands again gets signals at the rate where it left off. It works on responsive
//! flows.
//!
//! *New flows are marked early.* A flow in slow start doubles its packets in flight in each round
//! trip without a signal. So the first mark of a flow does not wait for an interval, only for a
//! second packet that was queued for too long. A drop waits: a short transfer would be over before
//! its queue does harm.
//!
//! *BLUE* is for unresponsive flows. Each time a queue overflows, the probability to drop from it
//! rises; each time it empties, it falls. BLUE never marks: a flow that made a queue overflow has
//! had enough marks.
//!
//! *Rest.* The state of a flow without packets decays. It is updated when its next packet arrives
//! ([`Cobalt::rest`]) rather than in between, so idle flows cost nothing.
//!
//! Source: RFC 8289 (control law: section 4.3, 5.5); W. Feng et al., "The BLUE active queue
//! management algorithms"; "Piece of CAKE", section III-A; `tc-cake(8)`. Where it differs from RFC
//! 8289: the count goes back step by step instead of jumping, the first signal comes an interval
//! after the target was first exceeded without a state of its own, and the state is a quarter of a
//! cache line.
//!
//! Cost: some comparisons per packet; a square root per signal.

use crate::codel;
use narrows_units::Nanos;

/// The increase of the drop probability per overflow, in 1/65536.
const BLUE_RISE: u16 = ((1u32 << 16) / 256) as u16;
/// The decrease per empty queue: 16 times smaller, because otherwise it would oscillate.
const BLUE_FALL: u16 = ((1u32 << 16) / 4096) as u16;

/// Above this count, its square root decays after a rest, and not each step.
const STEPS_MAX: u32 = 64;

/// The parameters that the flows of a tin share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    /// The round trip that is expected.
    pub(super) interval: Nanos,
    /// The sojourn time that is aimed at.
    pub(super) target: Nanos,
    /// The time of a full frame at the tin's rate.
    frame_time: Nanos,
    /// The longest delay that does not count as a queue: the target, or four full frames if that is
    /// more.
    slack: Nanos,
}

impl Terms {
    /// The parameters for `interval` and `target` if a full frame takes `frame_time`: at a low rate
    /// they are as large as necessary.
    pub(super) const fn new(interval: Nanos, target: Nanos, frame_time: Nanos) -> Self {
        let floor = frame_time.0.saturating_mul(3) / 2;
        let reached = if target.0 > floor { target.0 } else { floor };
        let wider = interval.0.saturating_add(reached - target.0);
        let twice = reached.saturating_mul(2);
        let frames = frame_time.0.saturating_mul(4);
        Self {
            interval: Nanos(if wider > twice { wider } else { twice }),
            target: Nanos(reached),
            frame_time,
            slack: Nanos(if reached > frames { reached } else { frames }),
        }
    }
}

/// The decision on a packet that was about to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Send,
    Mark,
    Drop,
}

/// A packet that is about to leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Its delay.
    pub(super) sojourn: Nanos,
    /// Whether it may be marked.
    pub(super) can_be_marked: bool,
    /// The number of backlogged flows if drops count as sent; otherwise 0.
    pub(super) standing: u32,
    /// Anything.
    pub(super) random: u16,
}

/// A time in two halves, aligned to four bytes, so that a flow fits a cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Halves(u32, u32);

impl From<Nanos> for Halves {
    #[inline]
    fn from(time: Nanos) -> Self {
        Self((time.0 >> 32) as u32, time.0 as u32)
    }
}

impl From<Halves> for Nanos {
    #[inline]
    fn from(Halves(high, low): Halves) -> Self {
        Self(u64::from(high) << 32 | u64::from(low))
    }
}

/// The state of one flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cobalt {
    /// When CoDel signals next.
    drop_next: Halves,
    /// The number of signals, after decay.
    count: u32,
    /// The probability that BLUE drops, in 1/65536.
    blue: u16,
    /// Whether the target has been exceeded since.
    dropping: bool,
    /// When BLUE last changed its probability, in 1024 ns, wrapping.
    blue_at: u32,
}

impl Cobalt {
    /// A flow of which nothing is known.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Whether BLUE drops from this flow.
    #[inline]
    pub(super) fn is_unresponsive(&self) -> bool {
        self.blue != 0
    }

    /// Whether a packet with the delay `sojourn` leaves without further checks: it is in time, and
    /// no state of earlier delays is left. [`Cobalt::judge`] would give the same result and change
    /// nothing.
    #[inline]
    pub(super) fn is_at_ease(&self, terms: &Terms, sojourn: Nanos) -> bool {
        sojourn <= terms.slack && self.count | u32::from(self.blue) == 0
    }

    /// Decides about a packet that is about to leave at `now`.
    #[inline]
    pub(super) fn judge(&mut self, terms: &Terms, packet: Candidate, now: Nanos) -> Fate {
        let Candidate { sojourn, can_be_marked, standing, random } = packet;
        let over_target = sojourn > terms.slack
            && (standing == 0
                || sojourn.0 / 2 > terms.frame_time.0.saturating_mul(u64::from(standing)));
        let begins_to_exceed = over_target && !self.dropping;
        if over_target {
            if begins_to_exceed {
                self.dropping = true;
                let begins = self.drop_next() == Nanos::ZERO;
                self.count = self.count.max(1);
                // A mark takes nothing from a flow that has just begun.
                let is_soon = begins && can_be_marked;
                self.drop_next = if is_soon { now } else { self.after(now, terms) }.into();
            }
        } else {
            self.dropping = false;
        }
        self.follow(terms, now);
        let mut fate = Fate::Send;
        if self.count != 0 && now >= self.drop_next() && !begins_to_exceed {
            if self.dropping {
                fate = if can_be_marked { Fate::Mark } else { Fate::Drop };
                self.count = self.count.saturating_add(1);
                let mut next = self.after(self.drop_next(), terms);
                // A marked packet stays: no burst of marks makes up for lost time.
                if fate == Fate::Mark {
                    next = next.max(now);
                }
                self.drop_next = next.into();
            } else {
                self.count_back(terms, now);
            }
        }
        if self.blue != 0 && random < self.blue {
            fate = Fate::Drop;
        }
        fate
    }

    /// The queue has overflowed, and a packet of this flow was dropped for it.
    #[cold]
    pub(super) fn overflowed(&mut self, terms: &Terms, now: Nanos) {
        if self.since_blue(now) > terms.target {
            self.blue = self.blue.saturating_add(BLUE_RISE);
            self.blue_at = ticks(now);
        }
        self.dropping = true;
        self.drop_next = now.into();
        self.count = self.count.max(1);
    }

    /// The flow has no packets left.
    #[inline]
    pub(super) fn emptied(&mut self, terms: &Terms, now: Nanos) {
        self.dropping = false;
        if self.blue != 0 && self.since_blue(now) > terms.target {
            self.blue = self.blue.saturating_sub(BLUE_FALL);
            self.blue_at = ticks(now);
        }
    }

    /// Brings the state up to `now`, up to which the flow had no packets.
    #[inline]
    pub(super) fn rest(&mut self, terms: &Terms, now: Nanos) {
        if self.blue != 0 {
            let falls = self.since_blue(now).0 / terms.target.0.max(1);
            let falls = u16::try_from(falls).unwrap_or(u16::MAX);
            if falls != 0 {
                self.blue = self.blue.saturating_sub(BLUE_FALL.saturating_mul(falls));
                self.blue_at = ticks(now);
            }
        }
        self.follow(terms, now);
        if self.count != 0 && now >= self.drop_next() {
            self.count_back(terms, now);
        }
    }

    /// The next signal is never further away than the interval: it may have been set with other
    /// parameters, at a lower rate.
    #[inline]
    fn follow(&mut self, terms: &Terms, now: Nanos) {
        let latest = now + terms.interval;
        if self.drop_next() > latest {
            self.drop_next = latest.into();
        }
    }

    /// Whether nothing would be lost if the flow were forgotten at `now`.
    pub(super) fn is_at_rest(mut self, terms: &Terms, now: Nanos) -> bool {
        self.rest(terms, now);
        self.count == 0 && self.blue == 0
    }

    /// Decays the count by the signals due up to `now`.
    fn count_back(&mut self, terms: &Terms, now: Nanos) {
        if self.count > STEPS_MAX {
            // The sum of interval / sqrt(k) is close to 2 interval sqrt(k).
            let passed = now.since(self.drop_next()).0 as f64;
            let root =
                f64::from(self.count).sqrt() - passed / (2.0 * terms.interval.0.max(1) as f64);
            let root = root.max(f64::from(STEPS_MAX).sqrt());
            let steps = f64::from(self.count).sqrt() - root;
            let skipped = Nanos((steps * 2.0 * terms.interval.0 as f64) as u64);
            self.drop_next = (self.drop_next() + skipped).into();
            self.count = (root * root) as u32;
        }
        while self.count != 0 && now >= self.drop_next() {
            self.count -= 1;
            if self.count != 0 {
                self.drop_next = self.after(self.drop_next(), terms).into();
            }
        }
    }

    #[inline]
    fn drop_next(&self) -> Nanos {
        self.drop_next.into()
    }

    /// The control law: when to signal next after `then`.
    fn after(&self, then: Nanos, terms: &Terms) -> Nanos {
        codel::after(then, terms.interval, self.count)
    }

    fn since_blue(&self, now: Nanos) -> Nanos {
        Nanos(u64::from(ticks(now).wrapping_sub(self.blue_at)) << 10)
    }
}

fn ticks(now: Nanos) -> u32 {
    (now.0 >> 10) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms =
        Terms::new(Nanos::from_millis(100), Nanos::from_millis(5), Nanos::from_micros(120));

    fn packet(sojourn: Nanos, can_be_marked: bool) -> Candidate {
        Candidate { sojourn, can_be_marked, standing: 0, random: u16::MAX }
    }

    /// The times in ms at which something other than sending happens when a packet leaves each
    /// 100 us after `sojourn`.
    fn signals(cobalt: &mut Cobalt, from_ms: u64, to_ms: u64, sojourn: Nanos) -> Vec<f64> {
        (from_ms * 10..to_ms * 10)
            .filter_map(|step| {
                let now = Nanos::from_micros(step * 100);
                let fate = cobalt.judge(&TERMS, packet(sojourn, false), now);
                (fate != Fate::Send).then_some(step as f64 / 10.0)
            })
            .collect()
    }

    #[test]
    fn signals_come_at_interval_over_the_root_of_their_number() {
        let mut cobalt = Cobalt::new();
        let times = signals(&mut cobalt, 1000, 1500, Nanos::from_millis(6));
        // RFC 8289, section 5.5: the first after an interval, then 100 / sqrt(n) ms later each.
        let mut expected = 1100.0;
        for (number, time) in (2u32..).zip(&times) {
            assert!((time - expected).abs() < 0.2, "{times:?}: {time} for {expected}");
            expected += 100.0 / f64::from(number).sqrt();
        }
        assert_eq!(times.len(), 9);
    }

    #[test]
    fn a_queue_that_is_long_for_less_than_an_interval_is_let_be() {
        let mut cobalt = Cobalt::new();
        assert_eq!(signals(&mut cobalt, 1000, 1099, Nanos::from_millis(50)), []);
        assert_eq!(signals(&mut cobalt, 1099, 1100, Nanos::from_millis(1)), []);
        assert_eq!(signals(&mut cobalt, 1100, 1199, Nanos::from_millis(50)), []);
    }

    #[test]
    fn a_sojourn_below_the_target_is_never_punished() {
        let mut cobalt = Cobalt::new();
        assert_eq!(signals(&mut cobalt, 0, 3000, Nanos::from_millis(5)), []);
    }

    #[test]
    fn ecn_capable_packets_are_marked_instead_of_dropped() {
        let mut cobalt = Cobalt::new();
        let at = |ms| Nanos::from_millis(ms);
        assert_eq!(cobalt.judge(&TERMS, packet(at(9), true), at(1000)), Fate::Send);
        assert_eq!(cobalt.judge(&TERMS, packet(at(9), true), at(1101)), Fate::Mark);
        assert_eq!(cobalt.judge(&TERMS, packet(at(9), false), at(1200)), Fate::Drop);
    }

    #[test]
    fn a_new_flow_is_marked_at_its_second_late_packet() {
        let mut cobalt = Cobalt::new();
        let mut judge =
            |ms| cobalt.judge(&TERMS, packet(Nanos::from_millis(6), true), Nanos::from_millis(ms));
        assert_eq!([1000, 1001].map(&mut judge), [Fate::Send, Fate::Mark]);
        // From then on the control law holds: 100 / sqrt(2) ms.
        assert_eq!([1002, 1070, 1072].map(&mut judge), [Fate::Send, Fate::Send, Fate::Mark]);
    }

    #[test]
    fn a_queue_that_returns_soon_resumes_its_signal_rate() {
        let mut cobalt = Cobalt::new();
        let first = signals(&mut cobalt, 1000, 2000, Nanos::from_millis(6)).len() as u32;
        assert!(first > 20);
        let count = cobalt.count;
        signals(&mut cobalt, 2000, 2030, Nanos::from_millis(1));
        assert!(cobalt.count < count && cobalt.count > count / 2, "{}", cobalt.count);
        let again = signals(&mut cobalt, 2030, 2130, Nanos::from_millis(6));
        assert!(again.len() >= 3, "{again:?}");
    }

    #[test]
    fn after_a_long_rest_nothing_is_left() {
        for count in [1, 5, 63, 64, 65, 1000, 60_000] {
            let drop_next = Nanos::from_secs(1);
            let long = Nanos((2.0 * f64::from(count).sqrt() * 1e8) as u64 + 200_000_000);
            let cobalt = Cobalt { count, drop_next: drop_next.into(), ..Cobalt::new() };
            assert!(cobalt.is_at_rest(&TERMS, drop_next + long), "{count}");
            let before = Nanos(drop_next.0 - 1);
            assert!(!cobalt.is_at_rest(&TERMS, before), "{count}");
        }
    }

    #[test]
    fn counting_back_at_once_is_counting_back_step_by_step() {
        for count in [70u32, 400, 5000] {
            for passed_ms in [1u64, 30, 200, 1000] {
                let drop_next = Nanos::from_secs(1);
                let now = drop_next + Nanos::from_millis(passed_ms);
                let mut at_once = Cobalt { count, drop_next: drop_next.into(), ..Cobalt::new() };
                at_once.rest(&TERMS, now);
                let mut stepwise = Cobalt { count, drop_next: drop_next.into(), ..Cobalt::new() };
                while stepwise.count != 0 && now >= stepwise.drop_next() {
                    stepwise.count -= 1;
                    stepwise.drop_next = stepwise.after(stepwise.drop_next(), &TERMS).into();
                }
                let off = at_once.count.abs_diff(stepwise.count);
                assert!(off <= 2 + count / 100, "{count} {passed_ms}: {at_once:?} {stepwise:?}");
            }
        }
    }

    #[test]
    fn blue_rises_with_overflows_and_falls_with_emptiness() {
        let mut cobalt = Cobalt::new();
        for step in 1..=10 {
            cobalt.overflowed(&TERMS, Nanos::from_millis(100 + 6 * step));
            // Again at once changes nothing.
            cobalt.overflowed(&TERMS, Nanos::from_millis(100 + 6 * step));
        }
        assert_eq!(cobalt.blue, 10 * BLUE_RISE);
        let now = Nanos::from_secs(1);
        let unlucky = Candidate { random: 0, ..packet(Nanos::ZERO, true) };
        assert_eq!(cobalt.judge(&TERMS, unlucky, now), Fate::Drop);
        let lucky = Candidate { random: 10 * BLUE_RISE, ..unlucky };
        assert_eq!(cobalt.judge(&TERMS, lucky, now), Fate::Send);
        cobalt.emptied(&TERMS, now);
        assert_eq!(cobalt.blue, 10 * BLUE_RISE - BLUE_FALL);
        cobalt.rest(&TERMS, now + Nanos::from_millis(5 * 160));
        assert!(!cobalt.is_unresponsive(), "{cobalt:?}");
    }

    #[test]
    fn a_slow_link_is_not_asked_for_less_than_a_few_packets() {
        let (interval, target) = (Nanos::from_millis(100), Nanos::from_millis(5));
        let terms = Terms::new(interval, target, Nanos::from_millis(12));
        assert_eq!(terms.target, Nanos::from_millis(18));
        assert_eq!(terms.interval, Nanos::from_millis(113));
        let mut cobalt = Cobalt::new();
        for ms in 0..1000 {
            let now = Nanos::from_millis(ms);
            let fate = cobalt.judge(&terms, packet(Nanos::from_millis(40), false), now);
            assert_eq!(fate, Fate::Send, "four packets are no queue");
        }
    }
}
