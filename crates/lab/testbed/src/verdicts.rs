//! What each of XDP's verdicts takes: drop, send back, redirect, hand to another CPU, pass.
//!
//! The raw measurements of the XDP paper (Høiland-Jørgensen et al. 2018, section 4), each with a
//! program of a few instructions, with Narrows, and with what the kernel has for it without XDP.
//! Frames of 64 bytes come as from a NIC's driver: pages that never had a socket buffer, which a
//! NAPI [thread](crate::receiving) on the last core receives. The sender on the first core offers
//! all that it can. The time of that thread, for each frame that it took, is what a frame costs.
//! What leaves is dropped at the other end, by a program, in the same thread: all systems that
//! send have that in their time.
//!
//! Whether the sender is faster than what receives depends on the verdict: where it is not, the
//! thread sleeps in between. So packets a second are those of the thread's own time, and no rate
//! that was seen.
//!
//! Non-goals: several cores that receive, and links: two cores show neither. What another CPU does
//! with the frames that it gets is not in the time.

mod report;
mod system;

pub use report::{Report, Row};

use crate::bed::CLIENT;
use crate::counters::Counters;
use crate::cpu;
use crate::progress::Progress;
use crate::receiving::{Sample, Threaded};
use crate::requirements::{self, ETHTOOL, IP, NFT, Refusal};
use crate::{Rounds, Testbed};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;
use system::{System, Verdict};

/// The frame's length, without the frame check sequence.
const FRAME_BYTES: usize = 64;
/// How long frames come before it is measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// A verdict, and what gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    verdict: Verdict,
    system: System,
}

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL, NFT])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Rounds) -> Result<Report> {
    check()?;
    let cells: Vec<Cell> = Verdict::ALL
        .into_iter()
        .flat_map(|verdict| System::ALL.map(|system| Cell { verdict, system }))
        .filter(|cell| cell.system.gives(cell.verdict))
        .collect();
    let mut progress = Progress::over(u64::from(options.rounds) * cells.len() as u64);
    let mut samples: BTreeMap<Cell, Vec<Sample>> = BTreeMap::new();
    for round in 1..=options.rounds {
        for cell in &cells {
            let Cell { verdict, system } = cell;
            let what = format!("{}, {}", verdict.name(), system.name(*verdict));
            progress.begin(&format!("round {round} of {}: {what}", options.rounds));
            samples.entry(*cell).or_default().push(measure(*cell, options)?);
        }
    }
    drop(progress);
    Report::new(&samples)
}

fn measure(Cell { verdict, system }: Cell, options: &Rounds) -> Result<Sample> {
    let [sends, receives_on] = cpu::outer_cores()?;
    let bed = Testbed::up(1)?;
    // All alike: a `veth` takes redirected frames only with GRO on.
    bed.take_redirected(true)?;
    let running = system.start(&bed, verdict, options, sends)?;
    let receives = Threaded::start(bed.shaper(), crate::bed::PORT_A, bed.queues(), &[receives_on])?;
    receives.put_first()?;
    let mut counters = Counters::of(bed.client(), CLIENT)?;
    let sender = system::sender(&bed, verdict, options, FRAME_BYTES, sends)?;
    sleep(WARM_UP);
    let mut look = || anyhow::Ok((counters.read()?.tx_packets, receives.cpu()?));
    let begin = look()?;
    sleep(options.window);
    let end = look()?;
    drop(sender);
    let sample = Sample { frames: end.0 - begin.0, busy: end.1 - begin.1 };
    ensure!(sample.frames > 0, "no frame arrived");
    running.has_done_it(verdict)?;
    Ok(sample)
}
