//! The results, as a table and as JSON.

use super::shape::Shape;
use crate::qdisc::median;
use serde::Serialize;
use std::fmt;

/// Everything.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// A row for each program under each load.
    pub rows: Vec<Row>,
    /// What the figures do not show.
    pub notes: Vec<String>,
}

/// One program under one load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name: `empty`, `bucket-percpu`, `bucket-shared`, `bucket-locked`, `tree`,
    /// `tree-followed`, `tree-flowvalve`, `empty-tcx`, `stamp`, `filter`, `filter-crowded`,
    /// `terms`, `edited`, `set`, `spread`, `spread-filter`, `spread-set`, `spread-trie`, and these
    /// four with `-v6`; `set` with `-counters` and `-timeout`, too.
    pub program: &'static str,
    /// `test`: frames end with the program. `live`: they leave by a port.
    pub frames: &'static str,
    /// Classes from the leaf up to the root, both included; 0 without classes.
    pub depth: u32,
    /// CPUs at once.
    pub cpus: usize,
    /// Whether they share a bucket or a leaf.
    pub contended: bool,
    /// Whether the rate is exceeded: `free` or `bound`.
    pub load: &'static str,
    /// Rules of filters, terms, or entries of the set.
    pub entries: u32,
    /// Different masks of them.
    pub masks: u32,
    /// CPU time of a frame on each CPU; the median over all repeats.
    pub ns_per_packet: f64,
    /// CPU time of a frame on each CPU; the least of all repeats: the undisturbed cost on a shared
    /// machine.
    pub best_ns_per_packet: f64,
    /// The time in addition to the empty program on as many CPUs, within each repeat; the median.
    /// For `spread-…`, in addition to `spread`; for `stamp`, in addition to `empty-tcx`.
    pub ns_above_empty: f64,
}

impl Row {
    /// The row of `shape` from the `costs` of all repeats.
    pub(super) fn new(shape: Shape, costs: &[f64], above: f64) -> Self {
        Self {
            program: shape.subject.name(),
            frames: if shape.is_live { "live" } else { "test" },
            depth: shape.depth,
            cpus: shape.cpus,
            contended: shape.contended,
            load: if shape.bound { "bound" } else { "free" },
            entries: shape.entries,
            masks: shape.masks,
            ns_per_packet: median(costs.to_vec()),
            best_ns_per_packet: costs.iter().copied().fold(f64::INFINITY, f64::min),
            ns_above_empty: above,
        }
    }
}

/// Notes on a run on a machine with this many physical cores.
pub(super) fn notes(physical: usize) -> Vec<String> {
    vec![format!("{physical} physical cores; all that they share with others shows in the figures")]
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<22} {:<6} {:>5} {:>4} {:<9} {:<5} {:>7} {:>5} {:>9} {:>7} {:>11}",
            "program",
            "frames",
            "depth",
            "cpus",
            "contended",
            "load",
            "entries",
            "masks",
            "ns/packet",
            "best",
            "above empty"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "{:<22} {:<6} {:>5} {:>4} {:<9} {:<5} {:>7} {:>5} {:>9.1} {:>7.1} {:>11.1}",
                row.program,
                row.frames,
                row.depth,
                row.cpus,
                if row.contended { "yes" } else { "no" },
                row.load,
                row.entries,
                row.masks,
                row.ns_per_packet,
                row.best_ns_per_packet,
                row.ns_above_empty
            )?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}
