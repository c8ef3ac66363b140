//! How much a forwarder passes of more than it can, and what a packet takes.
//!
//! Senders offer more than is taken, so what arrives at the server in a second is what the
//! forwarder passes. Its time is that of the threads that receive and forward, and of the softirqs.
//! What its limit drops has been taken, too.

use crate::bed::{SERVER, Testbed};
use crate::counters::Counters;
use crate::cpu;
use anyhow::{Context, Result};
use std::thread;
use std::time::{Duration, Instant};

/// How long a load runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long a forwarder may take to pass the last packets, and to count them.
const SETTLE: Duration = Duration::from_millis(300);

/// The measurement of one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Packets that arrived in a second.
    pub(crate) packets_per_second: f64,
    /// Those, and the ones that a limit dropped.
    pub(crate) taken_per_second: f64,
    /// Run time of the threads that forward, in seconds per second.
    pub(crate) cores: f64,
}

impl Sample {
    /// The time that a packet takes which is taken in, in nanoseconds.
    pub(crate) fn nanos(&self) -> f64 {
        self.cores * 1e9 / self.taken_per_second
    }
}

/// What arrives at the server of `bed` in `window` from the senders that `start` starts. `busy` is
/// the time of the threads that forward, `dropped` what a limit has dropped so far.
pub(crate) fn measure<S>(
    bed: &Testbed,
    window: Duration,
    start: impl FnOnce() -> Result<S>,
    busy: impl Fn() -> Result<Duration>,
    dropped: impl Fn() -> Result<u64>,
) -> Result<Sample> {
    let mut arrived = Counters::of(bed.server(), SERVER)?;
    let before = (arrived.read()?.rx_packets, dropped()?);
    let senders = start()?;
    let mut look = || -> Result<_> {
        let mut time = busy()?;
        for thread in cpu::softirq_threads() {
            time += cpu::of_process(thread)?;
        }
        Ok((Instant::now(), arrived.read()?.rx_packets, time))
    };
    thread::sleep(WARM_UP);
    let begin = look()?;
    thread::sleep(window);
    let end = look()?;
    drop(senders);
    thread::sleep(SETTLE);
    let passed = arrived.read()?.rx_packets - before.0;
    let dropped = dropped()?.checked_sub(before.1).context("the counters of drops went back")?;
    let seconds = (end.0 - begin.0).as_secs_f64();
    let packets_per_second = (end.1 - begin.1) as f64 / seconds;
    // A limit's drops are evenly distributed.
    let taken = (passed + dropped) as f64 / passed.max(1) as f64;
    Ok(Sample {
        packets_per_second,
        taken_per_second: packets_per_second * taken,
        cores: (end.2 - begin.2).as_secs_f64() / seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_limit_drops_has_taken_time_too() {
        let sample = Sample { packets_per_second: 1e6, taken_per_second: 2e6, cores: 1.0 };
        assert_eq!(sample.nanos(), 500.0);
    }
}
