//! When a queue watches the packets that it sends.
//!
//! Time is divided into turns of [`TURN`]. After a turn with n times [`PACKETS`], the queue rests
//! for n turns, so watching costs the same at any packet rate. Within a stretch without a rest all
//! packets are seen; the tracking of sequence numbers relies on that.

use narrows_units::Nanos;

/// The length of a turn: 1.07 s, so that most losses of a turn are also repaired in it.
const TURN: Nanos = Nanos(1 << 30);
/// The packets that may be examined in a turn before there is a rest.
const PACKETS: u32 = 1 << 17;

/// Which turns of a queue are watched, so that watching costs the same at any packet rate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turns {
    /// The number of this turn, counted from time 0.
    number: u64,
    /// The next turn that is watched.
    resumes: u64,
    /// Packets in this turn.
    packets: u32,
    /// How often there was a rest.
    stretch: u16,
}

impl Turns {
    /// Whether to examine packets that are sent at `now`. If so, in which stretch.
    #[inline]
    pub(crate) fn stretch(&mut self, now: Nanos) -> Option<u16> {
        let number = now.0 / TURN.0;
        if number != self.number {
            self.turn(number);
        }
        (number >= self.resumes).then_some(self.stretch)
    }

    /// Counts packets that were examined.
    #[inline]
    pub(crate) fn count(&mut self, packets: u32) {
        self.packets = self.packets.saturating_add(packets);
    }

    #[cold]
    fn turn(&mut self, number: u64) {
        let rest = u64::from(self.packets / PACKETS);
        if rest > 0 {
            self.resumes = self.number + 1 + rest;
            self.stretch = self.stretch.wrapping_add(1);
        }
        self.number = number;
        self.packets = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of 1000 turns that is watched, with this many packets in each watched turn.
    fn watched(packets: u32) -> usize {
        let mut turns = Turns::default();
        let is_watched = |turn: &u64| {
            let stretch = turns.stretch(Nanos(turn * TURN.0));
            turns.count(stretch.map_or(0, |_| packets));
            stretch.is_some()
        };
        (0..1000).filter(is_watched).count()
    }

    #[test]
    fn at_low_rates_all_packets_are_watched_and_at_high_rates_some_turns() {
        assert_eq!(watched(PACKETS - 1), 1000);
        assert_eq!(watched(PACKETS), 500);
        assert_eq!(watched(3 * PACKETS), 250);
    }

    #[test]
    fn a_stretch_ends_with_a_rest_and_not_before() {
        let mut turns = Turns::default();
        let first = turns.stretch(Nanos::ZERO);
        assert_eq!(turns.stretch(TURN), first);
        turns.count(PACKETS);
        assert_eq!(turns.stretch(Nanos(2 * TURN.0)), None);
        let next = turns.stretch(Nanos(3 * TURN.0));
        assert!(next.is_some() && next != first);
    }
}
