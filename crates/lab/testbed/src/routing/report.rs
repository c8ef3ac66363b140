//! The results of the benchmark, as a table and as JSON.

use super::{Cell, Sample, System};
use crate::machine::Machine;
use crate::spread::Spread;
use crate::table;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// One system with one table and so many destinations.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub system: &'static str,
    /// `ipv4`.
    pub family: &'static str,
    /// The routes that lead to the server.
    pub routes: usize,
    /// The addresses to which packets are sent, one after the other.
    pub destinations: usize,
    /// The cores that route.
    pub cpus: usize,
    /// Thousands of packets that arrived in a second.
    pub kpps: Spread,
    /// Run time of the kernel's threads that route, per packet that arrived.
    pub cpu_ns_per_packet: Spread,
    /// Packets per second, relative to `kernel`.
    pub to_kernel: Spread,
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
    pub(super) fn new(samples: &BTreeMap<Cell, Vec<Sample>>) -> Result<Self> {
        let row = |(cell, rounds): (&Cell, &Vec<Sample>)| {
            let kernel = samples.get(&Cell { system: System::Kernel, ..*cell });
            row(cell, rounds, kernel.context("the kernel was not measured")?)
                .with_context(|| format!("nothing arrived: {cell:?}"))
        };
        let rows = samples.iter().map(row).collect::<Result<_>>()?;
        Ok(Self { machine: Machine::here(), rows })
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
        system: cell.system.name(),
        family: "ipv4",
        routes: cell.routes,
        destinations: cell.destinations,
        cpus: 1,
        kpps: Spread::of(rounds.iter().map(|sample| sample.packets_per_second / 1e3))?,
        cpu_ns_per_packet: Spread::of(rounds.iter().map(nanos))?,
        to_kernel: Spread::of(rounds.iter().zip(kernel).map(ratio))?,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(f, "frames of 64 bytes, one core routes; median over the rounds (least-most)")?;
        let header = ["system", "routes", "destinations", "kpps", "to kernel", "CPU ns per packet"];
        let mut table = table::of_figures(0, header);
        for row in &self.rows {
            table.add_row([
                row.system.to_owned(),
                row.routes.to_string(),
                row.destinations.to_string(),
                row.kpps.shown(0),
                row.to_kernel.shown(2),
                row.cpu_ns_per_packet.shown(0),
            ]);
        }
        writeln!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round_and_nothing_is_no_result() {
        let of = |rates: [f64; 2]| {
            rates.map(|packets_per_second| Sample { packets_per_second, cores: 1.0 }).to_vec()
        };
        let cell = |system| Cell { routes: 1, destinations: 1, system };
        let mut samples = BTreeMap::from([
            (cell(System::Kernel), of([1e6, 5e5])),
            (cell(System::NarrowsXdp), of([3e6, 2e6])),
        ]);
        let report = Report::new(&samples).unwrap();
        let ours = report.rows.iter().find(|row| row.system == "narrows-xdp").unwrap();
        assert_eq!((ours.to_kernel.min, ours.to_kernel.max), (3.0, 4.0));
        assert!(report.to_string().contains("narrows-xdp"));
        samples.insert(cell(System::NarrowsXdp), of([0.0, 1.0]));
        assert!(Report::new(&samples).unwrap_err().to_string().contains("nothing arrived"));
    }
}
