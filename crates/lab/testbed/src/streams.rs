//! Many real TCP streams at one limit, and what a ping between them sees.
//!
//! mq-cake's authors send 1,024 Cubic streams at 20 Gbit/s through their qdisc, and through a
//! shared departure clock with horizons of 2 s and of 5 ms (IFIP, Fig. 6; Netdev 0x19, Fig. 7 and
//! 8). Here the limit is what the machine carries beside the streams' ends. So a stream has less:
//! behind a queue that drops, its window is two packets, and many streams wait for a timeout.
//!
//! Systems take turns within each round; the median over rounds counts.
//!
//! Non-goals: a rate for each stream, which other benchmarks have; streams of other machines.

use crate::bed::{PORT_B, QUEUES};
use crate::bridge::Bridge;
use crate::iperf::Traffic;
use crate::narrows::Instance;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, IPERF3, PING, Refusal, TC};
use crate::spread::{Spread, shown};
use crate::trial::{self, Load, Outcome};
use crate::{Rounds, Testbed, table};
use anyhow::{Context, Result, ensure};
use narrows_coordination::jain;
use narrows_units::{Nanos, Rate};
use serde::Serialize;
use std::fmt;

/// The limit.
const LIMIT: Rate = Rate::from_bits_per_sec(200_000_000);
/// As many as in the paper.
const STREAMS: u32 = 1024;
/// What a bucket holds, as time at the limit.
const BURST: Nanos = Nanos::from_millis(4);
/// The queue of the kernel's own shaper.
const QUEUE: Nanos = Nanos::from_millis(50);
/// Frames of a worker: a horizon of two seconds has 33,000 packets at this limit.
const FRAMES: &str = "--frames=65536";

/// What is between the ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    /// CAKE on all queues, which share its rate by this strategy.
    Cake(&'static str),
    /// One departure clock for all queues, which drops what would wait longer.
    Edt(Nanos),
    /// The kernel's bridge and HTB: one queue behind one lock.
    BridgeHtb,
}

impl System {
    const ALL: [Self; 5] = [
        Self::Cake("fair"),
        Self::Cake("equal"),
        Self::Edt(Nanos::from_millis(5)),
        Self::Edt(Nanos::from_millis(2_000)),
        Self::BridgeHtb,
    ];

    fn name(self) -> String {
        match self {
            Self::Cake(strategy) => format!("cake {strategy}"),
            Self::Edt(horizon) => format!("edt {horizon}"),
            Self::BridgeHtb => "bridge-htb".to_owned(),
        }
    }

    /// The qdisc in Narrows; `None` for a peer.
    fn qdisc(self) -> Option<String> {
        let rate = LIMIT.bits_per_sec();
        match self {
            Self::Cake(strategy) => {
                Some(format!("cake bandwidth {rate}bit coordination {strategy}"))
            }
            Self::Edt(horizon) => Some(format!(
                "tbf rate {rate}bit burst {} limit {} coordination edt",
                LIMIT.bytes_in(BURST).0,
                LIMIT.bytes_in(horizon).0
            )),
            Self::BridgeHtb => None,
        }
    }
}

/// One system. Medians over rounds, and their extremes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub system: String,
    /// The rate at the server's device in whole frames, relative to the limit.
    pub deviation_percent: Option<Spread>,
    /// The round trip of a ping between the streams, in milliseconds: its median
    pub ping_p50_ms: Option<Spread>,
    /// and its 99th percentile.
    pub ping_p99_ms: Option<Spread>,
    /// Streams of which nothing arrived.
    pub silent: Option<Spread>,
    /// Jain's index over all streams' bytes, from the first to the last packet.
    pub jain: Option<Spread>,
}

/// All of them.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The limit, in bits per second.
    pub limit_bps: u64,
    /// How many streams.
    pub streams: u32,
    /// The systems.
    pub rows: Vec<Row>,
}

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL, IPERF3, PING])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Rounds) -> Result<Report> {
    check()?;
    ensure!(options.rounds > 0, "at least one round, not 0");
    let bed = Testbed::up(QUEUES)?;
    let mut progress = Progress::over(u64::from(options.rounds) * System::ALL.len() as u64);
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); System::ALL.len()];
    for round in 1..=options.rounds {
        if round > 1 && progress.is_over() {
            break;
        }
        for (system, samples) in System::ALL.iter().zip(&mut samples) {
            let title = format!("round {round} of {}: {}", options.rounds, system.name());
            progress.begin(&title);
            let sample = measure(&bed, *system, options).with_context(|| title.clone())?;
            progress.end(&format!("{title}: p99 {:.1} ms", sample.p99_ms));
            samples.push(sample);
        }
    }
    drop(progress);
    let rows = System::ALL.iter().zip(&samples);
    let rows = rows.map(|(system, samples)| Row::new(system.name(), samples)).collect();
    Ok(Report { limit_bps: LIMIT.bits_per_sec(), streams: STREAMS, rows })
}

/// One round.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Sample {
    deviation_percent: f64,
    p50_ms: f64,
    p99_ms: f64,
    silent: usize,
    jain: f64,
}

fn measure(bed: &Testbed, system: System, options: &Rounds) -> Result<Sample> {
    let load = Load::Iperf { traffic: Traffic::Tcp, flows: STREAMS };
    let trial = || trial::run(bed, load, options.window, || Ok(()), |_| ());
    let outcome = match system.qdisc() {
        Some(qdisc) => {
            let instance = Instance::start(bed, &options.program, &["--fail-closed", FRAMES])?;
            instance.tc(&format!("qdisc replace dev {PORT_B} root {qdisc}"))?;
            trial().with_context(|| format!("narrows says:\n{}", instance.log()))?
        }
        None => {
            let bridge = Bridge::over(bed)?;
            bridge.shape_by_htb(PORT_B)?;
            let (rate, burst) = (LIMIT.bits_per_sec(), LIMIT.bytes_in(BURST).0);
            let queue = Some(LIMIT.bytes_in(QUEUE));
            bridge.limit_htb(PORT_B, &format!("{rate}bit"), &burst.to_string(), queue)?;
            trial()?
        }
    };
    Sample::of(&outcome)
}

impl Sample {
    fn of(outcome: &Outcome<()>) -> Result<Self> {
        let received = &outcome.report.received;
        let streams = received.len();
        ensure!(streams == STREAMS as usize, "only {streams} of {STREAMS} streams ended");
        let ms = |percent| {
            let time = outcome.ping.percentile(percent).context("no ping was answered")?;
            Ok::<_, anyhow::Error>(time.as_secs_f64() * 1e3)
        };
        Ok(Self {
            deviation_percent: outcome.delivered.deviation_percent(LIMIT),
            p50_ms: ms(50.0)?,
            p99_ms: ms(99.0)?,
            silent: received.iter().filter(|bytes| **bytes == 0).count(),
            jain: jain(&received.iter().map(|bytes| *bytes as f64).collect::<Vec<_>>()),
        })
    }
}

impl Row {
    fn new(system: String, samples: &[Sample]) -> Self {
        let of = |figure: &dyn Fn(&Sample) -> f64| Spread::of(samples.iter().map(figure));
        Self {
            system,
            deviation_percent: of(&|sample| sample.deviation_percent),
            ping_p50_ms: of(&|sample| sample.p50_ms),
            ping_p99_ms: of(&|sample| sample.p99_ms),
            silent: of(&|sample| sample.silent as f64),
            jain: of(&|sample| sample.jain),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = table::of_words([
            "system",
            "deviation %",
            "ping p50 ms",
            "ping p99 ms",
            "silent streams",
            "Jain",
        ]);
        for row in &self.rows {
            table.add_row([
                row.system.clone(),
                shown(row.deviation_percent, 3),
                shown(row.ping_p50_ms, 2),
                shown(row.ping_p99_ms, 2),
                shown(row.silent, 0),
                shown(row.jain, 2),
            ]);
        }
        writeln!(f, "{table}")?;
        let limit = Rate::from_bits_per_sec(self.limit_bps);
        writeln!(f, "{} TCP streams at {limit}, medians and extremes of all rounds", self.streams)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_medians_of_its_rounds() {
        let sample = |p99_ms, silent| Sample {
            deviation_percent: 0.1,
            p50_ms: 1.0,
            p99_ms,
            silent,
            jain: 0.5,
        };
        let row = Row::new("cake fair".into(), &[sample(3.0, 7), sample(9.0, 0), sample(2.0, 1)]);
        let median = |spread: Option<Spread>| spread.unwrap().median;
        assert_eq!((median(row.ping_p99_ms), median(row.silent)), (3.0, 1.0));
        let report = Report { limit_bps: 200_000_000, streams: STREAMS, rows: vec![row] };
        let text = report.to_string();
        for shown in ["cake fair", "3.00 (2.00-9.00)", "1 (0-7)", "1024 TCP streams at 200 Mbit/s"]
        {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
    }

    #[test]
    fn a_horizon_is_a_queue_of_what_the_limit_passes_meanwhile() {
        let words = System::Edt(Nanos::from_millis(5)).qdisc().unwrap();
        assert_eq!(words, "tbf rate 200000000bit burst 100000 limit 125000 coordination edt");
        assert_eq!(System::ALL.map(System::name)[3], "edt 2 s");
    }
}
