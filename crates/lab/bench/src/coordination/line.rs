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
//! *By number of threads.* A read is the mean over all pairs of as many cores: those that share a
//! cache answer sooner than those that do not, and a core that looks at all others meets both. An
//! update is contended by as many threads.
//!
//! All accesses are relaxed: the line is timed, not the order of surrounding accesses. Figures are
//! medians over repeats, because an interrupted one is worthless.

use super::cores::Cores;
use super::report::LineCosts;
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

/// Measures both for each of `threads`, numbers of threads in ascending order, that has at least
/// two threads and a core for each. With one core alone no line ever moves.
pub(super) fn curve(cores: &Cores, threads: &[usize]) -> Result<Vec<LineCosts>> {
    let can = |threads: &usize| (2..=cores.len()).contains(threads);
    let threads: Vec<usize> = threads.iter().copied().filter(can).collect();
    let reads = reads(cores, threads.last().copied().unwrap_or(0))?;
    let costs = threads.into_iter().map(|threads| {
        let among: Vec<f64> =
            reads.iter().filter(|(pair, _)| pair[1] < threads).map(|(_, ns)| *ns).collect();
        let updates = (0..REPEATS).map(|_| update(cores, threads));
        Ok(LineCosts {
            threads,
            line_read_ns: among.iter().sum::<f64>() / among.len() as f64,
            line_update_ns: median(updates.collect::<Result<_>>()?),
        })
    });
    costs.collect()
}

/// For each pair of `threads` threads, the lower one first, the nanoseconds of a read.
fn reads(cores: &Cores, threads: usize) -> Result<Vec<([usize; 2], f64)>> {
    let pairs = (0..threads).flat_map(|second| (0..second).map(move |first| [first, second]));
    let timed = pairs.map(|pair| {
        let repeated = (0..REPEATS).map(|_| read(cores, pair)).collect::<Result<_>>()?;
        Ok((pair, median(repeated)))
    });
    timed.collect()
}

/// Nanoseconds a read, between the cores of two threads.
fn read(cores: &Cores, pair: [usize; 2]) -> Result<f64> {
    let [ping, pong] = [Line::default(), Line::default()];
    let took = cores.together(pair, |number| {
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
        .together(0..threads, |_| {
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
