//! The results of the benchmark, as a table and as JSON.

use super::{Absences, Cell, Sample, System};
use crate::machine::Machine;
use crate::spread::Spread;
use crate::table;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
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
    /// Run time of the threads that route, per packet that arrived.
    pub cpu_ns_per_packet: Option<Spread>,
    /// Packets per second, relative to `kernel`.
    pub to_kernel: Option<Spread>,
    /// The time of a look-up alone, in nanoseconds: in the table of Narrows, and by the kernel for
    /// programs.
    pub lookup_ns: Option<Spread>,
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
            let kernel = samples.get(&Cell { system: System::Kernel, ..*cell });
            row(cell, rounds, kernel.context("the kernel was not measured")?)
                .with_context(|| format!("nothing arrived: {cell:?}"))
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

fn row(cell: &Cell, rounds: &[Sample], kernel: &[Sample]) -> Option<Row> {
    if rounds.iter().any(|sample| sample.packets_per_second <= 0.0) {
        return None;
    }
    let ratio =
        |(own, kernel): (&Sample, &Sample)| own.packets_per_second / kernel.packets_per_second;
    let nanos = |sample: &Sample| sample.cores * 1e9 / sample.packets_per_second;
    Some(Row {
        kpps: Some(Spread::of(rounds.iter().map(|sample| sample.packets_per_second / 1e3))?),
        cpu_ns_per_packet: Some(Spread::of(rounds.iter().map(nanos))?),
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
            to_kernel: None,
            lookup_ns: None,
            needs: cell.system.needs(),
            absent: None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(f, "frames of 64 bytes; median over the rounds (least-most)")?;
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
        let shown = |spread: Option<Spread>, digits| match spread {
            Some(spread) => spread.shown(digits),
            None => "-".to_owned(),
        };
        for row in self.rows.iter().filter(|row| row.kpps.is_some()) {
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
        writeln!(f, "{table}")?;
        let needs = self.rows.iter().filter_map(|row| Some((row.system, row.needs?)));
        for (system, needs) in needs.collect::<BTreeSet<_>>() {
            writeln!(f, "{system} needs {needs}")?;
        }
        for why in self.rows.iter().filter_map(|row| row.absent.as_ref()).collect::<BTreeSet<_>>() {
            writeln!(f, "not measured: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::Family;

    #[test]
    fn ratios_are_taken_within_a_round_and_nothing_is_no_result() {
        let of = |rates: [f64; 2]| {
            rates.map(|packets_per_second| Sample { packets_per_second, cores: 1.0 }).to_vec()
        };
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
