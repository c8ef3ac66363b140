//! A host's device: it sends one packet after the other, and reports whose packet it has sent.

use narrows_units::Nanos;
use std::collections::VecDeque;

/// Packets that a device has not sent yet: when it will have sent each, and the sender of each.
#[derive(Default)]
pub(crate) struct Device(VecDeque<(Nanos, u32)>);

impl Device {
    /// It has a packet of `flow` and will have sent it at `at`, which is after all that it has.
    pub(crate) fn give(&mut self, flow: u32, at: Nanos) {
        self.0.push_back((at, flow));
    }

    /// The owners of the packets that it has sent by `now`, in order.
    pub(crate) fn sent(&mut self, now: Nanos) -> Option<u32> {
        self.0.front().filter(|(at, _)| *at <= now)?;
        self.0.pop_front().map(|(_, flow)| flow)
    }

    /// When it will have sent the next; [`Nanos::MAX`] if it has none.
    pub(crate) fn next_at(&self) -> Nanos {
        self.0.front().map_or(Nanos::MAX, |(at, _)| *at)
    }
}
