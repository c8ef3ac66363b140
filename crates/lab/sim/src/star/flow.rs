//! A connection at its sender: TCP without an end, which gives its qdisc no more than a
//! millisecond's packets.
//!
//! As in Linux without pacing by TCP itself, a window leaves TCP at once, and the qdisc says when
//! packets leave; round trips are measured from TCP, and so with the time in the qdisc. Linux's
//! small queues limit a connection to a millisecond's worth, and to 128 KB.

use crate::fabric::packet::FULL;
use crate::setup::Control;
use crate::tcp::control;
use crate::tcp::sender::Sender;
use narrows_units::Nanos;
use std::collections::VecDeque;

/// How many times per second a connection's small queue may be sent.
const SMALL_QUEUES: f64 = 1000.0;
/// The least number of packets that it holds …
const LEAST_QUEUE: f64 = 2.0;
/// … and at most: 128 KB.
const MOST_QUEUE: f64 = (128 * 1024 / FULL) as f64;

/// A connection.
pub(super) struct Flow {
    pub(super) sender: Sender,
    /// Packets in its own host.
    queued: u32,
    /// Transmissions without an answer yet, with their time stamps.
    stamps: VecDeque<(u32, u32)>,
    /// The round trip that a handshake would have measured.
    round_trip: Nanos,
}

impl Flow {
    pub(super) fn new(round_trip: Nanos) -> Self {
        let sender = Sender::new(control::new(Control::Dctcp), false);
        Self { sender, queued: 0, stamps: VecDeque::new(), round_trip }
    }

    /// The next transmission, if the window and what waits in the host allow one. It has the time
    /// stamp `stamp`.
    pub(super) fn send(&mut self, stamp: u32, now: Nanos) -> Option<u32> {
        let room = self.sender.pace(self.round_trip) / SMALL_QUEUES;
        let room = room.clamp(LEAST_QUEUE, MOST_QUEUE);
        if f64::from(self.queued) >= room {
            self.sender.is_held_back_elsewhere();
            return None;
        }
        let (_, transmission) = self.sender.send(now)?;
        let transmission = transmission as u32;
        self.stamps.push_back((transmission, stamp));
        self.queued += 1;
        Some(transmission)
    }

    /// A packet has left the host, or was dropped there.
    pub(super) fn has_left(&mut self) {
        self.queued -= 1;
    }

    /// The time stamp of `transmission`, which is being answered. Answers arrive in order.
    pub(super) fn stamp(&mut self, transmission: u32) -> Option<u32> {
        while let Some((number, stamp)) = self.stamps.pop_front() {
            if number == transmission {
                return Some(stamp);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_no_more_than_its_small_queue_in_the_host() {
        // The first window in slow start, at 10 packets in 10 ms: two of them fit into a
        // millisecond.
        let mut flow = Flow::new(Nanos::from_millis(10));
        let sent: Vec<u32> = std::iter::from_fn(|| flow.send(7, Nanos(1))).collect();
        assert_eq!(sent, [0, 1]);
        flow.has_left();
        assert_eq!(flow.send(8, Nanos(2)), Some(2));
    }

    #[test]
    fn an_answer_has_the_stamp_of_its_transmission_also_behind_a_loss() {
        let mut flow = Flow::new(Nanos::from_micros(50));
        for stamp in 10..14 {
            flow.send(stamp, Nanos(1));
        }
        assert_eq!([flow.stamp(0), flow.stamp(2), flow.stamp(3)], [Some(10), Some(12), Some(13)]);
        assert_eq!(flow.stamp(3), None);
    }
}
