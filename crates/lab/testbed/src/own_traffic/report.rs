//! The results, as a table and as JSON, and whether the targets were reached.

use super::cell::Outcome;
use super::place::Place;
use super::system::{Said, System};
use crate::machine::Machine;
use crate::table;
use narrows_coordination::jain;
use narrows_units::Rate;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The most that a second may deviate from the limit, in percent.
const OFF: f64 = 0.25;
/// The least Jain's index of equal flows.
const JAIN: f64 = 0.98;
/// How much more than `cake` the load may delay 99 in 100 probes, in milliseconds.
const MORE_MS: f64 = 1.0;

/// One system at one limit.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub system: &'static str,
    /// Whether it is the host plane.
    pub is_narrows: bool,
    /// The limit; none if there was none.
    pub limit_bps: Option<u64>,
    /// The rate of frames at the receiver's device, in bits per second.
    pub delivered_bps: u64,
    /// The largest deviation of a second from the limit, in percent of it.
    pub off_percent: Option<f64>,
    /// Jain's index of the hosts; of a single one's flows.
    pub jain: f64,
    /// The median of the probes' delay that the load adds, in microseconds,
    pub added_median_us: Option<f64>,
    /// and the 99th percentile.
    pub added_p99_us: Option<f64>,
    /// All percentiles from the 0th to the 100th.
    pub added_percentiles_us: Vec<f64>,
    /// Probes without an answer under load.
    pub lost: u64,
    /// What all cores were busy, in nanoseconds a frame.
    pub busy_ns_per_frame: f64,
    /// Packets that Narrows' counters do not explain.
    pub unaccounted: Option<i64>,
    /// Whether packets waited in `fq`; if not, this kernel has none, and limits policed.
    pub shapes: Option<bool>,
}

impl Row {
    pub(super) fn new(
        system: System,
        limit: Option<Rate>,
        outcome: &Outcome,
        said: Option<Said>,
    ) -> Self {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let idle = outcome.idle.percentile(50.0);
        let added =
            |percent: f64| Some(micros(outcome.loaded.percentile(percent)?) - micros(idle?));
        let off = |limit: Rate| {
            let each = outcome.seconds.iter().map(|second| second.deviation_percent(limit));
            each.max_by(|one, other| one.abs().total_cmp(&other.abs()))
        };
        let shares: Vec<f64> = outcome.shares.iter().map(|bytes| *bytes as f64).collect();
        let frames: u64 = outcome.seconds.iter().map(|second| second.packets).sum();
        let bits: f64 = outcome.seconds.iter().map(|second| second.bytes.0 as f64 * 8.0).sum();
        let nanos: f64 = outcome.seconds.iter().map(|second| second.span.0 as f64).sum();
        Self {
            system: system.name(),
            is_narrows: system == System::Narrows,
            limit_bps: limit.map(Rate::bits_per_sec),
            delivered_bps: (bits * 1e9 / nanos.max(1.0)) as u64,
            off_percent: limit.and_then(off),
            jain: jain(&shares),
            added_median_us: added(50.0),
            added_p99_us: added(99.0),
            added_percentiles_us: (0..=100)
                .filter_map(|percent| added(f64::from(percent)))
                .collect(),
            lost: outcome.loaded.lost,
            busy_ns_per_frame: outcome.busy.as_nanos() as f64 / frames.max(1) as f64,
            unaccounted: said.as_ref().map(|said| said.unaccounted),
            shapes: said.map(|said| said.shapes),
        }
    }

    /// The row in a few words.
    pub(super) fn outcome(&self) -> String {
        format!("{}, probes {} ms longer (median / p99)", mbit(self.delivered_bps), self.added())
    }

    fn added(&self) -> String {
        let millis =
            |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{:.1}", us / 1e3 + 0.0));
        format!("{} / {}", millis(self.added_median_us), millis(self.added_p99_us))
    }

    fn cells(&self) -> [String; 9] {
        let limit = self.limit_bps.map(|bps| Rate::from_bits_per_sec(bps).to_string());
        [
            limit.unwrap_or("none".to_owned()),
            self.system.to_owned(),
            mbit(self.delivered_bps),
            self.off_percent.map_or("-".to_owned(), |off| format!("{off:+.2}")),
            format!("{:.3}", self.jain),
            self.added(),
            self.lost.to_string(),
            format!("{:.0}", self.busy_ns_per_frame),
            self.unaccounted.map_or("-".to_owned(), |packets| packets.to_string()),
        ]
    }
}

/// The host plane at all limits, against the targets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The largest deviation of a second from the limit, in percent of it.
    pub off_percent: f64,
    /// The longest 99th percentile of the delay that the load adds, in milliseconds.
    pub added_p99_ms: f64,
    /// By how much that is longer than under `cake` at the same limit, at worst, where there is a
    /// `cake`.
    pub more_than_cake_ms: Option<f64>,
    /// The least index.
    pub jain: f64,
    /// Packets that the counters do not explain.
    pub unaccounted: i64,
    /// Whether packets waited at all.
    pub shapes: bool,
}

impl Verdict {
    fn of(rows: &[Row]) -> Self {
        let ours = || rows.iter().filter(|row| row.is_narrows);
        // A probe without an answer counts as an infinite delay.
        let p99 = |row: &Row| row.added_p99_us.map_or(f64::INFINITY, |us| us / 1e3);
        let more = |row: &Row| {
            let same = |other: &&Row| {
                other.system == System::Cake.name() && other.limit_bps == row.limit_bps
            };
            Some(p99(row) - p99(rows.iter().find(same)?))
        };
        let off = ours().filter_map(|row| row.off_percent);
        Self {
            off_percent: off.max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(f64::INFINITY),
            added_p99_ms: ours().map(p99).fold(f64::NEG_INFINITY, f64::max),
            more_than_cake_ms: ours().filter_map(more).reduce(f64::max),
            jain: ours().map(|row| row.jain).fold(1.0, f64::min),
            unaccounted: ours().filter_map(|row| row.unaccounted).sum(),
            shapes: ours().all(|row| row.shapes == Some(true)),
        }
    }

    /// Whether all targets were reached.
    pub fn is_met(&self) -> bool {
        self.shapes
            && self.off_percent.abs() <= OFF
            && self.jain >= JAIN
            && self.more_than_cake_ms.is_none_or(|more| more <= MORE_MS)
            && self.unaccounted == 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { off_percent, added_p99_ms, jain, unaccounted, .. } = self;
        write!(
            f,
            "demo-host: worst deviation {off_percent:+.2} %, p99 added {added_p99_ms:.1} ms, Jain \
             {jain:.3}, packets unaccounted {unaccounted}: "
        )?;
        match (self.shapes, self.is_met()) {
            (false, _) => write!(f, "limits policed, because this kernel has no fq"),
            (true, true) => write!(f, "the targets are met"),
            (true, false) => write!(f, "a target is missed"),
        }
    }
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// Where the limit was.
    pub place: Place,
    /// How many TCP flows each host had.
    pub flows: Vec<usize>,
    /// The systems.
    pub rows: Vec<Row>,
    /// What was not measured, and why.
    pub notes: Vec<String>,
    /// The host plane against the targets.
    pub verdict: Verdict,
}

impl Report {
    pub(super) fn new(rows: Vec<Row>, notes: Vec<String>, place: Place, flows: Vec<usize>) -> Self {
        let verdict = Verdict::of(&rows);
        Self { machine: Machine::here(), place, flows, rows, notes, verdict }
    }
}

fn mbit(bps: u64) -> String {
    format!("{:.2} Mbit/s", bps as f64 / 1e6)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, place, flows, rows, notes, verdict } = self;
        let whose = place.flows_of();
        match &flows[..] {
            [flows] => writeln!(f, "{machine}; {flows} TCP flows {whose}\n")?,
            several => {
                let each: Vec<String> = several.iter().map(usize::to_string).collect();
                writeln!(f, "{machine}; hosts with {} TCP flows {whose}\n", each.join(", "))?;
            }
        }
        let heads = [
            "limit",
            "system",
            "delivered",
            "worst second %",
            "Jain",
            "added ms (median / p99)",
            "lost",
            "busy ns a frame",
            "unaccounted",
        ];
        let mut table = table::of_figures(1, heads);
        rows.iter().for_each(|row| {
            table.add_row(row.cells());
        });
        writeln!(f, "{table}")?;
        notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))?;
        writeln!(f, "{verdict}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(system: System, off: f64, p99_ms: f64) -> Row {
        Row {
            system: system.name(),
            is_narrows: system == System::Narrows,
            limit_bps: Some(10_000_000),
            delivered_bps: 10_000_000,
            off_percent: Some(off),
            jain: 0.99,
            added_median_us: Some(100.0),
            added_p99_us: Some(p99_ms * 1e3),
            added_percentiles_us: Vec::new(),
            lost: 0,
            busy_ns_per_frame: 5000.0,
            unaccounted: (system == System::Narrows).then_some(0),
            shapes: (system == System::Narrows).then_some(true),
        }
    }

    #[test]
    fn the_targets_are_of_the_host_plane_beside_cake() {
        let report = |off, p99| {
            let rows = vec![
                row(System::Plain, -9.0, 400.0),
                row(System::Cake, 0.1, 2.0),
                row(System::Narrows, off, p99),
            ];
            Report::new(rows, vec!["none".into()], Place::Leaves, vec![8])
        };
        assert!(report(-0.2, 2.9).verdict.is_met());
        assert!(!report(-0.2, 3.1).verdict.is_met());
        assert!(!report(0.3, 2.0).verdict.is_met());
        let text = report(-0.2, 2.9).to_string();
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("demo-host: worst deviation -0.20 %, p99 added 2.9 ms"), "{last}");
        assert!(text.contains("note: none") && text.contains("narrows host plane"), "{text}");
    }

    #[test]
    fn without_fq_the_targets_are_missed_and_the_last_line_says_why() {
        let policed = Row { shapes: Some(false), ..row(System::Narrows, 0.0, 0.0) };
        let verdict = Verdict::of(&[policed]);
        assert!(!verdict.is_met());
        assert!(verdict.to_string().ends_with("because this kernel has no fq"), "{verdict}");
    }
}
