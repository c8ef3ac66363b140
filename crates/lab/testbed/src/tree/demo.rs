//! `narrows demo tree`: what each class of the tree gets as classes wake, leave and borrow.

mod plot;
mod report;

pub use plot::svg;
pub use report::{Class, Report};

use super::arrivals::Receiver;
use super::load::Load;
use super::phase::PHASES;
use super::provider;
use super::share::{self, Share};
use crate::Testbed;
use crate::accounting::{self, Books};
use crate::bed::{PORT_B, QUEUES};
use crate::narrows::Instance;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, Refusal};
use anyhow::Result;
use report::Series;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `narrows` program.
    pub program: PathBuf,
    /// How long each phase takes.
    pub phase: Duration,
}

/// Refuses if the demo cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Options) -> Result<Report> {
    check()?;
    let bed = Testbed::up(QUEUES)?;
    let mut books = Books::open(&bed)?;
    // The bed goes away with the demo, so there is nothing to fail open to.
    let instance = Instance::start(&bed, &options.program, &["--fail-closed"])?;
    let nodes = provider::nodes();
    let commands = provider::commands(&nodes, PORT_B, QUEUES.into());
    for line in &commands {
        instance.tc(line)?;
    }
    let receiver = Receiver::start(&bed)?;
    let mut progress = Progress::over(PHASES.len() as u64);
    let load = Load { phases: PHASES.to_vec(), length: options.phase };
    let sender = load.start(&bed)?;
    for phase in &PHASES {
        progress.begin(&format!("{}: {}", phase.name, phase.shows));
        thread::sleep(options.phase);
    }
    drop(progress);
    let sent = sender.stop()?;
    let devices = books.settle()?;
    let arrived = receiver.stop()?;
    let directions = accounting::directions(&devices, &instance.show()?)?;
    let phases: Vec<Vec<Share>> = PHASES
        .iter()
        .enumerate()
        .map(|phase| share::shares(&nodes, phase, options.phase, &sent, &arrived))
        .collect();
    let series = Series::of(&sent, &arrived, options.phase * PHASES.len() as u32);
    Ok(Report::new(&nodes, &phases, commands, directions, series))
}
