//! How long a standing queue persists in the next hop.
//!
//! The average backlog that packets found before the event is normal, and one packet more is no
//! queue. The measure is the longest time without a break with a larger backlog after the event:
//! with many senders, two packets often meet, but such queues drain at once.

use narrows_units::{Bytes, Nanos, Rate};

/// Watches the next hop.
pub(super) struct Standing {
    rate: Rate,
    warmup: Nanos,
    event: Nanos,
    /// Before the event: the packets, the backlogs that they found, and the longest packet.
    packets: u64,
    found: u128,
    longest_packet: Bytes,
    /// Since when the backlog exceeds normal, and until when without further arrivals.
    above: Option<(Nanos, Nanos)>,
    longest: Nanos,
}

impl Standing {
    /// The queue of a next hop of `rate`; its normal state is taken from `warmup` to `event`.
    pub(super) fn new(rate: Rate, warmup: Nanos, event: Nanos) -> Self {
        Self {
            rate,
            warmup,
            event,
            packets: 0,
            found: 0,
            longest_packet: Bytes::ZERO,
            above: None,
            longest: Nanos::ZERO,
        }
    }

    /// A packet of `len` came at `at`, found `found`, and went in if there was room (`entered`).
    pub(super) fn came(&mut self, at: Nanos, len: Bytes, found: Bytes, entered: bool) {
        if at < self.event {
            if at >= self.warmup {
                self.packets += 1;
                self.found += u128::from(found.0);
                self.longest_packet = self.longest_packet.max(len);
            }
            return;
        }
        if self.longest_packet == Bytes::ZERO {
            self.longest_packet = len;
        }
        let mean = self.found / u128::from(self.packets.max(1));
        let normal = Bytes(mean as u64) + self.longest_packet;
        if let Some((since, until)) = self.above
            && until < at
        {
            self.longest = self.longest.max(until.since(since));
            self.above = None;
        }
        let stands = if entered { found + len } else { found };
        if stands > normal {
            let until = at + self.rate.time_for(stands - normal);
            let since = self.above.map_or(at, |(since, _)| since);
            self.above = Some((since, until));
        }
    }

    /// The longest time, if the run is over at `end`.
    pub(super) fn finish(self, end: Nanos) -> Nanos {
        let last = self.above.map(|(since, until)| until.min(end).since(since));
        self.longest.max(last.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One byte a nanosecond; the event is at 1000, the end at 100000.
    fn standing(packets: &[(u64, u64, u64)]) -> u64 {
        let rate = Rate::from_bits_per_sec(8_000_000_000);
        let mut standing = Standing::new(rate, Nanos(100), Nanos(1000));
        for (at, len, found) in packets {
            standing.came(Nanos(*at), Bytes(*len), Bytes(*found), true);
        }
        standing.finish(Nanos(100_000)).0
    }

    #[test]
    fn the_earlier_backlog_is_normal_and_one_packet_more_is_no_queue() {
        // Before the warm-up is over nothing counts. 50 on average.
        let before = [(0, 500, 9000), (200, 100, 0), (300, 100, 100)];
        let after = |packets: &[(u64, u64, u64)]| standing(&[&before[..], packets].concat());
        assert_eq!(after(&[(1000, 100, 50)]), 0);
        assert_eq!(after(&[(1000, 100, 150)]), 100);
        // It never falls to normal in between: 250 at 2000, 230 at 2020, drained to 150 at 2100.
        assert_eq!(after(&[(2000, 100, 150), (2050, 50, 200), (5000, 100, 70)]), 150);
        assert_eq!(after(&[(99_950, 100, 5000)]), 50);
    }

    #[test]
    fn without_anything_before_one_packet_is_normal() {
        assert_eq!(standing(&[(1000, 100, 0), (1050, 100, 50)]), 50);
    }
}
