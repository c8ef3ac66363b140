//! TCP under a limit without a queue: the XDP plane at both hooks beside plain drop and the
//! kernel's `police`, in one run, under the same flows.
//!
//! A policer's drops cost goodput: a flow that loses many packets at once loses its window, and the
//! rate that it does not use while it recovers is lost, because nothing is queued. So all systems
//! here allow the same burst; they differ in what they drop, and when.
//!
//! `netem` in a second instance of Narrows, between the client and the measured system, delays the
//! acknowledgements and so makes the round-trip time. So the sender learns of drops that much
//! later, and data is neither delayed nor reordered. Flows are TCP CUBIC without offloads.
//!
//! *Accuracy* is measured under a constant overload: a UDP flood above the limit.
//!
//! *Counted* are frames at the receiver's device, with their headers, and separately what the
//! receivers have read.

mod cell;
mod report;
mod system;

pub use report::{Report, Row};

use crate::Testbed;
use crate::bed::{FAR_A, FAR_B};
use crate::narrows::Instance;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, Refusal, TC};
use anyhow::{Context, Result};
use cell::Cell;
use narrows_units::Rate;
use std::path::PathBuf;
use std::time::Duration;
use system::{Running, System};

/// The limits, in Mbit/s, by default.
pub const LIMITS: [u64; 3] = [20, 100, 500];
/// And how many flows.
pub const FLOWS: [usize; 3] = [1, 8, 64];

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `narrows` program.
    pub program: PathBuf,
    /// The limits, in Mbit/s.
    pub limits: Vec<u64>,
    /// Numbers of flows.
    pub flows: Vec<usize>,
    /// How long a single flow may exceed the limit after a pause, as a queue: the value of `tbf
    /// latency`.
    pub queue: Duration,
    /// How long flows run before they are measured.
    pub settle: Duration,
    /// How long they are measured, in whole seconds.
    pub window: Duration,
}

/// Refuses if the benchmark cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Options) -> Result<Report> {
    check()?;
    let bed = Testbed::distant(1)?;
    let _distance = distance(&bed, options)?;
    let mut notes = Vec::new();
    let mut systems = vec![System::Narrows, System::NarrowsTcx, System::PlainDrop];
    match system::kernel_police_works(&bed) {
        Ok(()) => systems.push(System::KernelPolice),
        Err(why) => notes.push(format!("this kernel has no police: {why}")),
    }
    let cells = options.limits.len() * systems.len() * options.flows.len();
    let mut progress = Progress::over(cells as u64);
    let mut rows = Vec::new();
    for limit in options.limits.iter().map(|mbit| Rate::from_bits_per_sec(mbit * 1_000_000)) {
        for system in &systems {
            let name = system.name();
            let running = Running::start(&bed, *system, limit, options)?;
            let off = cell::exactness(&bed, limit).with_context(|| format!("{name}, {limit}"))?;
            for flows in &options.flows {
                let title = format!("{limit}, {name}, {flows} flows");
                progress.begin(&title);
                let cell = Cell { flows: *flows, settle: options.settle, window: options.window };
                let found = cell.measure(&bed).with_context(|| title.clone())?;
                let row = Row::new(name, limit, *flows, &found, off);
                progress.end(&format!("{title}: {:.1} %", row.percent));
                rows.push(row);
            }
            drop(running);
        }
    }
    drop(progress);
    Ok(Report::new(rows, notes, options.queue))
}

/// The delay that makes the round trip: [`cell::ROUND_TRIP`] towards the client.
fn distance(bed: &Testbed, options: &Options) -> Result<Instance> {
    let far = bed.far().context("the bed has no distance")?;
    let ports = format!("{FAR_A},{FAR_B}");
    let instance = Instance::start_in(far, &options.program, &["run", "--ports", &ports])?;
    let delay = cell::ROUND_TRIP.as_millis();
    instance.tc(&format!("qdisc add dev {FAR_A} root netem delay {delay}ms limit 10000"))?;
    Ok(instance)
}
