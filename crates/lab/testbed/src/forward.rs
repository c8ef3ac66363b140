//! The cost of forwarding: Narrows beside a bare AF_XDP forwarder and the kernel's bridge, in one
//! run, on the same veths, under the same frames.
//!
//! Every round measures every system with every frame size under four loads. *Saturated* is all
//! that one core can send through a packet socket: how many packets get through? *Fixed* is a load
//! that all of them carry: what does a packet cost, and is any lost without a limit asking for it?
//! Rounds are interleaved, ratios are taken within a round, and the median over the rounds is shown
//! with the extremes.
//!
//! *On another core, and from a driver.* A `veth` receives on the sender's core, one frame at a
//! time, and the sender waits for it. In *other-core* a NAPI [thread](crate::receiving) receives on
//! the first core, as after a NIC's interrupt. A packet socket makes a socket buffer of each frame.
//! A bridge passes it on; XDP has to copy it into a page, and the receiver makes a new one. On a
//! NIC it is the other way round: the driver has pages, XDP passes them on, and a bridge has to
//! make a socket buffer of each. *From-driver* is like that: pages with frames (`BPF_PROG_TEST_RUN`
//! with live frames), which the same thread receives. The server's device drops them in XDP,
//! whatever the system, as a NIC frees what it has sent.
//!
//! There are two costs per packet. *Worker* is the run time of the forwarder's own threads, with
//! the softirqs that they caused; nothing for the bridge, which has none. *Machine* is the run time
//! of every thread that the traffic keeps busy, including the kernel's, minus the cost of the
//! sender alone, which is measured in the same round with nothing forwarding. Only this one can be
//! compared with the bridge, which does its work in the sender's softirqs. On another core the
//! sender stands for the wire: it always offers more than is taken, and its time does not count.
//!
//! Packets are counted when the forwarder receives them, whether it sends them or its limit drops
//! them. Like the bridge, the XDP plane works in the sender's softirqs and has no threads. The
//! device that receives its frames has GRO on, because a `veth` only then accepts redirected
//! frames; all other systems' receivers have it off.
//!
//! The sender has the last core to itself; the forwarder has a queue for each other core.

mod cell;
mod load;
mod report;
mod system;

pub use load::Load;
pub use report::{Report, Row};
pub use system::System;

use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, Refusal, TC};
use crate::{Rounds, Testbed};
use crate::{cpu, steering};
use anyhow::Result;
use cell::{Cell, Sample};
use load::Place;
use std::collections::BTreeMap;
use system::Running;

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

/// Which part of it is measured.
#[derive(Clone, Debug)]
pub struct What {
    /// The loads.
    pub loads: Vec<Load>,
    systems: Vec<System>,
}

impl Default for What {
    /// Everything.
    fn default() -> Self {
        Self { loads: Load::ALL.to_vec(), systems: System::ALL.to_vec() }
    }
}

impl What {
    /// Leaves out systems for which `wanted` is false, but those by which limits are chosen, and
    /// the sender alone.
    pub fn choose(&mut self, wanted: impl Fn(System) -> bool) {
        let references: Vec<System> = self.loads.iter().map(|load| unlimited(*load)).collect();
        self.systems.retain(|system| {
            *system == System::SenderAlone || references.contains(system) || wanted(*system)
        });
    }
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Rounds, what: &What) -> Result<Report> {
    check()?;
    let queues = cpu::cores().saturating_sub(1).clamp(1, QUEUES_MAX);
    let [forwarders_core, senders_core] = cpu::outer_cores()?;
    let bed = Testbed::up(u32::try_from(queues)?)?;
    let ports = steering::flows(&bed, FLOWS_PER_QUEUE)?.concat();
    let program = &options.program;
    let place = Place { bed: &bed, program, ports: &ports, forwarders_core, senders_core };

    let mut progress = Progress::over(u64::from(options.rounds) * what.systems.len() as u64);
    let mut samples: BTreeMap<Cell, Vec<Sample>> = BTreeMap::new();
    for round in 1..=options.rounds {
        if round > 1 && progress.is_over() {
            break;
        }
        for system in &what.systems {
            progress.begin(&format!("round {round} of {}: {}", options.rounds, system.name()));
            let running = Running::start(&bed, *system, &options.program)?;
            for frame_bytes in FRAME_BYTES {
                for load in what.loads.iter().filter(|load| load.suits(*system)) {
                    let cell = Cell { system: *system, frame_bytes, load: *load };
                    running.prepare(capacity(&samples, &cell))?;
                    let sample = cell::measure(place, &running, &cell, options.window)?;
                    samples.entry(cell).or_default().push(sample);
                }
            }
        }
    }
    drop(progress);
    Report::new(&samples, queues)
}

/// The system whose rate is halved by a binding limit.
fn unlimited(load: Load) -> System {
    match load {
        Load::Saturated | Load::Fixed => System::NarrowsUnlimited,
        Load::OtherCore | Load::FromDriver => System::Bridge,
    }
}

/// The last rate with the frames and the load of `cell` without a limit, in bits per second.
fn capacity(samples: &BTreeMap<Cell, Vec<Sample>>, cell: &Cell) -> Option<f64> {
    let last = samples.get(&Cell { system: unlimited(cell.load), ..*cell })?.last()?;
    Some(last.packets_per_second * cell.frame_bytes as f64 * 8.0)
}
