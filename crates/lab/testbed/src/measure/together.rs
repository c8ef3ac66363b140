//! What several devices receive, over time: each alone, and all together.
//!
//! One thread reads the counters of all of them, one after the other, each few milliseconds. A
//! reading of all takes a fraction of a millisecond, which is what their sum is uncertain by. One
//! during which the machine stood still says nothing of a sum, and is left out.

use crate::background::Background;
use crate::counters::Counters;
use crate::namespace::Namespace;
use anyhow::Result;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often they are read.
const EVERY: Duration = Duration::from_millis(4);
/// How long a reading of all of them may take.
const AT_ONCE: Duration = Duration::from_millis(2);

/// The bytes that each device has received until a time.
#[derive(Clone, Debug)]
struct Reading {
    at: Duration,
    bytes: Vec<u64>,
}

/// Reads until it is dropped.
#[derive(Debug)]
pub struct Sampler {
    began: Instant,
    readings: Arc<Mutex<Vec<Reading>>>,
    _thread: Background<()>,
}

/// How far a sum was above a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Excess {
    /// When the window ended.
    pub at: Duration,
    /// The bytes beyond what the limit allows in the window; negative if there are fewer.
    pub bytes: f64,
}

impl Sampler {
    /// Over these devices.
    pub fn over(devices: &[(&Namespace, &'static str)]) -> Result<Self> {
        let mut counters = devices
            .iter()
            .map(|(namespace, device)| Counters::of(namespace, device))
            .collect::<Result<Vec<_>>>()?;
        let began = Instant::now();
        let readings = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&readings);
        let thread = Background::start("sampler", move |end| {
            while !end.load(Ordering::Relaxed) {
                let at = began.elapsed();
                let bytes = counters
                    .iter_mut()
                    .map(|counters| Ok(counters.read()?.rx_bytes))
                    .collect::<Result<_>>()?;
                if began.elapsed() - at <= AT_ONCE {
                    let mut readings = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    readings.push(Reading { at, bytes });
                }
                sleep(EVERY);
            }
            Ok(())
        })?;
        Ok(Self { began, readings, _thread: thread })
    }

    /// The time since it began.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// All that it has read so far.
    pub fn samples(&self) -> Samples {
        Samples(self.readings.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The rates of all devices in the last `window`, in bits per second; none if nothing could be
    /// read.
    pub fn rates(&self, window: Duration) -> Vec<f64> {
        let now = self.now();
        let readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        rates(&readings, now.saturating_sub(window), now)
    }
}

/// The rates of all devices from `from` to `to`, in bits per second; none without two readings
/// there.
fn rates(readings: &[Reading], from: Duration, to: Duration) -> Vec<f64> {
    let within = &readings[readings.partition_point(|reading| reading.at < from)..];
    let within = &within[..within.partition_point(|reading| reading.at <= to)];
    let [first, .., last] = within else { return Vec::new() };
    let seconds = last.at.saturating_sub(first.at).as_secs_f64().max(1e-9);
    let bits = |(end, begin): (&u64, &u64)| end.saturating_sub(*begin) as f64 * 8.0;
    last.bytes.iter().zip(&first.bytes).map(|pair| bits(pair) / seconds).collect()
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<Reading>);

impl Samples {
    /// The rates of all devices from `from` to `to`, in bits per second; none without two readings
    /// there.
    pub fn rates(&self, from: Duration, to: Duration) -> Vec<f64> {
        rates(&self.0, from, to)
    }

    /// The rates of all devices in steps of `step`, each with the time of its middle in seconds.
    pub fn series(&self, step: Duration) -> Vec<(f64, Vec<f64>)> {
        let Some(last) = self.0.last() else { return Vec::new() };
        let steps = last.at.as_micros() / step.as_micros().max(1);
        (0..u32::try_from(steps).unwrap_or(u32::MAX))
            .map(|number| {
                let from = step * number;
                ((from + step / 2).as_secs_f64(), self.rates(from, from + step))
            })
            .collect()
    }

    /// The window of at least `length`, within `from` to `to`, in which all devices together
    /// received most beyond `limit_bps`.
    pub fn excess(&self, limit_bps: f64, length: Duration, from: Duration, to: Duration) -> Excess {
        let within = |reading: &&Reading| reading.at >= from && reading.at <= to;
        let sums: Vec<(Duration, f64)> = self
            .0
            .iter()
            .filter(within)
            .map(|reading| (reading.at, reading.bytes.iter().sum::<u64>() as f64))
            .collect();
        let mut worst = Excess { at: from, bytes: f64::NEG_INFINITY };
        let mut begin = 0;
        for (at, bytes) in &sums {
            // The shortest window of this length that ends here.
            while sums.get(begin + 1).is_some_and(|next| *at >= next.0 + length) {
                begin += 1;
            }
            let (began, before) = sums[begin];
            let span = at.saturating_sub(began);
            if span >= length {
                let beyond = bytes - before - limit_bps / 8.0 * span.as_secs_f64();
                if beyond > worst.bytes {
                    worst = Excess { at: *at, bytes: beyond };
                }
            }
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two devices: a byte a millisecond at each, and at 500 ms a burst of 100 at the second.
    fn samples() -> Samples {
        let reading = |ms: u64| Reading {
            at: Duration::from_millis(ms),
            bytes: vec![ms, ms + if ms > 500 { 100 } else { 0 }],
        };
        Samples((0..=1_000).step_by(4).map(reading).collect())
    }

    #[test]
    fn rates_are_of_each_device() {
        let ms = Duration::from_millis;
        assert_eq!(samples().rates(ms(100), ms(300)), [8_000.0, 8_000.0]);
        assert!(samples().rates(ms(101), ms(107)).is_empty(), "one reading is no rate");
        let series = samples().series(ms(200));
        assert_eq!(series.len(), 5);
        assert_eq!(series[0], (0.1, vec![8_000.0, 8_000.0]));
        assert_eq!(series[2].1, [8_000.0, 12_000.0], "the burst is in its step");
    }

    #[test]
    fn the_worst_window_has_the_burst() {
        let ms = Duration::from_millis;
        let worst = samples().excess(16_000.0, ms(100), ms(0), ms(1_000));
        assert!((worst.bytes - 100.0).abs() < 1e-6, "{worst:?}");
        let before = samples().excess(16_000.0, ms(100), ms(0), ms(400));
        assert!(before.bytes.abs() < 1e-6, "{before:?}");
        assert!(samples().excess(32_000.0, ms(100), ms(0), ms(400)).bytes < -100.0);
    }
}
