//! What forwarding costs: Narrows beside a bare AF_XDP forwarder and the kernel's bridge,
//! in one run, on the same veths, under the same frames.
//!
//! Every round measures every system with every frame size under two loads: *saturated*,
//! all that one core can send, which asks how many packets get through; and *fixed*, a
//! load that all of them carry, which asks what a packet costs and whether any is lost
//! that no limit asked for. Rounds are interleaved, ratios are taken within a round, and
//! the median over the rounds is shown with the extremes.
//!
//! Two prices are shown per packet. *Worker*: time that the forwarder's own threads ran
//! for, with the softirqs that they set off; nothing for the bridge, which has none.
//! *Machine*: time of every thread that the traffic keeps busy, the kernel's included,
//! less what the sender alone costs, which is measured in the same round with nothing
//! forwarding. Only that one can be compared with the bridge, which does its work in the
//! sender's softirqs.
//!
//! A packet is one that the forwarder took in, whether it sent it or its limit dropped it.
//! The XDP plane, as the bridge, works in the sender's softirqs and has no threads. What it forwards is
//! received by a device with GRO on, since a `veth` takes redirected frames only so; all others are
//! received with it off.
//!
//! The sender keeps the last core for itself; the forwarder has a queue for each other.

mod cell;
mod report;
mod system;

pub use report::{Report, Row};

use crate::bed::SINK_MAC;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, Refusal, TC};
use crate::{Rounds, Testbed};
use crate::{cpu, frames, steering};
use anyhow::Result;
use cell::{Cell, Sample};
use std::collections::BTreeMap;
use system::{Running, System};

/// Frame lengths, in bytes without the frame check sequence.
const FRAME_BYTES: [usize; 2] = [64, 1500];
/// Flows that take each queue.
const FLOWS_PER_QUEUE: usize = 16;
/// Queues at most, as many as a testbed has elsewhere.
const QUEUES_MAX: usize = 4;

/// Refuses where the benchmark cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Rounds) -> Result<Report> {
    check()?;
    let queues = cpu::cores().saturating_sub(1).clamp(1, QUEUES_MAX);
    let senders_core = cpu::last_core()?;
    let bed = Testbed::up(u32::try_from(queues)?)?;
    let ports = steering::flows(&bed, FLOWS_PER_QUEUE)?.concat();

    let mut progress = Progress::over(u64::from(options.rounds) * System::ALL.len() as u64);
    let mut samples: BTreeMap<Cell, Vec<Sample>> = BTreeMap::new();
    for round in 1..=options.rounds {
        if round > 1 && progress.is_over() {
            break;
        }
        for system in System::ALL {
            progress.begin(&format!("round {round} of {}: {}", options.rounds, system.name()));
            let running = Running::start(&bed, system, &options.program)?;
            for frame_bytes in FRAME_BYTES {
                let frames = frames::udp_flows(&ports, SINK_MAC, frame_bytes)?;
                for load in cell::LOADS {
                    let cell = Cell { system, frame_bytes, load };
                    running.prepare(capacity(&samples, &cell))?;
                    let flood = cell::flood(&frames, load, options.window, senders_core);
                    let sample = cell::measure(&bed, &running, flood, options.window)?;
                    samples.entry(cell).or_default().push(sample);
                }
            }
        }
    }
    drop(progress);
    Report::new(&samples, queues)
}

/// What the unlimited Narrows delivered last with the frames and the load of `cell`, in
/// bits per second.
fn capacity(samples: &BTreeMap<Cell, Vec<Sample>>, cell: &Cell) -> Option<f64> {
    let unlimited = Cell { system: System::NarrowsUnlimited, ..*cell };
    let last = samples.get(&unlimited)?.last()?;
    Some(last.packets_per_second * cell.frame_bytes as f64 * 8.0)
}
