//! The benchmark's results, as a table and as JSON.

use super::cell::Sample;
use super::system::System;
use crate::machine::Machine;
use crate::spread::Spread;
use crate::table;
use anyhow::{Context, Result};
use narrows_units::Rate;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// One system at one limit.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub system: &'static str,
    /// The limit of each direction, in bits per second.
    pub limit: u64,
    /// Time of the whole machine, in percent of one core.
    pub cpu_percent: Spread,
    /// The ratio to `bridge-htb` in the same round.
    pub cpu_to_bridge_htb: Spread,
    /// Context switches of the whole machine.
    pub switches_per_sec: Spread,
    /// The slowest of 100 round trips beside the load.
    pub ping_p99_us: Spread,
    /// The rate in the slower direction, in percent of the limit: frames' bytes.
    pub delivered_percent: Spread,
    /// Time of the whole machine with nothing to forward, in percent of one core.
    pub idle_cpu_percent: Spread,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// The systems at each limit.
    pub rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(samples: &BTreeMap<(u64, System), Vec<Sample>>) -> Result<Self> {
        let row = |(&(limit, system), rounds): (&(u64, System), &Vec<Sample>)| {
            let peer = samples.get(&(limit, System::BridgeHtb))?;
            let over = |figure: fn(&Sample) -> f64| Spread::of(rounds.iter().map(figure));
            let ratios =
                rounds.iter().zip(peer).map(|(own, htb)| own.cpu_percent / htb.cpu_percent);
            let delivered = |sample: &Sample| {
                let [there, back] = sample.rates;
                there.min(back) / limit as f64 * 100.0
            };
            Some(Row {
                system: system.name(),
                limit,
                cpu_percent: over(|sample| sample.cpu_percent)?,
                cpu_to_bridge_htb: Spread::of(ratios)?,
                switches_per_sec: over(|sample| sample.switches_per_sec)?,
                ping_p99_us: over(|sample| sample.ping_p99_us)?,
                delivered_percent: Spread::of(rounds.iter().map(delivered))?,
                idle_cpu_percent: over(|sample| sample.idle_cpu_percent)?,
            })
        };
        let rows: Option<Vec<Row>> = samples.iter().map(row).collect();
        Ok(Self { machine: Machine::here(), rows: rows.context("no rounds")? })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(f, "each figure: median over the rounds (least-most)\n")?;
        let mut table = table::of_figures(
            0,
            [
                "system",
                "limit",
                "% of a core",
                "to bridge-htb",
                "switches/s",
                "ping p99 us",
                "% of limit",
                "idle %",
            ],
        );
        for row in &self.rows {
            table.add_row([
                row.system.to_owned(),
                Rate::from_bits_per_sec(row.limit).to_string(),
                row.cpu_percent.shown(1),
                format!("{:.2}", row.cpu_to_bridge_htb.median),
                row.switches_per_sec.shown(0),
                row.ping_p99_us.shown(0),
                row.delivered_percent.shown(1),
                format!("{:.1}", row.idle_cpu_percent.median),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(f, "the whole machine, the ends of the flows included; idle: nothing to forward")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cpu_percent: f64) -> Sample {
        Sample {
            idle_cpu_percent: 0.4,
            cpu_percent,
            switches_per_sec: 20_000.0,
            ping_p99_us: 900.0,
            rates: [99e6, 98e6],
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_the_lesser_direction_counts() {
        let samples = BTreeMap::from([
            ((100_000_000, System::BridgeHtb), vec![sample(20.0), sample(40.0), sample(20.0)]),
            ((100_000_000, System::NarrowsTbf), vec![sample(30.0), sample(60.0), sample(22.0)]),
        ]);
        let report = Report::new(&samples).unwrap();
        let ours = report.rows.iter().find(|row| row.system == "narrows-tbf").unwrap();
        assert_eq!(ours.cpu_to_bridge_htb.median, 1.5);
        assert_eq!(ours.delivered_percent.median, 98.0);
        let text = report.to_string();
        assert!(text.contains("narrows-tbf") && text.contains("1.50"), "{text}");
        assert!(serde_json::to_string(&report).unwrap().contains("\"switches_per_sec\""));
    }
}
