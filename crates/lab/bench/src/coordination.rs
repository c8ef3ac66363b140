//! The cost of sharing a limit: the strategies compared, with real threads.
//!
//! Each thread has a core of its own and does the steps of a worker: it reads the clock once,
//! enqueues a batch of packets, dequeues those that may leave and recycles them, over a `tbf` with
//! a meter at a limit that all threads share. Two [loads](Load): far below the limit, for the cost
//! of a packet and its growth with the number of threads; and limited by it, for exactness and
//! fairness.
//!
//! *Systems.* Beside the strategies there is one queue for all threads behind one lock
//! (`qdisc-lock`): what a qdisc at the root of a device is.
//!
//! *Comparable.* Systems take turns within each round, ratios are taken within a round, and
//! the median over the rounds counts. Every trial closes its books: packets that arrived have left,
//! were dropped or are still queued, or the run fails.
//!
//! *Undisturbed.* How often a meter touches what others write is counted in trials of their own,
//! so that counting costs nothing if time is taken.
//!
//! The report also has the two costs of a [shared cache line](line) on this machine, by number of
//! threads: the contention of every strategy consists of these. The simulator's cores pay them.
//!
//! Non-goals: rings and drivers (`narrows bench forward`), uneven load (`narrows bench uneven` with
//! real packets, the simulator with virtual time).

pub(crate) mod cores;
mod lane;
mod line;
mod load;
mod report;
mod system;
mod trial;

pub use load::Load;
pub use report::{LineCosts, Machine, Report, Row};
pub use system::System;

use crate::qdisc::median;
use anyhow::{Context, Result, ensure};
use cores::Cores;
use narrows_coordination::Strategy;
use narrows_units::counted;
use std::time::Duration;
use trial::{Outcome, Trial};

/// The most threads that a run may have.
pub const MAX_THREADS: usize = 1024;

/// How long to count contacts, at most: they are the same in every second.
const COUNTED_AT_MOST: Duration = Duration::from_millis(200);

/// How to run it.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The most threads, 1 to [`MAX_THREADS`]; none for as many as this process may run at once.
    pub threads: Option<usize>,
    /// How long each strategy is measured under each load with each number of threads, in a
    /// round. Not zero.
    pub window: Duration,
    /// How often all of it is repeated, at least once.
    pub rounds: usize,
}

/// A benchmark that is ready to run.
#[derive(Debug)]
pub struct Bench {
    cores: Cores,
    /// The numbers of threads to measure with, from 1 upwards.
    threads: Vec<usize>,
    window: Duration,
    rounds: usize,
}

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug)]
struct Cell {
    system: System,
    load: Load,
    threads: usize,
}

impl Bench {
    /// Finds out what this machine offers. Fails on options out of their ranges, and where the
    /// kernel does not say which cores there are.
    pub fn new(options: Options) -> Result<Self> {
        let cores = Cores::allowed().context("cannot find out which cores may be used")?;
        let most = options.threads.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, usize::from).min(cores.len())
        });
        ensure!((1..=MAX_THREADS).contains(&most), "1 to {MAX_THREADS} threads, not {most}");
        ensure!(options.rounds > 0, "at least one round, not 0");
        ensure!(!options.window.is_zero(), "a window longer than 0 s");
        Ok(Self { cores, threads: steps(most), window: options.window, rounds: options.rounds })
    }

    /// How many trials it consists of.
    pub fn trials(&self) -> u64 {
        self.cells().len() as u64 * (self.rounds as u64 + 1)
    }

    /// Measures. Calls `begin` with the title of each trial at its start.
    pub fn run(&self, mut begin: impl FnMut(&str)) -> Result<Report> {
        let cells = self.cells();
        let mut contacts = Vec::with_capacity(cells.len());
        for cell in &cells {
            begin(&format!("contacts of {}", title(cell)));
            let watched = self.trial(cell, true, self.window.min(COUNTED_AT_MOST))?;
            contacts.push(watched.contact_per_packet());
        }
        let mut rounds = Vec::with_capacity(self.rounds);
        for round in 1..=self.rounds {
            let mut outcomes = Vec::with_capacity(cells.len());
            for cell in &cells {
                begin(&format!("round {round} of {}: {}", self.rounds, title(cell)));
                outcomes.push(self.trial(cell, false, self.window)?);
            }
            rounds.push(outcomes);
        }
        let rows = cells.iter().enumerate();
        let rows = rows.map(|(at, cell)| row(at, cell, &cells, &rounds, contacts[at])).collect();
        let most = self.most_threads();
        Ok(Report {
            machine: Machine {
                cpu: narrows_cpu::model(),
                cores: self.cores.len(),
                physical_cores: self.cores.physical(),
            },
            notes: report::notes(&self.cores, most),
            curve: line::curve(&self.cores, &self.threads)?,
            rows,
        })
    }

    fn most_threads(&self) -> usize {
        self.threads.iter().copied().max().unwrap_or(1)
    }

    /// Everything that is measured in a round, in this order: systems take turns.
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for load in Load::ALL {
            for &threads in &self.threads {
                cells.extend(System::all().map(|system| Cell { system, load, threads }));
            }
        }
        cells
    }

    fn trial(&self, cell: &Cell, watched: bool, window: Duration) -> Result<Outcome> {
        let Cell { system, load, threads } = *cell;
        let trial = Trial { system, load, threads, window, watched };
        trial.run(&self.cores).with_context(|| title(cell))
    }
}

/// 1, 2, 4, ... and `most`.
fn steps(most: usize) -> Vec<usize> {
    let mut steps: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most).collect();
    steps.push(most);
    steps
}

fn title(cell: &Cell) -> String {
    let Cell { system, load, threads } = cell;
    format!("{}, {}, {}", load.name(), system.name(), counted(*threads, "thread"))
}

/// The row of the cell with number `at`, from all outcomes by round and cell.
fn row(
    at: usize,
    cell: &Cell,
    cells: &[Cell],
    rounds: &[Vec<Outcome>],
    (contact_reads, contact_updates): (f64, f64),
) -> Row {
    let over_rounds = |figure: &dyn Fn(&[Outcome]) -> f64| {
        median(rounds.iter().map(|outcomes| figure(outcomes)).collect())
    };
    let number = |system: System, threads: usize| {
        cells.iter().position(|other| {
            other.system == system && other.load == cell.load && other.threads == threads
        })
    };
    let to = |other: Option<usize>, figure: &dyn Fn(&Outcome) -> f64| {
        other.map(|other| over_rounds(&|round| figure(&round[at]) / figure(&round[other])))
    };
    let bound = cell.load == Load::Bound;
    let alone = number(cell.system, 1);
    let mpps = over_rounds(&|round| round[at].mpps());
    Row {
        strategy: cell.system.name(),
        load: cell.load.name(),
        threads: cell.threads,
        mpps,
        mpps_per_thread: mpps / cell.threads as f64,
        ns_per_packet: over_rounds(&|round| round[at].ns_per_packet()),
        ratio_to_lock: to(
            number(System::Strategy(Strategy::Lock), cell.threads),
            &Outcome::ns_per_packet,
        ),
        scaling_percent: to(alone, &Outcome::mpps)
            .filter(|_| !bound)
            .map(|gain| gain / cell.threads as f64 * 100.0),
        deviation_percent: bound.then(|| over_rounds(&|round| round[at].deviation_percent())),
        jain: over_rounds(&|round| round[at].jain()),
        contact_reads_per_packet: contact_reads,
        contact_updates_per_packet: contact_updates,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_up_to_the_most() {
        assert_eq!(steps(1), [1]);
        assert_eq!(steps(2), [1, 2]);
        assert_eq!(steps(8), [1, 2, 4, 8]);
        assert_eq!(steps(12), [1, 2, 4, 8, 12]);
    }

    #[test]
    fn options_out_of_range_are_refused_in_words() {
        let options = Options { threads: Some(1), window: Duration::from_millis(1), rounds: 1 };
        for (refused, why) in [
            (Options { threads: Some(0), ..options }, "1 to 1024 threads, not 0"),
            (Options { threads: Some(1025), ..options }, "1 to 1024 threads, not 1025"),
            (Options { rounds: 0, ..options }, "at least one round, not 0"),
            (Options { window: Duration::ZERO, ..options }, "a window longer than 0 s"),
        ] {
            assert_eq!(Bench::new(refused).unwrap_err().to_string(), why);
        }
    }
}
