//! The benchmark's results, as a table and as JSON.

use crate::machine::Machine;
use crate::table;
use serde::Serialize;
use std::fmt;

/// One change.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Circuits in the policy, at each port.
    pub circuits: u32,
    /// What is changed.
    pub change: &'static str,
    /// Commands in the file.
    pub lines: u32,
    /// How long it takes, in milliseconds.
    pub took_ms: f64,
    /// How late the watchdog's message came at most, in milliseconds.
    pub late_ms: f64,
    /// The longest `narrows show --json`, its process included, in milliseconds.
    pub show_ms: f64,
    /// The longest single `narrows tc class change`, in milliseconds.
    pub single_ms: f64,
    /// The longest round trip of a ping through the ports, in milliseconds.
    pub ping_ms: f64,
    /// Pings that were lost.
    pub lost: u64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// The changes, by circuits.
    pub rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(rows: Vec<Row>) -> Self {
        Self { machine: Machine::here(), rows }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine)?;
        let mut table = table::of_figures(
            1,
            ["circuits", "change", "lines", "ms", "watchdog", "show", "single tc", "ping", "lost"],
        );
        for row in &self.rows {
            let figures = [row.took_ms, row.late_ms, row.show_ms, row.single_ms, row.ping_ms];
            let mut cells = vec![row.circuits.to_string(), row.change.to_owned()];
            cells.push(row.lines.to_string());
            cells.extend(figures.map(|figure| format!("{figure:.0}")));
            cells.push(row.lost.to_string());
            table.add_row(cells);
        }
        writeln!(f, "{table}")?;
        writeln!(f, "watchdog, show, single tc and ping: the longest wait meanwhile, in ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_a_line_with_who_waits() {
        let row = Row {
            circuits: 7,
            change: "reload",
            lines: 50,
            took_ms: 1234.4,
            late_ms: 3.0,
            show_ms: 20.0,
            single_ms: 21.0,
            ping_ms: 2.0,
            lost: 0,
        };
        let text = Report::new(vec![row]).to_string();
        assert!(text.contains("reload") && text.contains("1234"), "{text}");
    }
}
