//! The results, as a table and as JSON.

use super::event::Kind;
use super::{BURST, Epoch, LIMIT, WINDOW};
use crate::machine::Machine;
use crate::table;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// All events of one kind.
#[derive(Clone, Debug, Serialize)]
struct Row {
    times: usize,
    /// The longest time until each box had its share again, once the fault was undone.
    settled_ms: f64,
    /// The most bytes beyond the limit in a tenth of a second.
    above_bytes: f64,
    broken: usize,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    machine: Machine,
    boxes: usize,
    seed: u64,
    seconds: u64,
    rows: BTreeMap<Kind, Row>,
    above_bytes: f64,
    unaccounted: u64,
    epochs: Vec<Epoch>,
}

impl Report {
    pub(super) fn new(boxes: usize, seed: u64, seconds: u64, epochs: Vec<Epoch>) -> Self {
        let none = Row { times: 0, settled_ms: 0.0, above_bytes: f64::NEG_INFINITY, broken: 0 };
        let mut rows: BTreeMap<Kind, Row> = BTreeMap::new();
        for epoch in &epochs {
            let row = rows.entry(epoch.kind).or_insert(none.clone());
            row.times += 1;
            row.settled_ms = row.settled_ms.max(epoch.settled_ms);
            row.above_bytes = row.above_bytes.max(epoch.above_bytes);
            row.broken += epoch.broken.len();
        }
        let above_bytes =
            rows.values().map(|row| row.above_bytes).fold(f64::NEG_INFINITY, f64::max);
        let unaccounted = epochs.iter().map(|epoch| epoch.unaccounted).sum();
        let machine = Machine::here();
        Self { machine, boxes, seed, seconds, rows, above_bytes, unaccounted, epochs }
    }

    /// The guarantees that did not hold.
    pub fn broken(&self) -> impl Iterator<Item = &str> {
        self.epochs.iter().flat_map(|epoch| &epoch.broken).map(String::as_str)
    }

    /// Whether every guarantee of at least one event held.
    pub fn is_good(&self) -> bool {
        !self.epochs.is_empty() && self.broken().next().is_none()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, boxes, seed, seconds, .. } = self;
        writeln!(f, "{machine}; {boxes} boxes with one limit, seed {seed}, {seconds} s")?;
        let header = ["event", "times", "shares are back after", "most in 100 ms", "broken"];
        let mut table = table::of_figures(0, header);
        for (kind, row) in &self.rows {
            table.add_row([
                format!("{kind:?}").to_lowercase(),
                row.times.to_string(),
                format!("{:.0} ms", row.settled_ms),
                format!("{:+.1} kB", row.above_bytes / 1e3),
                row.broken.to_string(),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "shares are back after: the longest, once the fault is undone; most in {} ms: what all \
             servers received beyond the limit of {:.0} Mbit/s, of which the buckets explain {} kB",
            WINDOW.as_millis(),
            LIMIT / 1e6,
            f64::from(BURST) * *boxes as f64 / 1e3
        )?;
        let epochs = self.epochs.iter().enumerate();
        for (number, epoch) in epochs.filter(|(_, epoch)| !epoch.broken.is_empty()) {
            for broken in &epoch.broken {
                writeln!(f, "BROKEN in epoch {} ({}): {broken}", number + 1, epoch.what)?;
            }
        }
        writeln!(
            f,
            "chaos: {} events, at most {:.1} kB above the limit, {} packets unaccounted",
            self.epochs.len(),
            self.above_bytes.max(0.0) / 1e3,
            self.unaccounted
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_broken_is_said_with_its_event() {
        let epoch = |above_bytes: f64, broken: &[&str]| Epoch {
            kind: Kind::Wire,
            what: "box 2 is cut off for 3100 ms".into(),
            settled_ms: 2_100.0,
            above_bytes,
            unaccounted: 0,
            broken: broken.iter().map(|&one| one.to_owned()).collect(),
        };
        let good = Report::new(3, 7, 60, vec![epoch(5_472.0, &[]), epoch(-900.0, &[])]);
        assert!(good.is_good());
        let last = "chaos: 2 events, at most 5.5 kB above the limit, 0 packets unaccounted";
        assert_eq!(good.to_string().lines().last().unwrap(), last);
        let bad = Report::new(3, 7, 60, vec![epoch(99_000.0, &["99000 bytes above"])]);
        assert!(!bad.is_good() && !Report::new(3, 7, 60, Vec::new()).is_good());
        let said = "BROKEN in epoch 1 (box 2 is cut off for 3100 ms): 99000 bytes above";
        assert!(bad.to_string().contains(said), "{bad}");
    }
}
