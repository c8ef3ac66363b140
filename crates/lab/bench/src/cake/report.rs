//! The results, as a table and as JSON.

use super::Time;
use serde::Serialize;
use std::fmt;

/// Everything.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// A row for each number of flows and structure.
    pub rows: Vec<Row>,
    /// What the figures do not show.
    pub notes: Vec<String>,
}

/// One structure with one number of flows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub structure: &'static str,
    /// How many flows packets are of.
    pub flows: u32,
    /// Enqueue and dequeue; the median over all repeats.
    pub ns_per_packet: Option<f64>,
    /// Enqueue and dequeue; the least of all repeats: the undisturbed cost on a shared machine.
    pub best_ns_per_packet: Option<f64>,
    /// Instructions for the same work, counted.
    pub instructions_per_packet: Option<f64>,
    /// Nanoseconds divided by those of `fifo`, within each repeat; the median.
    pub ratio_to_fifo: Option<f64>,
    /// How many of the packets that arrived were dropped.
    pub dropped_percent: Option<f64>,
    /// Why it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
    /// Why its instructions could not be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncounted: Option<String>,
}

impl Row {
    /// One of which nothing is known yet.
    pub(super) fn new(structure: &'static str, flows: u32) -> Self {
        Self {
            structure,
            flows,
            ns_per_packet: None,
            best_ns_per_packet: None,
            instructions_per_packet: None,
            ratio_to_fifo: None,
            dropped_percent: None,
            absent: None,
            uncounted: None,
        }
    }

    pub(super) fn set_time(&mut self, time: Time) {
        self.ns_per_packet = Some(time.ns_per_packet);
        self.best_ns_per_packet = Some(time.best_ns_per_packet);
        self.ratio_to_fifo = Some(time.ratio_to_fifo);
        self.dropped_percent = Some(time.dropped_percent);
    }
}

/// Notes on a run.
pub(super) fn notes(absent: Option<&str>, counted: bool) -> Vec<String> {
    let mut notes = vec![
        "rte_sched is unthrottled and told each packet's pipe; cake keeps 100 Gbit/s and reads the \
         headers of every frame"
            .to_owned(),
    ];
    if let Some(why) = absent {
        notes.push(format!("rte_sched is absent: {why}"));
    }
    if !counted {
        notes.push("instructions were not asked for".to_owned());
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
            "{:>6}  {:<16} {:>10} {:>8} {:>20} {:>8} {:>8}",
            "flows", "structure", "ns/packet", "best", "instructions/packet", "to fifo", "dropped"
        )?;
        let mut before = None;
        for row in &self.rows {
            if before.is_some_and(|flows| flows != row.flows) {
                writeln!(f)?;
            }
            before = Some(row.flows);
            let shown = |figure: Option<f64>, digits| match figure {
                Some(figure) => format!("{figure:.digits$}"),
                None => "-".to_owned(),
            };
            writeln!(
                f,
                "{:>6}  {:<16} {:>10} {:>8} {:>20} {:>8} {:>8}",
                row.flows,
                row.structure,
                shown(row.ns_per_packet, 1),
                shown(row.best_ns_per_packet, 1),
                shown(row.instructions_per_packet, 1),
                shown(row.ratio_to_fifo, 2),
                row.dropped_percent.map_or("-".to_owned(), |percent| format!("{percent:.2} %")),
            )?;
        }
        for row in &self.rows {
            if let Some(why) = &row.uncounted {
                writeln!(f, "note: {} with {} flows: {why}", row.structure, row.flows)?;
            }
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}
