//! The results of the benchmark, as a table and as JSON.

use super::cell::{Cell, Load, Sample};
use super::system::System;
use crate::machine::Machine;
use crate::spread::Spread;
use crate::table;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A sender that offers this fraction of its target was not disturbed.
const UNDISTURBED: f64 = 0.99;

/// One system with one frame size under one load.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub system: &'static str,
    /// Frame length, without the frame check sequence.
    pub frame_bytes: usize,
    /// `saturated` or `fixed`.
    pub load: &'static str,
    /// The packets sent to it.
    pub offered_packets_per_second: Spread,
    /// The packets that left it.
    pub packets_per_second: Spread,
    /// Run time of the forwarder's own threads per received packet.
    pub worker_cpu_ns_per_packet: Option<Spread>,
    /// Run time of all threads that traffic keeps busy, per packet, minus the sender's cost.
    pub machine_cpu_ns_per_packet: Option<Spread>,
    /// Packets per second, relative to `bare`.
    pub packets_to_bare: Spread,
    /// Worker time per packet, relative to `bare`.
    pub worker_cpu_to_bare: Option<Spread>,
    /// Rounds in which other work kept the sender from its core, so that it offered less than its
    /// target. Their results are from a machine that is not quiet.
    pub disturbed_rounds: usize,
    /// Frames lost although no limit asked for it, over all rounds: some ring or backlog was full.
    pub ring_full_drops: u64,
}

/// The maximum rate and the cost of the sender, without a forwarder.
#[derive(Clone, Debug, Serialize)]
pub struct Sender {
    /// Frame length, without the frame check sequence.
    pub frame_bytes: usize,
    /// `saturated` or `fixed`.
    pub load: &'static str,
    /// The packets that it sent.
    pub packets_per_second: Spread,
    /// Time of all threads that this keeps busy for each packet.
    pub machine_cpu_ns_per_packet: Spread,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// Queues of each device, and so workers of each forwarder that has any.
    pub queues: usize,
    /// The sender alone.
    pub sender: Vec<Sender>,
    /// The systems.
    pub rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(samples: &BTreeMap<Cell, Vec<Sample>>, queues: usize) -> Result<Self> {
        let of = |cell: &Cell, system| {
            let cell = Cell { system, ..*cell };
            samples.get(&cell).with_context(|| format!("{} was not measured", system.name()))
        };
        let (mut sender, mut rows) = (Vec::new(), Vec::new());
        for (cell, rounds) in samples {
            let alone = of(cell, System::SenderAlone)?;
            if cell.system == System::SenderAlone {
                sender.push(self::sender(cell, rounds).context("no rounds")?);
            } else {
                let bare = of(cell, System::Bare)?;
                rows.push(row(cell, rounds, bare, alone).context("no rounds")?);
            }
        }
        Ok(Self { machine: Machine::here(), queues, sender, rows })
    }
}

/// Nanoseconds of `cores` for each of `per_second` packets; `None` if there were none.
fn nanos_per_packet(cores: f64, per_second: f64) -> Option<f64> {
    (per_second > 0.0).then(|| cores * 1e9 / per_second)
}

fn sender(cell: &Cell, rounds: &[Sample]) -> Option<Sender> {
    Some(Sender {
        frame_bytes: cell.frame_bytes,
        load: cell.load.name(),
        packets_per_second: Spread::of(rounds.iter().map(|sample| sample.offered_per_second))?,
        machine_cpu_ns_per_packet: Spread::of(rounds.iter().filter_map(sender_nanos))?,
    })
}

fn is_disturbed(load: Load, sample: &Sample) -> bool {
    load.promised().is_some_and(|rate| sample.offered_per_second < rate * UNDISTURBED)
}

fn sender_nanos(alone: &Sample) -> Option<f64> {
    nanos_per_packet(alone.machine_cores, alone.offered_per_second)
}

fn worker_nanos(sample: &Sample) -> Option<f64> {
    nanos_per_packet(sample.worker_cores?, sample.taken_per_second)
}

/// The machine's time for `sample`, minus the sender's cost of each offered packet, per received
/// packet.
fn machine_nanos(sample: &Sample, alone: &Sample) -> Option<f64> {
    let sending = sender_nanos(alone)? * sample.offered_per_second / 1e9;
    nanos_per_packet(sample.machine_cores - sending, sample.taken_per_second)
}

fn row(cell: &Cell, rounds: &[Sample], bare: &[Sample], alone: &[Sample]) -> Option<Row> {
    let with_bare = || rounds.iter().zip(bare);
    Some(Row {
        system: cell.system.name(),
        frame_bytes: cell.frame_bytes,
        load: cell.load.name(),
        offered_packets_per_second: Spread::of(rounds.iter().map(|s| s.offered_per_second))?,
        packets_per_second: Spread::of(rounds.iter().map(|s| s.packets_per_second))?,
        worker_cpu_ns_per_packet: Spread::of(rounds.iter().filter_map(worker_nanos)),
        machine_cpu_ns_per_packet: Spread::of(
            rounds.iter().zip(alone).filter_map(|(sample, alone)| machine_nanos(sample, alone)),
        ),
        packets_to_bare: Spread::of(
            with_bare().map(|(sample, bare)| sample.packets_per_second / bare.packets_per_second),
        )?,
        worker_cpu_to_bare: Spread::of(
            with_bare()
                .filter_map(|(sample, bare)| Some(worker_nanos(sample)? / worker_nanos(bare)?)),
        ),
        disturbed_rounds: rounds.iter().filter(|sample| is_disturbed(cell.load, sample)).count(),
        ring_full_drops: rounds.iter().map(|sample| sample.lost).sum(),
    })
}

fn shown_or_none(spread: Option<&Spread>, digits: usize) -> String {
    spread.map_or("-".into(), |spread| spread.shown(digits))
}

fn kilo(spread: &Spread) -> Spread {
    let Spread { median, min, max } = spread;
    Spread { median: median / 1e3, min: min / 1e3, max: max / 1e3 }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, queues per device: {}", self.machine, self.queues)?;
        writeln!(f, "each figure: median over the rounds (least-most)")?;
        for load in [Load::Saturated, Load::Fixed] {
            for sender in self.sender.iter().filter(|sender| sender.load == load.name()) {
                writeln!(
                    f,
                    "\n{} load, {} B; the sender alone: {} kpps, {} ns of the machine per packet",
                    sender.load,
                    sender.frame_bytes,
                    kilo(&sender.packets_per_second).shown(1),
                    sender.machine_cpu_ns_per_packet.shown(0),
                )?;
                let mut table = table::of_figures(
                    0,
                    [
                        "system",
                        "kpps offered",
                        "kpps",
                        "to bare",
                        "worker ns/packet",
                        "to bare",
                        "machine ns/packet",
                        "ring-full drops",
                    ],
                );
                let same =
                    |row: &&Row| row.load == sender.load && row.frame_bytes == sender.frame_bytes;
                for row in self.rows.iter().filter(same) {
                    table.add_row([
                        row.system.to_owned(),
                        kilo(&row.offered_packets_per_second).shown(1),
                        kilo(&row.packets_per_second).shown(1),
                        format!("{:.3}", row.packets_to_bare.median),
                        shown_or_none(row.worker_cpu_ns_per_packet.as_ref(), 0),
                        row.worker_cpu_to_bare
                            .map_or("-".into(), |ratio| format!("{:.3}", ratio.median)),
                        shown_or_none(row.machine_cpu_ns_per_packet.as_ref(), 0),
                        row.ring_full_drops.to_string(),
                    ]);
                }
                writeln!(f, "{table}")?;
            }
        }
        let disturbed: usize = self.rows.iter().map(|row| row.disturbed_rounds).sum();
        if disturbed > 0 {
            writeln!(
                f,
                "{disturbed} measurements are of a machine that was busy with something else, \
                 which kept the sender from its fixed load: run this again on a quiet one"
            )?;
        }
        writeln!(
            f,
            "worker: the forwarder's threads; machine: those, the sender's and the kernel's, \
             less what the sender alone costs"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(packets_per_second: f64, worker_cores: Option<f64>) -> Sample {
        Sample {
            offered_per_second: 1e6,
            packets_per_second,
            taken_per_second: packets_per_second,
            worker_cores,
            machine_cores: 1.5,
            lost: 7,
        }
    }

    fn report() -> Report {
        let mut samples = BTreeMap::new();
        for load in [Load::Saturated, Load::Fixed] {
            for (system, rounds) in [
                (System::SenderAlone, [sample(0.0, None), sample(0.0, None)]),
                (System::Bare, [sample(1e6, Some(0.5)), sample(5e5, Some(0.5))]),
                (System::NarrowsUnlimited, [sample(9e5, Some(0.9)), sample(5e5, Some(0.5))]),
                (System::Bridge, [sample(8e5, None), sample(8e5, None)]),
            ] {
                samples.insert(Cell { system, frame_bytes: 64, load }, rounds.to_vec());
            }
        }
        Report::new(&samples, 1).unwrap()
    }

    fn find(report: &Report, system: System) -> &Row {
        report.rows.iter().find(|row| row.system == system.name()).unwrap()
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let report = report();
        let row = find(&report, System::NarrowsUnlimited);
        assert_eq!(row.packets_to_bare, Spread { median: 0.95, min: 0.9, max: 1.0 });
        assert_eq!(row.worker_cpu_to_bare.unwrap().max, 2.0);
        assert_eq!(row.ring_full_drops, 14);
    }

    #[test]
    fn the_bridge_has_no_worker_and_costs_the_rest() {
        let report = report();
        let row = find(&report, System::Bridge);
        assert!(row.worker_cpu_ns_per_packet.is_none());
        // 1.5 cores busy with it and without it: nothing is left for the bridge.
        assert_eq!(row.machine_cpu_ns_per_packet.unwrap().median, 0.0);
    }

    #[test]
    fn a_sender_below_its_fixed_load_was_disturbed() {
        let mut sample = sample(9e4, None);
        assert!(!is_disturbed(Load::Fixed, &sample));
        sample.offered_per_second = 9e4;
        assert!(is_disturbed(Load::Fixed, &sample));
        assert!(!is_disturbed(Load::Saturated, &sample));
    }

    #[test]
    fn the_table_and_the_json_show_each_system() {
        let report = report();
        let text = report.to_string();
        for shown in ["saturated load, 64 B", "fixed load, 64 B", "narrows-unlimited", "bridge"] {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["rows"].as_array().unwrap().len(), 6);
        assert!(json["machine"].is_string() && json["kernel"].is_string());
    }
}
