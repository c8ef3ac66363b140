//! The tree of classes of each port.

use super::{Fact, facts_of};
use crate::cell::Cell;
use crate::number::short;
use crate::table::{Column, Row, Table};
use narrows_snapshot::{Change, Class, Delays, Port, Snapshot};
use std::collections::HashMap;

const COLUMNS: &[Column] = &[
    Column { name: "Class", width: 15 },
    Column { name: "Rate", width: 5 },
    Column { name: "Ceil", width: 5 },
    Column { name: "Sent", width: 5 },
    Column { name: "Used", width: 6 },
    Column { name: "Backlg", width: 6 },
    Column { name: "p50", width: 5 },
    Column { name: "p99", width: 5 },
    Column { name: "Drop/s", width: 6 },
    Column { name: "Lent/s", width: 6 },
    Column { name: "Borr/s", width: 6 },
];

pub(super) fn table(now: &Snapshot, change: Option<&Change>) -> Table {
    let mut rows: Vec<Row> = Vec::new();
    for port in now.ports.iter().filter(|port| !port.classes.is_empty()) {
        let top = rows.len();
        rows.push(port_row(port, change));
        let mut places: HashMap<&str, usize> = HashMap::new();
        for class in &port.classes {
            // A snapshot lists each class after its parent; if that is not the case, it is shown
            // below the port.
            let above = class.parent.as_deref().and_then(|above| places.get(above)).copied();
            places.insert(&class.handle, rows.len());
            rows.push(class_row(port, class, above.unwrap_or(top), change));
        }
    }
    Table { columns: COLUMNS.to_vec(), rows }
}

fn port_row(port: &Port, change: Option<&Change>) -> Row {
    let rates = change.map(|change| change.of_port(port)).unwrap_or_default();
    let limit = port.limit_bps().map(|limit| limit as f64);
    let [p50, p99] = delays(change.map(|change| change.delays_of_port(port)));
    let cells = vec![
        Cell::text(&port.name),
        Cell::blank(),
        limit.map_or_else(Cell::blank, |limit| Cell::number(Some(limit))),
        Cell::number(rates.tx_bps),
        Cell::percent(used(rates.tx_bps, limit)),
        Cell::count(port.total.backlog_packets),
        p50,
        p99,
        Cell::number(rates.drops_pps),
        Cell::blank(),
        Cell::blank(),
    ];
    Row { rate: rates.tx_bps, ..Row::new(&port.name, None, cells) }
}

fn class_row(port: &Port, class: &Class, above: usize, change: Option<&Change>) -> Row {
    let rates = change.map(|change| change.of_class(&port.name, class)).unwrap_or_default();
    let bits = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 * 8.0);
    let rate = |bytes: Option<u64>| match bits(bytes) {
        Some(bps) => Cell::number(Some(bps)),
        None => Cell::blank(),
    };
    let figures = &class.stats.figures;
    let [p50, p99] = delays(change.map(|change| change.delays_of_class(&port.name, class)));
    let grown = |key: &str| {
        let count = |class: &Class| class.stats.detail.get(key)?.as_u64();
        let is = count(class)?;
        let change = change?;
        let was = count(change.class(&port.name, class)?)?;
        change.per_second(was, is)
    };
    let cells = vec![
        Cell::text(name(class)),
        rate(class.assured()),
        rate(class.most()),
        Cell::number(rates.bps),
        Cell::percent(used(rates.bps, bits(class.most().or(class.assured())))),
        Cell::count(figures.qlen),
        p50,
        p99,
        Cell::number(rates.drops_pps),
        Cell::number(grown("lended")),
        Cell::number(grown("borrowed")),
    ];
    Row { rate: rates.bps, ..Row::new(key(port, class), Some(above), cells) }
}

/// Median and 99th percentile of the delays of packets that left in the last interval.
pub(super) fn delays(delays: Option<Delays>) -> [Cell; 2] {
    let delays = delays.filter(|delays| !delays.is_empty());
    [delays.as_ref().map(|delays| delays.p50_us), delays.as_ref().map(|delays| delays.p99_us)]
        .map(Cell::time)
}

/// The used fraction of `limit`.
pub(super) fn used(rate: Option<f64>, limit: Option<f64>) -> Option<f64> {
    rate.zip(limit).filter(|(_, limit)| *limit > 0.0).map(|(rate, limit)| rate / limit)
}

/// Its name before its handle, as `tc -nm` writes it, because long text is cut at its end.
pub(super) fn name(class: &Class) -> String {
    match &class.name {
        Some(name) => format!("{name}#{}", class.handle),
        None => class.handle.to_string(),
    }
}

pub(super) fn key(port: &Port, class: &Class) -> String {
    format!("{} {}", port.name, class.handle)
}

pub(super) fn details(now: &Snapshot, key: &str) -> Vec<Fact> {
    let of_port = |port: &Port| {
        let class = port.classes.iter().find(|class| self::key(port, class) == key)?;
        let text = |name: &str, value: String| (name.to_owned(), value);
        let mut all = vec![text("kind", class.kind.to_string())];
        all.extend(class.name.as_ref().map(|name| text("name", name.to_string())));
        all.extend(class.parent.as_ref().map(|parent| text("parent", parent.to_string())));
        for (name, bytes) in [("rate", class.rate), ("ceil", class.ceil)] {
            all.extend(
                bytes.map(|bytes| text(name, format!("{}bit/s", short(bytes as f64 * 8.0)))),
            );
        }
        all.extend(class.prio.map(|prio| text("prio", prio.to_string())));
        all.extend(facts_of(&class.options));
        all.extend(facts_of(&class.stats));
        Some(all)
    };
    now.ports.iter().find_map(of_port).unwrap_or_default()
}
