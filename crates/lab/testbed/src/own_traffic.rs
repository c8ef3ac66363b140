//! What a host itself sends, under a limit at its own egress, or what arrives at it: the host plane
//! beside the kernel's shapers, in one run, under the same flows.
//!
//! The sender is the box with the limit: TCP keeps little with the device (TSQ) and builds
//! super-packets. They are cut into frames behind all queues, so the receiver's device counts what
//! a wire would carry.
//!
//! - *Added delay* is the round trip of UDP probes beside the flows, less the median of the same
//!   probes just before the flows begin.
//! - *Rate* is that of frames at the receiver's device, by seconds.
//! - *Time a frame* is what all cores together were busy, with the sender's and the receiver's
//!   work, over the frames. Only differences between systems say something.
//!
//! - *Fairness* is Jain's index of the flows; with several hosts, of the hosts.
//!
//! All systems with classes get the same three lines of `tc`, the kernel's or Narrows'. With
//! several hosts `cake` and the host plane are told to share among hosts first; the others cannot.

mod cell;
mod hosts;
mod place;
mod report;
mod system;

pub use hosts::HOSTS_MAX;
pub use place::Place;
pub use report::{Report, Row};

use crate::Testbed;
use crate::bed::QUEUES;
use crate::delays_plot::{self, Line};
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, Refusal, TC};
use anyhow::{Context, Result};
use hosts::Host;
use narrows_units::Rate;
use std::path::PathBuf;
use std::time::Duration;
use system::{Among, Running, System};

/// The limits, in Mbit/s, by default.
pub const LIMITS: [u64; 3] = [10, 50, 200];

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `narrows` program.
    pub program: PathBuf,
    /// Where the limit is.
    pub place: Place,
    /// The limits, in Mbit/s.
    pub limits: Vec<u64>,
    /// How many TCP flows there are, to one host.
    pub flows: usize,
    /// Or between how many hosts the limit is shared: the first one has one flow, and each other
    /// one twice as many as that before it.
    pub hosts: Option<u8>,
    /// How long each system is measured under load at each limit, in whole seconds.
    pub window: Duration,
}

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Options) -> Result<Report> {
    check()?;
    let bed = Testbed::up(QUEUES)?;
    let ends = options.place.prepare(&bed)?;
    let hosts = match options.hosts {
        Some(count) => hosts::several(ends[1], count)?,
        None => vec![Host { ip: ends[1].ip, flows: options.flows }],
    };
    let among = if hosts.len() > 1 { Among::Hosts } else { Among::Flows };
    let (systems, notes) = System::there_are(&bed, options.place, among);
    let limited = options.limits.iter().flat_map(|mbit| {
        let limit = Rate::from_bits_per_sec(mbit * 1_000_000);
        systems.iter().map(move |system| (*system, Some(limit)))
    });
    let cells: Vec<_> = [(System::Unlimited, None)].into_iter().chain(limited).collect();
    let mut progress = Progress::over(cells.len() as u64);
    let mut rows = Vec::new();
    for (system, limit) in cells {
        if !rows.is_empty() && progress.is_over() {
            break;
        }
        let shown = limit.map_or("no limit".to_owned(), |limit| limit.to_string());
        let title = format!("{shown}, {}", system.name());
        progress.begin(&title);
        let row = (|| {
            let running =
                Running::start(&bed, options.place, system, (limit, among), &options.program)?;
            let outcome = cell::measure(ends, &hosts, options)?;
            Ok::<_, anyhow::Error>(Row::new(system, limit, &outcome, running.stop()?))
        })()
        .with_context(|| title.clone())?;
        progress.end(&format!("{title}: {}", row.outcome()));
        rows.push(row);
    }
    drop(progress);
    let flows = hosts.iter().map(|host| host.flows).collect();
    Ok(Report::new(rows, notes, options.place, flows))
}

/// The delays as a plot, as SVG.
pub fn svg(report: &Report) -> Result<String> {
    let title = format!(
        "Round trips of UDP probes beside {} TCP flows {}: delay added to the path at rest",
        report.flows.iter().sum::<usize>(),
        report.place.flows_of()
    );
    delays_plot::svg(&title, &report.rows.iter().map(line).collect::<Vec<_>>())
}

fn line(row: &Row) -> Line<'_> {
    let Row { system, limit_bps, added_percentiles_us, .. } = row;
    Line { system, limit_bps: *limit_bps, added_percentiles_us }
}
