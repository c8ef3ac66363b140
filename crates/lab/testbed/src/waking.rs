//! The cost of wake-ups: Narrows beside the kernel's bridge with the kernel's qdiscs, both
//! directions limited, in one run, on the same veths, under the same TCP flows.
//!
//! At the rates of homes and offices, packets take hardly any time; waking up for each of them
//! does. So the whole machine is measured, with all cores: the time in which cores were not idle,
//! and context switches. This includes the ends of the flows, equally for all systems. It also
//! includes any other work on the machine, so the machine should be quiet.
//!
//! Every round measures every system at every limit; rounds are interleaved, and the median over
//! them is shown with the extremes.

mod cell;
mod report;
mod system;

pub use report::{Report, Row};

use crate::bed::QUEUES;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, PING, Refusal, TC};
use crate::{Rounds, Testbed};
use anyhow::{Context, Result};
use cell::Sample;
use narrows_units::Rate;
use std::collections::BTreeMap;
use system::{Running, System};

/// The limits of each direction if no others are named, in Mbit/s.
pub const LIMITS: [u64; 3] = [20, 100, 500];

/// Refuses if the benchmark cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL, PING])
}

/// Runs it with `limits`, in Mbit/s, and its progress on standard error.
pub fn run(options: &Rounds, limits: &[u64]) -> Result<Report> {
    check()?;
    let bed = Testbed::up(QUEUES)?;
    let systems = System::all_here(&bed);
    let cells = (limits.len() * systems.len()) as u64;
    let mut progress = Progress::over(u64::from(options.rounds) * cells);
    let mut samples: BTreeMap<(u64, System), Vec<Sample>> = BTreeMap::new();
    for round in 1..=options.rounds {
        if round > 1 && progress.is_over() {
            break;
        }
        for mbit in limits {
            let bits = mbit * 1_000_000;
            let limit = Rate::from_bits_per_sec(bits);
            for &system in &systems {
                let rounds = options.rounds;
                let title = format!("round {round} of {rounds}: {limit}, {}", system.name());
                progress.begin(&title);
                let running = Running::start(&bed, system, limit, &options.program)?;
                let sample = cell::measure(&bed, options.window).with_context(|| title.clone())?;
                drop(running);
                progress.end(&format!("{title}: {}", sample.shown()));
                samples.entry((bits, system)).or_default().push(sample);
            }
        }
    }
    drop(progress);
    Report::new(&samples)
}
