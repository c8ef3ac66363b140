//! The connections that a queue watches in one direction: what each has sent.
//!
//! A table by hash, without search. A connection that finds its place taken is not watched; it gets
//! the place when the other one has been silent for [`SILENCE`], or had it for [`HELD_MAX`]. So of
//! more connections than there are places, each is watched for some time.
//!
//! *Retransmissions.* While a connection is watched, its highest byte sent is known. A segment
//! below that was sent before, unless it fills a gap. Up to [`GAPS`] gaps are remembered. A segment
//! that fills a gap within [`REORDERING`] was reordered.

use narrows_packet::dissect::{Segment, Spin};
use narrows_units::Nanos;

/// Connections of a queue that are watched at a time in each direction.
pub(crate) const FLOWS: usize = 1024;

/// After this time without a packet another connection gets the place.
const SILENCE: Nanos = Nanos::from_secs(1);
/// After this time another connection gets it in any case.
const HELD_MAX: Nanos = Nanos::from_secs(10);
/// The longest time for which a gap counts as reordering.
const REORDERING: Nanos = Nanos::from_millis(2);
/// The least time between two timed round trips of a connection.
const TIMED_EVERY: Nanos = Nanos::from_millis(100);
/// … while somebody follows the line.
const WATCHED_EVERY: Nanos = Nanos::from_millis(10);
/// The most segments that are reported together.
const UNTOLD_MAX: u32 = 32;
/// Gaps of a connection that are remembered.
const GAPS: usize = 4;
/// The most turns of a spin bit in the last sixteen packets.
const TURNS_MAX: u32 = 4;

/// The kind of a segment of a watched connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passed {
    /// It carries no data, or its history is unknown.
    Unknown,
    /// Its data was not seen before.
    New,
    /// Its data was seen before.
    Again,
    /// It fills a gap that is too old for reordering.
    Late,
}

/// A connection in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flow {
    tag: u32,
    stretch: u16,
    /// The last packets: a bit for each, set if the spin bit had turned.
    turns: u16,
    is_fresh: bool,
    spin: bool,
    /// The highest byte sent when watching began.
    first: u32,
    /// The highest byte sent so far.
    next: u32,
    /// Gaps, the newest last.
    gaps: [Gap; GAPS],
    seen: Nanos,
    since: Nanos,
    /// When it may be timed again.
    timed: Nanos,
    /// Which of three segments to time it is.
    left_out: u8,
    /// Segments with data, and those of them that were not reported yet.
    segments: u32,
    untold: u32,
}

/// A range of bytes that later ones have overtaken; empty if both ends are the same.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    from: u32,
    to: u32,
    /// When the gap appeared.
    at: Nanos,
}

/// A hash table of the connections that a queue watches in one direction.
pub(crate) struct Flows(Box<[Flow]>);

impl Flows {
    pub(crate) fn new() -> Self {
        Self(vec![Flow::default(); FLOWS].into_boxed_slice())
    }

    /// The entry of `connection`, if it is watched at `now` in this `stretch` of time.
    #[inline]
    pub(crate) fn of(&mut self, connection: u64, stretch: u16, now: Nanos) -> Option<&mut Flow> {
        // Bits that the board does not use.
        let flow = &mut self.0[(connection >> 13) as usize % FLOWS];
        let tag = (connection >> 32) as u32;
        let is_known = flow.tag == tag && flow.stretch == stretch && !flow.is_over(now);
        if !is_known {
            if flow.tag != tag && !flow.is_over(now) {
                return None;
            }
            *flow = Flow { tag, stretch, is_fresh: true, since: now, ..Flow::default() };
        }
        flow.seen = now;
        Some(flow)
    }
}

impl Flow {
    fn is_over(&self, now: Nanos) -> bool {
        self.seen + SILENCE <= now || self.since + HELD_MAX <= now
    }

    /// `segment` leaves at `now`.
    #[inline]
    pub(crate) fn passes(&mut self, segment: &Segment, now: Nanos) -> Passed {
        if std::mem::take(&mut self.is_fresh) {
            (self.first, self.next) = (segment.first, segment.end);
            return if segment.is_opening { Passed::New } else { Passed::Unknown };
        }
        if segment.end == segment.first {
            return Passed::Unknown;
        }
        if is_after(segment.end, self.next) {
            if is_after(segment.first, self.next) {
                self.gaps.rotate_left(1);
                self.gaps[GAPS - 1] = Gap { from: self.next, to: segment.first, at: now };
            }
            self.next = segment.end;
            return Passed::New;
        }
        self.passed_before(segment, now)
    }

    /// A segment below the highest byte sent leaves at `now`.
    #[cold]
    fn passed_before(&mut self, segment: &Segment, now: Nanos) -> Passed {
        let fills = |gap: &&mut Gap| {
            gap.from != gap.to
                && !is_after(gap.from, segment.first)
                && !is_after(segment.end, gap.to)
        };
        if let Some(gap) = self.gaps.iter_mut().find(fills) {
            // Most gaps are filled from their start.
            if segment.first == gap.from {
                gap.from = segment.end;
            } else {
                gap.to = segment.first;
            }
            return if now - gap.at > REORDERING { Passed::Late } else { Passed::Unknown };
        }
        let is_probe = segment.end == self.next && segment.end.wrapping_sub(segment.first) == 1;
        if is_after(self.first, segment.first) || is_probe {
            return Passed::Unknown;
        }
        Passed::Again
    }

    /// Whether to time a segment that leaves at `now`. A connection is timed at most once in
    /// [`TIMED_EVERY`]: that is often enough, and the cost adds up on a fast port. While somebody
    /// follows the line it is [`WATCHED_EVERY`], which few connections need to tell of a fall soon.
    #[inline]
    pub(crate) fn is_to_be_timed(&mut self, now: Nanos, is_watched: impl FnOnce() -> bool) -> bool {
        let is_due = self.timed <= now;
        if is_due {
            self.timed = now + if is_watched() { WATCHED_EVERY } else { TIMED_EVERY };
        }
        is_due
    }

    /// Whether to time the next segment with data instead of this one. Who receives acknowledges
    /// every second segment, and an acknowledgement lets the sender send, so without this it would
    /// always be the first of two that is timed, which has to wait for the other.
    #[inline]
    pub(crate) fn is_left_out(&mut self) -> bool {
        self.left_out = (self.left_out + 1) % 3;
        let is_left_out = self.left_out == 2;
        if is_left_out {
            self.timed = Nanos::ZERO;
        }
        is_left_out
    }

    /// Counts a segment with data. Returns how many to report now: all unreported ones, soon for a
    /// short connection, [`UNTOLD_MAX`] at a time for a long one.
    #[inline]
    pub(crate) fn count(&mut self, is_lost: bool) -> Option<u64> {
        self.segments = self.segments.wrapping_add(1);
        self.untold += 1;
        let is_due = is_lost || self.untold >= UNTOLD_MAX || self.segments.is_power_of_two();
        is_due.then(|| u64::from(std::mem::take(&mut self.untold)))
    }

    /// Processes a packet with `spin`. Returns whether the bit has turned and really spins.
    #[inline]
    pub(crate) fn spins(&mut self, spin: Spin) -> bool {
        let has_turned = !std::mem::take(&mut self.is_fresh) && spin.is_set != self.spin;
        self.spin = spin.is_set;
        self.turns = self.turns << 1 | u16::from(has_turned);
        has_turned && self.turns.count_ones() <= TURNS_MAX
    }
}

/// Whether the byte `one` comes after `other`: numbers wrap.
#[inline]
fn is_after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(100);
    const LEN: u32 = 1000;
    /// Shortly before numbers wrap.
    const FIRST: u32 = u32::MAX - 2500;

    fn numbered(number: u32) -> Segment {
        let first = FIRST.wrapping_add(number * LEN);
        let end = first.wrapping_add(LEN);
        Segment { first, end, acknowledged: None, time_stamp: None, is_opening: false }
    }

    /// The kinds of segments with these numbers, each some milliseconds after the one before.
    fn passed(numbers: &[(u32, u64)]) -> Vec<Passed> {
        let mut flows = Flows::new();
        let mut now = NOW;
        let mut pass = |&(number, after): &(u32, u64)| {
            now += Nanos::from_millis(after);
            flows.of(7, 0, now).unwrap().passes(&numbered(number), now)
        };
        numbers.iter().map(&mut pass).collect()
    }

    const NEW: Passed = Passed::New;

    #[test]
    fn segments_in_order_are_new() {
        let passed = passed(&[(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]);
        assert_eq!(passed, [Passed::Unknown, NEW, NEW, NEW, NEW]);
    }

    #[test]
    fn a_segment_that_leaves_twice_was_lost_beyond() {
        let passed = passed(&[(1, 1), (2, 1), (3, 1), (2, 30), (4, 1), (0, 1)]);
        let [_, _, _, again, new, before] = passed[..] else { panic!() };
        assert_eq!((again, new), (Passed::Again, NEW));
        assert_eq!(before, Passed::Unknown, "it was sent before anybody looked");
    }

    #[test]
    fn a_segment_that_fills_a_gap_was_lost_before_or_reordered() {
        let late = passed(&[(0, 1), (3, 1), (1, 30), (2, 1), (2, 1)]);
        assert_eq!(late[1..], [NEW, Passed::Late, Passed::Late, Passed::Again]);
        let two = passed(&[(0, 1), (2, 1), (4, 1), (1, 30), (3, 1), (3, 1)]);
        assert_eq!(two[3..], [Passed::Late, Passed::Late, Passed::Again]);
        let reordered = passed(&[(0, 1), (2, 1), (1, 1), (3, 1)]);
        assert_eq!(reordered[1..], [NEW, Passed::Unknown, NEW]);
    }

    #[test]
    fn a_probe_of_one_byte_is_no_loss() {
        let mut flows = Flows::new();
        let mut pass = |segment| flows.of(7, 0, NOW).unwrap().passes(&segment, NOW);
        pass(numbered(0));
        pass(numbered(1));
        let probe = Segment { first: numbered(1).end.wrapping_sub(1), ..numbered(1) };
        assert_eq!(pass(probe), Passed::Unknown);
    }

    #[test]
    fn the_first_segment_is_new_and_one_without_data_does_not_count() {
        let mut flows = Flows::new();
        let mut pass = |segment| flows.of(7, 0, NOW).unwrap().passes(&segment, NOW);
        assert_eq!(pass(Segment { is_opening: true, ..numbered(0) }), NEW);
        assert_eq!(pass(Segment { end: numbered(1).first, ..numbered(1) }), Passed::Unknown);
        assert_eq!(pass(numbered(1)), NEW);
    }

    #[test]
    fn a_connection_is_timed_now_and_then_and_more_often_while_somebody_watches() {
        for (is_watched, count) in [(false, 10), (true, 100)] {
            let mut flow = Flow::default();
            let mut is_timed =
                |ms| flow.is_to_be_timed(NOW + Nanos::from_millis(ms), || is_watched);
            assert_eq!((0..1000).filter(|ms| is_timed(*ms)).count(), count);
        }
    }

    #[test]
    fn of_three_segments_to_time_one_is_left_out_for_the_next_one() {
        let mut flow = Flow::default();
        let mut due = |ms| {
            let now = NOW + Nanos::from_millis(ms);
            flow.is_to_be_timed(now, || true) && !flow.is_left_out()
        };
        assert_eq!([0, 1, 10, 11, 20, 21].map(&mut due), [true, false, false, true, false, true]);
    }

    #[test]
    fn most_segments_of_each_connection_are_reported() {
        let mut flow = Flow::default();
        let mut reported = 0;
        for count in 1..1000 {
            reported += flow.count(false).unwrap_or(0);
            assert!(count - reported < 32 && reported * 2 >= count, "{reported} of {count}");
        }
        assert_eq!(reported + flow.count(true).unwrap(), 1000);
    }

    #[test]
    fn a_connection_keeps_its_place_for_a_while() {
        let mut flows = Flows::new();
        let other = 7 + (1 << 40);
        let mut watches = |connection, millis| {
            flows.of(connection, 0, NOW + Nanos::from_millis(millis)).is_some()
        };
        assert!(watches(7, 0));
        assert!(!watches(other, 500));
        assert!(watches(other, 1_100), "the first one is silent");
        for half in 1..20 {
            assert!(!watches(7, 1_100 + half * 500));
            assert!(watches(other, 1_100 + half * 500));
        }
        assert!(watches(7, 11_200), "the other one had its time");
    }

    #[test]
    fn a_rest_forgets_all_connections() {
        let mut flows = Flows::new();
        flows.of(7, 0, NOW).unwrap().passes(&numbered(5), NOW);
        assert_eq!(flows.of(7, 1, NOW).unwrap().passes(&numbered(2), NOW), Passed::Unknown);
    }

    #[test]
    fn a_bit_that_turns_all_the_time_does_not_spin() {
        let mut flow = Flow { is_fresh: true, ..Flow::default() };
        let mut turns = |bits: &[bool]| {
            let spin = |&is_set| flow.spins(Spin { is_set, is_clients: true });
            bits.iter().map(spin).filter(|turned| *turned).count()
        };
        let spinning: Vec<bool> = (0..100).map(|packet| packet / 10 % 2 == 0).collect();
        assert_eq!(turns(&spinning), 9);
        let random: Vec<bool> =
            (0_u32..1000).map(|n| n.wrapping_mul(0x9e37_79b9) >> 31 == 1).collect();
        assert!(turns(&random) < 20);
    }
}
