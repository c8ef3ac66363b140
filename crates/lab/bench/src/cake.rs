//! What `cake` costs a packet, beside a FIFO and DPDK's `rte_sched`.
//!
//! All structures do the same [work](work) with the same [frames](frames), on one thread and over a
//! virtual clock; they take turns within each repeat, ratios are taken within a repeat, and the
//! median over the repeats counts. Before each measurement a structure has all its packets pass
//! twice, so that it does not pay for the caches that the one before it has used.
//!
//! *What the figure includes:* everything from arrival to departure. For `fifo`, the floor, the
//! packet's entry in the packet table and its place in the queue. For `cake`, also reading and
//! hashing the headers of every frame, as a worker does it. For `rte_sched`, the packet's length in
//! its `rte_mbuf`, `rte_sched_port_pkt_write`, `rte_sched_port_enqueue` and
//! `rte_sched_port_dequeue`, 32 at a time.
//!
//! *What favours `rte_sched`:* it reads no frames, because a packet's number gives its pipe; its
//! `rte_mbuf`s are adjacent; each flow has its own pipe (4096 pipes, 65,536 for as many flows), the
//! one level that treats thousands alike; all that it has is in huge pages, where here only tables
//! are.
//!
//! *Limits.* `cake` shapes to 100 Gbit/s, and the clock keeps that binding: each turn ends with a
//! packet that may not leave yet. `rte_sched` takes its time from the processor and advances it
//! with the packets that it sends, so its own limit cannot bind in virtual time: its port, subport
//! and pipes have 100 Gbit/s, credits are checked for every packet on every level and always
//! suffice, and it is asked for 32 packets a turn, as is `fifo`.
//!
//! `cake` may drop: drops are counted, and the dropped packets arrive again.
//!
//! Non-goals: several cores, real rings, accuracy of rates.

pub(crate) mod frames;
mod report;
mod subject;
mod work;

pub use report::{Report, Row};
pub use subject::Subject;
pub use work::{Counts, Work};

use crate::callgrind::{self, Program};
use crate::processor;
use crate::qdisc::median;
use anyhow::Result;
use narrows_peers::rte_sched;

/// The numbers of flows that are measured.
pub const FLOWS: [u32; 4] = [1, 32, 1024, 65_536];

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Packets through each structure in one repeat.
    pub packets: u64,
    /// Repeats, at least one.
    pub repeats: usize,
    /// What to run under valgrind: a program that takes a structure's name, flows and packets,
    /// and does [`Work::run`]. None to count no instructions.
    pub counted: Option<Program>,
}

/// The number of calls of `begin`.
pub fn steps(options: &Options) -> u64 {
    let counts = if options.counted.is_some() { Subject::ALL.len() } else { 0 };
    (FLOWS.len() * (1 + counts)) as u64
}

/// Measures. Calls `begin` with the title of each step at its start.
pub fn run(options: &Options, mut begin: impl FnMut(&str)) -> Result<Report> {
    let absent = rte_sched::available().err().map(|why| why.to_string());
    let mut rows = Vec::new();
    for flows in FLOWS {
        begin(&format!("{flows} flows, in turns"));
        let subjects = Subject::ALL.map(|subject| match &absent {
            Some(why) if subject == Subject::RteSched => Err(why.clone()),
            _ => Ok(subject),
        });
        let present: Vec<Subject> = subjects.iter().flatten().copied().collect();
        let mut times = times(&present, flows, options)?.into_iter();
        for (subject, presence) in Subject::ALL.into_iter().zip(subjects) {
            let mut row = Row::new(subject.name(), flows);
            match presence {
                Ok(_) => {
                    if let Some(time) = times.next() {
                        row.set_time(time);
                    }
                }
                Err(why) => row.absent = Some(why),
            }
            rows.push(row);
        }
    }
    if let Some(program) = &options.counted {
        for row in &mut rows {
            begin(&format!("{} flows, instructions of {}", row.flows, row.structure));
            if row.absent.is_none() {
                match instructions(program, row.structure, row.flows) {
                    Ok(number) => row.instructions_per_packet = Some(number),
                    Err(why) => row.uncounted = Some(format!("{why:#}")),
                }
            }
        }
    }
    Ok(Report { rows, notes: report::notes(absent.as_deref(), options.counted.is_some()) })
}

/// The measurements of a structure.
struct Time {
    ns_per_packet: f64,
    best_ns_per_packet: f64,
    ratio_to_fifo: f64,
    dropped_percent: f64,
}

/// The times of `subjects`, the first of which is the floor.
fn times(subjects: &[Subject], flows: u32, options: &Options) -> Result<Vec<Time>> {
    let works = subjects.iter().map(|subject| Work::new(*subject, flows));
    let mut works = works.collect::<Result<Vec<Work>>>()?;
    let mut costs = vec![Vec::with_capacity(options.repeats); works.len()];
    for _ in 0..options.repeats {
        for (work, costs) in works.iter_mut().zip(&mut costs) {
            work.run(2 * work.packets());
            let start = processor::time();
            let packets = work.run(options.packets);
            costs.push((processor::time() - start) as f64 / packets as f64);
        }
    }
    let floor = costs.first().cloned().unwrap_or_default();
    Ok(works
        .iter()
        .zip(costs)
        .map(|(work, costs)| {
            let counts = work.counts();
            let ratios = costs.iter().zip(&floor).map(|(cost, floor)| cost / floor);
            Time {
                ratio_to_fifo: median(ratios.collect()),
                best_ns_per_packet: costs.iter().copied().fold(f64::INFINITY, f64::min),
                ns_per_packet: median(costs),
                dropped_percent: 100.0 * counts.dropped as f64 / counts.arrived as f64,
            }
        })
        .collect())
}

fn instructions(program: &Program, structure: &str, flows: u32) -> Result<f64> {
    let mut program = program.clone();
    program.arguments.extend([structure.to_owned(), flows.to_string()]);
    // Once all packets have passed twice, work is the same in every turn.
    let few = 4 * u64::from(flows.max(1024));
    callgrind::per_packet(&program, few, few + 100_000)
}
