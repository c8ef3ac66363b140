//! The amount delivered in an exact span of time.
//!
//! A rate is only as accurate as its clock. Each reading of the counters is between two readings of
//! the clock. If those are too far apart, because the machine did something else in between, it is
//! repeated.

use crate::bed::{End, Testbed};
use crate::counters::{Counters, Counts};
use anyhow::Result;
use narrows_units::{Bytes, Nanos, Rate};
use std::time::{Duration, Instant};

/// A reading that took longer than this is taken again. At 10 s, it is 0.0005 %.
const SHARP: Duration = Duration::from_micros(50);
/// Times that a reading is taken at most.
const TRIES: u32 = 20;

/// A device's counters at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// When.
    pub at: Instant,
    /// What.
    pub counts: Counts,
}

/// Takes readings of one device.
#[derive(Debug)]
pub struct Meter {
    counters: Counters,
}

impl Meter {
    /// At the server's device: the arrivals there.
    pub fn at_server(bed: &Testbed) -> Result<Self> {
        let [_, server] = bed.ends();
        Self::at(server)
    }

    /// Over the device of `end`.
    pub fn at(end: End<'_>) -> Result<Self> {
        Ok(Self { counters: Counters::of(end.namespace, end.device)? })
    }

    /// Reads the counters and the clock.
    pub fn read(&mut self) -> Result<Reading> {
        let mut best = self.attempt()?;
        for _ in 1..TRIES {
            if best.1 <= SHARP {
                break;
            }
            let again = self.attempt()?;
            if again.1 < best.1 {
                best = again;
            }
        }
        Ok(best.0)
    }

    fn attempt(&mut self) -> Result<(Reading, Duration)> {
        let before = Instant::now();
        let counts = self.counters.read()?;
        let took = before.elapsed();
        Ok((Reading { at: before + took / 2, counts }, took))
    }
}

/// The load that a device received between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Frames.
    pub packets: u64,
    /// Bytes of those frames.
    pub bytes: Bytes,
    /// The time between the readings.
    pub span: Nanos,
}

impl Delivered {
    /// Between `start` and `end`.
    pub fn between(start: &Reading, end: &Reading) -> Self {
        let counts = end.counts - start.counts;
        let span = end.at.saturating_duration_since(start.at);
        Self {
            packets: counts.rx_packets,
            bytes: Bytes(counts.rx_bytes),
            span: Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
        }
    }

    /// The rate of the frames' bytes.
    pub fn rate(&self) -> Rate {
        Rate::of(self.bytes, self.span)
    }

    /// Frames per second.
    pub fn packets_per_second(&self) -> f64 {
        self.packets as f64 * 1e9 / self.span.0.max(1) as f64
    }

    /// The deviation of the rate from `limit`, in percent of it; negative below it.
    pub fn deviation_percent(&self, limit: Rate) -> f64 {
        let limit = limit.bits_per_sec() as f64;
        (self.rate().bits_per_sec() as f64 - limit) / limit * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: Instant, rx_packets: u64, rx_bytes: u64) -> Reading {
        Reading { at, counts: Counts { rx_packets, rx_bytes, ..Counts::default() } }
    }

    #[test]
    fn a_rate_is_bytes_over_the_time_between_the_readings() {
        let start = Instant::now();
        let delivered = Delivered::between(
            &reading(start, 100, 1000),
            &reading(start + Duration::from_secs(2), 8356, 25_001_000),
        );
        assert_eq!(delivered.rate(), Rate::from_bits_per_sec(100_000_000));
        assert!((delivered.packets_per_second() - 4128.0).abs() < 1e-9);
    }

    #[test]
    fn a_deviation_has_a_sign() {
        let delivered = Delivered { packets: 1, bytes: Bytes(99), span: Nanos(1_000_000_000) };
        let deviation = delivered.deviation_percent(Rate::from_bytes_per_sec(100));
        assert!((deviation + 1.0).abs() < 1e-9, "{deviation}");
    }
}
