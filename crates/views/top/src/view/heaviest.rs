//! The heaviest hosts and flows of each port.

use super::{Fact, facts_of};
use crate::cell::Cell;
use crate::table::{Column, Row, Table};
use narrows_snapshot::{Heavy, Port, Snapshot};

const COLUMNS: &[Column] = &[
    Column { name: "Port, host, flow", width: 39 },
    Column { name: "Share", width: 6 },
    Column { name: "Sent", width: 5 },
    Column { name: "Delay", width: 6 },
    Column { name: "p99", width: 6 },
    Column { name: "RTT", width: 6 },
    Column { name: "Lost", width: 6 },
];

/// Shares are of the departures in the last second.
pub(super) fn table(now: &Snapshot) -> Table {
    let mut rows = Vec::new();
    for port in &now.ports {
        let kinds = port.heaviest.kinds();
        if kinds.iter().all(|(_, heavy)| heavy.is_empty()) {
            continue;
        }
        let top = rows.len();
        rows.push(heading(&port.name, None, port.name.clone()));
        for (kind, heavy) in kinds {
            let below = rows.len();
            let name = if kind == "flow" { "flows" } else { kind };
            rows.push(heading(&format!("{} {kind}", port.name), Some(top), name.to_owned()));
            rows.extend(heavy.iter().map(|heavy| row(port, kind, below, heavy)));
        }
    }
    Table { columns: COLUMNS.to_vec(), rows }
}

fn heading(key: &str, parent: Option<usize>, name: String) -> Row {
    let blanks = (1..COLUMNS.len()).map(|_| Cell::blank());
    Row::new(key, parent, [Cell::text(name)].into_iter().chain(blanks).collect())
}

fn row(port: &Port, kind: &str, below: usize, heavy: &Heavy) -> Row {
    let bps = heavy.bps as f64;
    let all = Some(port.tx_rate_bps as f64).filter(|all| *all > 0.0);
    let shares = heavy.losses.and_then(|losses| losses.shares());
    let lost = shares.map(|[before, beyond]| before + beyond);
    let cells = vec![
        Cell::text(&heavy.name),
        Cell::percent(all.map(|all| (bps / all).min(1.0))),
        Cell::number(Some(bps)),
        Cell::micros(heavy.delay_mean_us),
        Cell::micros(heavy.delay_p99_us),
        heavy.round_trip.map_or_else(Cell::blank, |trip| Cell::micros(trip.min_us)),
        lost.map_or_else(Cell::blank, |lost| Cell::percent(Some(lost))),
    ];
    let key = key(port, kind, heavy);
    Row { rate: Some(bps), ..Row::new(key, Some(below), cells) }
}

fn key(port: &Port, kind: &str, heavy: &Heavy) -> String {
    format!("{} {kind} {}", port.name, heavy.name)
}

pub(super) fn details(now: &Snapshot, key: &str) -> Vec<Fact> {
    let of_port = |port: &Port| {
        let of_kind = |(kind, heavies): (&str, &[Heavy])| {
            let heavy = heavies.iter().find(|heavy| self::key(port, kind, heavy) == key)?;
            Some(facts_of(heavy))
        };
        port.heaviest.kinds().into_iter().find_map(of_kind)
    };
    now.ports.iter().find_map(of_port).unwrap_or_default()
}
