//! `narrows bench delay`: how long a packet is under way through a tree that divides a limit
//! fairly.
//!
//! Four applications share a limit equally, as in FlowValve's Fig. 14, whose figures these are: the
//! mean and the standard deviation of the one-way delay. Narrows on the XDP plane, by HTB's rules
//! and by FlowValve's, and on the AF_XDP plane; beside them the kernel's bridge with its HTB at the
//! exit, and the bridge alone, which limits nothing.
//!
//! *Below* its limit no system has a queue of its own, so a delay is the way through it. *Above* it
//! packets wait where there is a queue, and are dropped where there is none.
//!
//! *One-way.* Each frame carries the time at which its sender had read the clock, just before it
//! handed it to the device. The kernel stamps its arrival with the same clock, so a receiver that
//! waits for its core measures nothing of that. The two cables are in every delay.
//!
//! DPDK's scheduler is there as far as it [runs on a `veth`](poller), if its library is installed.
//!
//! Non-goals: throughput, which `bench forward` and `bench tree-real` have.

mod poller;
mod report;

pub use report::{Report, Row};

use crate::background::Background;
use crate::bed::{CLIENT, CLIENT_MAC, PORT_B, QUEUES, SERVER_IP, SINK_MAC, Testbed, tc};
use crate::bridge::Bridge;
use crate::frames::{self, HEADERS};
use crate::listen::Listener;
use crate::narrows::Instance;
use crate::pace::{Credit, NAP};
use crate::progress::Progress;
use crate::raw::{BATCH, Offer, RawSocket};
use crate::requirements::{self, ETHTOOL, IP, Refusal, TC};
use crate::{Rounds, cpu, probe};
use anyhow::{Context, Result};
use narrows_coordination::TreeStrategy;
use narrows_peers::rte_sched;
use narrows_units::{Nanos, Rate};
use poller::Poller;
use report::Sample;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The limit: what two cores carry that send, limit and receive.
const LIMIT: Rate = Rate::from_bits_per_sec(200_000_000);
/// Those who share it.
const APPLICATIONS: u16 = 4;
/// Whole frames, in bytes.
const FRAME: usize = 1514;
/// The frames that may wait of each application, in all queues together.
const QUEUE: u64 = 100;
/// The size of a bucket: its rate for this long, as what is sent comes in small bursts.
const BURST: Nanos = Nanos::from_millis(10);
/// Where a frame has the time at which it was sent, and how much of it is read to know that.
const SENT: std::ops::Range<usize> = HEADERS..HEADERS + 8;
const SOURCE_ADDRESS: usize = 26;
const SOURCE_PORT: usize = 34;
/// How long a load runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// The system between the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    /// The kernel's bridge, which limits nothing.
    Bridge,
    /// The bridge with the kernel's HTB at the exit.
    Htb,
    /// Narrows over AF_XDP.
    Narrows,
    /// Narrows in the driver, by HTB's rules.
    NarrowsXdp,
    /// Narrows in the driver, by FlowValve's.
    FlowValve,
    /// DPDK's scheduler, polled.
    RteSched,
}

impl System {
    const ALL: [Self; 6] =
        [Self::Bridge, Self::Htb, Self::Narrows, Self::NarrowsXdp, Self::FlowValve, Self::RteSched];

    const fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Htb => "bridge-htb",
            Self::Narrows => "narrows",
            Self::NarrowsXdp => "narrows-xdp",
            Self::FlowValve => "narrows-xdp-flowvalve",
            Self::RteSched => "rte_sched",
        }
    }
}

/// What is offered, in parts of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Below,
    Above,
}

impl Load {
    const ALL: [Self; 2] = [Self::Below, Self::Above];

    const fn percent(self) -> u32 {
        match self {
            Self::Below => 90,
            Self::Above => 150,
        }
    }
}

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, TC, ETHTOOL])
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Rounds) -> Result<Report> {
    check()?;
    let absent = rte_sched::available().err();
    let is_there = |system: &System| *system != System::RteSched || absent.is_none();
    let systems: Vec<System> = System::ALL.into_iter().filter(is_there).collect();
    let bed = Testbed::up(QUEUES)?;
    let turns: Vec<(System, Load)> =
        systems.iter().flat_map(|it| Load::ALL.map(|load| (*it, load))).collect();
    let mut progress = Progress::over(u64::from(options.rounds) * systems.len() as u64);
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); turns.len()];
    for round in 1..=options.rounds {
        if round > 1 && progress.is_over() {
            break;
        }
        for (system, of_system) in systems.iter().zip(samples.chunks_mut(Load::ALL.len())) {
            let title = format!("round {round} of {}: {}", options.rounds, system.name());
            progress.begin(&title);
            let _running = Running::start(&bed, *system, &options.program)?;
            for (load, samples) in Load::ALL.iter().zip(of_system) {
                let sample = measure(&bed, *load, options.window);
                let sample = sample.with_context(|| format!("{title}, {} %", load.percent()))?;
                // On a machine that stands still for all of the window, nothing arrives in it.
                samples.extend(sample);
            }
        }
    }
    drop(progress);
    let rows = turns.iter().zip(&samples);
    let rows =
        rows.map(|((system, load), samples)| Row::of(system.name(), load.percent(), samples));
    let rows = rows.collect::<Option<_>>().context("no round was measured")?;
    let notes = absent.iter().map(|why| format!("rte_sched: {why}")).collect();
    Ok(Report::new(LIMIT, rows, notes))
}

/// A system in its place; taken out again when dropped.
enum Running<'a> {
    Kernel(#[expect(dead_code, reason = "it is there")] Bridge<'a>),
    Narrows(#[expect(dead_code, reason = "it runs")] Box<Instance>),
    RteSched(#[expect(dead_code, reason = "it runs")] Poller),
}

impl<'a> Running<'a> {
    fn start(bed: &'a Testbed, system: System, program: &Path) -> Result<Self> {
        let is_in_driver = matches!(system, System::NarrowsXdp | System::FlowValve);
        bed.take_redirected(is_in_driver)?;
        let narrows = |words: &[&str], strategy, queues| {
            let instance = Instance::start(bed, program, words)?;
            let mut lines = tree(strategy, queues).into_iter();
            lines.try_for_each(|line| instance.tc(&line).map(drop))?;
            Ok(Self::Narrows(Box::new(instance)))
        };
        let in_driver = ["--plane", "xdp", "--xdp", "native", "--fail-closed"];
        match system {
            System::Bridge => Bridge::over(bed).map(Self::Kernel),
            System::Htb => {
                let bridge = Bridge::over(bed)?;
                let mut lines = tree(TreeStrategy::Fair, 1).into_iter();
                lines.try_for_each(|line| tc(bed.shaper(), &line).map(drop))?;
                Ok(Self::Kernel(bridge))
            }
            System::Narrows => narrows(&["--fail-closed"], TreeStrategy::Fair, QUEUES.into()),
            System::NarrowsXdp => narrows(&in_driver, TreeStrategy::Fair, 1),
            System::FlowValve => narrows(&in_driver, TreeStrategy::FlowValve, 1),
            System::RteSched => Poller::start(bed).map(Self::RteSched),
        }
    }
}

/// The words of `tc` that divide the limit at port B, kept by `strategy`. What may wait waits in
/// `queues`.
fn tree(strategy: TreeStrategy, queues: u64) -> Vec<String> {
    let is_htb = strategy == TreeStrategy::Fair;
    let coordination =
        if is_htb { String::new() } else { format!(" coordination {}", strategy.name()) };
    let (limit, part) = (LIMIT.bits_per_sec(), LIMIT.bits_per_sec() / u64::from(APPLICATIONS));
    let burst = |rate: u64| Rate::from_bits_per_sec(rate).bytes_in(BURST).0;
    let (whole, own) = (burst(limit), burst(part));
    let mut lines = vec![
        format!("qdisc add dev {PORT_B} root handle 1: htb{coordination}"),
        format!(
            "class add dev {PORT_B} parent 1: classid 1:1 htb rate {limit}bit burst {whole} \
             cburst {whole}"
        ),
    ];
    for app in 0..APPLICATIONS {
        let class = format!("1:{}", 10 + app);
        let queue = QUEUE / queues;
        lines.extend([
            format!(
                "class add dev {PORT_B} parent 1:1 classid {class} htb rate {part}bit \
                 ceil {limit}bit burst {own} cburst {whole} quantum {FRAME}"
            ),
            format!("qdisc add dev {PORT_B} parent {class} pfifo limit {queue}"),
            format!(
                "filter add dev {PORT_B} parent 1: protocol ip pref 1 u32 match ip src {}/32 \
                 flowid {class}",
                address(app)
            ),
        ]);
    }
    lines
}

/// The address from which an application sends.
fn address(app: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, app as u8, 1)
}

/// One turn of one load; `None` if no frame has arrived.
fn measure(bed: &Testbed, load: Load, window: Duration) -> Result<Option<Sample>> {
    let [_, server] = bed.ends();
    let listener = Listener::open(server)?;
    let receiver = Background::start("delay receiver", move |end| {
        cpu::prefer_this_thread()?;
        let mut arrivals: Vec<Arrival> = Vec::with_capacity(1 << 16);
        listener
            .read_until::<{ SENT.end }>(end, |frame, at| arrivals.extend(arrival(frame, at)))?;
        Ok(arrivals)
    })?;
    let socket = RawSocket::open(bed.client(), CLIENT)?;
    let mut frames = (0..APPLICATIONS).map(frame).collect::<Result<Vec<_>>>()?;
    let bits = LIMIT.bits_per_sec() as f64 * f64::from(load.percent()) / 100.0;
    let length = WARM_UP + window;
    let sender = Background::start("delay sender", move |end| {
        cpu::prefer_this_thread()?;
        send(&socket, &mut frames, bits, length, end)
    })?;
    thread::sleep(length);
    let began = sender.stop()?;
    let arrivals = receiver.stop()?;
    let from = began + Nanos(WARM_UP.as_nanos() as u64);
    let measured = arrivals.iter().filter(|arrival| arrival.sent >= from);
    let delays = measured.clone().map(|arrival| arrival.at.since(arrival.sent)).collect();
    let bits = (measured.count() * FRAME * 8) as f64;
    Ok(Sample::new(delays, bits / window.as_secs_f64()))
}

/// A frame's times.
struct Arrival {
    sent: Nanos,
    at: Nanos,
}

/// A frame of an application, with room for its time. It has no UDP checksum.
fn frame(app: u16) -> Result<Vec<u8>> {
    let (macs, ips) = ([CLIENT_MAC, SINK_MAC], [address(app), SERVER_IP]);
    frames::udp4(frames::port(app), macs, ips, FRAME)
}

/// The times of a frame that has arrived, from its beginning, if it is one of ours.
fn arrival(frame: &[u8], at: Nanos) -> Option<Arrival> {
    let port: [u8; 2] = frame.get(SOURCE_PORT..SOURCE_PORT + 2)?.try_into().ok()?;
    let ours = frames::port(0)..frames::port(APPLICATIONS);
    let sent: [u8; 8] = frame.get(SENT)?.try_into().ok()?;
    let sent = Nanos(u64::from_le_bytes(sent));
    ours.contains(&u16::from_be_bytes(port)).then_some(Arrival { sent, at })
}

/// Sends the frames in turn for so long, each with its time, and returns when it began.
fn send(
    socket: &RawSocket,
    frames: &mut [Vec<u8>],
    bits: f64,
    length: Duration,
    end: &AtomicBool,
) -> Result<Nanos> {
    let now = || Ok::<_, anyhow::Error>(Nanos(u64::try_from(probe::now()?.as_nanos())?));
    let (start, began) = (Instant::now(), now()?);
    let mut credit = Credit::new(Some(bits / (8 * FRAME) as f64));
    let mut next = 0;
    while start.elapsed() < length && !end.load(Ordering::Relaxed) {
        let due = credit.due(start.elapsed()).min(BATCH);
        for _ in 0..due {
            let frame = &mut frames[next];
            frame[SENT].copy_from_slice(&now()?.0.to_le_bytes());
            if socket.offer(frame)? == Offer::NoRoom {
                break;
            }
            credit.spend(1);
            next = (next + 1) % usize::from(APPLICATIONS);
        }
        if due < BATCH {
            thread::sleep(NAP);
        }
    }
    Ok(began)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_carries_the_time_at_which_it_was_sent() {
        let mut frame = frame(3).unwrap();
        frame[SENT].copy_from_slice(&77_u64.to_le_bytes());
        let arrival = arrival(&frame[..SENT.end], Nanos(99)).unwrap();
        assert_eq!((arrival.sent, arrival.at), (Nanos(77), Nanos(99)));
        let other = frames::udp(53, SINK_MAC, FRAME).unwrap();
        assert!(super::arrival(&other[..SENT.end], Nanos(99)).is_none());
        assert!(super::arrival(&frame[..20], Nanos(99)).is_none());
    }

    #[test]
    fn the_limit_is_divided_in_equal_parts_with_the_same_words() {
        let [htb, valve] = [TreeStrategy::Fair, TreeStrategy::FlowValve].map(|it| tree(it, 4));
        assert_eq!(valve[0], format!("{} coordination flowvalve", htb[0]));
        assert_eq!(htb[1..], valve[1..]);
        let parts = htb.iter().filter(|line| line.contains("rate 50000000bit ceil 200000000bit"));
        assert_eq!(parts.count(), usize::from(APPLICATIONS));
        assert!(htb.iter().any(|line| line.ends_with("parent 1:13 pfifo limit 25")), "{htb:?}");
    }
}
