//! The cost of forwarding: Narrows beside a bare AF_XDP forwarder and the kernel's bridge, in one
//! run, on the same veths, under the same frames.
//!
//! Every round measures every system with every frame size under two loads. *Saturated* is all that
//! one core can send: how many packets get through? *Fixed* is a load that all of them carry: what
//! does a packet cost, and is any lost without a limit asking for it? Rounds are interleaved,
//! ratios are taken within a round, and the median over the rounds is shown with the extremes.
//!
//! There are two costs per packet. *Worker* is the run time of the forwarder's own threads, with
//! the softirqs that they caused; nothing for the bridge, which has none. *Machine* is the run time
//! of every thread that the traffic keeps busy, including the kernel's, minus the cost of the
//! sender alone, which is measured in the same round with nothing forwarding. Only this one can be
//! compared with the bridge, which does its work in the sender's softirqs.
//!
//! Packets are counted when the forwarder receives them, whether it sends them or its limit drops
//! them. Like the bridge, the XDP plane works in the sender's softirqs and has no threads. The
//! device that receives its frames has GRO on, because a `veth` only then accepts redirected
//! frames; all other systems' receivers have it off.
//!
//! The sender has the last core to itself; the forwarder has a queue for each other core.

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

/// Refuses if the benchmark cannot run.
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

/// The last rate of the unlimited Narrows with the frames and the load of `cell`, in bits per
/// second.
fn capacity(samples: &BTreeMap<Cell, Vec<Sample>>, cell: &Cell) -> Option<f64> {
    let unlimited = Cell { system: System::NarrowsUnlimited, ..*cell };
    let last = samples.get(&unlimited)?.last()?;
    Some(last.packets_per_second * cell.frame_bytes as f64 * 8.0)
}
