//! Segments in flight and lost segments.
//!
//! *Idea.* Every transmission has a number, a repair a new one, and an acknowledgement names the
//! transmission that arrived. Then one rule finds every loss, that of a repair too: a segment is
//! lost if another that was sent three or more transmissions later has arrived. For first
//! transmissions this is `IsLost()` of RFC 6675 section 4 with its `DupThresh`; for repairs it is
//! what RACK (RFC 8985) adds, by number instead of by time, as in RFC 9002 section 6.1.1.
//!
//! *Principles.* A ring from the oldest that is undecided to the newest: each transmission is
//! put in and taken out once, and nothing is allocated once the ring is as long as the largest
//! window.

use narrows_units::Nanos;
use std::collections::VecDeque;

/// The number of later arrivals after which a segment counts as lost.
const REORDERING: u64 = 3;

/// One flow's.
#[derive(Default)]
pub(crate) struct Scoreboard {
    /// From the oldest that may still be in flight.
    sent: VecDeque<Sent>,
    /// The number of that one.
    oldest: u64,
    /// One more than the highest number that has arrived.
    arrived: u64,
    in_flight: u32,
    /// Segments to send again.
    repairs: VecDeque<u64>,
    /// The first segment that was never sent.
    fresh: u64,
}

struct Sent {
    segment: u64,
    at: Nanos,
    /// Neither arrived nor lost.
    in_flight: bool,
}

impl Scoreboard {
    /// The number of the next transmission.
    pub(crate) fn next(&self) -> u64 {
        self.oldest + self.sent.len() as u64
    }

    /// The transmission whose number has this low half, near those in flight; none if it is before
    /// all of them.
    pub(crate) fn number(&self, low: u32) -> Option<u64> {
        let ahead = low.wrapping_sub(self.oldest as u32);
        (ahead <= u32::MAX / 2).then(|| self.oldest + u64::from(ahead))
    }

    /// How many are neither arrived nor lost (RFC 6675's pipe).
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The segment that is sent next.
    pub(crate) fn next_segment(&self) -> u64 {
        self.repairs.front().copied().unwrap_or(self.fresh)
    }

    /// Sends the most urgent segment. Returns the transmission and the segment.
    pub(crate) fn send(&mut self, at: Nanos) -> (u64, u64) {
        let transmission = self.next();
        let segment = self.repairs.pop_front().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        });
        self.sent.push_back(Sent { segment, at, in_flight: true });
        self.in_flight += 1;
        (transmission, segment)
    }

    /// A transmission has arrived: says when it was sent, and nothing if it had been given up.
    pub(crate) fn arrive(&mut self, transmission: u64) -> Option<Nanos> {
        let index = transmission.checked_sub(self.oldest)?;
        let sent = self.sent.get_mut(usize::try_from(index).ok()?)?;
        if !sent.in_flight {
            return None;
        }
        sent.in_flight = false;
        self.in_flight -= 1;
        self.arrived = self.arrived.max(transmission + 1);
        Some(sent.at)
    }

    /// Marks lost segments for retransmission. Returns the last lost transmission.
    pub(crate) fn find_lost(&mut self) -> Option<u64> {
        let mut last = None;
        while let Some(sent) = self.sent.front() {
            if sent.in_flight {
                if self.oldest + REORDERING >= self.arrived {
                    break;
                }
                self.repairs.push_back(sent.segment);
                self.in_flight -= 1;
                last = Some(self.oldest);
            }
            self.sent.pop_front();
            self.oldest += 1;
        }
        last
    }

    /// Gives up everything in flight, to be sent again.
    pub(crate) fn give_up(&mut self) {
        self.oldest = self.next();
        let in_flight = self.sent.drain(..).filter(|sent| sent.in_flight);
        self.repairs.extend(in_flight.map(|sent| sent.segment));
        self.in_flight = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(n: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        for number in 0..n {
            assert_eq!(board.send(Nanos(number)), (number, number));
        }
        board
    }

    #[test]
    fn three_later_arrivals_make_a_loss() {
        let mut board = sent(10);
        for transmission in [1, 2] {
            assert_eq!(board.arrive(transmission), Some(Nanos(transmission)));
            assert_eq!(board.find_lost(), None);
        }
        board.arrive(3);
        assert_eq!(board.find_lost(), Some(0));
        assert_eq!(board.in_flight(), 6);
        assert_eq!(board.send(Nanos(20)), (10, 0));
        assert_eq!(board.send(Nanos(20)), (11, 10));
    }

    #[test]
    fn a_repair_that_is_lost_is_found_as_well() {
        let mut board = sent(4);
        (1..4).for_each(|transmission| assert!(board.arrive(transmission).is_some()));
        board.find_lost();
        assert_eq!(board.send(Nanos(5)), (4, 0));
        (0..3).for_each(|_| assert!(board.send(Nanos(6)).1 >= 4));
        (5..8).for_each(|transmission| assert!(board.arrive(transmission).is_some()));
        assert_eq!(board.find_lost(), Some(4));
        assert_eq!(board.send(Nanos(7)).1, 0);
    }

    #[test]
    fn given_up_segments_are_sent_again_in_order_and_late_arrivals_ignored() {
        let mut board = sent(4);
        board.arrive(1);
        board.give_up();
        assert_eq!(board.in_flight(), 0);
        assert_eq!(board.arrive(2), None);
        let again: Vec<(u64, u64)> = (0..4).map(|_| board.send(Nanos(9))).collect();
        assert_eq!(again, [(4, 0), (5, 2), (6, 3), (7, 4)]);
    }

    #[test]
    fn numbers_go_on_where_their_low_half_begins_again() {
        let board = Scoreboard { oldest: 0x1_ffff_fffe, ..Scoreboard::default() };
        assert_eq!(board.number(0xffff_ffff), Some(0x1_ffff_ffff));
        assert_eq!(board.number(1), Some(0x2_0000_0001));
        assert_eq!(board.number(0xffff_fffd), None);
    }

    #[test]
    fn arrivals_in_order_leave_nothing_behind() {
        let mut board = sent(1000);
        for transmission in 0..1000 {
            board.arrive(transmission);
            assert_eq!(board.find_lost(), None);
        }
        assert!(board.sent.is_empty() && board.in_flight() == 0);
    }
}
