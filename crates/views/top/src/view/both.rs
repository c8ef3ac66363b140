//! Both directions of each class in one row: what two ports send to the same subscriber, site or
//! service.
//!
//! Ports are taken two by two, in the instance's order: those of a wire, and the VLANs of a pair.
//! A class of the second belongs to that of the first with its name, or else with its handle. One
//! that has no counterpart has a row of its own.

use super::classes::{delays, key, name, used};
use super::{Fact, classes};
use crate::cell::Cell;
use crate::table::{Column, Row, Table};
use narrows_snapshot::{Change, Class, Port, Snapshot};
use std::collections::HashMap;

/// `A` is the first port of two, `B` the second; the row above their classes names both.
const COLUMNS: &[Column] = &[
    Column { name: "Both ways", width: 17 },
    Column { name: "Sent A", width: 6 },
    Column { name: "Used", width: 5 },
    Column { name: "p99 A", width: 5 },
    Column { name: "Drop/s", width: 6 },
    Column { name: "Sent B", width: 6 },
    Column { name: "Used", width: 5 },
    Column { name: "p99 B", width: 5 },
    Column { name: "Drop/s", width: 6 },
    Column { name: "Backlg", width: 6 },
];

pub(super) fn table(now: &Snapshot, change: Option<&Change>) -> Table {
    let mut rows = Vec::new();
    for ports in pairs(now) {
        let top = rows.len();
        rows.push(heading(ports, change));
        let mut places: HashMap<(usize, &str), usize> = HashMap::new();
        for classes in joined(ports) {
            let above = |(side, class): (usize, &Class)| {
                places.get(&(side, class.parent.as_deref()?)).copied()
            };
            let present = || (0..2).zip(classes).filter_map(|(side, it)| Some((side, it?)));
            let parent = present().find_map(above).unwrap_or(top);
            for (side, class) in present() {
                places.insert((side, &class.handle), rows.len());
            }
            rows.push(row(ports, classes, parent, change));
        }
    }
    Table { columns: COLUMNS.to_vec(), rows }
}

/// The ports with classes, two by two.
fn pairs(now: &Snapshot) -> Vec<[Option<&Port>; 2]> {
    now.ports
        .chunks(2)
        .map(|two| [two.first(), two.get(1)])
        .filter(|two| two.iter().flatten().any(|port| !port.classes.is_empty()))
        .collect()
}

/// The classes of two ports, those of the first before what only the second has.
fn joined(ports: [Option<&Port>; 2]) -> Vec<[Option<&Class>; 2]> {
    let classes = |side: usize| ports[side].map_or(&[][..], |port| &port.classes);
    let by_handle: HashMap<&str, usize> =
        classes(1).iter().enumerate().map(|(at, class)| (class.handle.as_str(), at)).collect();
    let by_name: HashMap<&str, usize> = classes(1)
        .iter()
        .enumerate()
        .filter_map(|(at, class)| Some((class.name.as_deref()?, at)))
        .collect();
    let mut is_taken = vec![false; classes(1).len()];
    let mut all: Vec<[Option<&Class>; 2]> = Vec::with_capacity(classes(0).len());
    for class in classes(0) {
        let named = class.name.as_deref().and_then(|name| by_name.get(name));
        let other = named.or_else(|| by_handle.get(class.handle.as_str()));
        let other = other.copied().filter(|&at| !std::mem::replace(&mut is_taken[at], true));
        all.push([Some(class), other.map(|at| &classes(1)[at])]);
    }
    let alone = classes(1).iter().zip(is_taken).filter(|(_, is_taken)| !is_taken);
    all.extend(alone.map(|(class, _)| [None, Some(class)]));
    all
}

fn heading(ports: [Option<&Port>; 2], change: Option<&Change>) -> Row {
    let names = ports.map(|port| port.map_or("-", |port| &port.name));
    let side = |port: Option<&Port>| {
        let Some(port) = port else { return none() };
        let rates = change.map(|change| change.of_port(port)).unwrap_or_default();
        let limit = port.limit_bps().map(|limit| limit as f64);
        let [_, p99] = delays(change.map(|change| change.delays_of_port(port)));
        let used = Cell::percent(used(rates.tx_bps, limit));
        ([Cell::number(rates.tx_bps), used, p99, Cell::number(rates.drops_pps)], rates.tx_bps)
    };
    let queued = ports.iter().flatten().map(|port| port.total.backlog_packets).sum();
    let text = format!("A {}  B {}", names[0], names[1]);
    with_sides(&names.join(","), None, text, ports.map(side), queued)
}

fn row(
    ports: [Option<&Port>; 2],
    classes: [Option<&Class>; 2],
    parent: usize,
    change: Option<&Change>,
) -> Row {
    let present: Vec<(&Port, &Class)> =
        ports.into_iter().zip(classes).filter_map(|(port, class)| Some((port?, class?))).collect();
    let side = |side: usize| {
        let (Some(port), Some(class)) = (ports[side], classes[side]) else { return none() };
        let rates = change.map(|change| change.of_class(&port.name, class)).unwrap_or_default();
        let limit = class.most().or(class.assured()).map(|bytes| bytes as f64 * 8.0);
        let [_, p99] = delays(change.map(|change| change.delays_of_class(&port.name, class)));
        let used = Cell::percent(used(rates.bps, limit));
        ([Cell::number(rates.bps), used, p99, Cell::number(rates.drops_pps)], rates.bps)
    };
    let queued = present.iter().map(|(_, class)| class.stats.figures.qlen).sum();
    let (key, text) = match present.first() {
        Some((port, class)) => (key(port, class), name(class)),
        None => Default::default(),
    };
    with_sides(&key, Some(parent), text, [side(0), side(1)], queued)
}

/// The cells of a direction, and its rate.
type Side = ([Cell; 4], Option<f64>);

/// A direction that is not there.
fn none() -> Side {
    ([Cell::blank(), Cell::blank(), Cell::blank(), Cell::blank()], None)
}

fn with_sides(
    key: &str,
    parent: Option<usize>,
    text: String,
    [(a, rate_a), (b, rate_b)]: [Side; 2],
    queued: u64,
) -> Row {
    let cells = [Cell::text(text)].into_iter().chain(a).chain(b).chain([Cell::count(queued)]);
    let rate = [rate_a, rate_b].into_iter().flatten().reduce(|a, b| a + b);
    Row { rate, ..Row::new(key, parent, cells.collect()) }
}

/// The facts of both classes, each behind its port's name.
pub(super) fn details(now: &Snapshot, key: &str) -> Vec<Fact> {
    for ports in pairs(now) {
        let is_it = |classes: &[Option<&Class>; 2]| {
            let mut each = ports.into_iter().zip(classes);
            each.any(|(port, class)| match (port, class) {
                (Some(port), Some(class)) => classes::key(port, class) == key,
                _ => false,
            })
        };
        let Some(found) = joined(ports).into_iter().find(is_it) else { continue };
        let mut facts = Vec::new();
        for (port, class) in ports.into_iter().zip(found) {
            let (Some(port), Some(class)) = (port, class) else { continue };
            let own = classes::details(now, &classes::key(port, class)).into_iter();
            facts.extend(own.map(|(name, value)| (format!("{} {name}", port.name), value)));
        }
        return facts;
    }
    Vec::new()
}
