//! The results of the benchmark, as tables and as JSON.

use super::conformance::ConformanceRow;
use super::cost::{Cell, FLOWS, Sample, Samples};
use super::load::OFFERED;
use super::system::System;
use super::trace::Deviation;
use crate::machine::Machine;
use crate::spread::Spread;
use crate::table;
use anyhow::{Context, Result};
use narrows_units::Rate;
use serde::Serialize;
use std::fmt;

/// The target for how much more the others cost than `flowbundler`, above the traffic's own cost,
/// with the most flows.
const TO_REACH: f64 = 2.6;
/// If less than this is offered, in percent of the rate, flows run dry and there is nothing to
/// pace.
const OFFERED_LEAST: f64 = 100.0;

/// One qdisc with some flows; over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct CostRow {
    /// Flows that share the rate evenly.
    pub flows: u16,
    /// Its name; `none` for a port without.
    pub system: &'static str,
    /// Packets sent, a second.
    pub packets_per_second: Spread,
    /// Packets sent, in percent of the sum of all rates.
    pub of_rate_percent: Spread,
    /// The offered load, in percent of the same.
    pub offered_percent: Spread,
    /// System calls made to send, a second.
    pub kicks_per_second: Spread,
    /// Packets sent for each.
    pub packets_per_kick: Spread,
    /// CPU time of Narrows for each packet, in nanoseconds.
    pub cpu_ns_per_packet: Spread,
    /// CPU time for each packet minus that of `none` in the same round, in nanoseconds.
    pub overhead_ns_per_packet: Spread,
    /// The CPU time, relative to that of `flowbundler` in the same round.
    pub cpu_to_flowbundler: Spread,
    /// The time above `none`, over that of `flowbundler` in the same round; the median. None if
    /// `flowbundler` cost no more than `none` in most rounds.
    pub overhead_to_flowbundler: Option<f64>,
    /// Rounds in which other work kept the sender from its core, so that flows were offered less
    /// than their rate. Their figures say nothing about pacing.
    pub disturbed_rounds: usize,
    /// Frames that their flow's limit dropped, all rounds together.
    pub flow_limit_drops: u64,
    /// Frames that were lost in any other way.
    pub lost: u64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// The offered load of each flow, in parts of its rate.
    pub offered: f64,
    /// The target for how much `overhead_to_flowbundler` exceeds 1 with 1024 flows.
    pub to_reach: f64,
    /// The cost of pacing.
    pub cost: Vec<CostRow>,
    /// The accuracy of pacing.
    pub conformance: Vec<ConformanceRow>,
}

impl Report {
    pub(super) fn new(samples: &Samples, conformance: Vec<ConformanceRow>) -> Result<Self> {
        let rows = FLOWS.into_iter().flat_map(|flows| System::ALL.map(|system| (flows, system)));
        let row = |(flows, system): (u16, System)| {
            let of = |system: System| samples.get(&Cell { flows, system });
            row(Cell { flows, system }, of(system)?, of(System::None)?, of(System::FlowBundler)?)
        };
        Ok(Self {
            machine: Machine::here(),
            offered: OFFERED,
            to_reach: TO_REACH,
            cost: rows.map(row).collect::<Option<_>>().context("a qdisc was not measured")?,
            conformance,
        })
    }
}

/// Each of the same rounds.
fn row(cell: Cell, own: &[Sample], none: &[Sample], flowbundler: &[Sample]) -> Option<CostRow> {
    let of = |figure: fn(&Sample) -> f64| Spread::of(own.iter().map(figure));
    let overheads = |of: &[Sample]| -> Vec<f64> {
        of.iter().zip(none).map(|(own, none)| own.cpu_nanos - none.cpu_nanos).collect()
    };
    let ratio = |(own, reference): (f64, f64)| {
        if reference > 0.0 { own / reference } else { f64::INFINITY }
    };
    let ratios = overheads(own).into_iter().zip(overheads(flowbundler)).map(ratio);
    let overhead_to_flowbundler = Spread::of(ratios)?.median;
    Some(CostRow {
        flows: cell.flows,
        system: cell.system.name(),
        packets_per_second: of(|sample| sample.packets_per_second)?,
        of_rate_percent: of(|sample| sample.of_rate_percent)?,
        offered_percent: of(|sample| sample.offered_percent)?,
        kicks_per_second: of(|sample| sample.kicks_per_second)?,
        packets_per_kick: of(|sample| sample.packets_per_kick)?,
        cpu_ns_per_packet: of(|sample| sample.cpu_nanos)?,
        overhead_ns_per_packet: Spread::of(overheads(own))?,
        cpu_to_flowbundler: Spread::of(
            own.iter().zip(flowbundler).map(|(own, other)| own.cpu_nanos / other.cpu_nanos),
        )?,
        overhead_to_flowbundler: overhead_to_flowbundler
            .is_finite()
            .then_some(overhead_to_flowbundler),
        disturbed_rounds: own
            .iter()
            .filter(|sample| sample.offered_percent < OFFERED_LEAST)
            .count(),
        flow_limit_drops: own.iter().map(|sample| sample.flow_limit_drops).sum(),
        lost: own.iter().map(|sample| sample.lost).sum(),
    })
}

impl CostRow {
    fn cells(&self) -> Vec<String> {
        let is_none = self.system == System::None.name();
        let compared = |text: String| if is_none { "-".to_owned() } else { text };
        let ratio = match self.overhead_to_flowbundler {
            Some(ratio) => format!("{ratio:.2}"),
            None => "no cost to compare with".to_owned(),
        };
        vec![
            self.system.to_owned(),
            format!("{:.1}", self.packets_per_second.median / 1e3),
            format!("{:.1} %", self.offered_percent.median),
            format!("{:.2} %", self.of_rate_percent.median),
            format!("{:.0}", self.kicks_per_second.median),
            self.packets_per_kick.shown(1),
            self.cpu_ns_per_packet.shown(0),
            format!("{:.2}", self.cpu_to_flowbundler.median),
            compared(self.overhead_ns_per_packet.shown(0)),
            compared(ratio),
            self.flow_limit_drops.to_string(),
            self.lost.to_string(),
        ]
    }
}

impl ConformanceRow {
    fn cells(&self) -> Vec<String> {
        let window = |ms: f64| {
            let found = self.windows.iter().find(|window| window.window_ms == ms);
            found.map_or("-".to_owned(), |found| {
                let Deviation { median_percent, mean_percent, p99_percent, .. } = found;
                format!("{median_percent:.2} / {mean_percent:.2} / {p99_percent:.2} %")
            })
        };
        let gaps = &self.alternate_gaps;
        vec![
            self.system.to_owned(),
            format!("{} of {}", self.flows, self.flows_together),
            Rate::from_bits_per_sec(self.rate_bps).to_string(),
            format!(
                "{:+.3} % ({:+.3}..{:+.3})",
                self.whole_percent.median, self.whole_percent.min, self.whole_percent.max
            ),
            window(1.0),
            window(10.0),
            window(100.0),
            format!("{:.2} / {:.2} / {:.2} / {:.2}", gaps.p0_1, gaps.p1, gaps.p50, gaps.p99),
            format!("{:.3} %", gaps.bursts_percent),
            self.missed.to_string(),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        for flows in FLOWS {
            writeln!(f, "\n{flows} flows")?;
            let mut table = table::of_figures(
                0,
                [
                    "system",
                    "kpps",
                    "offered",
                    "of the rate",
                    "kicks/s",
                    "packets a kick",
                    "worker ns/packet",
                    "to flowbundler",
                    "above none",
                    "to flowbundler",
                    "flow-limit drops",
                    "lost",
                ],
            );
            for row in self.cost.iter().filter(|row| row.flows == flows) {
                table.add_row(row.cells());
            }
            writeln!(f, "{table}")?;
        }
        writeln!(
            f,
            "medians over the rounds (least-most); offered: {:.0} % of the rate, whose rest the flow \
             limit drops\nabove none: beyond what a packet costs without a qdisc in the same round",
            self.offered * 100.0
        )?;
        self.write_verdict(f)?;
        writeln!(
            f,
            "\nhow the rate is kept, and gaps between a packet and the next but one of its flow"
        )?;
        let mut table = table::of_figures(
            0,
            [
                "system",
                "flows",
                "rate of each",
                "over all",
                "over 1 ms",
                "over 10 ms",
                "over 100 ms",
                "gaps: p0.1 / p1 / p50 / p99",
                "three at once",
                "missed",
            ],
        );
        for row in &self.conformance {
            table.add_row(row.cells());
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "over all: the median flow (least..most); over windows: median / mean / p99 of the deviation \
             either way; gaps: in parts of two packet times; three at once: gaps below 0.25"
        )
    }
}

impl Report {
    /// Whether the target was reached.
    fn write_verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disturbed: usize = self.cost.iter().map(|row| row.disturbed_rounds).sum();
        if disturbed > 0 {
            return writeln!(
                f,
                "{disturbed} measurements are of a machine that was busy with something else, which kept \
                 the sender from its load: no target is judged; run this again \
                 on a quiet one"
            );
        }
        let most = FLOWS.into_iter().max().unwrap_or_default();
        let others = self.cost.iter().filter(|row| {
            row.flows == most
                && row.system != System::None.name()
                && row.system != System::FlowBundler.name()
        });
        for row in others {
            let reached = row.overhead_to_flowbundler.is_none_or(|ratio| ratio >= TO_REACH);
            let ratio = row
                .overhead_to_flowbundler
                .map_or("cost what flowbundler does not".to_owned(), |ratio| {
                    format!("{ratio:.2} times")
                });
            writeln!(
                f,
                "{} with {most} flows, above none: {ratio} (at least {TO_REACH} aimed at): {}",
                row.system,
                if reached { "reached" } else { "not reached" }
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cpu_nanos: f64) -> Sample {
        Sample {
            packets_per_second: 51_200.0,
            of_rate_percent: 100.0,
            offered_percent: 103.0,
            kicks_per_second: 5120.0,
            packets_per_kick: 10.0,
            cpu_nanos,
            flow_limit_drops: 7,
            lost: 0,
        }
    }

    /// Two rounds; in the second everything costs twice as much.
    fn samples(carousel: f64, flowbundler: f64) -> Samples {
        let cost = |system| match system {
            System::None => 1000.0,
            System::FlowBundler => flowbundler,
            _ => carousel,
        };
        let cells =
            FLOWS.into_iter().flat_map(|flows| System::ALL.map(|system| Cell { flows, system }));
        cells
            .map(|cell| (cell, [1.0, 2.0].map(|by| sample(cost(cell.system) * by)).to_vec()))
            .collect()
    }

    fn report(samples: &Samples) -> Report {
        Report::new(samples, Vec::new()).unwrap()
    }

    #[test]
    fn the_cost_of_pacing_is_relative_to_none_within_a_round() {
        let report = report(&samples(4000.0, 2000.0));
        let carousel = report.cost.iter().find(|row| row.system == "carousel").unwrap();
        assert_eq!(
            carousel.overhead_ns_per_packet,
            Spread { median: 4500.0, min: 3000.0, max: 6000.0 }
        );
        assert_eq!(carousel.overhead_to_flowbundler, Some(3.0));
        assert_eq!((carousel.cpu_to_flowbundler.min, carousel.cpu_to_flowbundler.max), (2.0, 2.0));
        assert!(report.to_string().contains("3.00 times (at least 2.6 aimed at): reached"));
    }

    #[test]
    fn a_cost_of_zero_gives_no_ratio() {
        let report = report(&samples(4000.0, 900.0));
        assert!(report.cost.iter().all(|row| row.overhead_to_flowbundler.is_none()));
        assert!(report.to_string().contains("cost what flowbundler does not"));
    }

    #[test]
    fn a_load_that_did_not_arrive_proves_nothing() {
        let mut samples = samples(4000.0, 2000.0);
        let cell = Cell { flows: 16, system: System::Fq };
        samples.get_mut(&cell).unwrap()[0].offered_percent = 60.0;
        let text = report(&samples).to_string();
        assert!(text.contains("1 measurements are of a machine that was busy"), "{text}");
        assert!(!text.contains("reached\n"), "{text}");
    }
}
