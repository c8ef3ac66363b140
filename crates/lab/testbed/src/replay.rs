//! A trace through real ports: does each strategy pass as much of bursty traffic as one queue
//! would, and keep its limit?
//!
//! *The load.* Frames of a trace ([`narrows_trace`]) at its times, on four queues as the kernel
//! hashes their flows: of bursty traffic made from published distributions, or of a capture. A
//! trace does not slow down when packets are lost. Loads below the limit exceed it for a while all
//! the same.
//!
//! *What is measured*, at the server: what arrived in relation to the limit, and to what arrived
//! under `lock` with the same load in the same round, since one bucket for all queues cannot leave
//! anything unused; and by how much the fullest 10 and 100 ms exceed the limit. Strategies take
//! turns within each round; medians over rounds.

use crate::bed::{CLIENT, CLIENT_MAC, PORT_B, QUEUES, SERVER, SINK_MAC};
use crate::capture::{Arrival, Capture};
use crate::measure::fullest::most_within;
use crate::narrows::Instance;
use crate::progress::Progress;
use crate::replayed::{Replayed, Sent};
use crate::requirements::{self, ETHTOOL, IP, PING, Refusal, TC, TCPDUMP};
use crate::spread::Spread;
use crate::{Rounds, Testbed, table};
use anyhow::{Context, Result, ensure};
use narrows_coordination::Strategy;
use narrows_trace::{Bursty, Trace};
use narrows_units::{Nanos, Rate};
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The limit.
const LIMIT: Rate = Rate::from_bits_per_sec(100_000_000);
/// The loads, in per cent of it.
const LOADS: [u64; 2] = [90, 130];
/// What the bucket holds, as time at the limit.
const BURST: Nanos = Nanos::from_millis(4);
/// How long a packet may wait.
const LATENCY: &str = "50ms";
/// How long what is queued at the end may take to leave.
const DRAIN: Duration = Duration::from_millis(200);
/// Of the model of bursty traffic.
const SEED: u64 = 1;

/// One strategy with one load. Medians over rounds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub strategy: &'static str,
    /// The mean rate of the trace, in per cent of the limit.
    pub load_percent: u64,
    /// What the client sent, in per cent of the limit.
    pub offered_percent: f64,
    /// What arrived, in per cent of the limit.
    pub delivered_percent: f64,
    /// What arrived, over what arrived under `lock`.
    pub ratio_to_lock: f64,
    /// By how much the fullest 10 ms exceed the limit, in per cent; below is negative.
    pub window_10ms_percent: f64,
    /// The fullest 100 ms.
    pub window_100ms_percent: f64,
}

/// All of them.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The limit, in bits per second.
    pub limit_bps: u64,
    /// Where the frames come from.
    pub trace: String,
    /// How many they are.
    pub frames: usize,
    /// How many flows they have.
    pub flows: usize,
    /// A row for each load and strategy.
    pub rows: Vec<Row>,
}

/// Runs it with the frames of the capture `file`, or else with bursty traffic.
///
/// # Errors
/// A file that is none, or a machine on which it cannot run.
pub fn run(options: &Rounds, file: Option<&Path>) -> Result<Report> {
    check()?;
    ensure!(options.rounds > 0, "at least one round, not 0");
    let (name, trace) = trace(options.window, file)?;
    let bed = Testbed::up(QUEUES)?;
    let instance = Instance::start(&bed, &options.program, &["--fail-closed"])?;
    let mut progress =
        Progress::over(u64::from(options.rounds) * (LOADS.len() * Strategy::ALL.len()) as u64);
    let mut rounds: Vec<Vec<Sample>> = Vec::new();
    for round in 1..=options.rounds {
        if round > 1 && progress.is_over() {
            break;
        }
        let mut samples = Vec::new();
        for load in LOADS {
            for strategy in Strategy::ALL {
                let title = format!(
                    "round {round} of {}: {}, load {load} %",
                    options.rounds,
                    strategy.name()
                );
                progress.begin(&title);
                instance.tc(&format!(
                    "qdisc replace dev {PORT_B} root tbf rate {}bit burst {} latency {LATENCY} \
                     coordination {}",
                    LIMIT.bits_per_sec(),
                    LIMIT.bytes_in(BURST).0,
                    strategy.name(),
                ))?;
                let rate = Rate::from_bits_per_sec(LIMIT.bits_per_sec() / 100 * load);
                let sample = measure(&bed, &trace, rate)
                    .with_context(|| format!("{title}; narrows says:\n{}", instance.log()))?;
                progress.end(&format!("{title}: {:.2} % delivered", sample.delivered));
                samples.push(sample);
            }
        }
        rounds.push(samples);
    }
    drop(progress);
    let cells = LOADS.into_iter().flat_map(|load| Strategy::ALL.map(|strategy| (load, strategy)));
    let rows = cells.enumerate().map(|(at, (load, strategy))| row(at, load, strategy, &rounds));
    Ok(Report {
        limit_bps: LIMIT.bits_per_sec(),
        trace: name,
        frames: trace.frames().len(),
        flows: trace.flows().len(),
        rows: rows.collect(),
    })
}

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL, PING, TCPDUMP])
}

/// The trace, and its name.
fn trace(window: Duration, file: Option<&Path>) -> Result<(String, Arc<Trace>)> {
    let Some(path) = file else {
        let length = Nanos(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX));
        let trace = Trace::bursty(Bursty { rate: LIMIT, length, seed: SEED })?;
        return Ok((format!("bursty, seed {SEED}"), Arc::new(trace)));
    };
    let name = path.display().to_string();
    let opened = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let trace = Trace::read(opened).with_context(|| format!("cannot replay {name}"))?;
    Ok((name, Arc::new(trace)))
}

/// One turn, in per cent of the limit.
#[derive(Clone, Copy, Debug)]
struct Sample {
    offered: f64,
    delivered: f64,
    fullest: [f64; 2],
}

/// The windows of which the fullest counts.
const WINDOWS: [Nanos; 2] = [Nanos::from_millis(10), Nanos::from_millis(100)];

fn measure(bed: &Testbed, trace: &Arc<Trace>, load: Rate) -> Result<Sample> {
    let replayed = Replayed { trace: Arc::clone(trace), load, macs: [SINK_MAC, CLIENT_MAC] };
    let length = replayed.length();
    let capture = Capture::of_times(bed.server(), SERVER, "ip")?;
    let running = replayed.start(bed.client(), CLIENT)?;
    thread::sleep(length + DRAIN);
    let sent = running.stop()?;
    let (arrivals, missed) = capture.arrivals()?;
    ensure!(missed == 0, "tcpdump missed {missed} frames: the machine is too busy to measure");
    Ok(Sample::of(sent, &arrivals, length))
}

impl Sample {
    fn of(sent: Sent, arrivals: &[Arrival], length: Duration) -> Self {
        let percent = |bytes: u64| {
            bytes as f64 * 8.0 / (length.as_secs_f64() * LIMIT.bits_per_sec() as f64) * 100.0
        };
        let frames: Vec<(Nanos, u64)> =
            arrivals.iter().map(|arrival| (arrival.at, len(&arrival.bytes))).collect();
        Self {
            offered: percent(sent.bytes),
            delivered: percent(frames.iter().map(|(_, len)| len).sum()),
            fullest: WINDOWS.map(|window| {
                let allowed = LIMIT.bytes_in(window).0 as f64;
                (most_within(&frames, window) as f64 / allowed - 1.0) * 100.0
            }),
        }
    }
}

/// The length of the frame that begins with `bytes`, an IPv4 or IPv6 packet, as its header says.
fn len(bytes: &[u8]) -> u64 {
    const ETHERNET: u64 = 14;
    const SHORTEST: u64 = 60;
    let number = |at: usize| {
        let bytes = bytes.get(at..at + 2).unwrap_or(&[0, 0]);
        u64::from(u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    let is_v6 = bytes.get(14).is_some_and(|first| first >> 4 == 6);
    let packet = if is_v6 { 40 + number(18) } else { number(16) };
    (ETHERNET + packet).max(SHORTEST)
}

fn row(at: usize, load: u64, strategy: Strategy, rounds: &[Vec<Sample>]) -> Row {
    let lock = Strategy::ALL.iter().position(|it| *it == Strategy::Lock).unwrap_or(0);
    let lock = at / Strategy::ALL.len() * Strategy::ALL.len() + lock;
    let median = |figure: &dyn Fn(&[Sample]) -> f64| {
        let spread = Spread::of(rounds.iter().map(|round| figure(round)));
        spread.map_or(f64::NAN, |spread| spread.median)
    };
    Row {
        strategy: strategy.name(),
        load_percent: load,
        offered_percent: median(&|round| round[at].offered),
        delivered_percent: median(&|round| round[at].delivered),
        ratio_to_lock: median(&|round| round[at].delivered / round[lock].delivered),
        window_10ms_percent: median(&|round| round[at].fullest[0]),
        window_100ms_percent: median(&|round| round[at].fullest[1]),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = table::of_words([
            "load",
            "strategy",
            "offered",
            "delivered",
            "to lock",
            "fullest 10 ms",
            "fullest 100 ms",
        ]);
        for row in &self.rows {
            table.add_row([
                format!("{} %", row.load_percent),
                row.strategy.to_owned(),
                format!("{:.2} %", row.offered_percent),
                format!("{:.2} %", row.delivered_percent),
                format!("{:.3}", row.ratio_to_lock),
                format!("{:+.2} %", row.window_10ms_percent),
                format!("{:+.2} %", row.window_100ms_percent),
            ]);
        }
        writeln!(f, "{table}")?;
        let limit = Rate::from_bits_per_sec(self.limit_bps);
        writeln!(
            f,
            "in per cent of {limit}, with a burst of {BURST}; trace: {}, {} frames of {} flows",
            self.trace, self.frames, self.flows
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_long_as_its_header_says() {
        let mut bytes = [0; 60];
        bytes[14..18].copy_from_slice(&[0x45, 0, 0x05, 0xdc]);
        assert_eq!(len(&bytes), 1_514);
        bytes[14..20].copy_from_slice(&[0x60, 0, 0, 0, 0, 100]);
        assert_eq!(len(&bytes), 154);
        bytes[14..18].copy_from_slice(&[0x45, 0, 0, 40]);
        assert_eq!((len(&bytes), len(&[])), (60, 60));
    }

    #[test]
    fn strategies_are_compared_with_lock_of_the_same_load_and_round() {
        let sample = |delivered| Sample { offered: 90.0, delivered, fullest: [1.0, 0.5] };
        let count = Strategy::ALL.len();
        let round: Vec<Sample> = (0..2 * count).map(|at| sample(50.0 + at as f64)).collect();
        let lock = Strategy::ALL.iter().position(|it| *it == Strategy::Lock).unwrap();
        let row = row(count + 1, 130, Strategy::ALL[1], &[round]);
        let expected = (51.0 + count as f64) / (50.0 + (count + lock) as f64);
        assert_eq!((row.load_percent, row.delivered_percent), (130, 51.0 + count as f64));
        assert!((row.ratio_to_lock - expected).abs() < 1e-9);
    }
}
