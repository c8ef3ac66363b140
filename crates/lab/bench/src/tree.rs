//! The cost per packet of a tree of classes, compared with DPDK's `rte_sched` and a FIFO.
//!
//! All structures do the same [work](work) with packets of 1500 bytes, on one thread and over a
//! virtual clock; they take turns within each repeat, ratios are taken within a repeat, and the
//! median over the repeats counts. Before each measurement all packets of a structure pass twice,
//! so that it does not pay for caches that the previous one has used. Then several
//! [threads](threads) work on one tree, each with packets and a queue of its own, over the
//! machine's clock.
//!
//! *Depth* is how many classes are above a leaf. `rte_sched` always has four above a queue: port,
//! subport, pipe, traffic class.
//!
//! *Four loads* ([`Load`]). `free`: credits are checked at every level and always suffice. That is
//! what `rte_sched` does here, whose own limits cannot bind in virtual time
//! ([`cake`](crate::cake)); both are asked for 32 packets a turn. `bound`: the root's rate binds,
//! and each leaf waits for its share of it. `ceil`: each leaf waits for its own ceiling. `mixed`:
//! the root's rate binds, half of the leaves are at their ceilings, and the others borrow the rest.
//!
//! *Memory* is the growth of a separate process's resident size once the structure is built
//! ([`Footprint`]): with all leaves idle, and after each has had packets.
//!
//! Non-goals: real rings, accuracy of rates.

pub(crate) mod footprint;
mod report;
mod shape;
mod subject;
mod threads;
mod work;

pub use footprint::Footprint;
pub use report::{Report, Row};
pub use shape::{Load, Shape};
pub use subject::Subject;
pub use work::{Counts, Work};

use crate::callgrind::Program;
use crate::processor;
use crate::qdisc::median;
use anyhow::Result;
use narrows_peers::rte_sched;
use std::time::Duration;

/// The numbers of leaf classes that are measured.
pub const CLASSES: [u32; 4] = [16, 1024, 65_536, 1_000_000];
/// Classes above each leaf.
const DEPTHS: [u32; 2] = [1, 4];
/// Of `rte_sched`.
const PEERS_DEPTH: u32 = 4;
/// Leaves with packets where the others are idle.
const FEW: u32 = 1024;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of leaf classes.
    pub classes: Vec<u32>,
    /// Those of them that are measured; the floor and `rte_sched` always are.
    pub structures: Vec<Subject>,
    /// What holds packets back.
    pub loads: Vec<Load>,
    /// Packets through each structure in one repeat.
    pub packets: u64,
    /// Repeats, at least one.
    pub repeats: usize,
    /// The most threads; 1, 2, 4 and so on are measured. One for each core unless given.
    pub threads: Option<usize>,
    /// How long threads work for each row.
    pub window: Duration,
    /// A program that takes a structure, classes, depth, active classes and load, and prints a
    /// [`Footprint`].
    pub weighed: Program,
}

/// One structure in one shape.
type Cell = (Subject, Shape);

/// The compared structures, the floor first.
fn group(classes: u32, options: &Options) -> Vec<Cell> {
    let peers = [(Subject::Fifo, 0), (Subject::RteSched, PEERS_DEPTH)];
    let mut cells: Vec<Cell> =
        peers.map(|(subject, depth)| (subject, Shape::busy(classes, depth, Load::Free))).into();
    for &load in &options.loads {
        for depth in DEPTHS {
            cells.push((Subject::TreeFifo, Shape::busy(classes, depth, load)));
            if classes > FEW {
                let active = FEW;
                cells.push((Subject::TreeFifo, Shape { classes, depth, active, load }));
            }
            cells.push((Subject::TreeCake, Shape::busy(classes, depth, load)));
            cells.push((Subject::HfscFifo, Shape::busy(classes, depth, load)));
        }
    }
    let is_peer = |subject| peers.iter().any(|(peer, _)| *peer == subject);
    cells.retain(|(subject, _)| is_peer(*subject) || options.structures.contains(subject));
    cells
}

/// The number of calls of `begin`.
pub fn steps(options: &Options) -> u64 {
    2 * options.classes.len() as u64
}

/// Measures. Calls `begin` with the title of each step at its start.
pub fn run(options: &Options, mut begin: impl FnMut(&str)) -> Result<Report> {
    let absent = rte_sched::available().err().map(|why| why.to_string());
    let mut rows = Vec::new();
    for &classes in &options.classes {
        begin(&format!("{classes} classes, one thread"));
        let mut group: Vec<(Cell, Row)> = group(classes, options)
            .into_iter()
            .map(|(subject, shape)| ((subject, shape), Row::new(subject, shape, 1)))
            .collect();
        for ((subject, shape), row) in &mut group {
            let why = match (&absent, *subject) {
                (Some(why), Subject::RteSched) => Some(why.clone()),
                (None, Subject::RteSched) if classes > rte_sched::PIPES_MOST => {
                    Some(format!("has at most {} pipes", rte_sched::PIPES_MOST))
                }
                _ => footprint::shortage(&options.weighed, *subject, *shape)?,
            };
            match why {
                Some(why) => row.absent = Some(why),
                None => row.set_memory(Footprint::of(&options.weighed, *subject, *shape)?, *shape),
            }
        }
        time(&mut group, options)?;
        begin(&format!("{classes} classes, threads"));
        let present: Vec<Cell> = group
            .iter()
            .filter(|((_, shape), row)| {
                row.absent.is_none() && shape.load == Load::Free && shape.active == shape.classes
            })
            .map(|(cell, _)| *cell)
            .collect();
        rows.extend(group.into_iter().map(|(_, row)| row));
        for (subject, shape) in present {
            if subject.below().is_some() {
                rows.extend(threads::rows(subject, shape, options)?);
            }
        }
    }
    Ok(Report { rows, notes: report::notes(absent.as_deref()) })
}

/// Sets the times of all that are there, in turns.
fn time(group: &mut [(Cell, Row)], options: &Options) -> Result<()> {
    let mut works = Vec::new();
    for ((subject, shape), row) in group.iter_mut() {
        if row.absent.is_some() {
            continue;
        }
        match Work::new(*subject, *shape) {
            Ok(work) => works.push((work, Vec::with_capacity(options.repeats), row)),
            Err(why) => row.absent = Some(format!("{why:#}")),
        }
    }
    for _ in 0..options.repeats {
        for (work, costs, _) in &mut works {
            work.run(work.round());
            let start = processor::time();
            let packets = work.run(options.packets);
            costs.push((processor::time() - start) as f64 / packets as f64);
        }
    }
    let costs_of = |name: &str| {
        let found = works.iter().find(|(_, _, row)| row.structure == name);
        found.map(|(_, costs, _)| costs.clone())
    };
    let (fifo, peer) = (costs_of("fifo"), costs_of("rte_sched"));
    for (work, costs, row) in works {
        let ratio = |to: &Option<Vec<f64>>| {
            let to = to.as_ref()?;
            Some(median(costs.iter().zip(to).map(|(cost, to)| cost / to).collect()))
        };
        let counts = work.counts();
        row.ratio_to_fifo = ratio(&fifo);
        row.ratio_to_rte_sched = ratio(&peer);
        row.best_ns_per_packet = Some(costs.iter().copied().fold(f64::INFINITY, f64::min));
        row.dropped_percent = Some(100.0 * counts.dropped as f64 / counts.arrived as f64);
        row.ns_per_packet = Some(median(costs));
    }
    Ok(())
}
