//! How exactly a rate is kept: every strategy, over one queue and over all, under floods and under
//! TCP, at rates from a home's uplink to a data centre's server.
//!
//! The rate is what the server's device received, in whole frames, over a window in which the load
//! never paused. A flood offers every queue 1.5 times its fair share, so that none of them runs
//! dry; uneven loads are the subject of another benchmark.

use crate::bed::{PORT_B, QUEUES, SINK_MAC};
use crate::flood::{Flood, Pace};
use crate::iperf::Traffic;
use crate::narrows::Instance;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, IPERF3, PING, Refusal, TC};
use crate::trial::{self, Load};
use crate::{Testbed, frames, steering, table};
use anyhow::{Context, Result};
use narrows_coordination::Strategy;
use narrows_units::{Nanos, Rate};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The limits, in bits per second.
const LIMITS: [u64; 3] = [10_000_000, 100_000_000, 1_000_000_000];
/// How many times its share a flood offers each queue.
const OVERLOAD: f64 = 1.5;
/// Frames of a flood, in bytes: full ones.
const FRAME_BYTES: usize = 1514;
/// Flows of each load.
const FLOWS: usize = 64;
/// The bucket holds what the limit passes in this time, so that a worker that waits for its core
/// for so long loses nothing of the rate.
const BURST: Nanos = Nanos::from_millis(8);
/// The least burst: a few full frames for each queue.
const BURST_MIN: u64 = 32_000;
/// How long a packet may wait. Long enough that 64 TCP flows over four queues at 10 Mbit/s each
/// have a packet to send.
const LATENCY: &str = "50ms";

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `narrows` program.
    pub program: PathBuf,
    /// How long each rate is measured.
    pub window: Duration,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The strategy.
    pub coordination: &'static str,
    /// The limit, in bits per second.
    pub limit_bps: u64,
    /// How many queues carried the load.
    pub active_queues: u32,
    /// `UDP` or `TCP`.
    pub traffic: &'static str,
    /// The rate at the server's device, in bits per second of whole frames.
    pub delivered_bps: u64,
    /// Its deviation from the limit.
    pub deviation_percent: f64,
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The largest deviation, either way.
    pub worst_deviation_percent: f64,
    /// The measurements.
    pub rows: Vec<Row>,
}

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL, IPERF3, PING])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Options) -> Result<Report> {
    check()?;
    let bed = Testbed::up(QUEUES)?;
    let instance = Instance::start(&bed, &options.program, &["--fail-closed"])?;
    let flows = steering::flows(&bed, FLOWS / QUEUES as usize)?;
    let cells = LIMITS.len() * Strategy::ALL.len() * 4;
    let mut progress = Progress::over(cells as u64);
    let mut rows = Vec::with_capacity(cells);
    'limits: for limit in LIMITS.map(Rate::from_bits_per_sec) {
        for coordination in Strategy::ALL.map(Strategy::name) {
            let burst = limit.bytes_in(BURST).0.max(BURST_MIN);
            instance.tc(&format!(
                "qdisc replace dev {PORT_B} root tbf rate {}bit burst {burst} latency {LATENCY} \
                 coordination {coordination}",
                limit.bits_per_sec()
            ))?;
            for active_queues in [1, QUEUES] {
                if active_queues == 1 {
                    steering::pin(&bed, 0)?;
                } else {
                    steering::spread(&bed)?;
                }
                for traffic in ["UDP", "TCP"] {
                    if !rows.is_empty() && progress.is_over() {
                        break 'limits;
                    }
                    let title =
                        format!("{limit}, {coordination}, {active_queues} queues, {traffic}");
                    progress.begin(&title);
                    let load = match traffic {
                        "UDP" => flood(&flows, limit, options.window)?,
                        _ => Load::Iperf { traffic: Traffic::Tcp, flows: FLOWS as u32 },
                    };
                    let outcome = trial::run(&bed, load, options.window, || Ok(()), |_| ())
                        .with_context(|| format!("{title}; narrows says:\n{}", instance.log()))?;
                    let deviation_percent = outcome.delivered.deviation_percent(limit);
                    progress.end(&format!("{title}: {deviation_percent:+.3} %"));
                    rows.push(Row {
                        coordination,
                        limit_bps: limit.bits_per_sec(),
                        active_queues,
                        traffic,
                        delivered_bps: outcome.delivered.rate().bits_per_sec(),
                        deviation_percent,
                    });
                }
            }
        }
    }
    let worst = rows.iter().map(|row| row.deviation_percent.abs());
    Ok(Report { worst_deviation_percent: worst.fold(0.0, f64::max), rows })
}

/// Frames to an unused address, equally many on each queue; if all queues are pinned to one, they
/// all take that one.
fn flood(flows: &[Vec<u16>], limit: Rate, window: Duration) -> Result<Load> {
    let per_queue = flows.iter().map(Vec::len).min().unwrap_or(0);
    // Queue after queue, so that no queue waits long for its next frame.
    let ports: Vec<u16> =
        (0..per_queue).flat_map(|flow| flows.iter().map(move |queue| queue[flow])).collect();
    let frames = frames::udp_flows(&ports, SINK_MAC, FRAME_BYTES)?;
    let pace = Pace::Bits(limit.bits_per_sec() as f64 * OVERLOAD);
    // The trial ends it; this is the fallback.
    let limit = window * 2 + Duration::from_secs(10);
    Ok(Load::Flood(Flood { frames, pace, limit, core: None }))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table =
            table::of_words(["limit", "coordination", "queues", "load", "delivered", "deviation"]);
        for row in &self.rows {
            table.add_row([
                Rate::from_bits_per_sec(row.limit_bps).to_string(),
                row.coordination.to_owned(),
                row.active_queues.to_string(),
                row.traffic.to_owned(),
                format!("{:.3} Mbit/s", row.delivered_bps as f64 / 1e6),
                format!("{:+.3} %", row.deviation_percent),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(f, "accuracy: worst deviation {:.3} %", self.worst_deviation_percent)
    }
}
