//! The services that are balanced, and their servers.

use super::{Fact, facts_of};
use crate::cell::Cell;
use crate::table::{Column, Row, Table};
use narrows_balance::{Counts, Health, ListedServer, ListedService, ServerId, ServiceId};
use narrows_snapshot::{Change, Snapshot};

const COLUMNS: &[Column] = &[
    Column { name: "Service, server", width: 31 },
    Column { name: "Way", width: 6 },
    Column { name: "Weight", width: 6 },
    Column { name: "Conn/s", width: 6 },
    Column { name: "Pkt/s", width: 6 },
    Column { name: "Bit/s", width: 6 },
    Column { name: "Conns", width: 6 },
    Column { name: "State", width: 5 },
];

pub(super) fn table(now: &Snapshot, change: Option<&Change>) -> Table {
    let mut rows = Vec::new();
    for service in &now.services {
        let was = change.and_then(|change| {
            change.earlier().services.iter().find(|was| was.id() == service.id())
        });
        let top = rows.len();
        let first = [Cell::text(name(service)), Cell::text(&service.scheduler), Cell::blank()];
        let counters = counters(change, was.map(|was| was.stats), service.stats);
        rows.push(row(name(service), None, first, counters, Cell::blank()));
        for server in &service.servers {
            let was =
                was.and_then(|was| was.servers.iter().find(|was| was.address == server.address));
            let first = [
                Cell::text(at(service, server)),
                Cell::text(server.forward.name()),
                Cell::count(server.weight.into()),
            ];
            let state = match server.health {
                Health::Up => "up",
                Health::Down => "DOWN",
                Health::Last => "FAILS",
            };
            let counters = self::counters(change, was.map(|was| was.stats), server.stats);
            let row = row(key(service, server), Some(top), first, counters, Cell::text(state));
            rows.push(Row { is_warning: server.health != Health::Up, ..row });
        }
    }
    Table { columns: COLUMNS.to_vec(), rows }
}

/// Connections, packets and bits a second, and all connections.
type Counters = ([Option<f64>; 3], u64);

fn counters(change: Option<&Change>, was: Option<Counts>, now: Counts) -> Counters {
    let rate = |of: fn(&Counts) -> u64| change?.per_second(of(&was?), of(&now));
    let bits = |counts: &Counts| counts.bytes.saturating_mul(8);
    (
        [rate(|counts| counts.connections), rate(|counts| counts.packets), rate(bits)],
        now.connections,
    )
}

fn row(
    key: String,
    parent: Option<usize>,
    first: [Cell; 3],
    (rates, connections): Counters,
    state: Cell,
) -> Row {
    let cells = first.into_iter().chain(rates.map(Cell::number));
    let cells = cells.chain([Cell::count(connections), state]).collect();
    Row { rate: rates[2], ..Row::new(key, parent, cells) }
}

fn name(service: &ListedService) -> String {
    format!("{} {}", service.protocol.name(), service.id())
}

/// The server with the service's port, as `narrows balance` lists it.
fn at(service: &ListedService, server: &ListedServer) -> String {
    ServiceId { address: server.address, ..service.id() }.to_string()
}

fn key(service: &ListedService, server: &ListedServer) -> String {
    format!("{} {}", name(service), ServerId { address: server.address })
}

pub(super) fn details(now: &Snapshot, key: &str) -> Vec<Fact> {
    let of = |service: &ListedService| {
        if name(service) == key {
            return Some(facts_of(service));
        }
        let server = service.servers.iter().find(|server| self::key(service, server) == key);
        server.map(facts_of)
    };
    now.services.iter().find_map(of).unwrap_or_default()
}
