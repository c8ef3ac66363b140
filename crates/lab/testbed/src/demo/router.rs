//! `narrows demo router`: a routing daemon moves a flow when a link fails, and queues keep the
//! delay low on the link that is left.
//!
//! Four routers with BIRD between two hosts ([`crate::diamond`]); Narrows routes in the two where
//! paths part. The fast path has 100 Mbit/s, the slow one 20. Four TCP flows send as fast as they
//! may, through all phases, and UDP requests show the delay beside them. In one run the limits have
//! a plain queue, in the other `cake`.
//!
//! Every figure is measured from outside: rates and ways by the devices of the hosts and of the
//! routers on the paths, where Narrows does not run; round trips and losses by requests and their
//! answers. Only the count of packets that are not accounted for is Narrows's own.
//!
//! Non-goals: how fast a daemon can be. A link fails with its carrier, so BGP knows at once.

mod report;

pub use report::{Report, Row};

use crate::counters::Counters;
use crate::diamond::{Diamond, Node};
use crate::narrows::Instance;
use crate::probe::{self, Probe, Sample};
use crate::progress::Progress;
use crate::requirements::{self, BIRD, ETHTOOL, IP, Refusal};
use crate::tcp::Flows;
use anyhow::{Context, Result};
use narrows_units::Rate;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The limits of both paths, each way, in Mbit/s.
const FAST: u64 = 100;
const SLOW: u64 = 20;
/// TCP flows.
const FLOWS: u16 = 4;
/// The first port that they go to.
const PORT: u16 = 5001;
/// Queues of each device.
const QUEUES: u32 = 2;
/// Packets of a plain queue, as many as a device's has by default in Linux.
const QUEUE: u32 = 1000;
/// What a limit passes at once.
const BURST: u32 = 32_000;
/// From one request to the next.
const INTERVAL: Duration = Duration::from_millis(5);
/// Payload of requests and of answers.
const REQUEST: usize = 64;
/// After a change, what is measured waits until TCP has found the new rate.
const SETTLING: Duration = Duration::from_secs(3);

/// What is at the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Fifo,
    Cake,
}

impl System {
    const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Cake => "cake",
        }
    }

    /// The words of `narrows tc` that put it at a port.
    fn words(self, port: &str, mbit: u64) -> Vec<String> {
        let root = format!("qdisc replace dev {port} root");
        // From nothing, so that no state of the previous one is kept.
        let mut words = vec![format!("{root} noqueue")];
        match self {
            Self::Cake => words.push(format!("{root} cake bandwidth {mbit}mbit")),
            Self::Fifo => {
                words.push(format!(
                    "{root} handle 1: tbf rate {mbit}mbit burst {BURST} latency 400ms"
                ));
                words.push(format!(
                    "qdisc replace dev {port} parent 1:1 handle 2: pfifo limit {QUEUE}"
                ));
            }
        }
        words
    }
}

/// What happens, and which way the flows should take then.
struct Phase {
    name: &'static str,
    /// The end of a cable that goes down, or up again.
    change: Option<(Node, Node, bool)>,
    by: Node,
}

/// The far end of a cable fails, so that a port of Narrows has no carrier. Then one that one of the
/// two only hears of from its neighbour.
const PHASES: [Phase; 5] = [
    Phase { name: "all links up", change: None, by: Node::Fast },
    Phase {
        name: "left - fast fails",
        change: Some((Node::Fast, Node::Left, false)),
        by: Node::Slow,
    },
    Phase { name: "is repaired", change: Some((Node::Fast, Node::Left, true)), by: Node::Fast },
    Phase {
        name: "fast - right fails",
        change: Some((Node::Fast, Node::Right, false)),
        by: Node::Slow,
    },
    Phase { name: "is repaired", change: Some((Node::Fast, Node::Right, true)), by: Node::Fast },
];

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `narrows` program.
    pub program: PathBuf,
    /// How long each phase is measured, once its change is over.
    pub phase: Duration,
}

/// Refuses if the demo cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL, BIRD])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Options) -> Result<Report> {
    check()?;
    let systems = [System::Fifo, System::Cake];
    let mut progress = Progress::over((systems.len() * PHASES.len()) as u64);
    let diamond = Diamond::up(QUEUES, &[])?;
    let instances = [Node::Left, Node::Right].map(|node| {
        let words = ["run", "--router", &node.ports()].map(str::to_owned);
        let words = words.each_ref().map(String::as_str);
        Instance::start_in(diamond.namespace(node), &options.program, &words)
    });
    let [left, right] = instances;
    let instances = [left?, right?];
    let (mut rows, mut tc) = (Vec::new(), Vec::new());
    for system in systems {
        for (router, mbit) in [(Node::Fast, FAST), (Node::Slow, SLOW)] {
            for words in system.words(router.name(), mbit) {
                instances.iter().try_for_each(|instance| instance.tc(&words).map(drop))?;
                tc.push(words);
            }
        }
        one(&diamond, system, options.phase, &mut progress, &mut rows).with_context(|| {
            let logs = instances.each_ref().map(Instance::log);
            format!("{}; narrows says:\n{}", system.name(), logs.join("\n"))
        })?;
    }
    drop(progress);
    let mut unaccounted = 0;
    for instance in &instances {
        unaccounted += instance.wait_for_rest()?.unsigned_abs();
    }
    tc.retain(|words| !words.ends_with("noqueue"));
    Ok(Report::new(rows, tc, unaccounted))
}

/// All phases under one system; their rows go to `rows`.
fn one(
    diamond: &Diamond,
    system: System,
    window: Duration,
    progress: &mut Progress,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let [west, east] = [diamond.end(Node::West)?, diamond.end(Node::East)?];
    let addresses: Vec<SocketAddrV4> =
        (PORT..PORT + FLOWS).map(|port| SocketAddrV4::new(east.ip, port)).collect();
    let probe = Probe {
        name: "requests",
        dscp: 0,
        interval: INTERVAL,
        request: REQUEST,
        answer: REQUEST,
        ports: 1,
    };
    let probe = probe.start(west, east)?;
    let flows = Flows::to(west, east.namespace, &addresses)?.start()?;
    let mut at_east = Counters::of(east.namespace, east.device)?;
    // What comes from the left on its way to the right.
    let by = |router| Counters::of(diamond.namespace(router), Node::Left.name());
    let (mut by_fast, mut by_slow) = (by(Node::Fast)?, by(Node::Slow)?);
    let mut measured = Vec::new();
    for phase in &PHASES {
        if !measured.is_empty() && progress.is_over() {
            break;
        }
        progress.begin(&format!("{}: {}", system.name(), phase.name));
        let changed = probe::now()?;
        if let Some((node, to, is_up)) = phase.change {
            diamond.set_link(node, to, is_up)?;
        }
        diamond.wait_for_path(phase.by)?;
        sleep(SETTLING);
        let mut read =
            || Ok::<_, anyhow::Error>([at_east.read()?, by_fast.read()?, by_slow.read()?]);
        let (from, clock, before) = (probe::now()?, Instant::now(), read()?);
        sleep(window);
        let (after, span, to) = (read()?, clock.elapsed(), probe::now()?);
        let [east, fast, slow] = [0, 1, 2].map(|at| after[at] - before[at]);
        let rate =
            Rate::from_bits_per_sec((east.rx_bytes as f64 * 8.0 / span.as_secs_f64()) as u64);
        let [fast, slow] = [fast, slow].map(|way| way.rx_packets as f64);
        let share = if phase.by == Node::Fast { fast } else { slow } / f64::max(fast + slow, 1.0);
        progress.end(&format!(
            "{} at the receiver, {:.1} % by {}",
            report::mbit(rate.bits_per_sec()),
            share * 100.0,
            phase.by.name()
        ));
        measured.push((phase, rate, share, [changed, from, to]));
    }
    probe.pause();
    flows.stop()?;
    let samples = probe.stop()?;
    rows.extend(measured.into_iter().map(|(phase, rate, share, [changed, from, to])| {
        let sent = |from: Duration, to: Duration| -> Vec<Sample> {
            samples.iter().filter(|sample| (from..to).contains(&sample.sent)).copied().collect()
        };
        Row::new(system, phase, (rate, share), &sent(changed, from), &sent(from, to))
    }));
    Ok(())
}
