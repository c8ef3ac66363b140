//! The results, as a table and as JSON.

use super::{Findings, GapRow, MemoryRow, Time};
use narrows_units::Nanos;
use serde::Serialize;
use std::fmt;

/// Everything.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// A row for each number of flows, rates, mode and structure.
    pub rows: Vec<Row>,
    /// A row for each gap and structure.
    pub gaps: Vec<GapRow>,
    /// A row for each structure that was weighed.
    pub memory: Vec<MemoryRow>,
    /// What the figures do not show.
    pub notes: Vec<String>,
}

/// One structure with one number of flows, sort of rates and mode.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub structure: &'static str,
    /// How many flows packets are of.
    pub flows: u32,
    /// `equal` or `mix`.
    pub rates: &'static str,
    /// `drain` or `poll`.
    pub mode: &'static str,
    /// Departure, EDT and insertion; the median over all repeats.
    pub ns_per_packet: f64,
    /// Departure, EDT and insertion; the least of all repeats: the undisturbed cost on a shared
    /// machine.
    pub best_ns_per_packet: f64,
    /// Instructions for the same work, counted.
    pub instructions_per_packet: Option<f64>,
    /// Nanoseconds divided by those of `flowbundler`, within each repeat; the median.
    pub ratio_to_flowbundler: f64,
    /// Packets a call that returned any.
    pub mean_batch: f64,
    /// The structure's own memory, touched or not.
    pub memory_bytes: usize,
    /// By how much a packet left before its time, at most; nothing if it looks at no time.
    pub max_early_ns: Option<u64>,
    /// For how long a packet was refused after its time, at most; nothing if it looks at no time.
    pub max_late_ns: Option<u64>,
    /// Why its instructions could not be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncounted: Option<String>,
}

impl Row {
    /// A row of measurements and observations.
    pub(super) fn new(names: [&'static str; 3], flows: u32, time: &Time) -> Self {
        let [structure, rates, mode] = names;
        Self {
            structure,
            flows,
            rates,
            mode,
            ns_per_packet: time.ns_per_packet,
            best_ns_per_packet: time.best_ns_per_packet,
            instructions_per_packet: None,
            ratio_to_flowbundler: time.ratio_to_flowbundler,
            mean_batch: 0.0,
            memory_bytes: time.memory,
            max_early_ns: None,
            max_late_ns: None,
            uncounted: None,
        }
    }

    pub(super) fn set_findings(&mut self, findings: &Findings, keeps_time: bool) {
        self.mean_batch = findings.mean_batch;
        self.max_early_ns = keeps_time.then_some(findings.max_early.0);
        self.max_late_ns = keeps_time.then_some(findings.max_late.0);
    }
}

/// Notes on a run.
pub(super) fn notes(counted: bool) -> Vec<String> {
    let mut notes = vec![
        "batch: packets a call that returned any; early, late: at most, in ns, late without the clock's step"
            .to_owned(),
    ];
    if !counted {
        notes.push("instructions were not asked for".to_owned());
    }
    if cfg!(debug_assertions) {
        notes.push("built without optimisation: build with --release to measure".to_owned());
    }
    notes
}

impl Report {
    /// One line a structure, one column a gap.
    fn write_gaps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.gaps.first().map(|row| row.gap_ns);
        let Some(first) = first else { return Ok(()) };
        let of = |structure: &str| {
            self.gaps.iter().filter(move |row| row.structure == structure).collect::<Vec<_>>()
        };
        let structures = self.gaps.iter().take_while(|row| row.gap_ns == first);
        writeln!(f, "\nns/packet, insertion and departure, after a pause")?;
        for (line, row) in structures.enumerate() {
            let gaps = of(row.structure);
            if line == 0 {
                write!(f, "{:<11}", "structure")?;
                for gap in &gaps {
                    write!(f, " {:>10}", Nanos(gap.gap_ns).to_string())?;
                }
                writeln!(f)?;
            }
            write!(f, "{:<11}", row.structure)?;
            for gap in &gaps {
                write!(f, " {:>10.1}", gap.ns_per_packet)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl Report {
    /// One line a structure, beside the paper's.
    fn write_memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.memory.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nMB for slots up to 10 s ahead; touched: after a packet in every slot")?;
        let words = ["structure", "slots of", "reserved", "touched", "paper"];
        let [structure, slots, reserved, touched, paper] = words;
        writeln!(f, "{structure:<11} {slots:>8} {reserved:>10} {touched:>10} {paper:>10}")?;
        for row in &self.memory {
            let MemoryRow { structure, granularity_ns, footprint, paper_mb } = row;
            let [reserved, touched] =
                [footprint.reserved, footprint.touched].map(|bytes| bytes as f64 / 1e6);
            let slots = Nanos(*granularity_ns).to_string();
            writeln!(
                f,
                "{structure:<11} {slots:>8} {reserved:>10.3} {touched:>10.3} {paper_mb:>10.1}"
            )?;
        }
        Ok(())
    }
}

/// The names of the columns of a [`Report`]'s rows.
pub fn header() -> String {
    format!(
        "{:>8}  {:<5}  {:<5}  {:<11} {:>9} {:>7} {:>8} {:>12} {:>7} {:>8} {:>5} {:>6}",
        "flows",
        "rates",
        "mode",
        "structure",
        "ns/packet",
        "best",
        "to fl.b.",
        "instructions",
        "batch",
        "MB",
        "early",
        "late"
    )
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |figure: Option<u64>| figure.map_or("-".to_owned(), |ns| ns.to_string());
        write!(
            f,
            "{:>8}  {:<5}  {:<5}  {:<11} {:>9.1} {:>7.1} {:>8.2} {:>12} {:>7.1} {:>8.3} {:>5} {:>6}",
            self.flows,
            self.rates,
            self.mode,
            self.structure,
            self.ns_per_packet,
            self.best_ns_per_packet,
            self.ratio_to_flowbundler,
            self.instructions_per_packet
                .map_or("-".to_owned(), |instructions| format!("{instructions:.1}")),
            self.mean_batch,
            self.memory_bytes as f64 / 1e6,
            shown(self.max_early_ns),
            shown(self.max_late_ns),
        )
    }
}

/// The text after the rows, which were shown as they were measured: the pauses, the memory, and the
/// notes.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_gaps(f)?;
        self.write_memory(f)?;
        for row in &self.rows {
            if let Some(why) = &row.uncounted {
                let Row { flows, rates, mode, structure, .. } = row;
                writeln!(f, "note: {structure} with {flows} flows, {rates}, {mode}: {why}")?;
            }
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}
