//! One rate under uneven load: the throughput of each strategy when one queue has most of the
//! traffic and another the rest, with real packets.
//!
//! mq-cake's authors name this case as a limitation: if a limit is divided by the number of active
//! queues, the light queue's unused share is lost: 30 % of the limit at 80/20. Strategies take
//! turns within each round; the median over rounds counts, and the worst is shown beside it.
//!
//! *The load.* Four frames of five go to the first queue, one to the second, and together they are
//! 2 % more than the limit. The excess of 2 % is queued in the first queue, which may hold 50 ms,
//! and bridges the moments in which a busy machine keeps the sender from its core. At exactly the
//! limit, each stall of the sender would reduce the load below the limit, and no shaper could
//! deliver it. With a much larger excess, the light queue would need what the heavy one lacks, and
//! the throughput would say less about the strategy.
//!
//! *What is measured.* Delivered: whole frames at the server's device. Offered: frames that the
//! client's device was given, including those that it dropped. By queue: the bytes that each sent,
//! from Narrows' own counters. Everything in percent of the limit.

use crate::bed::{CLIENT, PORT_B, QUEUES, SINK_MAC};
use crate::counters::{Counters, Counts};
use crate::flood::{Flood, Pace};
use crate::narrows::Instance;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, PING, Refusal, TC};
use crate::trial::{self, Load, Outcome};
use crate::{Rounds, Testbed, frames, steering, table};
use anyhow::{Context, Result, ensure};
use narrows_coordination::Strategy;
use narrows_units::{Nanos, Rate};
use serde::Serialize;
use std::fmt;
use std::time::{Duration, Instant};

/// The limit.
const LIMIT: Rate = Rate::from_bits_per_sec(500_000_000);
/// The offered load, in parts of the limit.
const OFFERED: f64 = 1.02;
/// How many of five frames go to the heavy queue; each has its own flow.
const HEAVY_FLOWS: usize = 4;
/// Frames of the load, in bytes: full ones.
const FRAME_BYTES: usize = 1514;
/// The bucket holds what the limit passes in this time, so that a worker that a busy machine
/// keeps from its core for so long has lost nothing of the rate.
const BURST: Nanos = Nanos::from_millis(16);
/// How long a packet may wait.
const LATENCY: &str = "50ms";

/// One strategy. Medians over rounds unless said otherwise, in percent of the limit.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub strategy: &'static str,
    /// The load received by the server's device.
    pub delivered_percent: f64,
    /// The least of all rounds.
    pub worst_delivered_percent: f64,
    /// The load given to the client's device.
    pub offered_percent: f64,
    /// The load in the round in which it was least: below 100, there was too little load for the
    /// limit.
    pub worst_offered_percent: f64,
    /// The bytes that each queue sent.
    pub queue_percent: Vec<f64>,
}

/// All of them.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The limit, in bits per second.
    pub limit_bps: u64,
    /// The words of `narrows tc` that set it, before the strategy's name.
    pub tbf: String,
    /// The strategies.
    pub rows: Vec<Row>,
}

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL, PING])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Rounds) -> Result<Report> {
    check()?;
    ensure!(options.rounds > 0, "at least one round, not 0");
    let bed = Testbed::up(QUEUES)?;
    let instance = Instance::start(&bed, &options.program, &["--fail-closed"])?;
    let flows = steering::flows(&bed, HEAVY_FLOWS)?;
    let frames = frames::udp_flows(&mix(&flows)?, SINK_MAC, FRAME_BYTES)?;
    let tbf = format!(
        "qdisc replace dev {PORT_B} root tbf rate {}mbit burst {} latency {LATENCY} coordination",
        LIMIT.bits_per_sec() / 1_000_000,
        LIMIT.bytes_in(BURST).0,
    );
    let mut progress = Progress::over(u64::from(options.rounds) * Strategy::ALL.len() as u64);
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); Strategy::ALL.len()];
    for round in 1..=options.rounds {
        if round > 1 && progress.is_over() {
            break;
        }
        for (strategy, samples) in Strategy::ALL.iter().zip(&mut samples) {
            let title = format!("round {round} of {}: {}", options.rounds, strategy.name());
            progress.begin(&title);
            instance.tc(&format!("{tbf} {}", strategy.name()))?;
            let sample = measure(&bed, &instance, &frames, options.window)
                .with_context(|| format!("{title}; narrows says:\n{}", instance.log()))?;
            progress.end(&format!(
                "{title}: {:.2} % delivered of {:.2} % offered",
                sample.delivered, sample.offered
            ));
            samples.push(sample);
        }
    }
    drop(progress);
    let rows = Strategy::ALL.iter().zip(&samples);
    let rows = rows.map(|(strategy, samples)| Row::new(strategy.name(), samples)).collect();
    Ok(Report { limit_bps: LIMIT.bits_per_sec(), tbf, rows })
}

/// The source ports of the load in the order of their frames: the heavy queue's and, once, the
/// light one's.
fn mix(flows: &[Vec<u16>]) -> Result<Vec<u16>> {
    let [heavy, light, ..] = flows else {
        anyhow::bail!("the load needs two queues, there are {}", flows.len());
    };
    let light = light.first().context("no flow takes the light queue")?;
    Ok(heavy.iter().take(HEAVY_FLOWS).chain([light]).copied().collect())
}

/// The measurements of one round, in percent of the limit.
#[derive(Clone, Debug)]
struct Sample {
    delivered: f64,
    offered: f64,
    queues: Vec<f64>,
}

/// The readings at both ends of the window.
struct Look {
    client_at: Instant,
    client: Counts,
    shown_at: Instant,
    /// Bytes that each queue has sent.
    queues: Vec<u64>,
}

fn measure(
    bed: &Testbed,
    instance: &Instance,
    frames: &[Vec<u8>],
    window: Duration,
) -> Result<Sample> {
    let flood = Flood {
        frames: frames.to_vec(),
        pace: Pace::Bits(LIMIT.bits_per_sec() as f64 * OFFERED),
        // The trial ends it; this is for when it cannot.
        limit: window * 2 + Duration::from_secs(10),
        core: None,
    };
    let mut client = Counters::of(bed.client(), CLIENT)?;
    let look = || {
        let (client_at, client) = (Instant::now(), client.read()?);
        let show = instance.show()?;
        let port = show.port(PORT_B).context("narrows show does not list port B")?;
        let queues = port.per_queue.iter().map(|queue| queue.tx_bytes).collect();
        Ok(Look { client_at, client, shown_at: Instant::now(), queues })
    };
    let outcome = trial::run(bed, Load::Flood(flood), window, look, |_| ())?;
    Ok(Sample::of(&outcome))
}

impl Sample {
    fn of(outcome: &Outcome<Look>) -> Self {
        let [start, end] = &outcome.edges;
        let given = end.client - start.client;
        // Counted in frames: a device whose far end runs an XDP program counts bytes without
        // Ethernet headers. Those of the pings beside the load are short, so they are left out.
        let frames = (given.tx_packets + given.tx_dropped).saturating_sub(outcome.ping.sent);
        let offered = frames * FRAME_BYTES as u64;
        let shown = end.shown_at.saturating_duration_since(start.shown_at);
        let queues = start.queues.iter().zip(&end.queues);
        Self {
            delivered: 100.0 + outcome.delivered.deviation_percent(LIMIT),
            offered: percent(offered, end.client_at.saturating_duration_since(start.client_at)),
            queues: queues.map(|(start, end)| percent(end.saturating_sub(*start), shown)).collect(),
        }
    }
}

/// `bytes` in `span`, in percent of what the limit passes in it.
fn percent(bytes: u64, span: Duration) -> f64 {
    bytes as f64 * 8.0 / (span.as_secs_f64() * LIMIT.bits_per_sec() as f64) * 100.0
}

impl Row {
    fn new(strategy: &'static str, samples: &[Sample]) -> Self {
        let all = |figure: &dyn Fn(&Sample) -> f64| {
            let mut figures: Vec<f64> = samples.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures
        };
        let median = |figures: &[f64]| figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN);
        let least = |figures: &[f64]| figures.first().copied().unwrap_or(f64::NAN);
        let (delivered, offered) = (all(&|sample| sample.delivered), all(&|sample| sample.offered));
        let queues = samples.iter().map(|sample| sample.queues.len()).min().unwrap_or(0);
        Self {
            strategy,
            delivered_percent: median(&delivered),
            worst_delivered_percent: least(&delivered),
            offered_percent: median(&offered),
            worst_offered_percent: least(&offered),
            queue_percent: (0..queues)
                .map(|queue| median(&all(&|sample| sample.queues[queue])))
                .collect(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table =
            table::of_words(["strategy", "delivered", "worst", "offered", "worst", "by queue"]);
        for row in &self.rows {
            let queues: Vec<String> =
                row.queue_percent.iter().map(|percent| format!("{percent:.1}")).collect();
            table.add_row([
                row.strategy.to_owned(),
                format!("{:.2} %", row.delivered_percent),
                format!("{:.2} %", row.worst_delivered_percent),
                format!("{:.2} %", row.offered_percent),
                format!("{:.2} %", row.worst_offered_percent),
                format!("{} %", queues.join(" / ")),
            ]);
        }
        writeln!(f, "{table}")?;
        let limit = Rate::from_bits_per_sec(self.limit_bps);
        writeln!(
            f,
            "in per cent of {limit}; offered: four frames of five to the first queue, one to the \
             second; worst: of all rounds\nset by: narrows tc {} STRATEGY",
            self.tbf
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_frames_of_five_take_the_first_queue() {
        let flows = [vec![1, 2, 3, 4], vec![5, 6, 7, 8], vec![9], vec![10]];
        assert_eq!(mix(&flows).unwrap(), [1, 2, 3, 4, 5]);
        assert!(mix(&flows[..1]).unwrap_err().to_string().contains("two queues"));
    }

    #[test]
    fn a_row_has_the_median_and_the_worst_round() {
        let sample = |delivered, heavy| Sample {
            delivered,
            offered: 102.0,
            queues: vec![heavy, 20.0, 0.0, 0.0],
        };
        let row = Row::new("lock", &[sample(99.9, 79.0), sample(71.5, 50.0), sample(100.1, 81.0)]);
        assert_eq!((row.delivered_percent, row.worst_delivered_percent), (99.9, 71.5));
        assert_eq!((row.offered_percent, row.worst_offered_percent), (102.0, 102.0));
        assert_eq!(row.queue_percent, [79.0, 20.0, 0.0, 0.0]);
    }

    #[test]
    fn percentages_are_of_the_limit() {
        // 500 Mbit/s are 62.5 MB a second.
        assert_eq!(percent(62_500_000, Duration::from_secs(1)), 100.0);
        assert_eq!(percent(62_500_000, Duration::from_secs(2)), 50.0);
    }

    #[test]
    fn the_table_and_the_json_show_each_strategy() {
        let row = Row::new(
            "equal",
            &[Sample { delivered: 70.0, offered: 102.0, queues: vec![50.0, 20.0] }],
        );
        let report = Report { limit_bps: 500_000_000, tbf: "tbf".to_owned(), rows: vec![row] };
        let text = report.to_string();
        for shown in ["equal", "70.00 %", "102.00 %", "50.0 / 20.0 %", "500 Mbit/s"] {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["rows"][0]["strategy"], "equal");
        assert_eq!(json["rows"][0]["delivered_percent"], 70.0);
    }
}
