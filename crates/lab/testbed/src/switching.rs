//! The cost of switching: the kernel's bridge beside Narrows on both planes, with few stations and
//! with many, with VLANs and without.
//!
//! Frames of 64 bytes come as from a NIC's driver: pages that never had a socket buffer, which a
//! NAPI [thread](crate::receiving) on the first core receives. The sender on the last core always
//! offers more than is taken, and each frame is from another station to another. The server's
//! device drops them in XDP. So the packets that arrive there in a second are what one core
//! switches, and the time of that thread, of the softirqs and of the system's own threads is what a
//! packet costs. Rounds are interleaved, and ratios are taken within a round.
//!
//! The bridge has learned all stations just before, so nothing is flooded; Narrows must have
//! switched all frames in the driver. Where the bridge looks at VLAN tags, frames have none, and
//! are in the VLAN of the port.
//!
//! Non-goals: learning, flooding, tags that are put on or taken off, several cores.

mod report;
mod system;

pub use report::{Report, Row};

use crate::arrivals::{self, Sample};
use crate::bed::{CLIENT, PORT_A, PORT_B, SERVER, written};
use crate::bridge::Bridge;
use crate::cpu;
use crate::narrows::Instance;
use crate::progress::Progress;
use crate::receiving::Threaded;
use crate::requirements::{self, BRIDGE, ETHTOOL, IP, Refusal};
use crate::{Rounds, Testbed};
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use system::System;

/// How many stations are behind each port.
const STATIONS: [u32; 3] = [1, 1_000, 60_000];
/// The frame's length, without the frame check sequence.
const FRAME_BYTES: usize = 64;

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    stations: u32,
    system: System,
}

/// Refuses if the benchmark cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, BRIDGE, ETHTOOL])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Rounds) -> Result<Report> {
    check()?;
    let cores = cpu::outer_cores()?;
    let bed = Testbed::up(1)?;
    let vlans = Bridge::with(&bed, System::BridgeVlan.settings())
        .err()
        .map(|error| format!("this kernel's bridges know no VLANs: {error:#}"));
    let cells = STATIONS
        .into_iter()
        .flat_map(|stations| System::ALL.map(|system| Cell { stations, system }));
    let (cells, missing): (Vec<Cell>, Vec<Cell>) =
        cells.partition(|cell| vlans.is_none() || cell.system.peer() != System::BridgeVlan);
    let mut progress = Progress::over(u64::from(options.rounds) * cells.len() as u64);
    let mut samples: BTreeMap<Cell, Vec<Sample>> = BTreeMap::new();
    for round in 1..=options.rounds {
        for cell in &cells {
            let what = format!("{} with {} stations", cell.system.name(), cell.stations);
            progress.begin(&format!("round {round} of {}: {what}", options.rounds));
            let sample = measure(&bed, *cell, cores, options)?;
            samples.entry(*cell).or_default().push(sample);
        }
    }
    drop(progress);
    Report::new(&samples, &missing, &vlans.unwrap_or_default())
}

fn measure(
    bed: &Testbed,
    Cell { stations, system }: Cell,
    [switches, sends]: [usize; 2],
    options: &Rounds,
) -> Result<Sample> {
    let Rounds { program, window, .. } = options;
    // All systems alike: a `veth` takes redirected frames only with GRO on.
    bed.take_redirected(true)?;
    let bridge = Bridge::with(bed, system.settings())?;
    bridge.know(&known(stations, system.vlan()))?;
    let receives = Threaded::start(bed.shaper(), PORT_A, bed.queues(), &[switches])?;
    let running = system.start(bed, program, switches)?;
    let _drain = Instance::start_in(bed.server(), program, &["bench", "drain", SERVER])?;
    let start = || {
        let [bytes, core] = [FRAME_BYTES, sends].map(|number| number.to_string());
        let words = ["bench", "switched-frames", CLIENT, &bytes, &core, &stations.to_string()];
        Instance::start_in(bed.client(), program, &words)
    };
    let busy = || Ok(receives.cpu()? + running.cpu()?);
    let sample = arrivals::measure(bed, *window, start, busy, || Ok(0))?;
    running.has_switched_all()?;
    Ok(sample)
}

/// What `bridge -batch` reads to know so many stations behind each port.
fn known(stations: u32, vlan: &str) -> String {
    let mut lines = String::new();
    for number in 0..stations {
        for (side, port) in [(1, PORT_A), (2, PORT_B)] {
            let mac = written(station(side, number));
            let _ = writeln!(lines, "fdb replace {mac} dev {port} master dynamic {vlan}");
        }
    }
    lines
}

/// The address of a station on one side.
fn station(side: u8, number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_be_bytes();
    [6, side, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_stations_behind_each_port() {
        assert_eq!(
            known(2, "vlan 1"),
            "fdb replace 06:01:00:00:00:00 dev port-a master dynamic vlan 1\n\
             fdb replace 06:02:00:00:00:00 dev port-b master dynamic vlan 1\n\
             fdb replace 06:01:00:00:00:01 dev port-a master dynamic vlan 1\n\
             fdb replace 06:02:00:00:00:01 dev port-b master dynamic vlan 1\n"
        );
        assert_eq!(station(2, 60_000), [6, 2, 0, 0, 0xea, 0x60]);
    }
}
