//! Injects faults of all kinds into traffic in both directions, and measures their effects.
//!
//! A run is a sequence of [epochs](epoch). Each starts and ends at rest and has one fault in its
//! middle: numbered frames go both ways, above the limit forth, below the limit back. A seed
//! determines which fault strikes, how, and in which order ([`schedule`]). At the end of each epoch
//!
//! - every frame that was sent has arrived, or was lost for a reason that something counted, or
//!   could have been destroyed by the fault in a place without counters ([`books`]);
//! - no flow was out for longer than the bound for this fault ([`outage`]);
//! - in normal operation, which is the first part of an epoch and the time from a second after the
//!   fault, nothing is lost except by the policy and no frame overtakes another of its flow;
//! - in a router, every frame went to a next hop that was in force ([`routes`]);
//! - while Narrows shapes, no window has more than the limit's rate and burst ([`limit`]).
//!
//! The harness trusts its own senders and receivers and the kernel's devices. From Narrows' own
//! output it takes only the counts of drops, and those must balance with everything else.
//!
//! A [`balancer`] has a run of its own, since its packets leave where they came in, and so has a
//! [`fleet`], which is several boxes.
//!
//! Non-goals: faults of the network itself (a lossy wire, reordering before Narrows), and load at
//! line rate: with sender, shaper and receiver on the same cores, `narrows bench` measures speed.

pub mod balancer;
mod books;
mod epoch;
mod fault;
pub mod fleet;
mod forwarding;
mod frame;
mod limit;
mod outage;
mod plane;
mod planted;
mod policy;
mod promises;
mod receiver;
mod report;
mod rng;
mod routes;
mod schedule;
mod sender;
mod span;
mod traffic;
mod world;

pub use fault::Kind;
pub use forwarding::Forwarding;
pub use plane::Plane;
pub use planted::Planted;
pub use report::{Report, Row};

use crate::Testbed;
use crate::bed::QUEUES;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, Refusal};
use anyhow::{Result, ensure};
use schedule::Schedule;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use world::World;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `narrows` program.
    pub program: PathBuf,
    /// The seed.
    pub seed: u64,
    /// How long new faults are started.
    pub duration: Duration,
    /// What forwards between the ends.
    pub forwarding: Forwarding,
    /// The plane that they strike.
    pub plane: Plane,
    /// Where its programs run, as in `narrows run --xdp`; by default where they run best.
    pub hook: Option<String>,
    /// The kinds of faults; all that are possible if there are none.
    pub kinds: Vec<Kind>,
    /// A planted error of the harness, for a test of it.
    pub planted: Option<Planted>,
}

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL])
}

/// The least duration of an epoch: for the number of steps in the progress bar.
const EPOCH: Duration = Duration::from_millis(2800);

/// Runs it, with its progress on standard error.
pub fn run(options: &Options) -> Result<Report> {
    check()?;
    let (forwarding, plane) = (options.forwarding, options.plane);
    let kinds = if options.kinds.is_empty() { &Kind::ALL[..] } else { &options.kinds };
    let is_there = |kind: &Kind| plane.has(*kind) && forwarding.has(*kind);
    let kinds: Vec<Kind> = kinds.iter().copied().filter(is_there).collect();
    let name = forwarding.name();
    ensure!(!kinds.is_empty(), "a {name} on the plane {} has no such faults", plane.name());
    let mut schedule = Schedule::new(options.seed, plane, &kinds);
    let bed = Testbed::up(QUEUES)?;
    let mut world = World::begin(&bed, options)?;
    let started = Instant::now();
    let steps = options.duration.as_millis().div_ceil(EPOCH.as_millis()).max(1);
    let mut progress = Progress::over(u64::try_from(steps)?);
    let mut epochs = Vec::new();
    while epochs.is_empty() || started.elapsed() < options.duration {
        if !epochs.is_empty() && progress.is_over() {
            break;
        }
        let Some((kind, fault)) = schedule.next() else { break };
        let number = epochs.len() + 1;
        progress.begin(&format!("{}: {}", kind.name(), fault.describe()));
        let epoch = epoch::run(&mut world, number, kind, fault.as_ref())?;
        for broken in &epoch.broken {
            progress.end(&format!("BROKEN: {broken}"));
        }
        epochs.push((epoch, fault.outage().map(|bound| bound.as_millis())));
    }
    drop(progress);
    Ok(Report::new((forwarding, plane), options.seed, started.elapsed().as_secs(), epochs))
}
