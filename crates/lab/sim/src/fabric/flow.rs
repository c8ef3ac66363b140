//! A connection at its sender: TCP, and the departure times that TCP gives its packets.
//!
//! As in Linux, a packet's earliest departure time is a packet's time at the pacing rate after that
//! of the one before it, or now, if that is over; round trips are measured from it. And as there
//! (TCP small queues), a connection has a limited number of bytes waiting in its own host.

use super::packet::{FULL, SEGMENT};
use super::workload::Plan;
use crate::setup::Control;
use crate::tcp::control;
use crate::tcp::sender::Sender;
use narrows_units::{Nanos, Rate};

/// The most packets that a connection may have in its own host: 128 KB.
const SMALL_QUEUE: u32 = 128 * 1024 / FULL;

/// A connection, from its start until all has arrived.
pub(super) struct Flow {
    pub(super) plan: Plan,
    pub(super) sender: Sender,
    segments: u64,
    /// Packets in its own host.
    queued: u32,
    /// When the next packet may leave.
    departure: Nanos,
    /// When the last packet leaves, by the calendar.
    pub(super) behind: Nanos,
    /// The round trip that a handshake would have measured.
    round_trip: Nanos,
    max_rate: Option<Rate>,
}

/// A packet with its departure time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamped {
    pub(super) transmission: u32,
    /// In bytes.
    pub(super) len: u32,
    pub(super) departure: Nanos,
    /// The spacing of full packets of the connection, as a power of two of nanoseconds.
    pub(super) spacing: u32,
}

impl Flow {
    pub(super) fn new(plan: Plan, round_trip: Nanos, max_rate: Option<Rate>) -> Self {
        let segments = plan.bytes.div_ceil(u64::from(SEGMENT));
        Self {
            plan,
            sender: Sender::new(control::new(Control::Dctcp), false).with_length(segments),
            segments,
            queued: 0,
            departure: Nanos::ZERO,
            behind: Nanos::ZERO,
            round_trip,
            max_rate,
        }
    }

    /// The next packet, if the window and what waits in the host allow. It is paced no faster than
    /// `share`.
    pub(super) fn send(&mut self, now: Nanos, share: Option<Rate>) -> Option<Stamped> {
        if self.queued >= SMALL_QUEUE {
            self.sender.is_held_back_elsewhere();
            return None;
        }
        let departure = self.departure.max(now);
        let (segment, transmission) = self.sender.send(departure)?;
        let len = if segment + 1 == self.segments {
            let before = segment * u64::from(SEGMENT);
            FULL - SEGMENT + (self.plan.bytes - before) as u32
        } else {
            FULL
        };
        let full = self.gap(share);
        let gap = full * f64::from(len) / f64::from(FULL);
        self.departure = departure + Nanos(gap as u64);
        self.queued += 1;
        let spacing = (full as u64).max(1).ilog2();
        Some(Stamped { transmission: transmission as u32, len, departure, spacing })
    }

    /// A packet has left the host.
    pub(super) fn has_left(&mut self) {
        self.queued -= 1;
    }

    /// The time of a full packet at the pacing rate, in nanoseconds.
    fn gap(&self, share: Option<Rate>) -> f64 {
        let paced = 1e9 / self.sender.pace(self.round_trip);
        let rates = self.max_rate.into_iter().chain(share);
        let gaps = rates.map(|rate| f64::from(FULL) * 1e9 / rate.bytes_per_sec().max(1) as f64);
        gaps.fold(paced, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::workload::Pattern;

    fn flow(bytes: u64, max_rate: Option<Rate>) -> Flow {
        let plan = Plan { start: Nanos::ZERO, from: 0, to: 1, bytes, pattern: Pattern::OneToOne };
        Flow::new(plan, Nanos::from_micros(100), max_rate)
    }

    fn stamps(flow: &mut Flow, now: Nanos) -> Vec<Stamped> {
        std::iter::from_fn(|| flow.send(now, None)).collect()
    }

    #[test]
    fn the_first_window_is_paced_into_half_a_round_trip() {
        let stamps = stamps(&mut flow(1_000_000, None), Nanos(7));
        let departures: Vec<u64> = stamps.iter().map(|it| it.departure.0).collect();
        assert_eq!(departures, (0..10).map(|packet| 7 + packet * 5000).collect::<Vec<_>>());
        // 4096 ns is the power of two below 5 us.
        assert!(stamps.iter().all(|it| it.spacing == 12 && it.len == FULL));
    }

    #[test]
    fn a_flow_sends_what_it_has_and_no_more() {
        let stamps = stamps(&mut flow(3 * u64::from(SEGMENT) + 100, None), Nanos::ZERO);
        assert_eq!(stamps.iter().map(|it| it.len).collect::<Vec<_>>(), [FULL, FULL, FULL, 152]);
        let one_byte = self::stamps(&mut flow(1, None), Nanos::ZERO);
        assert_eq!(one_byte.iter().map(|it| it.len).collect::<Vec<_>>(), [53]);
    }

    #[test]
    fn a_limit_of_the_rate_is_kept() {
        let limit = Rate::from_bits_per_sec(1_000_000_000);
        let stamps = stamps(&mut flow(1_000_000, Some(limit)), Nanos::ZERO);
        assert_eq!(stamps[9].departure, Nanos(9 * 12_000));
    }

    #[test]
    fn time_that_has_passed_is_not_saved_up() {
        let mut flow = flow(20 * u64::from(SEGMENT), None);
        stamps(&mut flow, Nanos::ZERO);
        let later = Nanos::from_millis(1);
        (0..2).for_each(|transmission| flow.sender.acked(transmission, false, later));
        let stamps = stamps(&mut flow, later);
        assert_eq!(stamps[0].departure, later);
        assert!(stamps[1].departure > later);
    }

    #[test]
    fn no_more_than_a_small_queue_waits_in_the_host_and_the_window_does_not_grow_meanwhile() {
        let mut flow = flow(10_000_000, None);
        let mut sent = 0;
        let mut now = Nanos::ZERO;
        for _ in 0..20 {
            now += Nanos::from_micros(100);
            let first = sent;
            sent += stamps(&mut flow, now).len() as u32;
            assert!(flow.queued <= SMALL_QUEUE);
            // All are acknowledged, and none has left, as if others had sent them.
            (first..sent).for_each(|it| flow.sender.acked(it, false, now));
        }
        assert_eq!(sent, SMALL_QUEUE);
        flow.has_left();
        assert_eq!(stamps(&mut flow, now).len(), 1);
    }
}
