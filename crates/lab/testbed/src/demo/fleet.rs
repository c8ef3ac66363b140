//! `narrows demo fleet`: four boxes with one limit, while load moves, a box dies, and a wire is
//! cut.
//!
//! Each box has an instance of Narrows between a client and a server of its own, a NATS server and
//! an agent ([`crate::fleet`]). Each owns a quarter of the limit. Rates are counted at the servers'
//! devices: each box's, and the sum of all four, of which no tenth of a second may have more than
//! the limit and what the boxes' buckets hold.
//!
//! *Due* is what max–min gives to each box of what can be used: boxes that hear each other share
//! what they own together, and what a box owns that nobody hears stays its own.
//!
//! Non-goals: how fast it is; all of it shares the machine's cores. TCP.

mod plot;
mod report;

pub use plot::svg;
pub use report::{Report, Row};

use crate::bed::{PORT_B, SERVER};
use crate::fleet::site::Site;
use crate::fleet::{self, Fleet, due};
use crate::flood::Running;
use crate::namespace::Namespace;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, Refusal};
use crate::together::Sampler;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

/// The boxes.
pub(super) const BOXES: usize = 4;
/// The limit of all boxes, in bits per second, and what each owns of it.
pub(super) const LIMIT: f64 = 80e6;
pub(super) const SAFE: f64 = LIMIT / BOXES as f64;
/// The bucket of each box and the limit of its queue, in bytes.
pub(super) const BURST: u32 = 10_000;
const QUEUE: u32 = 60_000;
/// What a box with much to send offers, and one with little.
const MUCH: f64 = 120e6;
const LITTLE: f64 = 10e6;
/// Queues of each box.
const QUEUES: u32 = 2;
/// The box that dies, and the one whose wire is cut.
const KILLED: usize = 3;
const CUT: usize = 0;
/// An instance that has just begun may have lent, before, what it owns: so long it counts that as
/// lent.
const BEGINNING: Duration = Duration::from_millis(3_200);
/// How much longer than its phase a load may last, if nothing ends it.
const SPARE: Duration = Duration::from_secs(30);

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `narrows` program.
    pub program: PathBuf,
    /// The `narrows-fleet` program.
    pub agent: PathBuf,
    /// How long each phase takes.
    pub phase: Duration,
}

/// What happens at the beginning of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Nothing,
    Kill,
    Return,
    Cut,
    Mend,
}

/// A part of the demo.
struct Phase {
    name: &'static str,
    /// What each box is offered, in bits per second.
    loads: [f64; BOXES],
    event: Event,
    /// Whether each box is heard by the others.
    heard: [bool; BOXES],
}

const ALL: [bool; BOXES] = [true; BOXES];

const PHASES: [Phase; 8] = [
    Phase { name: "box 1 alone", loads: [MUCH, 0.0, 0.0, 0.0], event: Event::Nothing, heard: ALL },
    Phase {
        name: "box 2 needs little",
        loads: [MUCH, LITTLE, 0.0, 0.0],
        event: Event::Nothing,
        heard: ALL,
    },
    Phase {
        name: "load moves to 3, 4",
        loads: [0.0, 0.0, MUCH, MUCH],
        event: Event::Nothing,
        heard: ALL,
    },
    Phase {
        name: "box 4 lends",
        loads: [MUCH, MUCH, MUCH, 0.0],
        event: Event::Nothing,
        heard: ALL,
    },
    Phase {
        name: "box 4 is killed",
        loads: [MUCH, LITTLE, MUCH, 0.0],
        event: Event::Kill,
        heard: [true, true, true, false],
    },
    Phase {
        name: "box 4 comes back",
        loads: [MUCH, LITTLE, MUCH, 0.0],
        event: Event::Return,
        heard: ALL,
    },
    Phase {
        name: "box 1 is cut off",
        loads: [MUCH, MUCH, 0.0, 0.0],
        event: Event::Cut,
        heard: [false, true, true, true],
    },
    Phase { name: "mended", loads: [MUCH, MUCH, 0.0, 0.0], event: Event::Mend, heard: ALL },
];

/// Refuses if the demo cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL])?;
    fleet::check()
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Options) -> Result<Report> {
    check()?;
    fleet::check_agent(&options.agent)?;
    let mut progress = Progress::over(PHASES.len() as u64);
    let mut boxes = Boxes::up(options)?;
    let mut rows = Vec::new();
    for phase in &PHASES {
        if !rows.is_empty() && progress.is_over() {
            break;
        }
        progress.begin(phase.name);
        let row = boxes.phase(phase, options.phase).context(phase.name)?;
        progress.end(&format!("{}: {}", phase.name, row.outcome()));
        rows.push(row);
    }
    drop(progress);
    let samples = boxes.sampler.samples();
    let commands = vec![format!("tc {}", tbf())];
    Ok(Report::new(rows, &samples, commands, boxes.unaccounted()?))
}

/// The words of `narrows tc` that set the limit.
fn tbf() -> String {
    format!(
        "qdisc replace dev {PORT_B} root tbf rate {}mbit burst {BURST} limit {QUEUE} fleet line \
         boxes {BOXES}",
        LIMIT as u64 / 1_000_000
    )
}

/// All boxes, with what is between them.
struct Boxes {
    sampler: Sampler,
    loads: Vec<Running>,
    fleet: Fleet,
    sites: Vec<Site>,
    /// Packets that are missing at boxes that were killed since.
    unaccounted: u64,
}

impl Boxes {
    fn up(options: &Options) -> Result<Self> {
        let site = |_| Site::up(options.program.clone(), QUEUES, &tbf());
        let sites = (0..BOXES).map(site).collect::<Result<Vec<_>>>()?;
        let shapers = sites.iter().map(|site| site.bed.shaper().clone()).collect();
        let mut fleet = Fleet::over(&options.agent, shapers)?;
        fleet.start_agents()?;
        let ends: Vec<(&Namespace, &'static str)> =
            sites.iter().map(|site| (site.bed.server(), SERVER)).collect();
        sleep(BEGINNING);
        let sampler = Sampler::over(&ends)?;
        Ok(Self { sampler, loads: Vec::new(), fleet, sites, unaccounted: 0 })
    }

    fn phase(&mut self, phase: &Phase, time: Duration) -> Result<Row> {
        for load in std::mem::take(&mut self.loads) {
            load.stop()?;
        }
        self.happen(phase.event)?;
        let from = self.sampler.now();
        for (site, bits) in self.sites.iter().zip(phase.loads) {
            if bits > 0.0 {
                self.loads.push(site.flood(bits, time + SPARE)?);
            }
        }
        sleep(time);
        let to = self.sampler.now();
        let due = due::shares(&phase.loads, &phase.heard, SAFE);
        let due = std::array::from_fn(|number| due[number]);
        let is_upset = phase.event != Event::Nothing;
        Ok(Row::new(phase.name, due, is_upset, &self.sampler.samples(), [from, to]))
    }

    fn happen(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Nothing => Ok(()),
            Event::Kill => {
                let site = &mut self.sites[KILLED];
                self.unaccounted += site.unaccounted()?.unsigned_abs();
                site.kill()?;
                self.fleet.kill_agent(KILLED)?;
                self.fleet.kill_server(KILLED)
            }
            Event::Return => {
                self.sites[KILLED].start()?;
                self.fleet.start_server(KILLED)?;
                self.fleet.start_agent(KILLED)
            }
            Event::Cut => self.fleet.wires.set(CUT, false),
            Event::Mend => self.fleet.wires.set(CUT, true),
        }
    }

    /// Packets that are missing at all boxes in the end.
    fn unaccounted(mut self) -> Result<u64> {
        for load in std::mem::take(&mut self.loads) {
            load.stop()?;
        }
        let mut sum = self.unaccounted;
        for site in &mut self.sites {
            sum += site.unaccounted()?.unsigned_abs();
        }
        Ok(sum)
    }
}
