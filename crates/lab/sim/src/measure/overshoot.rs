//! How far the output gets ahead of the limit.
//!
//! Consider a queue that drains at the limit and is empty when the measurement begins. At any
//! moment it holds the most by which the output of any window up to that moment exceeds the limit.
//! Its maximum is the overshoot. It is sampled as each packet arrives, before that is added:
//! packets that leave one at a time, spaced by the rate, are no overshoot.

use crate::engine::drain::Drain;
use narrows_units::{Bytes, Nanos, Rate};

/// The virtual queue.
pub(super) struct Overshoot {
    from: Nanos,
    queue: Drain,
    most: Bytes,
}

impl Overshoot {
    /// Of `limit`, from `from` on.
    pub(super) fn new(limit: Rate, from: Nanos) -> Self {
        Self { from, queue: Drain::new(limit), most: Bytes::ZERO }
    }

    /// Counts a packet that left at `at`, in order.
    #[inline]
    pub(super) fn left(&mut self, at: Nanos, len: u32) {
        if at >= self.from {
            self.queue.until(at);
            self.most = self.most.max(self.queue.bytes());
            self.queue.add(Bytes(u64::from(len)));
        }
    }

    /// The overshoot.
    pub(super) fn bytes(&self) -> Bytes {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In bytes, at one byte a nanosecond from 1000 on.
    fn overshoot(departures: &[(u64, u32)]) -> u64 {
        let mut overshoot = Overshoot::new(Rate::from_bits_per_sec(8_000_000_000), Nanos(1000));
        departures.iter().for_each(|(at, len)| overshoot.left(Nanos(*at), *len));
        overshoot.bytes().0
    }

    #[test]
    fn packets_at_the_rate_are_no_overshoot_and_those_before_do_not_count() {
        assert_eq!(overshoot(&[(0, 9999), (1000, 100), (1100, 50), (1150, 200)]), 0);
    }

    #[test]
    fn an_overshoot_is_the_excess_of_the_worst_window() {
        assert_eq!(overshoot(&[(1000, 100), (1000, 100), (1100, 100), (1150, 100)]), 150);
        // Less than the limit makes it good, but not before it happened.
        assert_eq!(overshoot(&[(5000, 1000), (5000, 1), (9000, 600), (9100, 7)]), 1000);
    }
}
