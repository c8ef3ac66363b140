//! `autorate-ingress`: how fast packets arrive, and so how fast they may leave.
//!
//! On the receiving side of a slow link packets arrive at the link's rate while it is busy. The
//! peak rates over windows between pauses are averaged; 15/16 of the average becomes the limit, so
//! that the queue forms here and not before the link.
//!
//! *What is ignored.* A single packet now and then reflects its sender, not the link. So a window
//! counts only if it has some packets, lasts for a while and has no long pause in it. Until there
//! has been one, the rate is the configured one, or unlimited. And no estimate is so low that a
//! full frame would take longer than [`FRAME_TIME_MAX`]: a sender limited to that sends too little
//! to learn from.
//!
//! Source: `tc-cake(8)`, which advises against it except for links of unknown rate. Where ours
//! differs: Linux lets every window count, and its averages start at zero, so a few pings on an
//! idle link give an estimate of some bytes per second, at which it then shapes.

use super::ewma::average;
use narrows_units::{Bytes, Nanos, Rate};

/// The longest pause that reflects the link: a full frame on the slowest link takes less.
const PAUSE_MAX: Nanos = Nanos::from_millis(250);
/// The least number of packets in a window, and its least length: packets that arrive together may
/// have been held back together, and then reflect the speed of the device before us.
const PACKETS_LEAST: u32 = 8;
const SPAN_LEAST: Nanos = Nanos::from_millis(10);
/// How often the rate may change.
const PERIOD: Nanos = Nanos::from_millis(250);
/// The longest that a full frame may take by an estimate.
const FRAME_TIME_MAX: Nanos = Nanos::from_millis(100);
/// Averages follow evidence of a slower link, or of a faster one, by 1/4 and the rest by 1/256.
const FAST: u32 = 2;
const SLOW: u32 = 8;

/// The observations.
pub(super) struct Estimator {
    /// The operator's estimate.
    began_at: Option<Rate>,
    /// The lowest estimate.
    slowest: Rate,
    last_arrival: Nanos,
    /// The average pause, once there was one.
    interval: Option<u64>,
    window_began: Nanos,
    window: Bytes,
    packets: u32,
    /// The average peak in bytes per second, once there was one.
    peak: Option<u64>,
    changed: Nanos,
}

impl Estimator {
    /// An estimator that starts with `rate`, if given, for frames of up to `frame`.
    pub(super) fn new(rate: Option<Rate>, frame: Bytes) -> Self {
        let slowest = Rate::of(frame, FRAME_TIME_MAX);
        Self {
            began_at: rate,
            slowest: rate.map_or(slowest, |rate| rate.min(slowest)),
            last_arrival: Nanos::ZERO,
            interval: None,
            window_began: Nanos::ZERO,
            window: Bytes::ZERO,
            packets: 0,
            peak: rate.map(|rate| rate.bytes_per_sec()),
            changed: Nanos::ZERO,
        }
    }

    /// The operator's estimate.
    pub(super) fn began_at(&self) -> Option<Rate> {
        self.began_at
    }

    /// The measured capacity; zero before the first measurement.
    pub(super) fn capacity(&self) -> Rate {
        Rate::from_bytes_per_sec(self.peak.unwrap_or_default())
    }

    /// A packet of `len` arrived at `now`: the new rate, if it changes.
    pub(super) fn arrived(&mut self, len: Bytes, now: Nanos) -> Option<Rate> {
        let pause = now.since(self.last_arrival);
        self.last_arrival = now;
        if pause > PAUSE_MAX {
            self.begin_window(now);
            return None;
        }
        let pause = pause.0;
        let interval = self.interval.map_or(pause, |interval| {
            average(interval, pause, if pause > interval { FAST } else { SLOW })
        });
        self.interval = Some(interval);
        self.window += len;
        self.packets += 1;
        let span = now.since(self.window_began);
        // The window ends where packets are less dense than on average: a burst says nothing about
        // the link.
        if pause <= interval || self.packets < PACKETS_LEAST || span < SPAN_LEAST {
            return None;
        }
        let rate = Rate::of(self.window, span).bytes_per_sec();
        let peak = self
            .peak
            .map_or(rate, |peak| average(peak, rate, if rate > peak { FAST } else { SLOW }));
        self.peak = Some(peak);
        self.begin_window(now);
        if now.since(self.changed) <= PERIOD {
            return None;
        }
        self.changed = now;
        Some(Rate::from_bytes_per_sec(peak / 16 * 15).max(self.slowest))
    }

    fn begin_window(&mut self, now: Nanos) {
        self.window_began = now;
        self.window = Bytes::ZERO;
        self.packets = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Bytes = Bytes(1514);

    fn mbit(mbit: u64) -> Rate {
        Rate::from_bits_per_sec(mbit * 1_000_000)
    }

    /// The rate after `packets` of 1500 bytes that come about every `pause`, a little unevenly.
    fn after(estimator: &mut Estimator, packets: u64, pause: Nanos) -> Option<Rate> {
        let mut rate = None;
        let mut now = Nanos::from_secs(1);
        for packet in 0..packets {
            now += Nanos(pause.0 + packet * 7_919 % 200 * (pause.0 / 1000) - pause.0 / 10);
            rate = estimator.arrived(Bytes(1500), now).or(rate);
        }
        rate
    }

    #[test]
    fn the_rate_follows_arrivals() {
        for began_at in [None, Some(mbit(100)), Some(mbit(1))] {
            let mut estimator = Estimator::new(began_at, FRAME);
            let rate = after(&mut estimator, 20_000, Nanos::from_millis(1)).unwrap_or_default();
            assert!(rate > mbit(10) && rate < mbit(13), "{rate:?} from {began_at:?}");
            assert!(estimator.capacity() > rate);
        }
    }

    #[test]
    fn the_first_estimate_is_the_first_measurement() {
        let mut estimator = Estimator::new(None, FRAME);
        let rate = after(&mut estimator, 40, Nanos::from_millis(1)).unwrap_or_default();
        assert!(rate > mbit(10) && rate < mbit(13), "{rate:?}");
    }

    #[test]
    fn a_packet_now_and_then_says_nothing_of_the_link() {
        let mut estimator = Estimator::new(None, FRAME);
        assert_eq!(after(&mut estimator, 1000, Nanos::from_secs(1)), None);
        assert_eq!(estimator.capacity(), Rate::default());
    }

    #[test]
    fn an_estimate_leaves_enough_to_be_proved_wrong() {
        let mut estimator = Estimator::new(None, FRAME);
        let mut least = mbit(1000);
        for packet in 0..10_000 {
            let now = Nanos(packet * 200_000_000 + packet % 3 * 20_000_000);
            least = estimator.arrived(Bytes(60), now).map_or(least, |rate| least.min(rate));
        }
        assert_eq!(least.time_for(FRAME), FRAME_TIME_MAX);
        let lower = Rate::from_bits_per_sec(64_000);
        assert_eq!(Estimator::new(Some(lower), FRAME).slowest, lower);
    }

    #[test]
    fn the_rate_changes_at_most_four_times_a_second() {
        let mut estimator = Estimator::new(Some(Rate::default()), FRAME);
        let mut changes = 0;
        for packet in 1..=10_000u64 {
            let now = Nanos(packet * 1_000_000 + packet % 3 * 300_000);
            changes += u32::from(estimator.arrived(Bytes(1500), now).is_some());
        }
        assert!((20..=40).contains(&changes), "{changes} in ten seconds");
    }
}
