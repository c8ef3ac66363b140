//! The results of the benchmark, as a table and as JSON.

use super::limit::Shape;
use super::{Absences, Cell, Sample, System};
use crate::machine::Machine;
use crate::spread::{Spread, shown};
use crate::table;
use anyhow::{Context, Result};
use comfy_table::Table;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// One system with one table and so many destinations.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub system: &'static str,
    /// `ipv4` or `ipv6`.
    pub family: &'static str,
    /// The routes that lead to the server.
    pub routes: usize,
    /// The addresses to which packets are sent, one after the other.
    pub destinations: usize,
    /// The cores that route.
    pub cpus: usize,
    /// Thousands of packets that arrived in a second.
    pub kpps: Option<Spread>,
    /// Run time of the threads that route, per packet that arrived or that a limit dropped.
    pub cpu_ns_per_packet: Option<Spread>,
    /// How much more that is than without the tree, in a row with one.
    pub cpu_ns_above: Option<Spread>,
    /// How many times that of the wire it is, in a row of a router with `cake`.
    pub cpu_to_wire: Option<Spread>,
    /// Packets per second, relative to `kernel`.
    pub to_kernel: Option<Spread>,
    /// The time of a look-up alone, in nanoseconds: in the table of Narrows, and by the kernel for
    /// programs.
    pub lookup_ns: Option<Spread>,
    /// Whether there is a limit at the port where packets leave.
    #[serde(skip)]
    pub has_limit: bool,
    /// What it needs besides what receives.
    pub needs: Option<&'static str>,
    /// Why it was not measured.
    pub absent: Option<String>,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// The systems.
    pub rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(
        samples: &BTreeMap<Cell, Vec<Sample>>,
        look_ups: &BTreeMap<Cell, Vec<f64>>,
        absent: &Absences,
    ) -> Result<Self> {
        let row = |(cell, rounds): (&Cell, &Vec<Sample>)| {
            let of = |system| samples.get(&Cell { system, ..*cell }).map(Vec::as_slice);
            let kernel = of(System::Kernel).context("the kernel was not measured")?;
            let beside = cell.system.limit().and_then(|limit| of(limit.beside?));
            row(cell, rounds, kernel, beside).with_context(|| format!("nothing arrived: {cell:?}"))
        };
        let measured = samples.iter().map(|measured| Ok((*measured.0, row(measured)?)));
        let missing = absent
            .iter()
            .map(|(cell, why)| Ok((*cell, Row { absent: Some(why.clone()), ..Row::of(cell) })));
        let mut rows: BTreeMap<Cell, Row> = measured.chain(missing).collect::<Result<_>>()?;
        for (cell, times) in look_ups {
            if let Some(row) = rows.get_mut(cell) {
                row.lookup_ns = Spread::of(times.iter().copied());
            }
        }
        Ok(Self { machine: Machine::here(), rows: rows.into_values().collect() })
    }
}

fn row(
    cell: &Cell,
    rounds: &[Sample],
    kernel: &[Sample],
    beside: Option<&[Sample]>,
) -> Option<Row> {
    if rounds.iter().any(|sample| sample.packets_per_second <= 0.0) {
        return None;
    }
    let ratio =
        |(own, kernel): (&Sample, &Sample)| own.packets_per_second / kernel.packets_per_second;
    let pairs = || beside.into_iter().flat_map(|beside| rounds.iter().zip(beside));
    let (above, to_wire) = match cell.system.limit().map(|limit| limit.shape) {
        None => (None, None),
        Some(Shape::Tree) => {
            (Spread::of(pairs().map(|(own, other)| own.nanos() - other.nanos())), None)
        }
        Some(Shape::Cake) => {
            (None, Spread::of(pairs().map(|(own, other)| own.nanos() / other.nanos())))
        }
    };
    Some(Row {
        kpps: Some(Spread::of(rounds.iter().map(|sample| sample.packets_per_second / 1e3))?),
        cpu_ns_per_packet: Some(Spread::of(rounds.iter().map(Sample::nanos))?),
        cpu_ns_above: above,
        cpu_to_wire: to_wire,
        to_kernel: Some(Spread::of(rounds.iter().zip(kernel).map(ratio))?),
        ..Row::of(cell)
    })
}

impl Row {
    /// One without figures.
    fn of(cell: &Cell) -> Self {
        Self {
            system: cell.system.name(),
            family: cell.family.name(),
            routes: cell.routes,
            destinations: cell.destinations,
            cpus: cell.cpus,
            kpps: None,
            cpu_ns_per_packet: None,
            cpu_ns_above: None,
            cpu_to_wire: None,
            to_kernel: None,
            lookup_ns: None,
            has_limit: cell.system.limit().is_some(),
            needs: cell.system.needs(),
            absent: None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(f, "frames of 64 bytes; median over the rounds (least-most)")?;
        let measured = || self.rows.iter().filter(|row| row.kpps.is_some());
        writeln!(f, "{}", routers(measured().filter(|row| !row.has_limit)))?;
        writeln!(f, "with a limit at the port where packets leave")?;
        writeln!(f, "{}", limits(measured().filter(|row| row.has_limit)))?;
        let needs = self.rows.iter().filter_map(|row| Some((row.system, row.needs?)));
        table::write_notes(f, needs, self.rows.iter().filter_map(|row| row.absent.as_ref()))
    }
}

fn routers<'a>(rows: impl Iterator<Item = &'a Row>) -> Table {
    let header = [
        "system",
        "family",
        "cores that route",
        "routes",
        "destinations",
        "kpps",
        "to kernel",
        "CPU ns per packet",
        "look-up ns",
    ];
    let mut table = table::of_figures(1, header);
    for row in rows {
        table.add_row([
            row.system.to_owned(),
            row.family.to_owned(),
            row.cpus.to_string(),
            row.routes.to_string(),
            row.destinations.to_string(),
            shown(row.kpps, 0),
            shown(row.to_kernel, 2),
            shown(row.cpu_ns_per_packet, 0),
            shown(row.lookup_ns, 0),
        ]);
    }
    table
}

/// All of them have one route of IPv4, and one core.
fn limits<'a>(rows: impl Iterator<Item = &'a Row>) -> Table {
    let header = [
        "system",
        "destinations",
        "kpps",
        "CPU ns per packet taken in",
        "above no tree, ns",
        "to the wire",
    ];
    let mut table = table::of_figures(1, header);
    for row in rows {
        table.add_row([
            row.system.to_owned(),
            row.destinations.to_string(),
            shown(row.kpps, 0),
            shown(row.cpu_ns_per_packet, 0),
            shown(row.cpu_ns_above, 0),
            shown(row.cpu_to_wire, 2),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::Family;

    fn sample(packets_per_second: f64, taken_per_second: f64) -> Sample {
        Sample { packets_per_second, taken_per_second, cores: 1.0 }
    }

    #[test]
    fn a_tree_is_beside_none_and_cake_beside_the_wire_in_each_round() {
        let cell =
            |system| Cell { family: Family::Ipv4, cpus: 1, routes: 1, destinations: 1, system };
        let samples = BTreeMap::from([
            (cell(System::Kernel), vec![sample(1e6, 1e6); 2]),
            (cell(System::NarrowsXdp), vec![sample(4e6, 4e6), sample(2e6, 2e6)]),
            (cell(System::NarrowsXdpTreeBinding), vec![sample(1e6, 2e6), sample(1e6, 1e6)]),
            (cell(System::WireXskCake), vec![sample(1e6, 1e6); 2]),
            (cell(System::NarrowsXskCake), vec![sample(1e6, 1e6), sample(5e5, 5e5)]),
        ]);
        let report = Report::new(&samples, &BTreeMap::new(), &Absences::new()).unwrap();
        let of = |name| report.rows.iter().find(|row| row.system == name).unwrap();
        let tree = of("narrows-xdp-tree-binding");
        assert_eq!(tree.cpu_ns_above, Some(Spread { median: 375.0, min: 250.0, max: 500.0 }));
        assert_eq!(tree.cpu_to_wire, None);
        let cake = of("narrows-xsk-cake");
        assert_eq!(cake.cpu_to_wire, Some(Spread { median: 1.5, min: 1.0, max: 2.0 }));
        assert_eq!((cake.cpu_ns_above, of("wire-xsk-cake").cpu_to_wire), (None, None));
        assert!(report.to_string().contains("375 (250-500)"));
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_nothing_is_no_result() {
        let of = |rates: [f64; 2]| rates.map(|rate| sample(rate, rate)).to_vec();
        let family = Family::Ipv4;
        let cell = |system| Cell { family, cpus: 1, routes: 1, destinations: 1, system };
        let mut samples = BTreeMap::from([
            (cell(System::Kernel), of([1e6, 5e5])),
            (cell(System::NarrowsXdp), of([3e6, 2e6])),
        ]);
        let why = "it is not there".to_owned();
        let absent = Absences::from([(cell(System::XdpForward), why)]);
        let report = Report::new(&samples, &BTreeMap::new(), &absent).unwrap();
        let ours = report.rows.iter().find(|row| row.system == "narrows-xdp").unwrap();
        let ratio = ours.to_kernel.unwrap();
        assert_eq!((ratio.min, ratio.max), (3.0, 4.0));
        assert!(report.to_string().contains("narrows-xdp"));
        assert!(report.to_string().contains("not measured: it is not there"));
        let json = serde_json::to_value(&report.rows).unwrap();
        assert_eq!((&json[1]["system"], &json[1]["kpps"]), (&"xdp-forward".into(), &().into()));
        assert!(json[2]["lookup_ns"].is_null() && json[2]["kpps"].is_object());
        samples.insert(cell(System::NarrowsXdp), of([0.0, 1.0]));
        assert!(
            Report::new(&samples, &BTreeMap::new(), &absent)
                .unwrap_err()
                .to_string()
                .contains("nothing arrived")
        );
    }
}
