//! The cost and accuracy of pacing: `flowbundler` beside `carousel`, `eiffel` and `fq`, with real
//! packets that leave through AF_XDP.
//!
//! *Cost.* Every round measures every qdisc with 16, 64 and 1024 flows, at the same total rate on
//! the same veths: system calls to send ([kicks](narrows_snapshot::Queue::tx_kicks)), packets per
//! call, and CPU time of Narrows' threads per packet. A port without a qdisc, which sends packets
//! as they arrive, shows the traffic's own cost. The cost of a qdisc above that in the same round
//! is the cost of pacing. Its ratio to that of `flowbundler` is what the paper gives as 2.6: D.
//! Shan et al., "Fast and Accurate Software Traffic Shaping With Inter-Flow Batching" (ToN 2025),
//! section VI.C, which subtracts the same from its kernel figures.
//!
//! *Accuracy* ([`conformance`]). The times at which the kernel received each packet, for one flow
//! and for 64 at four rates: the deviation of the rate over short windows, and the gaps between a
//! packet and the next but one, as in the paper's section VI.B and its Fig. 17.
//!
//! *The load.* Each flow gets a few percent more than its rate, so that it always has a backlog
//! and every packet waits for its time; the excess is dropped at the flow's own limit. The queues
//! are filled before the measurement. Packets are counted when they are sent.
//!
//! The kernel charges softirqs to the thread that they interrupt (see [`crate::cpu`]). A timer that
//! ends the sleep of an idle core interrupts no thread. So frequent sleeping and waking costs the
//! machine more than is shown here.
//!
//! Non-goals: the cost of the data structures alone (`narrows bench wheels`), TCP.

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

/// Refuses if the benchmark cannot run.
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
