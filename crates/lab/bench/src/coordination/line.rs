//! The cost of sharing a cache line on this machine.
//!
//! *A read* of a line that another core has just written: two threads answer each other, each
//! polling a line that only the other writes. Half a round trip is one write and its observation.
//!
//! *An update* (`fetch_add`) of a line that all threads update, all the time: the time over the
//! number of updates, all threads together. Only one core at a time can, so that is how long
//! a core owns the line. A thread does a few updates each time that it owns it, so this is the
//! least cost of an update; an occasional one must fetch the line first and costs about a read
//! more.
//!
//! All accesses are relaxed: the line is timed, not the order of surrounding accesses. Figures are
//! medians over repeats, because an interrupted one is worthless.

use super::cores::Cores;
use super::report::Costs;
use crate::qdisc::median;
use anyhow::{Context, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const REPEATS: usize = 25;
const ROUND_TRIPS: u64 = 2_000;
/// Updates between two looks at the clock.
const BATCH: u64 = 256;
const UPDATING: Duration = Duration::from_millis(5);

/// A word with two lines for itself: neighbouring lines are fetched in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

/// Measures both, updates with up to `threads` threads but at least two. `None` with only one core:
/// then no line ever moves.
pub(super) fn costs(cores: &Cores, threads: usize) -> Result<Costs> {
    if cores.len() < 2 {
        return Ok(Costs { line_read_ns: None, line_update_ns: None, update_threads: 1 });
    }
    let threads = threads.clamp(2, cores.len());
    let repeated = |measure: &dyn Fn() -> Result<f64>| {
        (0..REPEATS).map(|_| measure()).collect::<Result<Vec<f64>>>().map(median)
    };
    Ok(Costs {
        line_read_ns: Some(repeated(&|| read(cores))?),
        line_update_ns: Some(repeated(&|| update(cores, threads))?),
        update_threads: threads,
    })
}

/// Nanoseconds a read.
fn read(cores: &Cores) -> Result<f64> {
    let [ping, pong] = [Line::default(), Line::default()];
    let took = cores.together(2, |number| {
        let (own, other) = if number == 0 { (&ping, &pong) } else { (&pong, &ping) };
        let start = Instant::now();
        for trip in 1..=ROUND_TRIPS {
            if number == 0 {
                own.0.store(trip, Ordering::Relaxed);
            }
            // Without a spin hint: the core may sleep for longer than the timed operation.
            while other.0.load(Ordering::Relaxed) != trip {}
            if number == 1 {
                own.0.store(trip, Ordering::Relaxed);
            }
        }
        start.elapsed()
    })?;
    let took = took.first().context("there is no first thread")?;
    Ok(took.as_nanos() as f64 / (ROUND_TRIPS * 2) as f64)
}

/// Nanoseconds an update, all threads together.
fn update(cores: &Cores, threads: usize) -> Result<f64> {
    let line = Line::default();
    let per_second: f64 = cores
        .together(threads, |_| {
            let start = Instant::now();
            let mut updates = 0;
            while start.elapsed() < UPDATING {
                for _ in 0..BATCH {
                    line.0.fetch_add(1, Ordering::Relaxed);
                }
                updates += BATCH;
            }
            updates as f64 / start.elapsed().as_secs_f64()
        })?
        .iter()
        .sum();
    Ok(1e9 / per_second)
}
