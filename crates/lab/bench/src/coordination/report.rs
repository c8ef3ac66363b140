//! The results, as a table and as JSON.

use super::Load;
use super::cores::Cores;
use narrows_units::counted;
use serde::Serialize;
use std::fmt;

/// Everything.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// A row for each load, number of threads and system.
    pub rows: Vec<Row>,
    /// The cost of a shared cache line on it, by number of threads; empty with one core or thread.
    pub curve: Vec<LineCosts>,
    /// What the figures do not show, because of this machine or the given options.
    pub notes: Vec<String>,
}

/// The machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Machine {
    /// The model of its cores, if the kernel says it.
    pub cpu: Option<String>,
    /// Cores that this process may use.
    pub cores: usize,
    /// How many of them are physical; each is used once before any is used twice.
    pub physical_cores: usize,
}

/// One system under one load with one number of threads. Medians over rounds; figures a packet
/// are NaN (in JSON null) where not one left within the window.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The name of the strategy, or `qdisc-lock`: one queue for all, behind one lock.
    pub strategy: &'static str,
    /// `unbound` (64 bytes, 10 Tbit/s) or `bound` (1500 bytes, 10 Gbit/s).
    pub load: &'static str,
    /// Threads, each with a queue and a meter of its own but in `qdisc-lock`.
    pub threads: usize,
    /// Million packets per second, all threads together.
    pub mpps: f64,
    /// Million packets per second and thread.
    pub mpps_per_thread: f64,
    /// Time in turns a packet, in nanoseconds; waiting for the limit not counted.
    pub ns_per_packet: f64,
    /// The time divided by that of `lock`.
    pub ratio_to_lock: Option<f64>,
    /// Packets a second over as many times those of one thread, where the limit is far away.
    pub scaling_percent: Option<f64>,
    /// The deviation of the departures from the limit, if it binds.
    pub deviation_percent: Option<f64>,
    /// Jain's index over the threads' packets.
    pub jain: f64,
    /// Lines read a packet that another meter writes.
    pub contact_reads_per_packet: f64,
    /// Atomic updates a packet of lines that every meter writes; how often the lock was taken.
    pub contact_updates_per_packet: f64,
}

/// The cost of a cache line that so many threads share.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct LineCosts {
    /// How many.
    pub threads: usize,
    /// Reading a line that another core has just written, in nanoseconds.
    pub line_read_ns: f64,
    /// Updating a line that all threads update all the time, in nanoseconds for which one of
    /// them has it.
    pub line_update_ns: f64,
}

/// Notes on a run with up to `threads` threads on `cores`.
pub(super) fn notes(cores: &Cores, threads: usize) -> Vec<String> {
    let mut notes = Vec::new();
    let available = cores.len();
    if available == 1 {
        notes.push(
            "1 core: no two threads ever run at once, so contention, scaling and the costs of a \
             shared line could not be measured"
                .to_owned(),
        );
    } else if threads < 2 {
        notes.push("1 thread: contention and scaling were not asked for".to_owned());
    }
    if threads > available {
        notes.push(format!(
            "up to {threads} threads share {}: beyond one a core, ns/packet includes the turns of \
             others, and scaling cannot reach 100 %",
            counted(available, "core")
        ));
    } else if threads > cores.physical() {
        let physical = cores.physical();
        notes.push(format!(
            "{available} cores are {physical} physical ones: beyond {physical} threads, threads \
             share a physical core, which costs more than any system here"
        ));
    }
    if cfg!(debug_assertions) {
        notes.push("built without optimisation: build with --release to measure".to_owned());
    }
    notes
}

/// A table for each load, the costs, and the notes.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for load in Load::ALL {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.load == load.name()).collect();
            match load {
                Load::Unbound => writeln!(f, "unbound: 64 bytes, far below a limit of 10 Tbit/s")?,
                Load::Bound => writeln!(f, "bound: 1500 bytes, held back by 10 Gbit/s")?,
            }
            table(f, &rows, load)?;
            writeln!(f)?;
        }
        if !self.curve.is_empty() {
            writeln!(f, "a cache line that cores share, in nanoseconds:")?;
            writeln!(f, "{:>7}  {:>12}  {:>14}", "threads", "line_read_ns", "line_update_ns")?;
        }
        for LineCosts { threads, line_read_ns, line_update_ns } in &self.curve {
            writeln!(f, "{threads:>7}  {line_read_ns:>12.1}  {line_update_ns:>14.1}")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

fn table(f: &mut fmt::Formatter<'_>, rows: &[&Row], load: Load) -> fmt::Result {
    let own = match load {
        Load::Unbound => "scaling",
        Load::Bound => "deviation",
    };
    writeln!(
        f,
        "{:>7}  {:<10} {:>8} {:>9} {:>9} {:>7} {:>10} {:>6} {:>10} {:>12}",
        "threads",
        "strategy",
        "Mpps",
        "a thread",
        "ns/packet",
        "to lock",
        own,
        "Jain",
        "reads/pkt",
        "updates/pkt"
    )?;
    for row in rows {
        let ratio = row.ratio_to_lock.map_or("-".into(), |ratio| format!("{ratio:.2}"));
        let own = match (row.scaling_percent, row.deviation_percent) {
            (Some(scaling), _) => format!("{scaling:.1} %"),
            (_, Some(deviation)) => format!("{deviation:+.3} %"),
            _ => "-".into(),
        };
        writeln!(
            f,
            "{:>7}  {:<10} {:>8.3} {:>9.3} {:>9.1} {ratio:>7} {own:>10} {:>6.3} {:>10.4} {:>12.4}",
            row.threads,
            row.strategy,
            row.mpps,
            row.mpps_per_thread,
            row.ns_per_packet,
            row.jain,
            row.contact_reads_per_packet,
            row.contact_updates_per_packet,
        )?;
    }
    Ok(())
}
