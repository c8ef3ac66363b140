//! TCP through two boxes with one limit, beside the same flows through one box.
//!
//! Flows that take two uplinks should get as much as through one, and each of them as much as every
//! other. TCP makes that harder than a flood: it fills a queue, backs off, and hides how much it
//! would like to send. So what agents see of a box's demand moves all the time.
//!
//! Four systems, which take turns within each round:
//!
//! - *One box* with the whole limit, which is what all others are compared with.
//! - *A fleet*: two boxes that share the limit, with agents and real NATS servers
//!   ([`crate::fleet`]).
//! - *By box*: the same two boxes, whose policies say that flows do not count (`by-box`).
//! - *Divided*: two boxes with half of the limit each, always.
//!
//! All have `cake`, so flows of one box are equal, and what is left are the boxes' shares. Agents
//! share by flow: where one box has more flows than the other, it has as much more of the limit.
//! The rows with uneven flows show it. Of *by box* no fairness is asked.
//!
//! Goodput is what the receivers have read. The sum of whole frames is counted at the servers'
//! devices.
//!
//! Non-goals: long paths, speed. All of it shares the machine's cores.

mod report;

pub use report::{Report, Row};

use crate::bed::{PORT_B, SERVER, SERVER_IP};
use crate::fleet::{self, Fleet};
use crate::narrows::Instance;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, Refusal};
use crate::tcp::{Flows, Running};
use crate::together::Sampler;
use crate::{Rounds, Testbed};
use anyhow::{Context, Result, ensure};
use narrows_units::Rate;
use report::Sample;
use std::net::SocketAddrV4;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The limit: low enough that the machine's cores do not limit anything.
pub(crate) const LIMIT: Rate = Rate::from_bits_per_sec(40_000_000);
/// All flows.
const FLOWS: usize = 16;
/// Queues of each box.
const QUEUES: u32 = 2;
/// How long the flows run before they are measured: slow start, and loans that move.
const WARM_UP: Duration = Duration::from_secs(2);
/// An instance that has just begun may have lent, before, what it owns: so long it counts that as
/// lent.
const BEGINNING: Duration = Duration::from_millis(3_200);
/// The receivers' first port.
const PORT: u16 = 5_000;

/// What shapes the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    OneBox,
    Fleet,
    ByBox,
    Divided,
}

/// A system, and the flows through its first and its second box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) system: System,
    pub(crate) flows: [usize; 2],
}

/// In this order within each round.
pub(crate) const CELLS: [Cell; 7] = [
    Cell { system: System::OneBox, flows: [FLOWS, 0] },
    Cell { system: System::Fleet, flows: [FLOWS / 2, FLOWS / 2] },
    Cell { system: System::Fleet, flows: [FLOWS, 0] },
    Cell { system: System::Fleet, flows: [FLOWS * 3 / 4, FLOWS / 4] },
    Cell { system: System::ByBox, flows: [FLOWS * 3 / 4, FLOWS / 4] },
    Cell { system: System::Divided, flows: [FLOWS / 2, FLOWS / 2] },
    Cell { system: System::Divided, flows: [FLOWS, 0] },
];

impl System {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::OneBox => "one box",
            Self::Fleet => "two boxes, one limit",
            Self::ByBox => "two boxes, by box",
            Self::Divided => "two boxes, half each",
        }
    }

    /// The system whose boxes it has: their policies change from cell to cell.
    const fn boxes(self) -> Self {
        match self {
            Self::ByBox => Self::Fleet,
            own => own,
        }
    }

    /// The words of `narrows tc` for each of its boxes.
    pub(crate) fn tc(self) -> String {
        let all = LIMIT.bits_per_sec();
        let words = match self {
            Self::OneBox => format!("{all}bit raw"),
            Self::Fleet => format!("{all}bit raw fleet line boxes 2"),
            Self::ByBox => format!("{all}bit raw fleet line boxes 2 by-box"),
            Self::Divided => format!("{}bit raw", all / 2),
        };
        format!("qdisc replace dev {PORT_B} root cake bandwidth {words}")
    }
}

impl Cell {
    pub(crate) fn title(self) -> String {
        let [first, second] = self.flows;
        format!("{}, {first} + {second} flows", self.system.name())
    }
}

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL])?;
    fleet::check()
}

/// Runs it with `agent` as the boxes' agent, with its progress on standard error.
pub fn run(options: &Rounds, agent: &Path) -> Result<Report> {
    check()?;
    ensure!(options.rounds > 0, "at least one round, not 0");
    fleet::check_agent(agent)?;
    let mut progress = Progress::over(u64::from(options.rounds) * CELLS.len() as u64);
    let up = |system, boxes| Boxes::up(system, boxes, &options.program);
    let systems = [up(System::OneBox, 1)?, up(System::Fleet, 2)?, up(System::Divided, 2)?];
    let _agents = agents_over(&systems[1], agent)?;
    let mut samples: [Vec<Sample>; CELLS.len()] = Default::default();
    for round in 1..=options.rounds {
        if round > 1 && progress.is_over() {
            break;
        }
        for (cell, samples) in CELLS.iter().zip(&mut samples) {
            let title = format!("round {round} of {}: {}", options.rounds, cell.title());
            progress.begin(&title);
            let boxes = systems.iter().find(|boxes| boxes.system == cell.system.boxes());
            let boxes = boxes.context("each system has its boxes")?;
            boxes.set(cell.system).context(title.clone())?;
            let sample = boxes.measure(cell.flows, options.window).context(title.clone())?;
            progress.end(&format!("{title}: {sample}"));
            samples.push(sample);
        }
    }
    drop(progress);
    let unaccounted = systems.iter().map(Boxes::unaccounted).sum::<Result<u64>>()?;
    Report::new(&samples, unaccounted)
}

/// Starts an agent and a NATS server beside each of `boxes`, and waits until they may lend.
fn agents_over(boxes: &Boxes, agent: &Path) -> Result<Fleet> {
    let namespaces = boxes.sites.iter().map(|(_, bed)| bed.shaper().clone()).collect();
    let mut fleet = Fleet::over(agent, namespaces)?;
    fleet.start_agents()?;
    sleep(BEGINNING);
    Ok(fleet)
}

/// The boxes of a system, each between a client and a server.
struct Boxes {
    system: System,
    sampler: Sampler,
    // An instance goes before its bed.
    sites: Vec<(Instance, Testbed)>,
}

impl Boxes {
    fn up(system: System, count: usize, program: &Path) -> Result<Self> {
        let site = |_| {
            let bed = Testbed::up(QUEUES)?;
            // The bed is deleted with the benchmark, and what is not shaped would be measured.
            let instance = Instance::start(&bed, program, &["--fail-closed"])?;
            instance.tc(&system.tc())?;
            Ok((instance, bed))
        };
        let sites = (0..count).map(site).collect::<Result<Vec<_>>>()?;
        let ends: Vec<_> = sites.iter().map(|(_, bed)| (bed.server(), SERVER)).collect();
        let sampler = Sampler::over(&ends)?;
        Ok(Self { system, sampler, sites })
    }

    /// Gives them the policy of `system`, as a change of the present one.
    fn set(&self, system: System) -> Result<()> {
        let words = system.tc();
        self.sites.iter().try_for_each(|(instance, _)| instance.tc(&words).map(drop))
    }

    fn measure(&self, flows: [usize; 2], window: Duration) -> Result<Sample> {
        let mut running = Vec::new();
        for ((_, bed), count) in self.sites.iter().zip(flows) {
            running.push(start(bed, count)?);
        }
        sleep(WARM_UP);
        let read = || running.iter().flat_map(Running::received).collect::<Vec<u64>>();
        let (from, began, before) = (self.sampler.now(), Instant::now(), read());
        sleep(window);
        let (seconds, after) = (began.elapsed().as_secs_f64(), read());
        let to = self.sampler.now();
        running.into_iter().try_for_each(Running::stop)?;
        let rate = |(after, before): (u64, u64)| (after - before) as f64 * 8.0 / seconds;
        let rates: Vec<f64> = after.into_iter().zip(before).map(rate).collect();
        Ok(Sample::new(&rates, &self.sampler.samples(), [from, to]))
    }

    /// Packets that are missing, once nothing comes any more.
    fn unaccounted(&self) -> Result<u64> {
        let missing = |(instance, _): &(Instance, _)| Ok(instance.wait_for_rest()?.unsigned_abs());
        self.sites.iter().map(missing).sum()
    }
}

/// So many flows from the client to the server.
fn start(bed: &Testbed, count: usize) -> Result<Running> {
    let [client, _] = bed.ends();
    let addresses: Vec<SocketAddrV4> =
        (PORT..).take(count).map(|port| SocketAddrV4::new(SERVER_IP, port)).collect();
    Flows::to(client, bed.server(), &addresses)?.start()
}
