//! The results of the benchmark, as a table and as JSON.

use super::{Cell, Sample};
use crate::machine::Machine;
use crate::spread::{Spread, shown};
use crate::table;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// One system with so many stations.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub system: &'static str,
    /// The stations behind each port, all of which send, or are sent to.
    pub stations: u32,
    /// Thousands of packets that arrived in a second.
    pub kpps: Option<Spread>,
    /// Run time of the threads that switch, per packet that arrived.
    pub ns_per_packet: Option<Spread>,
    /// Packets per second, relative to the kernel's bridge with the same settings.
    pub to_bridge: Option<Spread>,
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
    /// Of `samples`, without the cells that are `missing`, and `why`.
    pub(super) fn new(
        samples: &BTreeMap<Cell, Vec<Sample>>,
        missing: &[Cell],
        why: &str,
    ) -> Result<Self> {
        let row = |(cell, rounds): (&Cell, &Vec<Sample>)| {
            let bridge = samples.get(&Cell { system: cell.system.peer(), ..*cell });
            row(cell, rounds, bridge.context("the bridge was not measured")?)
                .with_context(|| format!("nothing arrived: {cell:?}"))
        };
        let measured = samples.iter().map(|measured| Ok((*measured.0, row(measured)?)));
        let absent =
            |cell: &Cell| Ok((*cell, Row { absent: Some(why.to_owned()), ..Row::of(cell) }));
        let rows = measured.chain(missing.iter().map(absent));
        let rows: BTreeMap<Cell, Row> = rows.collect::<Result<_>>()?;
        Ok(Self { machine: Machine::here(), rows: rows.into_values().collect() })
    }
}

fn row(cell: &Cell, rounds: &[Sample], bridge: &[Sample]) -> Option<Row> {
    if rounds.iter().any(|sample| sample.packets_per_second <= 0.0) {
        return None;
    }
    let ratio =
        |(own, bridge): (&Sample, &Sample)| own.packets_per_second / bridge.packets_per_second;
    Some(Row {
        kpps: Some(Spread::of(rounds.iter().map(|sample| sample.packets_per_second / 1e3))?),
        ns_per_packet: Some(Spread::of(rounds.iter().map(Sample::nanos))?),
        to_bridge: Some(Spread::of(rounds.iter().zip(bridge).map(ratio))?),
        ..Row::of(cell)
    })
}

impl Row {
    /// One without figures.
    fn of(cell: &Cell) -> Self {
        Self {
            system: cell.system.name(),
            stations: cell.stations,
            kpps: None,
            ns_per_packet: None,
            to_bridge: None,
            needs: cell.system.needs(),
            absent: None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(f, "frames of 64 bytes; median over the rounds (least-most)")?;
        let header = ["stations", "system", "kpps", "to bridge", "CPU ns per packet"];
        let mut table = table::of_figures(1, header);
        for row in self.rows.iter().filter(|row| row.kpps.is_some()) {
            table.add_row([
                row.stations.to_string(),
                row.system.to_owned(),
                shown(row.kpps, 0),
                shown(row.to_bridge, 2),
                shown(row.ns_per_packet, 0),
            ]);
        }
        writeln!(f, "{table}")?;
        let needs = self.rows.iter().filter_map(|row| Some((row.system, row.needs?)));
        table::write_notes(f, needs, self.rows.iter().filter_map(|row| row.absent.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switching::system::System;

    #[test]
    fn ratios_are_to_the_bridge_with_the_same_settings_and_nothing_is_no_result() {
        let of_rates = |rates: [f64; 2]| -> Vec<Sample> {
            let of = |rate| Sample { packets_per_second: rate, taken_per_second: rate, cores: 1.0 };
            rates.map(of).to_vec()
        };
        let cell = |system| Cell { stations: 1, system };
        let mut samples = BTreeMap::from([
            (cell(System::Bridge), of_rates([1e6, 5e5])),
            (cell(System::BridgeVlan), of_rates([5e5, 5e5])),
            (cell(System::NarrowsXdp), of_rates([3e6, 2e6])),
            (cell(System::NarrowsXskVlan), of_rates([1e6, 1e6])),
        ]);
        let missing = Cell { stations: 7, system: System::BridgeVlan };
        let report = Report::new(&samples, &[missing], "there are no VLANs").unwrap();
        let of = |name| report.rows.iter().find(|row| row.system == name).unwrap();
        let ratio = Spread { median: 3.5, min: 3.0, max: 4.0 };
        assert_eq!(of("narrows-xdp").to_bridge, Some(ratio));
        assert_eq!(of("narrows-xsk-vlan").to_bridge.unwrap().median, 2.0);
        assert_eq!(of("narrows-xsk-vlan").ns_per_packet.unwrap().median, 1000.0);
        assert!(report.to_string().contains("not measured: there are no VLANs"));
        assert!(report.to_string().contains("narrows-xsk-vlan"));
        let json = serde_json::to_value(&report.rows).unwrap();
        assert_eq!((&json[0]["system"], &json[0]["stations"]), (&"bridge".into(), &1.into()));
        assert!(json[0]["kpps"].is_object() && json[0]["ns_per_packet"].is_object());
        samples.insert(cell(System::NarrowsXdp), of_rates([0.0, 1.0]));
        assert!(
            Report::new(&samples, &[], "").unwrap_err().to_string().contains("nothing arrived")
        );
    }
}
