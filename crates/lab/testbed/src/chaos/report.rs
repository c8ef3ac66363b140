//! The results of a chaos run, as tables and as JSON.

use super::books::Books;
use super::epoch::Epoch;
use super::fault::Kind;
use super::forwarding::Forwarding;
use super::plane::Plane;
use crate::machine::Machine;
use crate::table;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// All faults of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    kind: Kind,
    faults: usize,
    /// The longest time for which a flow got nothing through.
    longest_outage_ms: f64,
    /// The largest bound of these faults; none if there is no guarantee.
    promised_ms: Option<u128>,
    /// Packets lost without a count.
    uncounted: u64,
    /// Packets that arrived out of their flow's order.
    reordered: u64,
    broken: usize,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    machine: Machine,
    forwarding: Forwarding,
    plane: Plane,
    seed: u64,
    seconds: u64,
    rows: Vec<Row>,
    /// Packets client to server, and back.
    ways: [Books; 2],
    /// Packets that arrived in normal operation, and those of them out of order.
    normal: u64,
    normal_reordered: u64,
    /// The fullest windows: milliseconds, and percent of what rate and burst pass.
    fullest: Vec<(u64, f64)>,
    longest_outage_ms: f64,
    unaccounted: u64,
    epochs: Vec<Epoch>,
}

/// Reasons that counters do not know begin otherwise.
const COUNTED: [&str; 6] = [
    "narrows: ",
    "sender's device",
    "device into",
    "device out",
    "for the box",
    "receiver's socket",
];

fn is_counted(reason: &str) -> bool {
    COUNTED.iter().any(|begin| reason.starts_with(begin))
}

impl Report {
    pub(super) fn new(
        (forwarding, plane): (Forwarding, Plane),
        seed: u64,
        seconds: u64,
        epochs: Vec<(Epoch, Option<u128>)>,
    ) -> Self {
        let mut rows: BTreeMap<Kind, Row> = BTreeMap::new();
        let mut ways = <[Books; 2]>::default();
        let (mut normal, mut normal_reordered) = (0, 0);
        let mut fullest: BTreeMap<u64, f64> = BTreeMap::new();
        for (epoch, promised) in &epochs {
            let row = rows.entry(epoch.kind).or_insert(Row {
                kind: epoch.kind,
                faults: 0,
                longest_outage_ms: 0.0,
                promised_ms: *promised,
                uncounted: 0,
                reordered: 0,
                broken: 0,
            });
            row.faults += 1;
            row.broken += epoch.broken.len();
            row.promised_ms = row.promised_ms.max(*promised);
            for (one, sum) in epoch.ways.iter().zip(&mut ways) {
                sum.merge(&one.books);
                row.longest_outage_ms = row.longest_outage_ms.max(one.outage_ms);
                let lost = one.books.lost.iter().filter(|(reason, _)| !is_counted(reason));
                row.uncounted += lost.map(|(_, n)| n).sum::<u64>();
                row.reordered += one.reordered;
                normal += one.normal;
                normal_reordered += one.normal_reordered;
                for window in &one.fullest {
                    let most = fullest.entry(window.window_ms).or_default();
                    *most = most.max(window.percent);
                }
            }
        }
        let rows: Vec<Row> = rows.into_values().collect();
        Self {
            machine: Machine::here(),
            forwarding,
            plane,
            seed,
            seconds,
            // In a flood, the qdisc decides what a flow gets; that is no outage.
            longest_outage_ms: rows
                .iter()
                .filter(|row| row.promised_ms.is_some())
                .map(|row| row.longest_outage_ms)
                .fold(0.0, f64::max),
            unaccounted: ways.iter().map(|books| books.unaccounted).sum(),
            rows,
            ways,
            normal,
            normal_reordered,
            fullest: fullest.into_iter().collect(),
            epochs: epochs.into_iter().map(|(epoch, _)| epoch).collect(),
        }
    }

    /// Whether every guarantee of at least one fault held.
    pub fn is_good(&self) -> bool {
        !self.epochs.is_empty() && self.broken().next().is_none()
    }

    /// Unaccounted packets: missing ones and excess ones.
    pub fn unaccounted(&self) -> u64 {
        self.unaccounted
    }

    /// The promises that did not hold.
    pub fn broken(&self) -> impl Iterator<Item = &str> {
        self.epochs.iter().flat_map(|epoch| &epoch.broken).map(String::as_str)
    }

    fn losses(&self) -> BTreeMap<&str, [u64; 2]> {
        let mut losses: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
        for (way, books) in self.ways.iter().enumerate() {
            for (reason, n) in &books.lost {
                losses.entry(reason).or_default()[way] += n;
            }
        }
        losses
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, forwarding, plane, seed, seconds, .. } = self;
        let what = format!("{} on the plane {}", forwarding.name(), plane.name());
        writeln!(f, "{machine}; {what}, seed {seed}, {seconds} s")?;
        let header =
            ["fault", "times", "longest outage", "promised", "uncounted", "reordered", "broken"];
        let mut table = table::of_figures(0, header);
        for row in &self.rows {
            table.add_row([
                row.kind.name().to_owned(),
                row.faults.to_string(),
                format!("{:.0} ms", row.longest_outage_ms),
                row.promised_ms.map_or("-".to_owned(), |bound| format!("{bound} ms")),
                row.uncounted.to_string(),
                row.reordered.to_string(),
                row.broken.to_string(),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "longest outage: of any flow; uncounted: packets destroyed by the fault, in no counter"
        )?;
        let mut table = table::of_figures(0, ["packets lost by reason", "forth", "back"]);
        for (reason, [forth, back]) in self.losses() {
            table.add_row([reason.to_owned(), forth.to_string(), back.to_string()]);
        }
        writeln!(f, "{table}")?;
        for (way, books) in ["forth", "back"].into_iter().zip(&self.ways) {
            writeln!(
                f,
                "{way}: {} sent = {} received + {} lost - {} counted at both ends of a cable, \
                 {} unaccounted",
                books.sent,
                books.received,
                books.lost.values().sum::<u64>(),
                books.twice,
                books.unaccounted
            )?;
        }
        writeln!(
            f,
            "normal operation: {} packets received, {} reordered within a flow",
            self.normal, self.normal_reordered
        )?;
        for (window, percent) in &self.fullest {
            writeln!(f, "fullest {window} ms: {percent:.1} % of what rate and burst pass")?;
        }
        for epoch in &self.epochs {
            for broken in &epoch.broken {
                writeln!(
                    f,
                    "BROKEN: fault {} of seed {} ({}: {}; {}): {broken}",
                    epoch.number,
                    self.seed,
                    epoch.kind.name(),
                    epoch.what,
                    epoch.policy
                )?;
            }
        }
        writeln!(
            f,
            "chaos: {} faults, longest outage {:.0} ms, {} packets unaccounted",
            self.epochs.len(),
            self.longest_outage_ms,
            self.unaccounted
        )
    }
}
