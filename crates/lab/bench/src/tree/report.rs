//! The results, as a table and as JSON.

use super::footprint::Footprint;
use super::shape::Shape;
use super::subject::Subject;
use serde::Serialize;
use std::fmt;

/// Everything.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// A row for each structure and shape, and number of threads.
    pub rows: Vec<Row>,
    /// What the figures do not show.
    pub notes: Vec<String>,
}

/// One structure in one shape.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub structure: &'static str,
    /// The load: `free`, `bound`, `ceil` or `mixed`.
    pub load: &'static str,
    /// Classes above each leaf.
    pub depth: u32,
    /// Leaf classes.
    pub classes: u32,
    /// The classes that have packets.
    pub active: u32,
    /// Threads that share the tree.
    pub threads: usize,
    /// `virtual`, or `real` if there are threads.
    pub clock: &'static str,
    /// Enqueue and dequeue, in a thread's CPU time; the median over all repeats.
    pub ns_per_packet: Option<f64>,
    /// Enqueue and dequeue, in a thread's CPU time; the least of all repeats: the undisturbed cost
    /// on a shared machine.
    pub best_ns_per_packet: Option<f64>,
    /// Nanoseconds divided by those of `fifo`, within each repeat; the median.
    pub ratio_to_fifo: Option<f64>,
    /// Nanoseconds divided by those of `rte_sched`, within each repeat; the median.
    pub ratio_to_rte_sched: Option<f64>,
    /// Million packets per second, all threads together.
    pub mpps: Option<f64>,
    /// Memory for each leaf, once each that is active has had packets: packets included, as well as
    /// what there is once.
    pub bytes_per_class: Option<f64>,
    /// Memory of the tree per leaf before any traffic.
    pub bytes_per_idle_class: Option<f64>,
    /// How many of the packets that arrived were dropped.
    pub dropped_percent: Option<f64>,
    /// Why it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

impl Row {
    /// One of which nothing is known yet.
    pub(super) fn new(subject: Subject, shape: Shape, threads: usize) -> Self {
        Self {
            structure: subject.name(),
            load: shape.load.name(),
            depth: shape.depth,
            classes: shape.classes,
            active: shape.active,
            threads,
            clock: "virtual",
            ns_per_packet: None,
            best_ns_per_packet: None,
            ratio_to_fifo: None,
            ratio_to_rte_sched: None,
            mpps: None,
            bytes_per_class: None,
            bytes_per_idle_class: None,
            dropped_percent: None,
            absent: None,
        }
    }

    pub(super) fn set_memory(&mut self, footprint: Footprint, shape: Shape) {
        let each = |bytes: u64| bytes as f64 / f64::from(shape.classes);
        self.bytes_per_class = Some(each(footprint.used));
        self.bytes_per_idle_class = (footprint.idle > 0).then(|| each(footprint.idle));
    }
}

/// Notes on a run.
pub(super) fn notes(absent: Option<&str>) -> Vec<String> {
    let mut notes = vec![
        "rte_sched is unthrottled and told each packet's pipe, as trees are told each packet's \
         class: compare it with the rows whose load is free"
            .to_owned(),
        "fifo and rte_sched have one shape, whatever the depth".to_owned(),
    ];
    if let Some(why) = absent {
        notes.push(format!("rte_sched is absent: {why}"));
    }
    if cfg!(debug_assertions) {
        notes.push("built without optimisation: build with --release to measure".to_owned());
    }
    notes
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>8} {:>8}  {:<10} {:<6} {:>5} {:>7} {:>10} {:>8} {:>8} {:>8} {:>7} {:>8} {:>8}",
            "classes",
            "active",
            "structure",
            "load",
            "depth",
            "threads",
            "ns/packet",
            "best",
            "to fifo",
            "to rte",
            "Mpps",
            "B/class",
            "B/idle"
        )?;
        let mut before = None;
        for row in &self.rows {
            if before.is_some_and(|classes| classes != row.classes) {
                writeln!(f)?;
            }
            before = Some(row.classes);
            let shown = |figure: Option<f64>, digits| match figure {
                Some(figure) => format!("{figure:.digits$}"),
                None => "-".to_owned(),
            };
            write!(
                f,
                "{:>8} {:>8}  {:<10} {:<6} {:>5} {:>7} ",
                row.classes, row.active, row.structure, row.load, row.depth, row.threads
            )?;
            if let Some(why) = &row.absent {
                writeln!(f, "absent: {why}")?;
                continue;
            }
            writeln!(
                f,
                "{:>10} {:>8} {:>8} {:>8} {:>7} {:>8} {:>8}",
                shown(row.ns_per_packet, 1),
                shown(row.best_ns_per_packet, 1),
                shown(row.ratio_to_fifo, 2),
                shown(row.ratio_to_rte_sched, 2),
                shown(row.mpps, 2),
                shown(row.bytes_per_class, 0),
                shown(row.bytes_per_idle_class, 0),
            )?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}
