//! The results of the benchmark, as a table and as JSON.

use super::cell::{Cell, Sample};
use super::load::Load;
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
    /// `saturated`, `fixed`, `other-core` or `from-driver`.
    pub load: &'static str,
    /// The packets sent to it.
    pub offered_packets_per_second: Spread,
    /// The packets that left it.
    pub packets_per_second: Spread,
    /// Run time of the forwarder's own threads per received packet.
    pub worker_cpu_ns_per_packet: Option<Spread>,
    /// Run time of all threads that traffic keeps busy, per packet, without the sender's cost.
    pub machine_cpu_ns_per_packet: Option<Spread>,
    /// Packets per second, relative to `bare`, if it was measured.
    pub packets_to_bare: Option<Spread>,
    /// Packets per second, relative to `bridge`, if it was measured.
    pub packets_to_bridge: Option<Spread>,
    /// Worker time per packet, relative to `bare`.
    pub worker_cpu_to_bare: Option<Spread>,
    /// Rounds in which other work kept the sender from its core, so that it offered less than its
    /// target. Their results are from a machine that is not quiet.
    pub disturbed_rounds: usize,
    /// Frames lost although no limit asked for it, over all rounds: some ring or backlog was full.
    /// Received on another core, there are always more than there is room for.
    pub ring_full_drops: u64,
}

/// The maximum rate and the cost of the sender, without a forwarder.
#[derive(Clone, Debug, Serialize)]
pub struct Sender {
    /// Frame length, without the frame check sequence.
    pub frame_bytes: usize,
    /// `saturated`, `fixed`, `other-core` or `from-driver`.
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
        let of = |cell: &Cell, system| samples.get(&Cell { system, ..*cell }).map(Vec::as_slice);
        let (mut sender, mut rows) = (Vec::new(), Vec::new());
        for (cell, rounds) in samples {
            let alone = of(cell, System::SenderAlone).context("the sender was not measured")?;
            if cell.system == System::SenderAlone {
                sender.push(self::sender(cell, rounds).context("no rounds")?);
            } else {
                let peers = [System::Bare, System::Bridge].map(|peer| of(cell, peer));
                rows.push(row(cell, rounds, peers, alone).context("no rounds")?);
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

/// The machine's time for `sample`, minus the sender's cost of each offered packet if that is in
/// it, per received packet.
fn machine_nanos(load: Load, sample: &Sample, alone: &Sample) -> Option<f64> {
    let each = if load.is_received_elsewhere() { 0.0 } else { sender_nanos(alone)? };
    let sending = each * sample.offered_per_second / 1e9;
    nanos_per_packet(sample.machine_cores - sending, sample.taken_per_second)
}

/// `peers` are `bare` and the bridge.
fn row(
    cell: &Cell,
    rounds: &[Sample],
    peers: [Option<&[Sample]>; 2],
    alone: &[Sample],
) -> Option<Row> {
    let [to_bare, to_bridge] = peers.map(|peer| {
        let both = || peer.into_iter().flat_map(|peer| rounds.iter().zip(peer));
        let packets = both().map(|(own, peer)| own.packets_per_second / peer.packets_per_second);
        let worker =
            both().filter_map(|(own, peer)| Some(worker_nanos(own)? / worker_nanos(peer)?));
        (Spread::of(packets), Spread::of(worker))
    });
    Some(Row {
        system: cell.system.name(),
        frame_bytes: cell.frame_bytes,
        load: cell.load.name(),
        offered_packets_per_second: Spread::of(rounds.iter().map(|s| s.offered_per_second))?,
        packets_per_second: Spread::of(rounds.iter().map(|s| s.packets_per_second))?,
        worker_cpu_ns_per_packet: Spread::of(rounds.iter().filter_map(worker_nanos)),
        machine_cpu_ns_per_packet: Spread::of(
            rounds
                .iter()
                .zip(alone)
                .filter_map(|(sample, alone)| machine_nanos(cell.load, sample, alone)),
        ),
        packets_to_bare: to_bare.0,
        packets_to_bridge: to_bridge.0,
        worker_cpu_to_bare: to_bare.1,
        disturbed_rounds: rounds.iter().filter(|sample| is_disturbed(cell.load, sample)).count(),
        ring_full_drops: rounds.iter().map(|sample| sample.lost).sum(),
    })
}

fn shown_or_none(spread: Option<&Spread>, digits: usize) -> String {
    spread.map_or("-".into(), |spread| spread.shown(digits))
}

fn ratio_or_none(spread: Option<&Spread>) -> String {
    spread.map_or("-".into(), |spread| format!("{:.3}", spread.median))
}

fn kilo(spread: &Spread) -> Spread {
    let Spread { median, min, max } = spread;
    Spread { median: median / 1e3, min: min / 1e3, max: max / 1e3 }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, queues per device: {}", self.machine, self.queues)?;
        writeln!(f, "each figure: median over the rounds (least-most)")?;
        for load in Load::ALL {
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
                        "to bridge",
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
                        ratio_or_none(row.packets_to_bare.as_ref()),
                        ratio_or_none(row.packets_to_bridge.as_ref()),
                        shown_or_none(row.worker_cpu_ns_per_packet.as_ref(), 0),
                        ratio_or_none(row.worker_cpu_to_bare.as_ref()),
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
             less what the sender alone costs; other-core, from-driver: without the sender, which \
             always offers more than is taken"
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
        for load in Load::ALL {
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
        assert_eq!(row.packets_to_bare, Some(Spread { median: 0.95, min: 0.9, max: 1.0 }));
        assert_eq!(row.packets_to_bridge.unwrap().min, 0.625);
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
    fn what_stands_for_the_wire_is_in_no_systems_time() {
        let mut alone = sample(0.0, None);
        alone.machine_cores = 1.2;
        let sample = sample(1e6, None);
        assert_eq!(machine_nanos(Load::FromDriver, &sample, &alone), Some(1500.0));
        assert!((machine_nanos(Load::Saturated, &sample, &alone).unwrap() - 300.0).abs() < 1e-6);
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
        let loads = Load::ALL.map(|load| format!("{} load, 64 B", load.name()));
        for shown in loads.iter().map(String::as_str).chain(["narrows-unlimited", "bridge"]) {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["rows"].as_array().unwrap().len(), 12);
        assert!(json["machine"].is_string() && json["kernel"].is_string());
    }
}
