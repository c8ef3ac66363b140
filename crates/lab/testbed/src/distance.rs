//! Boxes with one limit, at a distance from each other: how long one that wakes waits for its
//! share, and how much of the limit is used.
//!
//! What agents and their NATS servers say to each other passes a switch of Narrows with `netem` at
//! each port, which delays it, and loses some of it where a row says so. TCP sends that again,
//! later. The boxes' own traffic does not pass there.
//!
//! All boxes but one have more to send than their share. That one wakes and falls asleep: when it
//! wakes, the others have what it owns. Its *wait* is the time until it delivers its share for
//! [`KEPT`]. *Used* counts from its waking until long after it sleeps again, so what it costs to
//! hand the share over and back is in it.
//!
//! The peer are boxes that each have their part, always: nobody waits, and what one does not need
//! is lost.
//!
//! Non-goals: what the boxes do with TCP ([`crate::sharing`]), faults ([`crate::chaos`]), speed.

mod report;

pub use report::{Report, Row};

use crate::bed::{PORT_B, SERVER};
use crate::fleet::site::Site;
use crate::fleet::{self, Fleet};
use crate::flood::Running;
use crate::narrows::Instance;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, PING, Refusal};
use crate::together::Sampler;
use crate::wires::{address, port};
use crate::{Namespace, Rounds};
use anyhow::{Context, Result, ensure};
use report::Sample;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// The boxes. The last one sleeps and wakes.
pub(crate) const BOXES: usize = 4;
const SLEEPER: usize = BOXES - 1;
/// The limit of all boxes, in bits per second, and the part of each.
pub(crate) const LIMIT: f64 = 40e6;
pub(crate) const PART: f64 = LIMIT / BOXES as f64;
/// What a box that is awake offers: more than it gets while one sleeps.
const LOAD: f64 = 20e6;
/// The bucket of each box and the limit of its queue, in bytes.
pub(crate) const BURST: u32 = 4_000;
const QUEUE: u32 = 60_000;
/// Queues of each box.
const QUEUES: u32 = 2;
/// A box has its share from when on it delivers this part of it over so long.
pub(crate) const NEAR: f64 = 0.95;
pub(crate) const KEPT: Duration = Duration::from_millis(50);
/// How long a network or a policy lasts before a box wakes. An instance whose limit is new counts
/// for 3 s what it owns as lent.
const SETTLING: Duration = Duration::from_millis(4_500);
/// How much longer than it takes a load may last, if nothing ends it.
const SPARE: Duration = Duration::from_secs(60);
/// Pings from one box to another.
const PINGS: &str = "5";

/// What lies between the boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    name: &'static str,
    /// The words of `netem` at the port to each box: one way, since a frame leaves the switch once.
    netem: &'static str,
}

/// The networks that are compared.
pub const NETWORKS: [Network; 4] = [
    Network { name: "one room", netem: "delay 0ms" },
    TWENTY_MS,
    Network { name: "20 ms apart, 1 % lost", netem: "delay 20ms loss 1%" },
    Network { name: "200 ms apart", netem: "delay 200ms" },
];

/// That of which most is asked.
pub const TWENTY_MS: Network = Network { name: "20 ms apart", netem: "delay 20ms" };

/// What is measured in turn within each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Shared(Network),
    Divided,
}

impl Cell {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Shared(network) => network.name,
            Self::Divided => "a quarter each",
        }
    }
}

/// The words of `narrows tc` for each box.
pub(crate) fn tbf(cell: Cell) -> String {
    let (rate, share) = match cell {
        Cell::Shared(_) => (LIMIT, format!(" fleet line boxes {BOXES}")),
        Cell::Divided => (PART, String::new()),
    };
    format!("qdisc replace dev {PORT_B} root tbf rate {rate}bit burst {BURST} limit {QUEUE}{share}")
}

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL, PING])?;
    fleet::check()
}

/// Runs it over `networks` with `agent` as the boxes' agent, with its progress on standard error.
pub fn run(options: &Rounds, agent: &Path, networks: &[Network]) -> Result<Report> {
    check()?;
    ensure!(options.rounds > 0, "at least one round, not 0");
    fleet::check_agent(agent)?;
    let cells = || networks.iter().copied().map(Cell::Shared).chain([Cell::Divided]);
    let mut progress = Progress::over(u64::from(options.rounds) * cells().count() as u64);
    let mut boxes = Boxes::up(&options.program, agent)?;
    let mut measured: Vec<(Cell, Vec<Sample>)> = cells().map(|cell| (cell, Vec::new())).collect();
    for round in 1..=options.rounds {
        if round > 1 && progress.is_over() {
            break;
        }
        for (cell, samples) in &mut measured {
            let title = format!("round {round} of {}: {}", options.rounds, cell.name());
            progress.begin(&title);
            let sample = boxes.measure(*cell, options.window).context(title.clone())?;
            progress.end(&format!("{title}: {sample}"));
            samples.push(sample);
        }
    }
    drop(progress);
    Report::new(&measured, boxes.unaccounted()?)
}

/// The boxes, and what lies between them.
struct Boxes {
    sampler: Sampler,
    network: Instance,
    fleet: Fleet,
    // Instances go before their beds.
    sites: Vec<Site>,
}

impl Boxes {
    fn up(program: &Path, agent: &Path) -> Result<Self> {
        let tbf = tbf(Cell::Shared(TWENTY_MS));
        let site = |_| Site::up(program.to_owned(), QUEUES, &tbf);
        let sites = (0..BOXES).map(site).collect::<Result<Vec<_>>>()?;
        let shapers = sites.iter().map(|site| site.bed.shaper().clone()).collect();
        let mut fleet = Fleet::over(agent, shapers)?;
        let network = fleet.carry(program)?;
        fleet.start_agents()?;
        let ends: Vec<(&Namespace, &'static str)> =
            sites.iter().map(|site| (site.bed.server(), SERVER)).collect();
        let sampler = Sampler::over(&ends)?;
        Ok(Self { sampler, network, fleet, sites })
    }

    fn set(&mut self, cell: Cell) -> Result<()> {
        let words = tbf(cell);
        self.sites.iter_mut().try_for_each(|site| site.instance()?.tc(&words).map(drop))?;
        let Cell::Shared(network) = cell else { return Ok(()) };
        (0..BOXES).try_for_each(|number| {
            let words = format!("qdisc replace dev {} root netem {}", port(number), network.netem);
            self.network.tc(&words).map(drop)
        })
    }

    fn measure(&mut self, cell: Cell, window: Duration) -> Result<Sample> {
        self.set(cell)?;
        let wake = |site: &Site| site.flood(LOAD, SETTLING + window * 2 + SPARE);
        let awake = self.sites[..SLEEPER].iter().map(wake).collect::<Result<Vec<_>>>()?;
        sleep(SETTLING);
        let round_trip = match cell {
            Cell::Shared(_) => Some(self.round_trip()?),
            Cell::Divided => None,
        };
        let from = self.sampler.now();
        let woken = wake(&self.sites[SLEEPER])?;
        sleep(window);
        woken.stop()?;
        sleep(window);
        let to = self.sampler.now();
        awake.into_iter().try_for_each(|load| Running::stop(load).map(drop))?;
        Ok(Sample::new(round_trip, &self.sampler.samples(), [from, to], window))
    }

    /// The mean round trip from one box to another, in milliseconds.
    fn round_trip(&self) -> Result<f64> {
        let to = address(1).to_string();
        let said = self.fleet.namespace(0).run("ping", &["-n", "-c", PINGS, "-i", "0.2", &to])?;
        mean(&said).with_context(|| format!("ping did not end with its summary: {said}"))
    }

    /// Packets that are missing at all boxes, once nothing comes any more.
    fn unaccounted(mut self) -> Result<u64> {
        let missing = |site: &mut Site| Ok(site.unaccounted()?.unsigned_abs());
        self.sites.iter_mut().map(missing).sum()
    }
}

/// The mean of what `ping` sums up.
fn mean(text: &str) -> Option<f64> {
    let summary = text.lines().find(|line| line.starts_with("rtt "))?;
    summary.split(" = ").nth(1)?.split('/').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_a_ping_is_read() {
        let text = "3 packets transmitted, 3 received\n\
                    rtt min/avg/max/mdev = 40.113/40.251/40.402/0.118 ms\n";
        assert_eq!(mean(text), Some(40.251));
        assert_eq!(mean("3 packets transmitted, 0 received"), None);
    }

    #[test]
    fn boxes_share_a_limit_or_have_a_part_each() {
        let shared = tbf(Cell::Shared(TWENTY_MS));
        assert!(shared.contains("rate 40000000bit") && shared.ends_with("fleet line boxes 4"));
        let divided = tbf(Cell::Divided);
        assert!(divided.contains("rate 10000000bit") && !divided.contains("fleet"), "{divided}");
    }
}
