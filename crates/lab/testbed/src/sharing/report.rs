//! The benchmark's results, as a table and as JSON, and whether they are as they should be.

use super::{CELLS, Cell, FLOWS, LIMIT, System};
use crate::machine::Machine;
use crate::spread::Spread;
use crate::table;
use crate::together::Samples;
use anyhow::{Context, Result};
use narrows_coordination::jain;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The sum is judged over windows of this length.
const WINDOW: Duration = Duration::from_millis(100);
/// The least goodput of a fleet, in percent of what the same flows get through one box.
const OF_ONE_BOX: f64 = 98.0;
/// The least Jain's index of all flows through a fleet, however they are spread over its boxes.
const JAIN: f64 = 0.98;

/// What one round measured in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    goodput_bps: f64,
    jain: f64,
    above_bytes: f64,
}

impl Sample {
    /// Of the flows' rates, and of what the servers' devices received in a span.
    pub(super) fn new(rates: &[f64], samples: &Samples, [from, to]: [Duration; 2]) -> Self {
        let limit = LIMIT.bits_per_sec() as f64;
        Self {
            goodput_bps: rates.iter().sum(),
            jain: jain(rates),
            above_bytes: samples.excess(limit, WINDOW, from, to).bytes,
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} Mbit/s, Jain {:.4}", self.goodput_bps / 1e6, self.jain)
    }
}

/// One system with certain flows.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub system: &'static str,
    /// The flows through its first and its second box.
    pub flows: [usize; 2],
    /// What all receivers have read together, in bits per second.
    pub goodput_bps: Spread,
    /// That, in percent of what one box had in the same round.
    pub of_one_box_percent: Spread,
    /// Jain's index of all flows.
    pub jain: Spread,
    /// The most bytes beyond the limit that all servers received in any tenth of a second; negative
    /// below it.
    pub above_bytes: Spread,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// The limit of all boxes, in bits per second.
    pub limit_bps: u64,
    /// The systems.
    pub rows: Vec<Row>,
    /// The least goodput of a fleet, median over rounds, in percent of one box's.
    pub of_one_box_percent: f64,
    /// Jain's index of all flows through a fleet, median over rounds, the least of its rows.
    pub jain: f64,
    /// Packets that are not accounted for.
    pub unaccounted: u64,
    /// The words of `narrows` that set the limit of a fleet.
    pub command: String,
    /// Whether all is as it should be.
    pub is_met: bool,
}

impl Row {
    fn new(cell: Cell, rounds: &[Sample], one_box: &[Sample]) -> Option<Self> {
        let of = |figure: fn(&Sample) -> f64| Spread::of(rounds.iter().map(figure));
        let ratios =
            rounds.iter().zip(one_box).map(|(own, one)| own.goodput_bps / one.goodput_bps * 100.0);
        Some(Self {
            system: cell.system.name(),
            flows: cell.flows,
            goodput_bps: of(|sample| sample.goodput_bps)?,
            of_one_box_percent: Spread::of(ratios)?,
            jain: of(|sample| sample.jain)?,
            above_bytes: of(|sample| sample.above_bytes)?,
        })
    }
}

impl Report {
    /// Of the rounds of each cell; the first one is one box.
    pub(super) fn new(samples: &[Vec<Sample>; CELLS.len()], unaccounted: u64) -> Result<Self> {
        let [one_box, ..] = samples;
        let cells = CELLS.iter().zip(samples);
        let rows = cells.map(|(cell, rounds)| Row::new(*cell, rounds, one_box));
        let rows = rows.collect::<Option<Vec<Row>>>().context("no round was whole")?;
        let of_fleet = || rows.iter().filter(|row| row.system == System::Fleet.name());
        let goodputs = of_fleet().map(|row| row.of_one_box_percent.median);
        let of_one_box_percent = goodputs.fold(f64::INFINITY, f64::min);
        let jain = of_fleet().map(|row| row.jain.median).fold(1.0, f64::min);
        Ok(Self {
            machine: Machine::here(),
            limit_bps: LIMIT.bits_per_sec(),
            is_met: of_one_box_percent >= OF_ONE_BOX && jain >= JAIN && unaccounted == 0,
            rows,
            of_one_box_percent,
            jain,
            unaccounted,
            command: format!("tc {}", System::Fleet.tc()),
        })
    }
}

/// The table, its explanation, and the summary line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine)?;
        let mut table = table::of_figures(
            0,
            ["system", "flows", "goodput, Mbit/s", "% of one box", "Jain", "most in 100 ms, kB"],
        );
        for row in &self.rows {
            let [first, second] = row.flows;
            let Spread { median, min, max } = row.above_bytes;
            table.add_row([
                row.system.to_owned(),
                format!("{first} + {second}"),
                format!("{:.2}", row.goodput_bps.median / 1e6),
                row.of_one_box_percent.shown(1),
                row.jain.shown(3),
                format!("{:+.1} ({:+.1} to {:+.1})", median / 1e3, min / 1e3, max / 1e3),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "{FLOWS} TCP flows at {LIMIT}, medians and extremes of all rounds; most in 100 ms: \
             frames that all servers received beyond the limit\nset by, on both boxes: narrows {}",
            self.command
        )?;
        writeln!(
            f,
            "bench-fleet: goodput {:.1} % of one box's, Jain {:.3}, {} packets unaccounted{}",
            self.of_one_box_percent,
            self.jain,
            self.unaccounted,
            if self.is_met { "" } else { ": NOT as it should be" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One round: the same goodput everywhere but in the last cell, which has half.
    fn report(goodput: [f64; CELLS.len()], jain: f64) -> Report {
        let sample = |goodput: f64| Sample { goodput_bps: goodput * 1e6, jain, above_bytes: 900.0 };
        Report::new(&goodput.map(|goodput| vec![sample(goodput)]), 0).unwrap()
    }

    #[test]
    fn a_fleet_is_held_against_one_box() {
        let report = report([38.0, 37.9, 38.0, 37.62, 38.0, 38.0, 19.0], 0.991);
        assert!(report.is_met);
        let text = report.to_string();
        let last = "bench-fleet: goodput 99.0 % of one box's, Jain 0.991, 0 packets unaccounted";
        assert_eq!(text.lines().last().unwrap(), last);
        for shown in
            ["12 + 4", "50.0 (50.0-50.0)", "+0.9 (+0.9 to +0.9)", "fleet line boxes 2", "by box"]
        {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
    }

    #[test]
    fn what_falls_short_is_said() {
        let slow = report([38.0, 38.0, 37.0, 38.0, 38.0, 38.0, 19.0], 0.999);
        let unfair = report([38.0; CELLS.len()], 0.97);
        for report in [slow, unfair] {
            assert!(!report.is_met && report.to_string().contains("NOT as it should be"));
        }
    }
}
