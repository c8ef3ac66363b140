//! Faults at a fleet: boxes that share a limit, whose agents, engines, wires and instances fail.
//!
//! Each [box](crate::fleet::site) stands between a client and a server of its own; agents and NATS
//! servers are those of users. In each epoch the boxes have other loads, and one fault strikes one
//! of them and is undone. At the end of each epoch
//!
//! - the sum that all servers received in any tenth of a second was at most the limit and what the
//!   boxes' buckets hold;
//! - before the fault and after it, each box has what max–min gives to it, within a bound of time:
//!   a share that nobody uses is lost as much as one that is used twice;
//! - every packet has arrived, or was dropped for a reason that something counted; a box whose
//!   instance was killed has no counts of before.
//!
//! Non-goals: what a network does to messages beyond a cut wire, and every order in which faults
//! can meet: the simulator has both (`narrows sim fleet-faults`).

mod event;
mod report;

pub use event::Kind;
pub use report::Report;

use super::rng::Rng;
use crate::bed::{PORT_B, SERVER};
use crate::fleet::site::Site;
use crate::fleet::{self, Fleet, due};
use crate::flood::Running;
use crate::progress::Progress;
use crate::together::Sampler;
use anyhow::{Context, Result};
use event::Event;
use serde::Serialize;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The limit of all boxes, in bits per second.
const LIMIT: f64 = 36e6;
/// The bucket of each box and the limit of its queue, in bytes.
const BURST: u32 = 8_000;
const QUEUE: u32 = 60_000;
/// Queues of each box.
const QUEUES: u32 = 2;
/// What a box may have to send: more than the limit, less than it owns, nothing.
const LOADS: [f64; 3] = [50e6, 4e6, 0.0];
/// Over which time the sum is judged.
const WINDOW: Duration = Duration::from_millis(100);
/// Over which time a share is, and within which part of the limit.
const SHARE_WINDOW: Duration = Duration::from_millis(400);
const NEAR: f64 = 0.05;
/// How soon each box has its share, whatever was before: a lease of 2 s, 3 s in which an instance
/// that has just begun counts as lent what it may have lent, an engine that is found again.
const SETTLED: Duration = Duration::from_secs(9);
const LOOK: Duration = Duration::from_millis(20);
/// The least duration of an epoch: for the number of steps in the progress bar.
const EPOCH: Duration = Duration::from_secs(4);
/// How long a load may last, if nothing ends it.
const SPARE: Duration = Duration::from_secs(60);

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `narrows` program.
    pub program: PathBuf,
    /// The `narrows-fleet` program.
    pub agent: PathBuf,
    /// How many boxes, at least two.
    pub boxes: usize,
    /// The seed.
    pub seed: u64,
    /// How long new events are started.
    pub duration: Duration,
    /// Only these kinds of events; all if there are none.
    pub kinds: Vec<Kind>,
    /// A planted error, for a test of the harness: the first box has the limit for itself alone,
    /// and uses it beside the second.
    pub is_greedy: bool,
}

/// The result of one event.
#[derive(Clone, Debug, Serialize)]
struct Epoch {
    kind: Kind,
    what: String,
    /// After how long each box had its share again.
    settled_ms: f64,
    /// The most bytes that all servers received beyond the limit in a tenth of a second.
    above_bytes: f64,
    unaccounted: u64,
    broken: Vec<String>,
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Options) -> Result<Report> {
    super::check()?;
    fleet::check()?;
    fleet::check_agent(&options.agent)?;
    let mut boxes = Boxes::up(options)?;
    let mut rng = Rng::new(options.seed);
    let started = Instant::now();
    let steps = options.duration.as_millis().div_ceil(EPOCH.as_millis()).max(1);
    let mut progress = Progress::over(u64::try_from(steps)?);
    let kinds = if options.kinds.is_empty() { &Kind::ALL[..] } else { &options.kinds };
    let (mut epochs, mut hand) = (Vec::new(), Vec::new());
    while epochs.is_empty() || started.elapsed() < options.duration {
        if !epochs.is_empty() && progress.is_over() {
            break;
        }
        let Some(kind) = rng.deal(&mut hand, kinds) else { break };
        let mut loads = draw_loads(&mut rng, options.boxes);
        if options.is_greedy {
            loads[..2].fill(LOADS[0]);
        }
        let event = Event::draw(kind, options.boxes, &mut rng);
        progress.begin(&event.to_string());
        let epoch = boxes.epoch(&loads, event).with_context(|| event.to_string())?;
        for broken in &epoch.broken {
            progress.end(&format!("BROKEN: {broken}"));
        }
        epochs.push(epoch);
    }
    drop(progress);
    Ok(Report::new(options.boxes, options.seed, started.elapsed().as_secs(), epochs))
}

/// What each box has to send: one of them at least more than the limit.
fn draw_loads(rng: &mut Rng, boxes: usize) -> Vec<f64> {
    let mut loads: Vec<f64> = (0..boxes).map(|_| rng.pick(&LOADS)).collect();
    loads[rng.below(boxes)] = LOADS[0];
    loads
}

/// What each of the boxes with these loads should have.
fn all_due(loads: &[f64]) -> Vec<f64> {
    due::shares(loads, &vec![true; loads.len()], LIMIT / loads.len() as f64)
}

/// All boxes, with what is between them.
struct Boxes {
    sampler: Sampler,
    fleet: Fleet,
    sites: Vec<Site>,
}

impl Boxes {
    fn up(options: &Options) -> Result<Self> {
        let policy = |number: usize| {
            let is_alone = options.is_greedy && number == 0;
            let shared = format!(" fleet line boxes {}", options.boxes);
            format!(
                "qdisc replace dev {PORT_B} root tbf rate {LIMIT}bit burst {BURST} limit {QUEUE}{}",
                if is_alone { "" } else { &shared }
            )
        };
        let site = |number| Site::up(options.program.clone(), QUEUES, &policy(number));
        let sites = (0..options.boxes).map(site).collect::<Result<Vec<_>>>()?;
        let shapers = sites.iter().map(|site| site.bed.shaper().clone()).collect();
        let mut fleet = Fleet::over(&options.agent, shapers)?;
        fleet.start_agents()?;
        let ends: Vec<_> = sites.iter().map(|site| (site.bed.server(), SERVER)).collect();
        let sampler = Sampler::over(&ends)?;
        Ok(Self { sampler, fleet, sites })
    }

    fn epoch(&mut self, loads: &[f64], event: Event) -> Result<Epoch> {
        self.sites.iter_mut().try_for_each(Site::open_books)?;
        let from = self.sampler.now();
        let mut running: Vec<Running> = Vec::new();
        for (site, &bits) in self.sites.iter().zip(loads) {
            if bits > 0.0 {
                running.push(site.flood(bits, SPARE)?);
            }
        }
        let mut broken = Vec::new();
        let due = all_due(loads);
        self.wait_for(&due, "before the fault", &mut broken);
        event.strike(&mut self.fleet, &mut self.sites)?;
        let settled = self.wait_for(&due, "after the fault", &mut broken);
        let to = self.sampler.now();
        for load in running {
            load.stop()?;
        }
        let above_bytes = self.sampler.samples().excess(LIMIT, WINDOW, from, to).bytes;
        let allowed = f64::from(BURST) * self.sites.len() as f64;
        if above_bytes > allowed {
            broken.push(format!(
                "{above_bytes:.0} bytes above the limit in {} ms, and the buckets hold {allowed}",
                WINDOW.as_millis()
            ));
        }
        let mut unaccounted = 0;
        for (number, site) in self.sites.iter_mut().enumerate() {
            if !event.has_killed(number) {
                unaccounted += site.unaccounted()?.unsigned_abs();
            }
        }
        if unaccounted > 0 {
            broken.push(format!("{unaccounted} packets unaccounted for"));
        }
        let settled_ms = settled.as_secs_f64() * 1e3;
        let what = event.to_string();
        Ok(Epoch { kind: event.kind, what, settled_ms, above_bytes, unaccounted, broken })
    }

    /// Waits until each box has its share, and returns how long that took.
    fn wait_for(&self, due: &[f64], when: &str, broken: &mut Vec<String>) -> Duration {
        let near = |(is, due): (&f64, &f64)| (is - due).abs() <= LIMIT * NEAR;
        let began = self.sampler.now();
        loop {
            let rates = self.sampler.rates(SHARE_WINDOW);
            let took = self.sampler.now() - began;
            let is_read = took >= SHARE_WINDOW && rates.len() == due.len();
            if is_read && rates.iter().zip(due).all(near) {
                return took;
            }
            if took >= SETTLED {
                let mbit = |rates: &[f64]| -> Vec<String> {
                    rates.iter().map(|rate| format!("{:.1}", rate / 1e6)).collect()
                };
                broken.push(format!(
                    "{when}, boxes have {} Mbit/s after {} s, instead of {}",
                    mbit(&rates).join(" / "),
                    SETTLED.as_secs(),
                    mbit(due).join(" / ")
                ));
                return took;
            }
            sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_load_binds_the_limit() {
        let mut rng = Rng::new(7);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let loads = draw_loads(&mut rng, 3);
            assert!((all_due(&loads).iter().sum::<f64>() - LIMIT).abs() < 1.0, "{loads:?}");
            seen.insert(loads.into_iter().map(|load| load as u64).collect::<Vec<_>>());
        }
        assert!(seen.len() > 10, "{seen:?}");
    }
}
