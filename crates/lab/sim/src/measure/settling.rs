//! When the output reaches the limit, and stays there.
//!
//! Bytes are counted in fiftieths of a window. The output has settled at the first moment from
//! which every window that begins within one window's length has the bytes of the limit, within 2 %
//! or a packet. So a burst that makes up for a pause does not count as settled: windows that begin
//! between the two have too little.
//!
//! A window is a millisecond, or as long as [`PACKETS`] packets take at the limit if that is more:
//! of fewer, one packet would exceed the tolerance.

use narrows_units::{Bytes, Nanos, Rate};

const BINS: usize = 50;
const TOLERANCE: f64 = 0.02;
const WINDOW: Nanos = Nanos::from_millis(1);
const PACKETS: u64 = 100;

/// Counts departures after the event.
pub(super) struct Settling {
    limit: Rate,
    event: Nanos,
    packet: Bytes,
    bin: Nanos,
    bins: Vec<u64>,
}

impl Settling {
    /// To `limit` from `event` on, with packets of up to `packet`.
    pub(super) fn new(limit: Rate, event: Nanos, packet: Bytes) -> Self {
        let window = WINDOW.max(limit.time_for(Bytes(packet.0.saturating_mul(PACKETS))));
        let bin = Nanos((window.0 / BINS as u64).max(1));
        Self { limit, event, packet, bin, bins: Vec::new() }
    }

    /// Counts bytes that left at `at`, in order.
    pub(super) fn left(&mut self, at: Nanos, len: u32) {
        if at < self.event {
            return;
        }
        let bin = (at.since(self.event).0 / self.bin.0) as usize;
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += u64::from(len);
    }

    /// How long it took, or until `end` if it never settled.
    pub(super) fn finish(mut self, end: Nanos) -> Nanos {
        let whole = end.since(self.event);
        self.bins.resize((whole.0 / self.bin.0) as usize, 0);
        let right = self.limit.bytes_in(Nanos(self.bin.0 * BINS as u64)).0 as f64;
        let tolerance = (right * TOLERANCE).max(self.packet.0 as f64);
        // Windows so far, without a gap, that are right.
        let mut settled = 0;
        for (first, window) in self.bins.windows(BINS).enumerate() {
            let bytes: u64 = window.iter().sum();
            let is_right = (bytes as f64 - right).abs() <= tolerance;
            settled = if is_right { settled + 1 } else { 0 };
            if settled == BINS {
                return Nanos((first + 1 - BINS) as u64 * self.bin.0);
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One byte a nanosecond in packets of 1000: 1000 packets a window of 1 ms.
    fn settling() -> Settling {
        Settling::new(Rate::from_bits_per_sec(8_000_000_000), Nanos(5_000), Bytes(1000))
    }

    fn send(settling: &mut Settling, from_us: u64, to_us: u64, every_ns: u64) {
        let (mut at, to) = (5_000 + from_us * 1000, 5_000 + to_us * 1000);
        while at < to {
            settling.left(Nanos(at), 1000);
            at += every_ns;
        }
    }

    const END: Nanos = Nanos(10_005_000);

    #[test]
    fn departures_at_the_limit_are_settled_at_once() {
        let mut settling = settling();
        settling.left(Nanos(4_999), 1000);
        send(&mut settling, 0, 10_000, 1000);
        assert_eq!(settling.finish(END), Nanos::ZERO);
    }

    #[test]
    fn a_burst_settles_when_it_is_over_even_if_a_pause_makes_it_good() {
        let mut settling = settling();
        send(&mut settling, 0, 300, 500);
        send(&mut settling, 600, 10_000, 1000);
        let settled = settling.finish(END).0;
        assert!((560_000..=600_000).contains(&settled), "{settled}");
    }

    #[test]
    fn a_queue_that_never_settles_takes_until_the_end() {
        let mut settling = settling();
        send(&mut settling, 0, 10_000, 1100);
        assert_eq!(settling.finish(END), Nanos::from_millis(10));
        let nothing = self::settling();
        assert_eq!(nothing.finish(Nanos(6_000)), Nanos(1_000));
    }

    #[test]
    fn at_a_low_rate_windows_are_long_enough_for_packets() {
        // 1514 bytes take 1.2 ms.
        let mut settling =
            Settling::new(Rate::from_bits_per_sec(10_000_000), Nanos::ZERO, Bytes(1514));
        (0..1000).for_each(|number| settling.left(Nanos(number * 1_211_200 + 7), 1514));
        assert_eq!(settling.finish(Nanos::from_millis(1200)), Nanos::ZERO);
    }
}
