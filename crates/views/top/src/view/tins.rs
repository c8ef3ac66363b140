//! The tins of every `cake`.

use super::{Fact, facts_of, qdiscs};
use crate::cell::Cell;
use crate::table::{Column, Row, Table};
use narrows_snapshot::{Change, Delays, Port, Snapshot, Tin};

const COLUMNS: &[Column] = &[
    Column { name: "Cake, tin", width: 20 },
    Column { name: "Thresh", width: 6 },
    Column { name: "Arrvd", width: 5 },
    Column { name: "Pkt/s", width: 5 },
    Column { name: "p50", width: 6 },
    Column { name: "p99", width: 6 },
    Column { name: "Backlg", width: 6 },
    Column { name: "Drop/s", width: 6 },
    Column { name: "Mark/s", width: 6 },
    Column { name: "Flows", width: 5 },
];

pub(super) fn table(now: &Snapshot, change: Option<&Change>) -> Table {
    let mut rows = Vec::new();
    for port in &now.ports {
        for qdisc in &port.qdiscs {
            let tins = qdisc.tins();
            if tins.is_empty() {
                continue;
            }
            let was = change.and_then(|change| change.qdisc(&port.name, qdisc));
            let was = was.map(|was| was.tins()).unwrap_or_default();
            let top = rows.len();
            let name = format!("{} {}", port.name, qdisc.handle);
            let blanks = (1..COLUMNS.len()).map(|_| Cell::blank());
            let cells = [Cell::text(name)].into_iter().chain(blanks).collect();
            rows.push(Row::new(qdiscs::key(port, qdisc), None, cells));
            for (number, (name, tin)) in tins.iter().enumerate() {
                let was = was.get(number).map(|(_, was)| was).filter(|_| was.len() == tins.len());
                let key = format!("{} {name}", qdiscs::key(port, qdisc));
                rows.push(tin_row(key, top, name, tin, change.zip(was)));
            }
        }
    }
    Table { columns: COLUMNS.to_vec(), rows }
}

fn tin_row(key: String, top: usize, name: &str, tin: &Tin, was: Option<(&Change, &Tin)>) -> Row {
    let grown = |count: fn(&Tin) -> u64| {
        was.and_then(|(change, was)| change.per_second(count(was), count(tin)))
    };
    // Counted on arrival, including packets that are dropped later.
    let arrived = grown(|tin| tin.sent_bytes).map(|bytes| bytes * 8.0);
    // The kernel has 0 if there is no rate.
    let threshold = Some(tin.threshold_rate as f64 * 8.0).filter(|rate| *rate > 0.0);
    // Of departures in the last interval.
    let delays = was.map(|(_, was)| tin.delays.since(&was.delays));
    let delays = delays.filter(|delays| !delays.is_empty());
    let quantile = |of: fn(&Delays) -> f64| Cell::time(delays.as_ref().map(of));
    let cells = vec![
        Cell::text(name),
        Cell::number(threshold),
        Cell::number(arrived),
        Cell::number(grown(|tin| tin.sent_packets)),
        quantile(|delays| delays.p50_us),
        quantile(|delays| delays.p99_us),
        Cell::count(tin.backlog_bytes),
        Cell::number(grown(|tin| tin.drops)),
        Cell::number(grown(|tin| tin.ecn_mark)),
        Cell::count(tin.sparse_flows + tin.bulk_flows + tin.unresponsive_flows),
    ];
    Row { rate: arrived, ..Row::new(key, Some(top), cells) }
}

pub(super) fn details(now: &Snapshot, key: &str) -> Vec<Fact> {
    let of_port = |port: &Port| {
        port.qdiscs.iter().find_map(|qdisc| {
            let name = key.strip_prefix(&qdiscs::key(port, qdisc))?;
            let tins = qdisc.tins();
            let tin = tins.iter().find(|(tin, _)| name.trim_start() == tin)?;
            Some(facts_of(&tin.1))
        })
    };
    now.ports.iter().find_map(of_port).unwrap_or_else(|| qdiscs::details(now, key))
}
