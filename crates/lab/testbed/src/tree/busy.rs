//! `narrows bench busy`: what other programs on the same cores cost, beside the kernel's own
//! shapers.
//!
//! [Hogs] take every core, twice over. The kernel shapes in softirqs, which go before all programs;
//! Narrows' workers are threads, which have to be given their core. Each system is measured with
//! hogs and without, in three scenes:
//!
//! - *wire*: nothing is limited and nothing else is sent; the round trips of a ping.
//! - *tbf*: one limit for the whole port, and twice as much offered; the rate delivered.
//! - *tree*: the provider's tree in the evening, when all ask for more than there is; the
//!   deviation of each class from its due rate, by HTB's rules.
//!
//! Rates are over the whole window and not medians, since stalls are what is measured. The sender,
//! the receiver and the ping have the priority of workers, so that only the system between them is
//! late.

use super::arrivals::{Receiver, rates};
use super::load::Load;
use super::phase::PHASES;
use super::provider;
use super::share;
use crate::bed::{PORT_B, QUEUES, tc};
use crate::bridge::Bridge;
use crate::hogs::Hogs;
use crate::machine::Machine;
use crate::narrows::Instance;
use crate::ping::Ping;
use crate::progress::Progress;
use crate::requirements::{self, CHRT, ETHTOOL, IP, PING, Refusal, SETSID, TC};
use crate::spread::Spread;
use crate::{Rounds, Testbed, table};
use anyhow::{Context, Result};
use narrows_units::Nanos;
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// The limit of the scene with one, in Mbit/s.
const LIMIT_MBIT: u64 = 80;
/// Its words, with the burst of the tree's classes, 20 ms, and queues of 50 ms.
const TBF: &str = "tbf rate 80mbit burst 200000 limit 500000";
/// How long a load runs before it is measured.
const WARM_UP: Duration = Duration::from_secs(1);
/// How much longer than its measurement it may last.
const SPARE: Duration = Duration::from_secs(5);

/// The system between the ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    /// A bridge with the kernel's qdiscs at its exit.
    Kernel,
    /// Narrows over AF_XDP.
    Narrows,
    /// Narrows in the driver.
    NarrowsXdp,
}

impl System {
    const ALL: [Self; 3] = [Self::Kernel, Self::Narrows, Self::NarrowsXdp];

    const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Narrows => "narrows",
            Self::NarrowsXdp => "narrows-xdp",
        }
    }
}

/// One system, with or without hogs. Spreads are over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The system's name.
    pub system: &'static str,
    /// Whether hogs ran.
    pub busy: bool,
    /// Wire: the round trips' median, 99th percentile and maximum, in microseconds.
    pub ping_median_us: Spread,
    /// See the median.
    pub ping_p99_us: Spread,
    /// See the median.
    pub ping_worst_us: Spread,
    /// One limit: the delivered rate in percent of it.
    pub tbf_percent: Spread,
    /// The tree: the delivered rate of the link, in percent of its limit.
    pub link_percent: Spread,
    /// The tree: the largest deviation of a class from its due rate, in percent of that.
    pub class_off_percent: Spread,
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// The systems.
    pub rows: Vec<Row>,
}

/// What one round found of one system.
#[derive(Clone, Copy, Debug)]
struct Found {
    ping_us: [f64; 3],
    tbf_percent: f64,
    link_percent: f64,
    class_off_percent: f64,
}

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL, PING, CHRT, SETSID])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Rounds) -> Result<Report> {
    check()?;
    let bed = Testbed::up(QUEUES)?;
    let cells: Vec<(System, bool)> = [false, true]
        .into_iter()
        .flat_map(|busy| System::ALL.map(|system| (system, busy)))
        .collect();
    let mut progress = Progress::over(u64::from(options.rounds) * cells.len() as u64);
    let mut found: Vec<Vec<Found>> = vec![Vec::new(); cells.len()];
    'rounds: for round in 1..=options.rounds {
        for ((system, busy), found) in cells.iter().zip(&mut found) {
            if round > 1 && progress.is_over() {
                break 'rounds;
            }
            let hogs = if *busy { "busy" } else { "idle" };
            let title = format!("round {round} of {}: {}, {hogs}", options.rounds, system.name());
            progress.begin(&title);
            let hogs = busy.then(|| Hogs::start(bed.shaper())).transpose()?;
            let one = measure(&bed, *system, options).with_context(|| title.clone())?;
            drop(hogs);
            progress.end(&format!(
                "{title}: ping {:.0} us at most, tbf {:.1} %, a class {:.1} % off",
                one.ping_us[2], one.tbf_percent, one.class_off_percent
            ));
            found.push(one);
        }
    }
    drop(progress);
    let rows = cells.iter().zip(&found).map(|(cell, found)| row(*cell, found));
    let rows = rows.collect::<Option<_>>().context("no round was measured")?;
    Ok(Report { machine: Machine::here(), rows })
}

fn row((system, busy): (System, bool), found: &[Found]) -> Option<Row> {
    let spread = |figure: &dyn Fn(&Found) -> f64| Spread::of(found.iter().map(figure));
    Some(Row {
        system: system.name(),
        busy,
        ping_median_us: spread(&|one| one.ping_us[0])?,
        ping_p99_us: spread(&|one| one.ping_us[1])?,
        ping_worst_us: spread(&|one| one.ping_us[2])?,
        tbf_percent: spread(&|one| one.tbf_percent)?,
        link_percent: spread(&|one| one.link_percent)?,
        class_off_percent: spread(&|one| one.class_off_percent)?,
    })
}

/// A system in its place; taken out again when dropped.
enum Running<'a> {
    Kernel(#[expect(dead_code, reason = "it is there")] Bridge<'a>),
    Narrows(Box<Instance>),
}

impl<'a> Running<'a> {
    fn start(bed: &'a Testbed, system: System, program: &Path) -> Result<Self> {
        let instance = |words: &[&str]| {
            Instance::start(bed, program, words).map(|instance| Self::Narrows(Box::new(instance)))
        };
        bed.take_redirected(system == System::NarrowsXdp)?;
        match system {
            System::Kernel => Bridge::over(bed).map(Self::Kernel),
            System::Narrows => instance(&["--fail-closed"]),
            System::NarrowsXdp => instance(&["--plane", "xdp", "--fail-closed"]),
        }
    }

    /// Runs the lines of `tc`, in place of what was there.
    fn shape(&self, bed: &Testbed, lines: &[String]) -> Result<()> {
        let tc = |line: &str| match self {
            Self::Kernel(_) => tc(bed.shaper(), line).map(drop),
            Self::Narrows(instance) => instance.tc(line).map(drop),
        };
        // There may be none.
        let _ = tc(&format!("qdisc del dev {PORT_B} root"));
        lines.iter().try_for_each(|line| tc(line))
    }
}

fn measure(bed: &Testbed, system: System, options: &Rounds) -> Result<Found> {
    let running = Running::start(bed, system, &options.program)?;
    let ping = Ping::start_first(bed, options.window + SPARE)?;
    thread::sleep(options.window);
    let ping = ping.stop()?;
    let at =
        |percent| ping.percentile(percent).map_or(f64::INFINITY, |time| time.as_secs_f64() * 1e6);
    running.shape(bed, &[format!("qdisc add dev {PORT_B} root handle 1: {TBF}")])?;
    let (asked, delivered) = rates_of_leaves(bed, options.window)?;
    let limit = (LIMIT_MBIT * 1_000_000) as f64;
    anyhow::ensure!(asked.iter().sum::<f64>() > limit, "the senders did not reach the limit");
    let tbf_percent = delivered.iter().sum::<f64>() / limit * 100.0;

    let nodes = provider::nodes();
    let queues = if system == System::Narrows { QUEUES.into() } else { 1 };
    running.shape(bed, &provider::commands(&nodes, PORT_B, queues))?;
    let (asked, delivered) = rates_of_leaves(bed, options.window)?;
    let shares = share::of_rates(&nodes, &asked, &[asked], &[delivered]);
    let off = shares.iter().filter_map(|share| Some(share.off_percent()?.abs()));
    let class_off_percent = off.fold(0.0, f64::max);
    let link = shares.first().context("the tree has no link")?;
    let link_percent = link.delivered_bps / limit * 100.0;
    let ping_us = [at(50.0), at(99.0), at(100.0)];
    Ok(Found { ping_us, tbf_percent, link_percent, class_off_percent })
}

/// The rates of all leaves that were offered and delivered in the evening, over `window`.
fn rates_of_leaves(
    bed: &Testbed,
    window: Duration,
) -> Result<([f64; provider::LEAVES], [f64; provider::LEAVES])> {
    let receiver = Receiver::start(bed)?;
    let load = Load { phases: vec![PHASES[1]], length: WARM_UP + window + SPARE };
    let sender = load.start(bed)?;
    thread::sleep(WARM_UP + window);
    let sent = sender.stop()?;
    let arrived = receiver.stop()?;
    let nanos = |duration: Duration| Nanos(duration.as_nanos() as u64);
    let from = sent.began + nanos(WARM_UP);
    let to = from + nanos(window);
    Ok((rates(&sent.frames, from, to), rates(&arrived, from, to)))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = table::of_words([
            "system",
            "machine",
            "ping median",
            "p99",
            "worst",
            "tbf delivers",
            "tree's link",
            "worst class off",
        ]);
        for row in &self.rows {
            table.add_row([
                row.system.to_owned(),
                if row.busy { "busy" } else { "idle" }.to_owned(),
                format!("{:.0} us", row.ping_median_us.median),
                format!("{:.0} us", row.ping_p99_us.median),
                format!("{:.0} us", row.ping_worst_us.median),
                format!("{:.1} %", row.tbf_percent.median),
                format!("{:.1} %", row.link_percent.median),
                format!("{:.1} %", row.class_off_percent.median),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "Medians over the rounds. Busy: two endless loops a core, in sessions of their own."
        )
    }
}
