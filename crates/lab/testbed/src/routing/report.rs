//! The results of the benchmark, as a table and as JSON.

use super::limit::Shape;
use super::{Cell, Results, Sample, Samples, System};
use crate::machine::Machine;
use crate::spread::{Spread, shown};
use crate::table;
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
    /// The rounds that failed.
    pub failures: Vec<Failure>,
}

/// What failed: the other rounds count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The row: its system,
    pub system: &'static str,
    /// family,
    pub family: &'static str,
    /// routes,
    pub routes: usize,
    /// destinations
    pub destinations: usize,
    /// and cores that route.
    pub cpus: usize,
    /// Its round, from 1 on; none if it is what measures look-ups.
    pub round: Option<u32>,
    /// Why.
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { system, family, routes, destinations, cpus, round, why } = self;
        match round {
            Some(round) => write!(f, "round {round} of {system} ")?,
            None => f.write_str("look-ups ")?,
        }
        write!(f, "failed ({family}, routes: {routes}, destinations: {destinations}, ")?;
        write!(f, "cores: {cpus}): {why}")
    }
}

impl Report {
    pub(super) fn new(results: &Results) -> Self {
        let Results { samples, look_ups, absent, failures } = results;
        let row = |(cell, rounds): (&Cell, &Samples)| {
            let of = |system| samples.get(&Cell { system, ..*cell });
            let beside = cell.system.limit().and_then(|limit| of(limit.beside?));
            (*cell, row(cell, rounds, of(System::Kernel), beside))
        };
        let missing = |(cell, why): (&Cell, &String)| {
            (*cell, Row { absent: Some(why.clone()), ..Row::of(cell) })
        };
        let mut rows: BTreeMap<Cell, Row> =
            samples.iter().map(row).chain(absent.iter().map(missing)).collect();
        for (cell, times) in look_ups {
            if let Some(row) = rows.get_mut(cell) {
                row.lookup_ns = Spread::of(times.iter().copied());
            }
        }
        let failure = |(cell, round, why): &(Cell, Option<u32>, String)| Failure {
            system: cell.system.name(),
            family: cell.family.name(),
            routes: cell.routes,
            destinations: cell.destinations,
            cpus: cell.cpus,
            round: *round,
            why: why.clone(),
        };
        let failures = failures.iter().map(failure).collect();
        Self { machine: Machine::here(), rows: rows.into_values().collect(), failures }
    }
}

/// Ratios are taken within a round, of the rounds that both have.
fn row(cell: &Cell, rounds: &Samples, kernel: Option<&Samples>, beside: Option<&Samples>) -> Row {
    let ratio =
        |(own, other): (&Sample, &Sample)| own.packets_per_second / other.packets_per_second;
    let (above, to_wire) = match cell.system.limit().map(|limit| limit.shape) {
        None => (None, None),
        Some(Shape::Tree) => {
            let more = |(own, other): (&Sample, &Sample)| own.nanos() - other.nanos();
            (Spread::of(pairs(rounds, beside).map(more)), None)
        }
        Some(Shape::Cake) => {
            let times = |(own, other): (&Sample, &Sample)| own.nanos() / other.nanos();
            (None, Spread::of(pairs(rounds, beside).map(times)))
        }
    };
    Row {
        kpps: Spread::of(rounds.values().map(|sample| sample.packets_per_second / 1e3)),
        cpu_ns_per_packet: Spread::of(rounds.values().map(Sample::nanos)),
        cpu_ns_above: above,
        cpu_to_wire: to_wire,
        to_kernel: Spread::of(pairs(rounds, kernel).map(ratio)),
        ..Row::of(cell)
    }
}

/// The measurements of each round in both.
fn pairs<'a>(
    own: &'a Samples,
    others: Option<&'a Samples>,
) -> impl Iterator<Item = (&'a Sample, &'a Sample)> {
    let beside = move |round| others.and_then(|others| others.get(round));
    own.iter().filter_map(move |(round, sample)| Some((sample, beside(round)?)))
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
        if measured().any(|row| row.has_limit) {
            writeln!(f, "with a limit at the port where packets leave")?;
            writeln!(f, "{}", limits(measured().filter(|row| row.has_limit)))?;
        }
        let needs = self.rows.iter().filter_map(|row| Some((row.system, row.needs?)));
        table::write_notes(f, needs, self.rows.iter().filter_map(|row| row.absent.as_ref()))?;
        self.failures.iter().try_for_each(|failure| writeln!(f, "{failure}"))
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

    fn cell(system: System) -> Cell {
        Cell { family: Family::Ipv4, cpus: 1, routes: 1, destinations: 1, system }
    }

    /// What arrived and what was taken in, in each round from 1 on.
    fn report<const N: usize>(of: [(System, &[(f64, f64)]); N]) -> Report {
        let rounds = |rounds: &[(f64, f64)]| {
            (1..).zip(rounds.iter().map(|(arrived, taken)| sample(*arrived, *taken))).collect()
        };
        let samples = of.into_iter().map(|(system, of)| (cell(system), rounds(of))).collect();
        Report::new(&Results { samples, ..Results::default() })
    }

    fn find<'a>(report: &'a Report, name: &str) -> &'a Row {
        report.rows.iter().find(|row| row.system == name).unwrap()
    }

    #[test]
    fn a_tree_is_beside_none_and_cake_beside_the_wire_in_each_round() {
        let report = report([
            (System::NarrowsXdp, &[(4e6, 4e6), (2e6, 2e6)]),
            (System::NarrowsXdpTreeBinding, &[(1e6, 2e6), (1e6, 1e6)]),
            (System::WireXskCake, &[(1e6, 1e6), (1e6, 1e6)]),
            (System::NarrowsXskCake, &[(1e6, 1e6), (5e5, 5e5)]),
        ]);
        let tree = find(&report, "narrows-xdp-tree-binding");
        assert_eq!(tree.cpu_ns_above, Some(Spread { median: 375.0, min: 250.0, max: 500.0 }));
        assert_eq!(tree.cpu_to_wire, None);
        let cake = find(&report, "narrows-xsk-cake");
        assert_eq!(cake.cpu_to_wire, Some(Spread { median: 1.5, min: 1.0, max: 2.0 }));
        assert_eq!((cake.cpu_ns_above, find(&report, "wire-xsk-cake").cpu_to_wire), (None, None));
        assert_eq!(cake.to_kernel, None);
        assert!(report.to_string().contains("375 (250-500)"));
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_what_is_absent_has_none() {
        let samples = [
            (cell(System::Kernel), Samples::from([(1, sample(1e6, 1e6)), (2, sample(5e5, 5e5))])),
            (
                cell(System::NarrowsXdp),
                Samples::from([(1, sample(3e6, 3e6)), (2, sample(2e6, 2e6))]),
            ),
        ];
        let absent = [(cell(System::XdpForward), "it is not there".to_owned())].into();
        let report =
            Report::new(&Results { samples: samples.into(), absent, ..Results::default() });
        let ratio = find(&report, "narrows-xdp").to_kernel.unwrap();
        assert_eq!((ratio.min, ratio.max), (3.0, 4.0));
        assert!(report.to_string().contains("narrows-xdp"));
        assert!(report.to_string().contains("not measured: it is not there"));
        let json = serde_json::to_value(&report.rows).unwrap();
        assert_eq!((&json[1]["system"], &json[1]["kpps"]), (&"xdp-forward".into(), &().into()));
        assert!(json[2]["lookup_ns"].is_null() && json[2]["kpps"].is_object());
    }

    #[test]
    fn the_rounds_that_did_not_fail_count_and_the_others_are_named() {
        let whole = |rate: f64| sample(rate, rate);
        let samples = [
            (cell(System::Kernel), Samples::from([(1, whole(1e6)), (2, whole(5e5))])),
            (cell(System::NarrowsXdp), Samples::from([(2, whole(2e6))])),
        ];
        let why = "nothing arrived".to_owned();
        let failures = vec![
            (cell(System::NarrowsXdp), Some(1), why.clone()),
            (cell(System::NarrowsXsk), Some(1), why.clone()),
            (cell(System::Kernel), None, why),
        ];
        let report =
            Report::new(&Results { samples: samples.into(), failures, ..Results::default() });
        let ours = find(&report, "narrows-xdp");
        assert_eq!((ours.kpps.unwrap().median, ours.to_kernel.unwrap().median), (2e3, 4.0));
        assert!(report.rows.iter().all(|row| row.system != "narrows-xsk"));
        let text = report.to_string();
        let of = "failed (ipv4, routes: 1, destinations: 1, cores: 1): nothing arrived";
        for what in ["round 1 of narrows-xdp", "round 1 of narrows-xsk", "look-ups"] {
            assert!(text.contains(&format!("{what} {of}")), "{text}");
        }
        let json = serde_json::to_value(&report.failures).unwrap();
        assert_eq!((&json[0]["round"], &json[2]["round"]), (&1.into(), &().into()));
    }
}
