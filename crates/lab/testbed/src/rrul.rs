//! The delay that a busy shaper adds to other traffic: CAKE beside a plain limit with a queue and
//! beside no limit, in one run, on the same path, under the same load.
//!
//! The load is that of the RRUL test (Realtime Response Under Load, Dave Täht, 2012): four TCP
//! flows up and four down at once, marked CS0, CS1, CS5 and EF, as fast as possible. In addition
//! there are `ping`, UDP probes with three marks, and two kinds of sparse flows that people notice:
//! DNS-like look-ups (a request and its answer, each from another port) and a call (172 bytes every
//! 20 ms each way, EF). Both directions have a limit of their own, so a round trip passes two
//! queues.
//!
//! - *Added delay* is the round trip under load minus the median of the same probe through the same
//!   system just before the load. The cable is short: without a queue, the round trip is almost
//!   zero, and TCP's own round trip is the delay of the queues.
//! - *Queues.* Each of a direction's TCP flows is on a queue of its own ([`crate::tcp`]).
//!   Acknowledgements, `ping` and the call take the queue that the kernel's hash selects; other UDP
//!   probes rotate over enough ports to take all queues. The bytes of each queue are shown.
//! - *Equal flows.* Under a system that ignores marks the four flows are equal, and Jain's index
//!   shows how equally they were treated. Under a system that uses marks they are not meant to be
//!   equal.
//! - *Loss* of a probe is a request without an answer, wherever either was lost. Losses of the
//!   other flows are TCP's signal and only counted.
//!
//! TCP is cubic without ECN, so that it fills a queue until drops slow it down.

mod cell;
mod plot;
mod report;
mod system;

pub use plot::svg;
pub use report::{Delay, Report, Row, Verdict, Way};

use crate::Testbed;
use crate::bed::QUEUES;
use crate::narrows::Instance;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, PING, Refusal, TC};
use anyhow::{Context, Result};
use narrows_units::Rate;
use std::path::PathBuf;
use std::time::Duration;
use system::System;

/// The limits, in bits per second.
const LIMITS: [u64; 3] = [20_000_000, 100_000_000, 500_000_000];

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `narrows` program.
    pub program: PathBuf,
    /// How long each system is measured under load at each limit.
    pub window: Duration,
}

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL, PING])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Options) -> Result<Report> {
    check()?;
    let bed = Testbed::up(QUEUES)?;
    // The bed is deleted with the demonstration, so there is nothing to fail open to.
    let instance = Instance::start(&bed, &options.program, &["--fail-closed"])?;
    let limits = LIMITS.map(|bits| Some(Rate::from_bits_per_sec(bits)));
    let limited = limits.iter().flat_map(|limit| System::LIMITED.map(|system| (system, *limit)));
    let cells: Vec<(System, Option<Rate>)> =
        [(System::Unlimited, None)].into_iter().chain(limited).collect();
    let mut progress = Progress::over(cells.len() as u64);
    let mut rows = Vec::with_capacity(cells.len());
    for (system, limit) in cells {
        if !rows.is_empty() && progress.is_over() {
            break;
        }
        let shown = limit.map_or("no limit".to_owned(), |limit| limit.to_string());
        let title = format!("{shown}, {}", system.name());
        progress.begin(&title);
        let tc = system.words(limit);
        let row = (|| {
            tc.iter().try_for_each(|words| instance.tc(words).map(drop))?;
            cell::measure(&bed, &instance, options.window)
        })()
        .with_context(|| format!("{title}; narrows says:\n{}", instance.log()))?;
        let row = Row::new(system, limit, tc, row);
        progress.end(&format!("{title}: {}", row.outcome()));
        rows.push(row);
    }
    drop(progress);
    Ok(Report::new(rows))
}
