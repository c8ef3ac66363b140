//! CoDel: which packets to drop, or to mark, so that a queue does not stay long.
//!
//! A queue that absorbs a burst and drains is useful; one that stays long only adds delay. So CoDel
//! looks at each packet's sojourn time when it leaves. When that has been above a target for a
//! whole interval, CoDel signals once, and again after interval / sqrt(2), interval / sqrt(3) and
//! so on until a packet leaves in time. If the queue stands again soon, CoDel resumes at about the
//! rate of signals that helped before.
//!
//! *A frame is no queue.* If at most the longest frame stands behind a packet, its sojourn time
//! counts as short: no shorter queue is possible at that rate, and the last packet of a flow is
//! never dropped.
//!
//! Source: RFC 8289, sections 4 and 5. Marks are signals like drops, one a packet.
//!
//! Cost: two comparisons a packet of a short queue; a square root for each signal.
//!
//! Non-goals: flows that do not respond to signals (`cake/cobalt.rs` has BLUE for those; here their
//! limit applies), where the packets are stored.

use super::State;
use narrows_units::Nanos;

/// For this many intervals after its last signal a queue resumes the signal rate (RFC 8289, section
/// 5.5).
const REMEMBERED: u64 = 16;

/// The control law: when to signal next after `then`, which was signal number `count`.
#[inline]
pub(crate) fn after(then: Nanos, interval: Nanos, count: u32) -> Nanos {
    then + Nanos((interval.0 as f64 / f64::from(count.max(1)).sqrt()) as u64)
}

/// The parameters that queues share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    /// The sojourn time that is aimed at.
    pub(crate) target: Nanos,
    /// About the longest round trip of the senders.
    pub(crate) interval: Nanos,
    /// A backlog that never causes a signal, in bytes.
    pub(crate) frame: u64,
}

/// The state of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Codel {
    /// When the target will have been exceeded for an interval; zero while it is not exceeded.
    first_above: Nanos,
    /// When to signal next, or when that would have been.
    next: Nanos,
    /// Signals since the present series started, including those that helped before.
    count: u32,
    /// The initial `count` of the series.
    began_at: u32,
    /// Whether it signals.
    signals: bool,
    /// Whether `next` is still the time of a signal that was given.
    given: bool,
}

impl Codel {
    /// A queue of which nothing is known.
    pub(crate) const fn new() -> Self {
        Self {
            first_above: Nanos::ZERO,
            next: Nanos::ZERO,
            count: 0,
            began_at: 0,
            signals: false,
            given: false,
        }
    }

    /// Whether to signal with a packet that is about to leave at `now` after `sojourn`, with so
    /// many bytes `behind` it. If it is dropped, ask the same about the packet that takes its
    /// place.
    #[inline]
    pub(crate) fn signals(
        &mut self,
        terms: &Terms,
        sojourn: Nanos,
        behind: u64,
        now: Nanos,
    ) -> bool {
        if sojourn < terms.target || behind <= terms.frame {
            self.first_above = Nanos::ZERO;
            self.signals = false;
            return false;
        }
        self.stands(terms, now)
    }

    /// Whether to signal with a packet whose delay was too long.
    #[inline(never)]
    fn stands(&mut self, terms: &Terms, now: Nanos) -> bool {
        if self.first_above == Nanos::ZERO {
            self.first_above = now + terms.interval;
            self.signals = false;
            return false;
        }
        if now < self.first_above {
            return false;
        }
        if !self.signals {
            self.begin(terms, now);
            return true;
        }
        if self.given {
            self.given = false;
            self.next = after(self.next, terms.interval, self.count);
        }
        if now < self.next {
            return false;
        }
        self.count = self.count.saturating_add(1);
        self.given = true;
        true
    }

    /// Signals for the first time.
    fn begin(&mut self, terms: &Terms, now: Nanos) {
        let helped = self.count.saturating_sub(self.began_at);
        let recently = now.since(self.next).0 < terms.interval.0.saturating_mul(REMEMBERED);
        self.count = if helped > 1 && recently { helped } else { 1 };
        self.began_at = self.count;
        self.next = after(now, terms.interval, self.count);
        (self.signals, self.given) = (true, false);
    }

    /// Counts packets that were dropped at once, and not by the law.
    pub(crate) fn add(&mut self, drops: u32) {
        self.count = self.count.saturating_add(drops);
    }

    /// There is no packet any more.
    #[inline]
    pub(crate) fn ran_empty(&mut self) {
        self.first_above = Nanos::ZERO;
        self.signals = false;
    }

    /// Its state at `now`, after a packet with the delay `sojourn`.
    pub(crate) fn state(&self, terms: &Terms, sojourn: Nanos, now: Nanos) -> State {
        let next =
            if self.given { after(self.next, terms.interval, self.count) } else { self.next };
        let until = if next == Nanos::ZERO { 0 } else { next.0.wrapping_sub(now.0).cast_signed() };
        State {
            count: self.count,
            last_count: self.began_at,
            sojourn,
            is_dropping: self.signals,
            drop_next_nanos: until,
        }
    }

    /// Whether the state of an empty queue can be forgotten at `now`.
    pub(crate) fn is_at_rest(&self, terms: &Terms, now: Nanos) -> bool {
        self.count.saturating_sub(self.began_at) <= 1
            || now.since(self.next).0 >= terms.interval.0.saturating_mul(REMEMBERED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TERMS: Terms =
        Terms { target: Nanos::from_millis(5), interval: Nanos::from_millis(100), frame: 1514 };

    /// The times in ms of signals when a packet leaves every 100 us after `sojourn`, and the next
    /// packet follows a dropped one at once.
    fn signals(codel: &mut Codel, from_ms: u64, to_ms: u64, sojourn: Nanos) -> Vec<f64> {
        let mut times = vec![];
        for step in from_ms * 10..to_ms * 10 {
            while codel.signals(&TERMS, sojourn, 1 << 20, Nanos::from_micros(step * 100)) {
                times.push(step as f64 / 10.0);
            }
        }
        times
    }

    #[test]
    fn signals_come_at_interval_over_the_root_of_their_number() {
        let mut codel = Codel::new();
        let times = signals(&mut codel, 1000, 1500, Nanos::from_millis(6));
        // RFC 8289, section 5.5: the first after an interval, then 100 / sqrt(n) ms after the n-th.
        let mut expected = 1100.0;
        for (number, time) in (1u32..).zip(&times) {
            assert!((time - expected).abs() < 0.2, "{times:?}: {time} for {expected}");
            expected += 100.0 / f64::from(number).sqrt();
        }
        assert_eq!(times.len(), 7);
    }

    #[test]
    fn a_queue_that_is_long_for_less_than_an_interval_is_let_be() {
        let mut codel = Codel::new();
        for start in [1000, 1100, 1200] {
            assert_eq!(signals(&mut codel, start, start + 99, Nanos::from_millis(50)), []);
            assert_eq!(signals(&mut codel, start + 99, start + 100, Nanos::from_millis(4)), []);
        }
    }

    #[test]
    fn a_packet_with_at_most_a_frame_behind_it_is_spared() {
        let mut codel = Codel::new();
        for ms in 1..10_000 {
            let now = Nanos::from_millis(ms);
            assert!(!codel.signals(&TERMS, Nanos::from_secs(1), 1514, now));
        }
    }

    #[test]
    fn a_queue_that_returns_soon_resumes_its_signal_rate_and_a_later_one_does_not() {
        for (pause_ms, more) in [(200, true), (1_700, false)] {
            let mut codel = Codel::new();
            let first = signals(&mut codel, 1000, 2000, Nanos::from_millis(6)).len();
            assert!(first > 15, "{first}");
            let back = 2000 + pause_ms;
            assert_eq!(signals(&mut codel, 2000, back, Nanos::from_millis(1)), []);
            assert_eq!(codel.is_at_rest(&TERMS, Nanos::from_millis(back)), !more);
            let again = signals(&mut codel, back, back + 200, Nanos::from_millis(6)).len();
            // The first comes after an interval; at the pace at which it ended, five or so a 100
            // ms.
            assert_eq!(again > 3, more, "{again}");
        }
    }

    /// The state of RFC 8289's pseudo-code, whose queue is a list of sojourn times and bytes
    /// behind.
    #[derive(Default)]
    struct Textbook {
        first_above_time: u64,
        drop_next: u64,
        count: u32,
        lastcount: u32,
        dropping: bool,
    }

    impl Textbook {
        fn law(t: u64, count: u32) -> u64 {
            t + (TERMS.interval.0 as f64 / f64::from(count).sqrt()) as u64
        }

        fn ok_to_drop(&mut self, packet: (u64, u64), now: u64) -> bool {
            let (sojourn, behind) = packet;
            if sojourn < TERMS.target.0 || behind <= TERMS.frame {
                self.first_above_time = 0;
                return false;
            }
            if self.first_above_time == 0 {
                self.first_above_time = now + TERMS.interval.0;
                return false;
            }
            now >= self.first_above_time
        }

        /// How many of `queue` are dropped until one leaves; the last never is.
        fn dequeue(&mut self, queue: &[(u64, u64)], now: u64) -> usize {
            let mut dropped = 0;
            let mut ok = self.ok_to_drop(queue[0], now);
            if self.dropping {
                if !ok {
                    self.dropping = false;
                }
                while now >= self.drop_next && self.dropping {
                    dropped += 1;
                    self.count += 1;
                    ok = self.ok_to_drop(queue[dropped], now);
                    if ok {
                        self.drop_next = Self::law(self.drop_next, self.count);
                    } else {
                        self.dropping = false;
                    }
                }
            } else if ok {
                dropped += 1;
                self.ok_to_drop(queue[dropped], now);
                self.dropping = true;
                let delta = self.count - self.lastcount;
                let recent = now.saturating_sub(self.drop_next) < 16 * TERMS.interval.0;
                self.count = if delta > 1 && recent { delta } else { 1 };
                self.drop_next = Self::law(now, self.count);
                self.lastcount = self.count;
            }
            dropped
        }
    }

    proptest! {
        /// The oracle is the pseudo-code of RFC 8289, section 5.
        #[test]
        fn it_drops_as_the_textbook_model(
            phases in prop::collection::vec((1usize..400, 0u64..20, 0u64..30_000), 1..20),
        ) {
            let (mut codel, mut textbook) = (Codel::new(), Textbook::default());
            let mut now = 1_000_000_000u64;
            for (departures, sojourn_ms, bytes) in phases {
                for _ in 0..departures {
                    now += 1_700_000;
                    // Those behind came later by a millisecond each.
                    let queue: Vec<_> = (0..200u64)
                        .map(|place| {
                            let sojourn = sojourn_ms.saturating_sub(place) * 1_000_000;
                            (sojourn, bytes.saturating_sub(place * 1500))
                        })
                        .collect();
                    let expected = textbook.dequeue(&queue, now);
                    let mut dropped = 0;
                    while {
                        let (sojourn, behind) = queue[dropped];
                        codel.signals(&TERMS, Nanos(sojourn), behind, Nanos(now))
                    } {
                        dropped += 1;
                    }
                    prop_assert_eq!(dropped, expected);
                    prop_assert_eq!(codel.count, textbook.count);
                }
            }
        }
    }
}
