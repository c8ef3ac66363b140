//! `narrows bench tree-real --classes N`: the kernel's HTB and Narrows', with a class for each of
//! many subscribers, each offered twice its ceiling, on a machine that has nothing left.
//!
//! The root's rate is twice what all may send, so only ceilings hold packets back, as in a
//! provider's network. Each class may send half of its ceiling by its own rate and borrows the
//! rest. Ceilings are alike, and such that the kernel's HTB takes all of the machine while each
//! class is offered twice its ceiling: before the rounds, a plain bridge and then the HTB, with
//! ceilings of a quarter of what the bridge carried, get all that the senders can send; half of
//! what they could send with the HTB are the ceilings. A system that takes more of the machine
//! than the kernel's leaves less of it to the senders, and one that takes less leaves it idle.
//!
//! The senders, a thread for each core, are the same for all systems, and they are in the
//! machine's time. *Machine* is all time in which any core was not idle, for each packet that
//! arrived at the far end. *Less senders* is that without what the same number of offered packets
//! costs when the shaper's kernel drops them on arrival, which each round measures, too.
//!
//! Systems take turns in each round, on one queue and on four. The kernel's tree is at the root of
//! the device and shared by its queues: an HTB below each queue of an `mq` would be another tree,
//! in which a class has a ceiling on each queue. With tens of thousands of classes a turn of the
//! kernel takes minutes, in which it creates them.

mod cell;
mod report;
mod subscribers;

pub use report::{Report, Row};
pub use subscribers::CLASSES_MAX;

use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, Refusal, TC};
use crate::{Rounds, Testbed, cpu};
use anyhow::{Context, Result};
use cell::{Running, Sample, System, Turn};
use subscribers::Subscribers;

/// The numbers of queues with which everything is measured.
const QUEUES: [u32; 2] = [1, 4];
/// The most threads that send.
const SENDERS_MAX: usize = 4;

/// Refuses if the benchmark cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL])
}

/// The measurements of one round with one number of queues. None of a kernel that cannot be
/// measured.
#[derive(Clone, Copy, Debug)]
struct Round {
    alone: Sample,
    kernel: Option<Sample>,
    narrows: Sample,
}

/// Runs it with this many classes, and its progress on standard error.
pub fn run(options: &Rounds, classes: u32) -> Result<Report> {
    check()?;
    let senders = cpu::cores().clamp(1, SENDERS_MAX);
    let beds = QUEUES.map(Testbed::up);
    let beds = beds.into_iter().collect::<Result<Vec<_>>>()?;
    let turns = u64::from(options.rounds) * (System::TURNS.len() * beds.len()) as u64;
    let mut progress = Progress::over(2 + turns);

    let bed = beds.first().context("there is no bed")?;
    let turn = Turn { bed, program: &options.program, window: options.window, senders };
    progress.begin("what a bridge carries");
    let unlimited = Subscribers::unlimited(classes);
    let carried = Running::start(turn, System::Bridge, &unlimited)?.measure(&unlimited, None)?;
    progress.end(&format!("a bridge: {}", carried.shown()));

    progress.begin("what the machine can offer");
    let few = Subscribers::below(classes, carried.delivered_per_second / 4.0);
    // The kernel may have no HTB, no u32, or no room for the tree.
    let peer = Running::start(turn, System::Kernel, &few);
    let (system, skipped) = match &peer {
        Ok(_) => (System::Kernel, None),
        Err(error) => {
            (System::Narrows, Some(format!("bridge-htb cannot be built here: {error:#}")))
        }
    };
    let full = peer.or_else(|_| Running::start(turn, system, &few))?.measure(&few, None)?;
    progress.end(&format!("{}: {}", system.name(), full.shown()));
    let subscribers = Subscribers::below(classes, full.offered_per_second / 2.0);
    let wanted = subscribers.ceilings_per_second().map(|ceilings| 2.0 * ceilings);

    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); beds.len()];
    'rounds: for round in 1..=options.rounds {
        for (bed, rounds) in beds.iter().zip(&mut rounds) {
            if round > 1 && progress.is_over() {
                break 'rounds;
            }
            let queues = bed.queues();
            let mut take = |system: System| -> Result<Sample> {
                let name = system.name();
                let title =
                    format!("round {round} of {}: {name}, queues: {queues}", options.rounds);
                progress.begin(&title);
                let turn = Turn { bed, ..turn };
                let sample = Running::start(turn, system, &subscribers)
                    .and_then(|running| running.measure(&subscribers, wanted))
                    .with_context(|| title.clone())?;
                progress.end(&format!("{title}: {}", sample.shown()));
                Ok(sample)
            };
            let alone = take(System::SendersAlone)?;
            let kernel = skipped.is_none().then(|| take(System::Kernel)).transpose()?;
            rounds.push(Round { alone, kernel, narrows: take(System::Narrows)? });
        }
    }
    drop(progress);
    Report::new(&subscribers, senders, &QUEUES.into_iter().zip(rounds).collect::<Vec<_>>(), skipped)
}
