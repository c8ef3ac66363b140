//! `narrows bench tree-real`: the kernel's HTB and ours, the same tree and the same traffic.
//!
//! Both stand between the same ports: the kernel's at the exit of a bridge, with the same words of
//! `tc`. Systems take their turns in each round. A turn has two parts. First each class's rate, in
//! phases, with a receiver that notes every frame. Then, without that receiver, what a packet
//! costs while every class asks for more than it can have.
//!
//! Two prices are shown, for each packet that the shaper took in, whether it was sent or dropped,
//! both without what the sender alone costs, which is measured in the same round. *Threads*: the
//! sender's, Narrows's and those that do what softirqs leave over. It misses what the kernel does
//! in interrupts of a core that is idle, and that is where its HTB sends from when a class's time
//! has come. *Machine*: all time in which any core was not idle. It misses nothing, and whatever
//! else runs on the machine is in it.

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

/// The phases in which rates are compared: those in which somebody wants more than he can have.
const COMPARED: [Phase; 4] = [PHASES[1], PHASES[2], PHASES[3], PHASES[4]];
/// The phase in which costs are: all classes have packets waiting.
const LOADED: Phase = PHASES[1];

/// Refuses where the benchmark cannot run.
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
        let [alone, kernel, ours] = System::ALL;
        samples.push([turn(alone)?, turn(kernel)?, turn(ours)?]);
    }
    drop(progress);
    Report::new(&nodes, &samples)
}
