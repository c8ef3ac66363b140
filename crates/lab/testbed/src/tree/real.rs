//! `narrows bench tree-real`: the kernel's HTB, Narrows' and FlowValve's rules in Narrows, with the
//! same tree and the same traffic.
//!
//! All are between the same ports: the kernel's at the exit of a bridge, with the same words of
//! `tc`; FlowValve's have HTB's words, and the first subscriber's part as a weight. All are held
//! against what HTB's rules give, though FlowValve's are others: it divides by weight and lends to
//! who asks first, where HTB lends by priority to the leaves of the whole tree. Systems take turns
//! in each round. A turn has two parts: first each class's rate, in phases, with a receiver that
//! records every frame; then, without that receiver, the cost of a packet while every class is
//! overloaded.
//!
//! Two costs are shown, for each packet that the shaper received, whether it was sent or dropped.
//! Both exclude the cost of the sender alone, which is measured in the same round. *Threads* is the
//! run time of the sender, of Narrows and of `ksoftirqd`. It misses the kernel's work in interrupts
//! of an idle core, and that is where its HTB sends from when a class's time has come. *Machine* is
//! all time in which any core was not idle. It misses nothing, but includes any other work on the
//! machine.

mod cell;
mod report;

pub use report::{Cost, Priority, Report, Row};

use super::phase::{PHASES, Phase};
use super::provider;
use crate::bed::QUEUES;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, Refusal, TC};
use crate::{Rounds, Testbed};
use anyhow::Result;
use cell::{Running, Sample, System};

/// The phases in which rates are compared: those with an overload.
const COMPARED: [Phase; 4] = [PHASES[1], PHASES[2], PHASES[3], PHASES[4]];
/// The phase in which costs are compared: all classes have a backlog.
const LOADED: Phase = PHASES[1];

/// Refuses if the benchmark cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Rounds) -> Result<Report> {
    check()?;
    let bed = Testbed::up(QUEUES)?;
    let nodes = provider::nodes();
    let turns = u64::from(options.rounds) * System::ALL.len() as u64;
    let mut progress = Progress::over(turns);
    let mut samples: Vec<[Sample; System::ALL.len()]> = Vec::new();
    for round in 1..=options.rounds {
        if round > 1 && progress.is_over() {
            break;
        }
        let mut turn = |system: System| -> Result<Sample> {
            progress.begin(&format!("round {round} of {}: {}", options.rounds, system.name()));
            let running = Running::start(&bed, system, &options.program, &nodes)?;
            running.measure(&nodes, options.window)
        };
        let [alone, kernel, ours, valve] = System::ALL;
        samples.push([turn(alone)?, turn(kernel)?, turn(ours)?, turn(valve)?]);
    }
    drop(progress);
    Report::new(&nodes, &samples)
}
