//! The round-trip time that an idle Narrows adds, asleep and busy-polling, beside a Linux bridge.
//!
//! The same `ping`, one request every 10 ms, goes over a testbed with one queue through each system
//! in turn, and over a plain cable. (With one queue, a worker that never sleeps has a core to
//! itself on a machine with two.) Rounds are interleaved. The added time is the difference to the
//! plain cable within a round, and the median over rounds counts.
//!
//! `ping` stays on the first core, which also does the work that a `veth` does instead of an
//! interrupt. The sleeping worker shares this core, as an operator would configure it: a queue's
//! interrupt and its worker on one core. The worker that never sleeps has the last core.

use crate::bed::{SERVER_IP, ip};
use crate::bridge::Bridge;
use crate::narrows::Instance;
use crate::ping::{Ping, Stats};
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, PING, Refusal};
use crate::{Rounds, Testbed, table};
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The server's end of the bare cable.
const CABLE_IP: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);

/// The system that the round trips pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    Cable,
    Bridge,
    Asleep,
    BusyPoll,
}

impl System {
    const ALL: [Self; 4] = [Self::Cable, Self::Bridge, Self::Asleep, Self::BusyPoll];

    const fn name(self) -> &'static str {
        match self {
            Self::Cable => "cable",
            Self::Bridge => "bridge",
            Self::Asleep => "narrows",
            Self::BusyPoll => "narrows-busy-poll",
        }
    }
}

/// One system.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub system: &'static str,
    /// The median round trip in microseconds; the median over rounds.
    pub median_us: f64,
    /// The 99th percentile; the median over rounds.
    pub p99_us: f64,
    /// The median round trip beyond that of the bare cable in the same round; the median
    /// over rounds.
    pub added_us: f64,
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The systems.
    pub rows: Vec<Row>,
}

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL, PING])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Rounds) -> Result<Report> {
    check()?;
    let bed = Testbed::up(1)?;
    lay_cable(&bed)?;
    let mut progress = Progress::over(u64::from(options.rounds) * System::ALL.len() as u64);
    let mut rounds: Vec<[Stats; 4]> = Vec::new();
    for round in 1..=options.rounds {
        if round > 1 && progress.is_over() {
            break;
        }
        let mut measure = |system: System| {
            let title = format!("round {round} of {}: {}", options.rounds, system.name());
            progress.begin(&title);
            let stats = ping(&bed, system, options).with_context(|| title.clone())?;
            let median = stats.median().with_context(|| format!("{title}: no answer"))?;
            progress.end(&format!("{title}: {} us", median.as_micros()));
            Ok::<_, anyhow::Error>(stats)
        };
        let [cable, bridge, asleep, busy] = System::ALL;
        rounds.push([measure(cable)?, measure(bridge)?, measure(asleep)?, measure(busy)?]);
    }
    let micros = |time: Option<Duration>| time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e6);
    let over_rounds = |figure: &dyn Fn(&[Stats; 4]) -> f64| {
        let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let rows = System::ALL.iter().enumerate().map(|(at, system)| Row {
        system: system.name(),
        median_us: over_rounds(&|round| micros(round[at].median())),
        p99_us: over_rounds(&|round| micros(round[at].p99())),
        added_us: over_rounds(&|round| micros(round[at].median()) - micros(round[0].median())),
    });
    Ok(Report { rows: rows.collect() })
}

/// Connects client and server directly, in parallel to the testbed's own path.
fn lay_cable(bed: &Testbed) -> Result<()> {
    let server = bed.server().name();
    ip(bed.client(), &format!("link add name cable0 type veth peer name cable1 netns {server}"))?;
    ip(bed.client(), "addr add 198.18.1.1/24 dev cable0")?;
    ip(bed.client(), "link set cable0 up")?;
    ip(bed.server(), &format!("addr add {CABLE_IP}/24 dev cable1"))?;
    ip(bed.server(), "link set cable1 up").map(drop)
}

fn ping(bed: &Testbed, system: System, options: &Rounds) -> Result<Stats> {
    let to = |address| {
        let ping = Ping::start_on(bed, 0, address, options.window + Duration::from_secs(1))?;
        std::thread::sleep(options.window);
        ping.stop()
    };
    let through = || to(SERVER_IP);
    match system {
        System::Cable => to(CABLE_IP),
        System::Bridge => {
            let _bridge = Bridge::over(bed)?;
            through()
        }
        System::Asleep => {
            let words = ["--fail-closed", "--cores", "0"];
            let _instance = Instance::start(bed, &options.program, &words)?;
            through()
        }
        System::BusyPoll => {
            let core = crate::cpu::cores().saturating_sub(1).to_string();
            let words = ["--fail-closed", "--busy-poll", "--cores", &core];
            let _instance = Instance::start(bed, &options.program, &words)?;
            through()
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = table::of_words(["system", "median", "p99", "added by it"]);
        for row in &self.rows {
            table.add_row([
                row.system.to_owned(),
                format!("{:.0} us", row.median_us),
                format!("{:.0} us", row.p99_us),
                format!("{:+.0} us", row.added_us),
            ]);
        }
        writeln!(f, "{table}")
    }
}
