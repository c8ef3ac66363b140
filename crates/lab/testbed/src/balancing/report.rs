//! The results, as a table and as JSON.

use super::system::System;
use super::{Cell, Flows, Results};
use crate::machine::Machine;
use crate::receiving::Sample;
use crate::spread::{Spread, shown};
use crate::table;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt;

/// One balancer under one load.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `xdp-tx`, `kernel-ipvs` or `narrows`.
    pub system: &'static str,
    /// How it chooses a server: `mh` or `rr`.
    pub scheduler: Option<&'static str>,
    /// How packets reach the server: `-g` or `-i`.
    pub way: Option<&'static str>,
    /// `known` or `new`.
    pub flows: &'static str,
    /// How many connections there are, where all have begun.
    pub connections: Option<u32>,
    /// How many servers there are.
    pub servers: u16,
    /// Cores that receive.
    pub cpus: usize,
    /// Thousands of packets in a second of the time of the thread that receives.
    pub kpps: Option<f64>,
    /// Its run time, in nanoseconds, per packet.
    pub ns_per_packet: Option<Spread>,
    /// In addition to `xdp-tx`, within each round; the median.
    pub ns_above_tx: Option<f64>,
    /// The time of IPVS with the same service relative to that of Narrows, within each round; the
    /// median.
    pub times_ipvs: Option<f64>,
    /// Why it was not measured.
    pub absent: Option<String>,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(results: &Results) -> Result<Self> {
        let rows = results.iter().map(|(cell, result)| row(*cell, result, results));
        Ok(Self { machine: Machine::here(), rows: rows.collect::<Result<_>>()? })
    }
}

fn row(cell: Cell, result: &Result<Vec<Sample>, String>, results: &Results) -> Result<Row> {
    let samples = |system: System| results.get(&Cell { system, ..cell })?.as_deref().ok();
    // What `combine` makes of the times of this one and of the other in each round.
    let beside = |other: System, combine: fn(f64, f64) -> f64| {
        let (own, other) = (samples(cell.system)?, samples(other)?);
        let rounds = own.iter().zip(other).map(|(own, it)| combine(own.nanos(), it.nanos()));
        Some(Spread::of(rounds)?.median)
    };
    let spread = match result {
        Ok(samples) => Some(Spread::of(samples.iter().map(Sample::nanos)).context("no round")?),
        Err(_) => None,
    };
    let balances = cell.system.balances();
    let connections = match cell.flows {
        Flows::Known(connections) => Some(connections),
        Flows::New => None,
    };
    Ok(Row {
        system: cell.system.name(),
        scheduler: balances.map(|(scheduler, _)| scheduler.name()),
        way: balances.map(|(_, way)| way.option()),
        flows: if connections.is_some() { "known" } else { "new" },
        connections,
        servers: cell.servers,
        cpus: 1,
        kpps: spread.map(|spread| 1e6 / spread.median),
        ns_per_packet: spread,
        ns_above_tx: beside(System::XdpTx, |own, tx| own - tx),
        times_ipvs: match cell.system {
            System::Narrows(scheduler, way) => {
                beside(System::Ipvs(scheduler, way), |own, ipvs| ipvs / own)
            }
            System::XdpTx | System::Ipvs(..) => None,
        },
        absent: result.as_ref().err().cloned(),
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(f, "frames of 64 bytes from a driver; median over the rounds (least-most)")?;
        let header = [
            "system",
            "flows",
            "connections",
            "servers",
            "CPU ns per packet",
            "above tx",
            "kpps of a core",
            "IPVS takes",
        ];
        let mut table = table::of_figures(0, header);
        let rounded = |value: Option<f64>| value.map_or("-".to_owned(), |it| format!("{it:.0}"));
        for row in &self.rows {
            let words = [Some(row.system), row.scheduler, row.way];
            table.add_row([
                words.into_iter().flatten().collect::<Vec<_>>().join(" "),
                row.flows.to_owned(),
                row.connections.map_or("-".to_owned(), |it| it.to_string()),
                row.servers.to_string(),
                shown(row.ns_per_packet, 0),
                rounded(row.ns_above_tx),
                rounded(row.kpps),
                row.times_ipvs.map_or("-".to_owned(), |it| format!("{it:.1} x")),
            ]);
        }
        writeln!(f, "{table}")?;
        let absent = self.rows.iter().filter_map(|row| row.absent.as_ref());
        table::write_notes(f, std::iter::empty(), absent)
    }
}

#[cfg(test)]
mod tests {
    use super::super::system::{Scheduler, Way};
    use super::*;
    use std::time::Duration;

    #[test]
    fn narrows_is_beside_ipvs_with_the_same_service_in_the_same_round() {
        let of = |nanos: [u64; 3]| -> Vec<Sample> {
            let one = |nanos| Sample { frames: 10, busy: Duration::from_nanos(10 * nanos) };
            nanos.map(one).to_vec()
        };
        let cell = |system| Cell { flows: Flows::Known(9), servers: 3, system };
        let (mh, rr) = ((Scheduler::Mh, Way::Route), (Scheduler::Rr, Way::Route));
        let results = Results::from([
            (cell(System::XdpTx), Ok(of([50, 60, 40]))),
            (cell(System::Ipvs(mh.0, mh.1)), Ok(of([800, 1600, 900]))),
            (cell(System::Ipvs(rr.0, rr.1)), Err("no module".to_owned())),
            (cell(System::Narrows(mh.0, mh.1)), Ok(of([200, 400, 100]))),
            (cell(System::Narrows(rr.0, rr.1)), Ok(of([200, 400, 100]))),
        ]);
        let report = Report::new(&results).unwrap();
        let [_, ipvs, absent, narrows, alone] = &report.rows[..] else { panic!("{report}") };
        assert_eq!((narrows.times_ipvs, narrows.ns_above_tx), (Some(4.0), Some(150.0)));
        assert_eq!((ipvs.times_ipvs, ipvs.kpps.map(f64::round)), (None, Some(1111.0)));
        assert_eq!(absent.absent.as_deref(), Some("no module"));
        assert_eq!((alone.times_ipvs, alone.connections), (None, Some(9)));
        let text = report.to_string();
        assert!(text.contains("4.0 x") && text.contains("not measured: no module"), "{text}");
    }
}
