//! A connection of an application, which always has something to send.
//!
//! As in Linux (TCP small queues) it has no more than 128 KB in its own host.

use crate::setup::Control;
use crate::tcp::control;
use crate::tcp::sender::Sender;
use narrows_units::{Bytes, Nanos};

/// The most that a connection may have in its own host.
const SMALL_QUEUE: u64 = 128 * 1024;

pub(super) struct Flow {
    pub(super) app: usize,
    sender: Sender,
    /// It sends nothing before.
    pub(super) start: Nanos,
    /// Packets in its own host, and how many may be.
    queued: u64,
    most: u64,
}

impl Flow {
    pub(super) fn new(app: usize, frame: Bytes, time_out: Nanos) -> Self {
        let sender = Sender::new(control::new(Control::Cubic), false).with_least_time_out(time_out);
        let most = (SMALL_QUEUE / frame.0.max(1)).max(2);
        Self { app, sender, start: Nanos::MAX, queued: 0, most }
    }

    /// Sends a packet if it may: the number of the transmission.
    pub(super) fn send(&mut self, now: Nanos) -> Option<u32> {
        if now < self.start {
            return None;
        }
        if self.queued >= self.most {
            self.sender.is_held_back_elsewhere();
            return None;
        }
        let (_, transmission) = self.sender.send(now)?;
        self.queued += 1;
        Some(transmission as u32)
    }

    /// A packet is in the host no more.
    pub(super) fn has_left(&mut self) {
        self.queued -= 1;
    }

    /// A packet has arrived.
    pub(super) fn acked(&mut self, transmission: u32, now: Nanos) {
        self.sender.acked(transmission, false, now);
    }

    /// Gives up packets that have been under way for too long.
    pub(super) fn expire(&mut self, now: Nanos) {
        if now >= self.start {
            self.sender.expire(now);
        }
    }
}
