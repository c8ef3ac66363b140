//! The results of the benchmark, as a table and as JSON.

use super::Round;
use super::cell::{Sample, System};
use super::subscribers::{FRAME_BYTES, Subscribers};
use crate::machine::Machine;
use crate::spread::Spread;
use crate::table;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt;

/// One system with one number of queues. Spreads are over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Queues of each device.
    pub queues: u32,
    /// The system's name.
    pub system: &'static str,
    /// Packets offered in a second.
    pub offered_per_second: Spread,
    /// Packets that arrived at the far end in a second.
    pub delivered_per_second: Spread,
    /// Those, in percent of all ceilings together.
    pub ceilings_percent: Spread,
    /// Those, relative to the kernel's.
    pub delivered_to_kernel: Option<Spread>,
    /// Time that cores were not idle, in percent of all.
    pub busy_percent: Spread,
    /// That time for each packet that arrived, the senders' included.
    pub machine_ns_per_packet: Spread,
    /// Relative to the kernel's.
    pub machine_to_kernel: Option<Spread>,
    /// That time without what the senders alone cost.
    pub without_senders_ns_per_packet: Spread,
    /// Relative to the kernel's.
    pub without_senders_to_kernel: Option<Spread>,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// Leaf classes.
    pub classes: u32,
    /// The ceiling of each, in bits per second.
    pub ceil_bps: u64,
    /// All ceilings together, in packets per second.
    pub ceilings_per_second: f64,
    /// Bytes of a frame.
    pub frame_bytes: usize,
    /// Threads that send.
    pub senders: usize,
    /// The systems, with each number of queues.
    pub rows: Vec<Row>,
    /// Why there are no rows of the kernel, if there are none.
    pub skipped: Option<String>,
}

impl Report {
    pub(super) fn new(
        subscribers: &Subscribers,
        senders: usize,
        rounds: &[(u32, Vec<Round>)],
        skipped: Option<String>,
    ) -> Result<Self> {
        let ceilings = subscribers.ceilings_per_second().context("there are no ceilings")?;
        let mut rows = Vec::new();
        for (queues, rounds) in rounds {
            let kernel = |round: &Round| round.kernel;
            if rounds.iter().all(|round| round.kernel.is_some()) {
                rows.push(row(*queues, System::Kernel, kernel, rounds, ceilings));
            }
            let narrows = |round: &Round| Some(round.narrows);
            rows.push(row(*queues, System::Narrows, narrows, rounds, ceilings));
        }
        let rows: Option<Vec<Row>> = rows.into_iter().collect();
        Ok(Self {
            machine: Machine::here(),
            classes: subscribers.classes,
            ceil_bps: subscribers.ceil.map_or(0, |ceil| ceil.bits_per_sec()),
            ceilings_per_second: ceilings,
            frame_bytes: FRAME_BYTES,
            senders,
            rows: rows.context("no packets arrived")?,
            skipped,
        })
    }
}

/// Nanoseconds of the machine for each packet that arrived.
fn machine_ns(sample: &Sample) -> f64 {
    sample.machine_cores * 1e9 / sample.delivered_per_second
}

/// Nanoseconds a packet without what the senders cost `alone`.
fn without_senders_ns(sample: &Sample, alone: &Sample) -> f64 {
    let sending = alone.machine_cores / alone.offered_per_second * sample.offered_per_second;
    (sample.machine_cores - sending) * 1e9 / sample.delivered_per_second
}

fn row(
    queues: u32,
    system: System,
    of: impl Fn(&Round) -> Option<Sample>,
    rounds: &[Round],
    ceilings: f64,
) -> Option<Row> {
    let cores = crate::cpu::online().unwrap_or_else(|_| crate::cpu::cores()) as f64;
    // Of rounds in which the system was measured and packets arrived.
    let samples: Vec<(Sample, &Round)> = rounds
        .iter()
        .filter_map(|round| Some((of(round)?, round)))
        .filter(|(sample, _)| sample.delivered_per_second > 0.0)
        .collect();
    let spread = |figure: &dyn Fn(&Sample, &Round) -> f64| {
        Spread::of(samples.iter().map(|(sample, round)| figure(sample, round)))
    };
    let to_kernel = |figure: &dyn Fn(&Sample, &Round) -> f64| {
        let ratio = |(sample, round): &(Sample, &Round)| {
            let kernel = round.kernel?;
            Some(figure(sample, round) / figure(&kernel, round))
        };
        Spread::of(samples.iter().filter_map(ratio))
    };
    let delivered = |sample: &Sample, _: &Round| sample.delivered_per_second;
    let machine = |sample: &Sample, _: &Round| machine_ns(sample);
    let without = |sample: &Sample, round: &Round| without_senders_ns(sample, &round.alone);
    Some(Row {
        queues,
        system: system.name(),
        offered_per_second: spread(&|sample, _| sample.offered_per_second)?,
        delivered_per_second: spread(&delivered)?,
        ceilings_percent: spread(&|sample, _| sample.delivered_per_second / ceilings * 100.0)?,
        delivered_to_kernel: to_kernel(&delivered),
        busy_percent: spread(&|sample, _| sample.machine_cores / cores * 100.0)?,
        machine_ns_per_packet: spread(&machine)?,
        machine_to_kernel: to_kernel(&machine),
        without_senders_ns_per_packet: spread(&without)?,
        without_senders_to_kernel: to_kernel(&without),
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(
            f,
            "{} classes at {} bit/s each, {:.0} packets of {} bytes a second in all, and twice as \
             many wanted from {} senders\n",
            self.classes, self.ceil_bps, self.ceilings_per_second, self.frame_bytes, self.senders
        )?;
        let mut table = table::of_figures(
            1,
            [
                "queues",
                "system",
                "offered/s",
                "delivered/s",
                "% of ceilings",
                "to bridge",
                "busy %",
                "machine ns",
                "to bridge",
                "less senders ns",
                "to bridge",
            ],
        );
        let ratio = |ratio: &Option<Spread>| {
            ratio.as_ref().map_or("-".to_owned(), |ratio| format!("{:.2}", ratio.median))
        };
        for row in &self.rows {
            table.add_row([
                row.queues.to_string(),
                row.system.to_owned(),
                format!("{:.0}", row.offered_per_second.median),
                row.delivered_per_second.shown(0),
                format!("{:.1}", row.ceilings_percent.median),
                ratio(&row.delivered_to_kernel),
                format!("{:.0}", row.busy_percent.median),
                row.machine_ns_per_packet.shown(0),
                ratio(&row.machine_to_kernel),
                row.without_senders_ns_per_packet.shown(0),
                ratio(&row.without_senders_to_kernel),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "medians over the rounds (least-most); machine: all time in which a core was not idle, \
             for each packet that arrived, so on a quiet machine only; less senders: without what \
             as many offered packets cost when they are dropped on arrival"
        )?;
        if let Some(skipped) = &self.skipped {
            writeln!(f, "{skipped}")?;
        }
        for row in self.rows.iter().filter(|row| row.system == System::Narrows.name()) {
            let (Some(delivered), Some(machine)) =
                (&row.delivered_to_kernel, &row.machine_to_kernel)
            else {
                continue;
            };
            writeln!(
                f,
                "tree-real: {} classes, queues {}: {:.2} of the bridge's packets, each for {:.2} of \
                 its machine time",
                self.classes, row.queues, delivered.median, machine.median
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(delivered: f64, cores: f64) -> Sample {
        Sample {
            offered_per_second: 400_000.0,
            delivered_per_second: delivered,
            machine_cores: cores,
        }
    }

    fn round(narrows: f64) -> Round {
        Round {
            alone: sample(0.0, 0.4),
            kernel: Some(sample(100_000.0, 1.4)),
            narrows: sample(narrows, 1.4),
        }
    }

    fn report(rounds: Vec<Round>, skipped: Option<&str>) -> Report {
        let subscribers = Subscribers::below(1000, 200_000.0);
        Report::new(&subscribers, 2, &[(4, rounds)], skipped.map(str::to_owned)).unwrap()
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_senders_can_be_left_out() {
        let report = report(vec![round(200_000.0), round(125_000.0), round(250_000.0)], None);
        let [kernel, ours] = &report.rows[..] else { panic!("{:?}", report.rows) };
        assert_eq!(kernel.machine_ns_per_packet.median, 14_000.0);
        assert!((kernel.without_senders_ns_per_packet.median - 10_000.0).abs() < 1e-6);
        assert_eq!(ours.delivered_to_kernel.unwrap().median, 2.0);
        assert_eq!(ours.machine_to_kernel.unwrap().median, 0.5);
        assert!((ours.ceilings_percent.median - 100.0).abs() < 0.1, "{ours:?}");
        let text = report.to_string();
        assert_eq!(
            text.lines().last().unwrap(),
            "tree-real: 1000 classes, queues 4: 2.00 of the bridge's packets, each for 0.50 of its \
             machine time"
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["rows"][1]["system"], "narrows-htb");
        assert!(json["machine"].is_string() && json["skipped"].is_null());
    }

    #[test]
    fn without_the_kernel_s_tree_there_are_no_ratios_and_a_reason() {
        let alone = Round { kernel: None, ..round(150_000.0) };
        let report = report(vec![alone], Some("bridge-htb cannot be built here: no htb"));
        assert_eq!(report.rows.len(), 1);
        assert!(report.rows[0].delivered_to_kernel.is_none());
        let text = report.to_string();
        assert!(text.contains("cannot be built here") && text.contains(" - |"), "{text}");
    }
}
