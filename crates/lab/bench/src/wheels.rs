//! The cost of holding packets until their departure: timing wheels and their peers.
//!
//! All structures do the same [work](work) with the same [flows](plan), on one thread and over a
//! virtual clock; they take turns within each repeat, ratios are taken within a repeat, and the
//! median over the repeats counts. Before each measurement a structure has all its packets pass
//! twice, or [`WARM_MOST`] of them, so that it does not pay for the caches that the one before it
//! has used.
//!
//! Whether packets leave [on time](witness) is checked in a separate run, as long as the slowest
//! flow needs for one packet, so the check does not affect the costs.
//!
//! *What favours structures with coarse slots:* bursts have no cost here, although they fill queues
//! downstream. *What does not:* the savings of sending many packets at once are missing as well,
//! because nothing is sent.
//!
//! *The cost of memory.* With many flows, packets and flows are in no near cache. `order` shows
//! that cost, because it knows the next packets beforehand ([`order`]).
//!
//! *After a pause* a packet should cost the same as always ([`gap`]).
//!
//! *Memory* is each structure's own, without packets and flows; untouched memory does not count. A
//! structure with a slot for everything within its horizon keeps touching new ones until it has
//! turned once; these page faults are included. What structures take with the paper's parameters is
//! [weighed](Weighed) apart.
//!
//! Non-goals: who stamps packets, real rings, several cores.

mod fair;
mod footprint;
mod gap;
mod heap;
mod line;
mod order;
mod plan;
mod rates;
mod report;
mod subject;
mod witness;
mod work;

pub use footprint::{Footprint, Row as MemoryRow, Weighed};
pub use gap::Row as GapRow;
pub use plan::Plan;
pub use rates::Rates;
pub use report::{Report, Row, header};
pub use subject::{Mode, Subject, Work};
pub use witness::Findings;

use crate::callgrind::{self, Program};
use crate::processor;
use crate::qdisc::median;
use anyhow::{Context, Result};

/// The default numbers of flows.
pub const FLOWS: [u32; 4] = [16, 1024, 100_000, 1_000_000];
/// The most packets that a structure is warmed up with: they bring more memory than any cache
/// holds.
pub const WARM_MOST: u64 = 400_000;
/// Packets for which instructions are counted, after a warm-up of the whole backlog.
const COUNTED: u64 = 100_000;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The numbers of flows.
    pub flows: Vec<u32>,
    /// Packets through each structure in one repeat.
    pub packets: u64,
    /// Repeats, at least one.
    pub repeats: usize,
    /// The most packets that are watched.
    pub watched: u64,
    /// What to run under valgrind: a program that takes a structure's name, flows, rates, mode and
    /// packets, and does [`Work::run`]. None to count no instructions.
    pub counted: Option<Program>,
    /// What weighs a structure in a process of its own: a program that takes a structure's name and
    /// the length of a slot in nanoseconds, and prints [`Weighed::measure`] as JSON. None to weigh
    /// nothing.
    pub weighed: Option<Program>,
}

impl Default for Options {
    fn default() -> Self {
        // The slowest flow of a mix sends a packet about every 10 million.
        Self {
            flows: FLOWS.to_vec(),
            packets: 100_000,
            repeats: 21,
            watched: 12_000_000,
            counted: None,
            weighed: None,
        }
    }
}

/// The number of calls of `begin`.
pub fn steps(options: &Options) -> u64 {
    let groups = options.flows.len() * Rates::ALL.len() * Mode::ALL.len();
    let counts = if options.counted.is_some() { Subject::ALL.len() } else { 0 };
    (groups * (2 + counts)) as u64 + 1 + u64::from(options.weighed.is_some())
}

/// Measures. Calls `begin` with the title of each step at its start, and `measured` with the rows
/// of each group as soon as they are complete, because a run is long and may be interrupted.
pub fn run(
    options: &Options,
    mut begin: impl FnMut(&str),
    mut measured: impl FnMut(&[Row]),
) -> Result<Report> {
    let mut rows = Vec::new();
    for &flows in &options.flows {
        for rates in Rates::ALL {
            let plan = Plan::new(flows, rates)?;
            for mode in Mode::ALL {
                let group = format!("{flows} flows, {}, {}", rates.name(), mode.name());
                begin(&format!("{group}: in turns"));
                let mut group_rows = Vec::with_capacity(Subject::ALL.len());
                for (subject, time) in Subject::ALL.into_iter().zip(times(&plan, mode, options)) {
                    let names = [subject.name(), rates.name(), mode.name()];
                    group_rows.push(Row::new(names, flows, &time));
                }
                begin(&format!("{group}: watched"));
                for (subject, row) in Subject::ALL.into_iter().zip(&mut group_rows) {
                    let watched = plan.round().min(options.watched);
                    let findings = subject.check(&plan, mode, watched);
                    let findings =
                        findings.with_context(|| format!("{group}: {}", row.structure))?;
                    row.set_findings(&findings, subject.keeps_time());
                }
                if let Some(program) = &options.counted {
                    for row in &mut group_rows {
                        begin(&format!("{group}: instructions of {}", row.structure));
                        match instructions(program, row, plan.packets()) {
                            Ok(number) => row.instructions_per_packet = Some(number),
                            Err(why) => row.uncounted = Some(format!("{why:#}")),
                        }
                    }
                }
                measured(&group_rows);
                rows.append(&mut group_rows);
            }
        }
    }
    begin("after a pause");
    let gaps = gap::run(options.repeats);
    let mut memory = Vec::new();
    if let Some(program) = &options.weighed {
        begin("memory");
        memory = footprint::run(program)?;
    }
    Ok(Report { rows, gaps, memory, notes: report::notes(options.counted.is_some()) })
}

/// The measurements of a structure.
struct Time {
    ns_per_packet: f64,
    best_ns_per_packet: f64,
    ratio_to_flowbundler: f64,
    memory: usize,
}

/// The times of all structures; the first is the reference.
fn times(plan: &Plan, mode: Mode, options: &Options) -> Vec<Time> {
    let mut works = Subject::ALL.map(|subject| Work::new(subject, plan, mode));
    let mut costs = works.each_ref().map(|_| Vec::with_capacity(options.repeats));
    for _ in 0..options.repeats {
        for (work, costs) in works.iter_mut().zip(&mut costs) {
            work.run((2 * plan.packets()).min(WARM_MOST));
            let start = processor::time();
            let packets = work.run(options.packets);
            costs.push((processor::time() - start) as f64 / packets as f64);
        }
    }
    let own = costs[0].clone();
    let measured = works.iter().zip(costs);
    measured
        .map(|(work, costs)| {
            let ratios = costs.iter().zip(&own).map(|(cost, own)| cost / own);
            Time {
                ratio_to_flowbundler: median(ratios.collect()),
                best_ns_per_packet: costs.iter().copied().fold(f64::INFINITY, f64::min),
                ns_per_packet: median(costs),
                memory: work.memory(),
            }
        })
        .collect()
}

fn instructions(program: &Program, row: &Row, packets: u64) -> Result<f64> {
    let mut program = program.clone();
    let words = [row.structure, &row.flows.to_string(), row.rates, row.mode].map(str::to_owned);
    program.arguments.extend(words);
    let few = packets.min(COUNTED);
    callgrind::per_packet(&program, few, few + COUNTED)
}
