//! Several threads on one tree, each with a queue and packets of its own, over the machine's clock.
//!
//! The tree never delays a packet, so this measures the cost of the classes' shared state. All
//! threads send for all classes.

use super::report::Row;
use super::shape::Shape;
use super::subject::{Own, Subject};
use super::work::{TURN, Work};
use super::{Options, subject};
use crate::coordination::cores::Cores;
use crate::processor;
use anyhow::{Context, Result, bail};
use narrows_units::Nanos;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// Where the clock begins.
const EPOCH: Nanos = Nanos::from_secs(1);
/// Packets of each thread: as many as a worker has frames.
const PACKETS: u32 = 1 << 13;
/// Turns between two looks whether the window is over.
const TURNS: usize = 64;

/// A row for each number of threads above one; none if there is only one core. One thread is
/// included as the reference.
pub(super) fn rows(subject: Subject, shape: Shape, options: &Options) -> Result<Vec<Row>> {
    let cores = Cores::allowed()?;
    let most = options.threads.unwrap_or(cores.len()).max(1);
    let counts: Vec<usize> = std::iter::successors(Some(1), |threads| Some(threads * 2))
        .take_while(|threads| *threads < most)
        .chain([most])
        .collect();
    let mut rows = Vec::new();
    for threads in counts {
        let mut row = Row::new(subject, shape, threads);
        row.clock = "real";
        let (ns, mpps) = measure(subject, shape, threads, &cores, options)?;
        row.ns_per_packet = Some(ns);
        row.mpps = Some(mpps);
        rows.push(row);
    }
    Ok(rows)
}

/// The CPU time of a packet, and million packets per second of all threads together.
fn measure(
    subject: Subject,
    shape: Shape,
    threads: usize,
    cores: &Cores,
    options: &Options,
) -> Result<(f64, f64)> {
    let below = subject.below().context("only trees are shared")?;
    let tree = shape.tree(subject.kind(), &below);
    let (start, is_over) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let clock = Instant::now();
    let now = || EPOCH + Nanos(clock.elapsed().as_nanos() as u64);
    let work = |number: usize| -> Result<(u64, i64)> {
        let pinned = cores.pin(number);
        let own: Box<dyn subject::Scheduler> = Box::new(Own::below(&tree, PACKETS, TURN)?);
        let mut work = Work::of(own, shape, PACKETS);
        for _ in 0..work.round() / TURN as u64 {
            work.turn(now());
        }
        start.wait();
        pinned.context("cannot keep a thread on its core")?;
        let (mut packets, began) = (0, processor::time());
        while !is_over.load(Ordering::Relaxed) {
            for _ in 0..TURNS {
                packets += work.turn(now());
            }
        }
        Ok((packets, processor::time() - began))
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| {
                scope.spawn({
                    let work = &work;
                    move || work(number)
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        thread::sleep(options.window);
        is_over.store(true, Ordering::Relaxed);
        let window = began.elapsed();
        let (mut packets, mut time) = (0, 0);
        for thread in running {
            let Ok(done) = thread.join() else { bail!("a thread has panicked") };
            let (own, busy) = done?;
            packets += own;
            time += busy;
        }
        Ok((time as f64 / packets as f64, packets as f64 / window.as_secs_f64() / 1e6))
    })
}
