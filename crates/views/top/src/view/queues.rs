//! Ports and their queues: the rate and backlog of each, and its share of the port.

use super::{Fact, facts_of};
use crate::cell::Cell;
use crate::table::{Column, Row, Table};
use narrows_snapshot::{Change, Counts, Delays, Heaviest, Port, Queue, QueueRates, Snapshot};

const COLUMNS: &[Column] = &[
    Column { name: "Port, queue", width: 16 },
    Column { name: "Share", width: 6 },
    Column { name: "Sent", width: 6 },
    Column { name: "Pkt/s", width: 6 },
    Column { name: "Recvd", width: 6 },
    Column { name: "Pkt/s", width: 6 },
    Column { name: "Backlog", width: 7 },
    Column { name: "Bytes", width: 6 },
    Column { name: "Drop/s", width: 6 },
    Column { name: "Drops", width: 6 },
];

pub(super) fn table(now: &Snapshot, change: Option<&Change>) -> Table {
    let mut rows = Vec::new();
    for port in &now.ports {
        let all = change.map(|change| change.of_port(port)).unwrap_or_default();
        let top = rows.len();
        rows.push(row(&port.name, None, port.name.clone(), &port.total, all, all.tx_bps));
        for (number, queue) in port.per_queue.iter().enumerate() {
            let rates = change.map(|change| change.of_queue(port, number)).unwrap_or_default();
            let key = key(port, number);
            let name = format!("{} {number}", port.counted_by.name());
            rows.push(row(&key, Some(top), name, queue, rates, all.tx_bps));
        }
    }
    Table { columns: COLUMNS.to_vec(), rows }
}

fn key(port: &Port, number: usize) -> String {
    format!("{} {} {number}", port.name, port.counted_by.name())
}

fn row(
    key: &str,
    parent: Option<usize>,
    name: String,
    queue: &Queue,
    rates: QueueRates,
    all: Option<f64>,
) -> Row {
    let share = rates.tx_bps.zip(all).filter(|(_, all)| *all > 0.0).map(|(own, all)| own / all);
    let cells = vec![
        Cell::text(name),
        if parent.is_some() { Cell::percent(share) } else { Cell::blank() },
        Cell::number(rates.tx_bps),
        Cell::number(rates.tx_pps),
        Cell::number(rates.rx_bps),
        Cell::number(rates.rx_pps),
        Cell::count(queue.backlog_packets),
        Cell::count(queue.backlog_bytes),
        Cell::number(rates.drops_pps),
        Cell::count(queue.drops),
    ];
    Row { rate: rates.tx_bps, ..Row::new(key, parent, cells) }
}

pub(super) fn details(now: &Snapshot, key: &str) -> Vec<Fact> {
    if let Some(port) = now.port(key) {
        let alone = Port { total: Queue::default(), per_queue: Vec::new(), ..port.clone() };
        let alone = Port { qdiscs: Vec::new(), classes: Vec::new(), ..alone };
        let alone = Port { heaviest: Heaviest::default(), ..alone };
        let delays = Delays { counts: Counts::default(), ..alone.delays.clone() };
        let alone = Port { delays, ..alone };
        let of_port = facts_of(&alone).into_iter().filter(|(name, _)| !name.starts_with("total "));
        return of_port.chain(facts_of(&port.total)).collect();
    }
    let of_port = |port: &Port| {
        (0..port.per_queue.len())
            .find(|&number| self::key(port, number) == key)
            .map(|number| facts_of(&port.per_queue[number]))
    };
    now.ports.iter().find_map(of_port).unwrap_or_default()
}
