//! The qdiscs of each port.

use super::{Fact, facts_of};
use crate::cell::Cell;
use crate::table::{Column, Row, Table};
use narrows_snapshot::{Change, Port, Qdisc, Snapshot};

const COLUMNS: &[Column] = &[
    Column { name: "Qdisc", width: 20 },
    Column { name: "Parent", width: 8 },
    Column { name: "Sent", width: 6 },
    Column { name: "Pkt/s", width: 6 },
    Column { name: "Backlog", width: 7 },
    Column { name: "Bytes", width: 6 },
    Column { name: "Drop/s", width: 6 },
    Column { name: "Drops", width: 6 },
    Column { name: "Overlim", width: 7 },
];

pub(super) fn table(now: &Snapshot, change: Option<&Change>) -> Table {
    let mut rows = Vec::new();
    for port in &now.ports {
        for qdisc in &port.qdiscs {
            let rates = change.map(|change| change.of_qdisc(&port.name, qdisc)).unwrap_or_default();
            let figures = &qdisc.figures;
            let cells = vec![
                Cell::text(format!("{} {} {}", port.name, qdisc.kind, qdisc.handle)),
                Cell::text(parent(qdisc)),
                Cell::number(rates.bps),
                Cell::number(rates.pps),
                Cell::count(figures.qlen),
                Cell::count(figures.backlog),
                Cell::number(rates.drops_pps),
                Cell::count(figures.drops),
                Cell::count(figures.overlimits),
            ];
            rows.push(Row { rate: rates.bps, ..Row::new(key(port, qdisc), None, cells) });
        }
    }
    Table { columns: COLUMNS.to_vec(), rows }
}

fn parent(qdisc: &Qdisc) -> &str {
    if qdisc.root { "root" } else { qdisc.parent.as_deref().unwrap_or("") }
}

/// Several qdiscs may have the handle `0:`; the parent distinguishes them.
pub(super) fn key(port: &Port, qdisc: &Qdisc) -> String {
    format!("{} {} {} {}", port.name, qdisc.kind, qdisc.handle, parent(qdisc))
}

pub(super) fn details(now: &Snapshot, key: &str) -> Vec<Fact> {
    let of_port = |port: &Port| {
        let qdisc = port.qdiscs.iter().find(|qdisc| self::key(port, qdisc) == key)?;
        let mut all = facts_of(&qdisc.options);
        all.extend(facts_of(&qdisc.figures));
        all.extend(facts_of(&qdisc.detail));
        Some(all)
    };
    now.ports.iter().find_map(of_port).unwrap_or_default()
}
