//! A TCP sender over whole segments.
//!
//! It sends whenever less is in flight than the window allows: clocked by acknowledgements, without
//! pacing, as Linux does without `fq`; who paces asks for the rate. Every segment is acknowledged;
//! delayed acknowledgements (RFC 1122) are not modelled.
//!
//! If the congestion control has no own reaction to marks, a mark counts as a loss without a
//! retransmission (RFC 3168, section 6.1.2).
//!
//! Recovery is that of RFC 6675: the window is reduced at once, and repairs go out before
//! anything new as soon as less than that is in flight.

use crate::tcp::control::{Ack, CongestionControl};
use crate::tcp::round_trip::RoundTrip;
use crate::tcp::scoreboard::Scoreboard;
use narrows_units::Nanos;

/// The largest window that a receiver can announce, in segments of 1448 bytes: 2³⁰ bytes (RFC 7323,
/// section 2.3).
const MOST_IN_FLIGHT: f64 = 741_500.0;

/// How many windows are paced into a round trip, in congestion avoidance.
const PACE: f64 = 1.2;
/// How many windows are paced into a round trip, in slow start.
const SLOW_START_PACE: f64 = 2.0;

/// One flow's.
pub(crate) struct Sender {
    control: Box<dyn CongestionControl>,
    board: Scoreboard,
    round_trip: RoundTrip,
    ecn: bool,
    /// Losses and marks of transmissions before this one belong to a reduction that has been made.
    reduced: u64,
    /// When segments in flight are given up.
    deadline: Nanos,
    /// Segments in all.
    length: u64,
    /// Segments that are known to have arrived.
    arrived: u64,
    /// Whether only the window held back the next segment at the last call.
    held_back: bool,
}

impl Sender {
    /// A sender that has sent nothing yet. With `ecn` its segments are ECN-capable for any
    /// `control`.
    pub(crate) fn new(control: Box<dyn CongestionControl>, ecn: bool) -> Self {
        Self {
            control,
            ecn,
            board: Scoreboard::default(),
            round_trip: RoundTrip::new(),
            reduced: 0,
            deadline: Nanos::ZERO,
            length: u64::MAX,
            arrived: 0,
            held_back: true,
        }
    }

    /// This sender with a fixed number of segments to send.
    pub(crate) fn with_length(self, segments: u64) -> Self {
        Self { length: segments, ..self }
    }

    /// This sender with time-outs of no less than `least`.
    pub(crate) fn with_least_time_out(self, least: Nanos) -> Self {
        Self { round_trip: RoundTrip::with_least(least), ..self }
    }

    /// Whether all of it is known to have arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.arrived == self.length
    }

    /// The next segment is kept back by something else than the window, which so does not grow.
    pub(crate) fn is_held_back_elsewhere(&mut self) {
        self.held_back = false;
    }

    /// The pacing rate in segments per second, if paced: as in Linux's TCP, slightly more than a
    /// window per round trip, so that the window can grow. `round_trip` applies until one is
    /// measured.
    pub(crate) fn pace(&self, round_trip: Nanos) -> f64 {
        let window = self.control.window();
        let more = if window < self.control.threshold() / 2.0 { SLOW_START_PACE } else { PACE };
        let measured = self.round_trip.mean();
        let round_trip = if measured == Nanos::ZERO { round_trip } else { measured };
        more * window / round_trip.as_secs_f64()
    }

    /// Whether its segments can be marked.
    pub(crate) fn marks(&self) -> bool {
        self.ecn || self.control.marks()
    }

    /// When it acts without further acknowledgements.
    pub(crate) fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// Hears that a transmission has arrived: the low half of its number.
    pub(crate) fn acked(&mut self, transmission: u32, marked: bool, now: Nanos) {
        let Some(transmission) = self.board.number(transmission) else { return };
        let Some(sent_at) = self.board.arrive(transmission) else { return };
        self.arrived += 1;
        self.round_trip.measure(now.since(sent_at));
        self.deadline = now + self.round_trip.time_out();
        if let Some(lost) = self.board.find_lost()
            && lost >= self.reduced
        {
            self.reduce();
        }
        if marked && !self.control.marks() && transmission >= self.reduced {
            self.reduce();
        }
        self.control.acked(&Ack {
            now,
            round_trip: self.round_trip.mean(),
            transmission,
            next: self.board.next(),
            recovering: transmission < self.reduced || !self.held_back,
            marked,
        });
    }

    /// Reacts to a loss; further losses among segments sent before are not counted again.
    fn reduce(&mut self) {
        self.control.lost();
        self.reduced = self.board.next();
    }

    /// Gives up segments in flight when the timer expires (RFC 6298 section 5).
    pub(crate) fn expire(&mut self, now: Nanos) {
        if now < self.deadline || self.board.in_flight() == 0 {
            return;
        }
        self.board.give_up();
        self.control.timed_out();
        self.reduced = self.board.next();
        self.round_trip.back_off();
    }

    /// Sends a segment if the window allows: its number, and that of the transmission. `now` may be
    /// a time to come: when the segment is going to leave.
    pub(crate) fn send(&mut self, now: Nanos) -> Option<(u64, u64)> {
        let in_flight = self.board.in_flight();
        let is_left = self.board.next_segment() < self.length;
        self.held_back =
            is_left && f64::from(in_flight) + 1.0 > self.control.window().min(MOST_IN_FLIGHT);
        if self.held_back || !is_left {
            return None;
        }
        if in_flight == 0 {
            self.deadline = now + self.round_trip.time_out();
        }
        let (transmission, segment) = self.board.send(now);
        Some((segment, transmission))
    }
}
