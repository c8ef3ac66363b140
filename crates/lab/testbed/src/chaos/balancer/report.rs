//! The results, as a table and as JSON.

use super::Epoch;
use super::event::Kind;
use crate::chaos::books::Books;
use crate::machine::Machine;
use crate::table;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// All events of one kind.
#[derive(Clone, Debug, Default, Serialize)]
struct Row {
    times: usize,
    /// The longest time for which a flow got nothing through.
    longest_outage_ms: f64,
    /// Flows that went to another server.
    moved: usize,
    broken: usize,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    machine: Machine,
    seed: u64,
    takes_turns: bool,
    seconds: u64,
    rows: BTreeMap<Kind, Row>,
    books: Books,
    epochs: Vec<Epoch>,
}

impl Report {
    pub(super) fn new(seed: u64, takes_turns: bool, seconds: u64, epochs: Vec<Epoch>) -> Self {
        let mut rows: BTreeMap<Kind, Row> = BTreeMap::new();
        let mut books = Books::default();
        for epoch in &epochs {
            let row = rows.entry(epoch.kind).or_default();
            row.times += 1;
            row.longest_outage_ms = row.longest_outage_ms.max(epoch.outage_ms);
            row.moved += epoch.moved;
            row.broken += epoch.broken.len();
            books.merge(&epoch.books);
        }
        Self { machine: Machine::here(), seed, takes_turns, seconds, rows, books, epochs }
    }

    /// Whether every guarantee of at least one event held.
    pub fn is_good(&self) -> bool {
        !self.epochs.is_empty() && self.epochs.iter().all(|epoch| epoch.broken.is_empty())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, seed, seconds, books, .. } = self;
        let scheduler = if self.takes_turns { "rr" } else { "mh" };
        writeln!(f, "{machine}; balancer ({scheduler}), seed {seed}, {seconds} s")?;
        let header = ["event", "times", "longest outage", "flows moved", "broken"];
        let mut table = table::of_figures(0, header);
        for (kind, row) in &self.rows {
            table.add_row([
                format!("{kind:?}").to_lowercase(),
                row.times.to_string(),
                format!("{:.0} ms", row.longest_outage_ms),
                row.moved.to_string(),
                row.broken.to_string(),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(f, "{} datagrams, {} came back", books.sent, books.received)?;
        for (reason, n) in &books.lost {
            writeln!(f, "  lost, {reason}: {n}")?;
        }
        writeln!(f, "  unaccounted for: {}", books.unaccounted)?;
        let epochs = self.epochs.iter().enumerate();
        for (number, epoch) in epochs.filter(|(_, epoch)| !epoch.broken.is_empty()) {
            for broken in &epoch.broken {
                writeln!(f, "BROKEN in epoch {} ({}): {broken}", number + 1, epoch.what)?;
            }
        }
        Ok(())
    }
}
