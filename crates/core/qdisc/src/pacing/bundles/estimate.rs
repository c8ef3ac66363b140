//! How fast the traffic to one destination is in total, estimated from departures.
//!
//! *A window* begins and ends with a slot. It is over when five full packets have left and another
//! slot has begun; a sample is what left, divided by the time between the two slots' beginnings.
//! The estimate is the mean of the first four samples and then follows each by a quarter: the time
//! per byte is averaged, and not the rate as in the paper. Windows are equal in bytes and not in
//! time, so the average of their rates is too high (by 6 % with ten connections, `narrows sim
//! flowbundler-estimator`); the average of times is not. A packet that came too late to be held
//! reflects how fast its sender is and not how fast it may be, so such a packet restarts the
//! window.
//!
//! *Known rates count.* An estimate is never below the rate of a flow that is present, and if
//! nothing is known, or only assumed, the first sample is the estimate. A sample below a quarter of
//! the estimate replaces it: from 20 Gbit/s to 10 kbit/s takes one window, where steps of a quarter
//! would take minutes. However high a sample is, the estimate rises by at most a third: packets of
//! many connections that happen to leave together are not a rate.
//!
//! *Turns* are as fast as the estimate or as the last 64 packets left, whichever is faster.
//! Connections that send together make windows in which little leaves; slots that are too long do
//! no harm, but turns that are too slow would cost rate.
//!
//! Source: D. Shan et al. (ToN 2025), Alg. 3. The paper takes the least and the greatest departure
//! time within a window; slots leave in order, so here they are the first and the last one.
//!
//! Cost: a cache line; a division every five packets.

use narrows_units::{Bytes, Nanos, Rate};

/// The least number of full packets in a window.
const WINDOW_PACKETS: u64 = 5;
/// The least number of full packets in the window that spaces turns.
const LONG_PACKETS: u64 = 64;
/// The estimate moves by one part of this many towards each sample, once it has as many samples.
const FOLLOW: u8 = 4;
/// A sample below one part of this many of the estimate replaces it.
const SURPRISE: u64 = 4;
/// An estimate where nothing is known.
const UNKNOWN: u64 = 0;

/// The bytes sent since the window's start; zero without a window.
#[derive(Clone, Copy, Default)]
struct Window {
    began: Nanos,
    sent: u64,
}

impl Window {
    /// `len` bytes more left with the slot `slot`, which is the one before it where `is_same`. A
    /// sample, in bytes per second, where that begins another window: with more than `full` bytes
    /// one is over.
    #[inline]
    fn count(&mut self, slot: Nanos, is_same: bool, len: u64, full: u64) -> Option<u64> {
        if self.sent > 0 && (is_same || self.sent <= full) {
            // Slots come in order, except after late packets.
            self.began = self.began.min(slot);
            self.sent += len;
            return None;
        }
        let before = std::mem::replace(self, Self { began: slot, sent: len });
        let span = slot.since(before.began).max(Nanos(1));
        (before.sent > 0).then(|| Rate::of(Bytes(before.sent), span).bytes_per_sec())
    }
}

/// The state of one bucket.
#[derive(Clone, Copy)]
pub(super) struct Estimate {
    bytes_per_sec: u64,
    /// The slot of the packet that left last.
    slot: Nanos,
    window: Window,
    long: Window,
    /// The spacing of full packets at the estimate: a power of two of nanoseconds.
    spacing: u8,
    /// The spacing of full packets at the rate over the long window before: a power of two of
    /// nanoseconds.
    long_spacing: u8,
    /// How many samples the estimate is made of, up to one less than [`FOLLOW`].
    samples: u8,
}

impl Default for Estimate {
    /// Nothing.
    fn default() -> Self {
        Self {
            bytes_per_sec: UNKNOWN,
            slot: Nanos::ZERO,
            window: Window::default(),
            long: Window::default(),
            spacing: 0,
            long_spacing: u8::MAX,
            samples: 0,
        }
    }
}

impl Estimate {
    /// The rate; zero if nothing is known.
    pub(super) const fn rate(&self) -> Rate {
        Rate::from_bytes_per_sec(self.bytes_per_sec)
    }

    /// The spacing of full packets, as a power of two of nanoseconds; zero if unknown.
    #[inline]
    pub(super) const fn spacing(&self) -> u8 {
        self.spacing
    }

    /// The time between turns, if known.
    #[inline]
    pub(super) fn turns(&self) -> Option<u8> {
        (self.bytes_per_sec != UNKNOWN).then(|| self.spacing.min(self.long_spacing))
    }

    /// The most time between turns.
    pub(super) fn limit_turns(&mut self, spacing: u8) {
        self.long_spacing = self.long_spacing.min(spacing);
    }

    /// It is no less than `rate`, for full packets of `frame` bytes.
    #[inline]
    pub(super) fn raise_to(&mut self, rate: Rate, frame: u64) {
        if self.bytes_per_sec < rate.bytes_per_sec() {
            self.set(rate.bytes_per_sec(), frame);
        }
    }

    /// Windows begin with the next packet.
    #[inline]
    pub(super) fn begin(&mut self) {
        (self.window, self.long) = Default::default();
    }

    /// A packet of `len` bytes left with the slot `slot`.
    #[inline]
    pub(super) fn count(&mut self, slot: Nanos, len: Bytes, frame: u64) {
        let is_same = std::mem::replace(&mut self.slot, slot) == slot;
        if let Some(sample) = self.window.count(slot, is_same, len.0, WINDOW_PACKETS * frame) {
            self.follow(sample, frame);
        }
        if let Some(sample) = self.long.count(slot, is_same, len.0, LONG_PACKETS * frame) {
            self.long_spacing = spacing(frame, sample);
        }
    }

    fn set(&mut self, bytes_per_sec: u64, frame: u64) {
        self.bytes_per_sec = bytes_per_sec;
        if bytes_per_sec != UNKNOWN {
            self.spacing = spacing(frame, bytes_per_sec);
        }
    }

    fn follow(&mut self, sample: u64, frame: u64) {
        let estimate = self.bytes_per_sec;
        if estimate == UNKNOWN || sample < estimate / SURPRISE {
            self.samples = 0;
        }
        // Of time: 1 / next = (1 - 1/4) / estimate + (1/4) / sample, or a half, or a third.
        let before = u128::from(self.samples);
        self.samples = (self.samples + 1).min(FOLLOW - 1);
        let times = u128::from(estimate) * u128::from(sample) * (before + 1);
        let sum = u128::from(estimate) + u128::from(sample) * before;
        let next = match before {
            0 => sample,
            _ => u64::try_from(times / sum.max(1)).unwrap_or(u64::MAX).max(1),
        };
        self.set(next, frame);
    }
}

/// The time that `frame` bytes take, rounded down to a power of two of nanoseconds.
fn spacing(frame: u64, bytes_per_sec: u64) -> u8 {
    Rate::from_bytes_per_sec(bytes_per_sec).time_for(Bytes(frame)).0.max(1).ilog2() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_s_state_fits_a_cache_line() {
        assert!(size_of::<Estimate>() <= 64);
    }

    #[test]
    fn while_an_estimate_falls_turns_are_no_slower_than_recent_departures() {
        let mut estimate = Estimate::default();
        assert_eq!(estimate.turns(), None);
        // Eighty connections send together, every 240 us: 4 Gbit/s.
        for round in 0..4 {
            for _ in 0..80 {
                estimate.count(Nanos(round * 240_000 + 1), Bytes(1500), 1500);
            }
        }
        assert_eq!(estimate.turns(), Some(11));
        // A window in which hardly anything leaves, although soon everything does.
        for after in 1..30 {
            estimate.count(Nanos(3 * 240_000 + after * 30_000), Bytes(1500), 1500);
        }
        assert!(estimate.spacing() > 12, "{}", estimate.spacing());
        assert!(estimate.turns() <= Some(11), "{:?}", estimate.turns());
        estimate.limit_turns(3);
        assert_eq!(estimate.turns(), Some(3));
    }
}
