//! What pacing costs and how well it paces: `flowbundler` beside `carousel`, `eiffel` and `fq`,
//! with real packets that leave through AF_XDP.
//!
//! *Cost.* Every round measures every qdisc with 16, 64 and 1024 flows, at the same total rate on
//! the same veths: system calls made to send ([kicks](narrows_snapshot::Queue::tx_kicks)), packets
//! for each, and processor time of Narrows's threads for each packet. Beside them stands a port
//! without a qdisc, which sends what comes as it comes: the traffic's own cost. What a qdisc costs
//! above that in the same round is the price of pacing, and its ratio to `flowbundler`'s is what
//! the paper calls 2.6: D. Shan et al., "Fast and Accurate Software Traffic Shaping With Inter-Flow
//! Batching" (ToN 2025), section VI.C, which subtracts the same from its kernel figures.
//!
//! *Conformance* ([`conformance`]). The times at which the kernel received each packet: one flow,
//! and 64 at four rates; how far the rate over short windows is off, and the gaps between a packet
//! and the next but one, as in the paper's section VI.B and its Fig. 17.
//!
//! *The load.* Each flow gets some per cent more than its rate, so that it always has something
//! queued and every packet waits for its time; the rest is dropped at the flow's own limit. What
//! fills the queues comes before the measurement. A packet is one that was sent.
//!
//! What softirqs cost is booked on the thread that they interrupt (see [`crate::cpu`]), which for
//! a timer that ends the sleep of an idle core is nobody: what makes a worker sleep and wake more
//! often costs the machine more than is shown here.
//!
//! Non-goals: what the structures cost by themselves (`narrows bench wheels`), TCP.

mod conformance;
mod cost;
mod load;
mod report;
mod system;
mod trace;

pub use conformance::{ConformanceRow, by_source_port};
pub use report::{CostRow, Report};
pub use trace::{Deviation, Gaps, Trace, deviation, gaps, whole};

use crate::Rounds;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, Refusal, TC, TCPDUMP};
use anyhow::{Result, ensure};
use system::System;

/// Refuses where the benchmark cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL, TCPDUMP])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Rounds) -> Result<Report> {
    check()?;
    ensure!(options.rounds > 0, "at least one round, not 0");
    let measurements = cost::FLOWS.len() * System::ALL.len() * options.rounds as usize;
    let mut progress = Progress::over((measurements + conformance::measurements()) as u64);
    let conformance = conformance::run(options, &mut progress)?;
    let samples = cost::run(options, &mut progress)?;
    drop(progress);
    Report::new(&samples, conformance)
}
