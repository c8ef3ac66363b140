//! `narrows bench`.

mod frames;
mod look_ups;
mod work;

use super::report::print;
use crate::output::{self, Format};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use frames::{
    ConnectionFrames, Drain, FloodFrames, LiveFrames, RoutedFrames, SwitchedFrames, Verdict,
};
use look_ups::LookUps;
use narrows_bench::callgrind::Program;
use narrows_bench::{
    balance, cake, classify, coordination, policy, tree as class_tree, wheels, xdp,
};
use narrows_forwarding::Forwarding;
use narrows_testbed::progress::Progress;
use narrows_testbed::{
    Rounds, Testbed, accuracy, attack, balancing, control, distance, forward, interrupt, latency,
    pacing, policing, replay, routing, sharing, streams, switching, tree, uneven, verdicts, waking,
};
use serde::Serialize;
use std::cell::RefCell;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use work::{CakeWork, TreeFootprint, WheelsFootprint, WheelsWork, counted};

/// Measure costs on this machine, each beside its peers in the same run.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows bench qdisc
  narrows bench forward")]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Forward(Forward),
    Accuracy(Accuracy),
    /// How much of a limit is used under uneven load: 80/20 over two of four queues at 500 Mbit/s,
    /// for each coordination strategy. Needs root.
    #[command(mut_arg("seconds", |it| it.default_value("4").help("Seconds for which each strategy is measured in each round")))]
    Uneven(InRounds),
    /// The round-trip time that an idle Narrows adds to a ping, asleep and busy-polling, beside a
    /// bridge and a plain cable. Needs root.
    #[command(mut_arg("seconds", |it| it.default_value("3")), mut_arg("rounds", |it| it.default_value("5")))]
    Latency(InRounds),
    Trace(Replay),
    /// 1,024 real TCP streams at 200 Mbit/s over four queues, and the round trips of a ping between
    /// them.
    ///
    /// `cake` by two coordination strategies, and one departure clock with horizons of 5 ms and of
    /// 2 s, beside the kernel's HTB on a bridge, interleaved in one run. Also how many streams got
    /// nothing, and Jain's index over all of them. Needs root.
    #[command(mut_arg("seconds", |it| it.default_value("8").help("Seconds for which each system is measured in each round")))]
    #[command(after_long_help = "Examples:
  narrows bench streams
  narrows bench streams --seconds 4 --rounds 1 --json")]
    Streams(InRounds),
    /// The one-way delay of packets through a tree in which four applications share 200 Mbit/s
    /// equally: mean, standard deviation, median and 99th percentile.
    ///
    /// Narrows on the XDP plane by HTB's rules and by FlowValve's, and on the AF_XDP plane, beside
    /// a bridge with the kernel's HTB and one that limits nothing. With 90 % of the limit offered,
    /// where nothing has to wait, and with 150 %. Interleaved in one run. DPDK's scheduler, too, if
    /// its library is installed. Needs root.
    #[command(mut_arg("seconds", |it| it.help("Seconds for which each load is measured in each round")))]
    #[command(after_long_help = "Examples:
  narrows bench delay
  narrows bench delay --seconds 5 --rounds 5 --json")]
    Delay(InRounds),
    Waking(Waking),
    Control(Control),
    /// The cost and accuracy of pacing: `flowbundler` beside `carousel`, `eiffel`, `fq` and no
    /// qdisc, with real packets of 16, 64 and 1024 flows.
    ///
    /// Cost: kicks (system calls that send), packets per kick, CPU time per packet, the part of it
    /// beyond that of no qdisc, and the ratio to `flowbundler`, all interleaved in one run.
    /// Accuracy: the deviation of the rate of one flow, and of 64 at four rates, over 1, 10 and 100
    /// ms at the receiver, and the gaps between a packet and the next but one. Needs root.
    #[command(mut_arg("seconds", |it| it.help("Seconds for which each qdisc is measured with each number of flows in each round")))]
    #[command(mut_arg("rounds", |it| it.default_value("5").help("How often the costs are measured")))]
    Pacing(InRounds),
    TreeReal(TreeReal),
    /// What other programs on the same cores cost: Narrows on both planes beside the kernel's `tbf`
    /// and `htb` on a bridge, with endless loops on all cores and without.
    ///
    /// Round trips of a ping without load, the rate that one limit delivers, and the largest
    /// deviation of a class of a tree. Needs root.
    #[command(mut_arg("seconds", |it| it.default_value("4").help("Seconds that each scene takes")))]
    Busy(InRounds),
    Router(Router),
    /// Switching of 64-byte frames from a driver: Narrows on both planes beside the kernel's
    /// bridge, which looks at VLAN tags or does not.
    ///
    /// With 1, 1,000 and 60,000 stations behind each port, which the bridge knows: packets per
    /// second of one core, CPU time a packet, and the ratio to the bridge, interleaved in one run.
    /// Needs root and two cores.
    #[command(mut_arg("seconds", |it| it.help("Seconds for which each system is measured in each round")))]
    #[command(after_long_help = "Examples:
  narrows bench switch
  narrows bench switch --seconds 1 --rounds 5 --json")]
    Switch(InRounds),
    /// TCP through two boxes with one limit, beside one box with it and two with half of it each.
    ///
    /// 16 flows at 40 Mbit/s, with as many through each box, all through one, and 12 through one:
    /// what they deliver together, and Jain's index over all of them, interleaved in one run. With
    /// agents (narrows-fleet, which lies beside this program) and NATS servers, in namespaces.
    /// Fails if the boxes with one limit deliver less than 98 % of what one box does, if Jain's
    /// index of equally many flows through each is below 0.98, or if a packet is missing. Needs
    /// root.
    #[command(mut_arg("seconds", |it| it.default_value("5").help("Seconds for which each system is measured in each round")))]
    #[command(after_long_help = "Examples:
  narrows bench fleet
  narrows bench fleet --seconds 10 --rounds 5 --json")]
    Fleet(InRounds),
    /// Four boxes with one limit at a distance from each other: how long one that wakes waits for
    /// its share, and how much of the limit is used, beside boxes that have a quarter each.
    ///
    /// What agents say to each other is delayed by nothing, 20 ms and 200 ms, and 1 % of it is lost
    /// at 20 ms, interleaved in one run. A switch of Narrows with `netem` does that. With agents
    /// (narrows-fleet, which lies beside this program) and NATS servers, in namespaces. Fails if
    /// the sum exceeds the limit by more than the boxes' buckets hold, if a box never has its
    /// share, or if a packet is missing. Needs root.
    #[command(mut_arg("seconds", |it| it.default_value("2").help("Seconds for which the box is awake, and asleep again, in each network and round")))]
    #[command(mut_arg("rounds", |it| it.default_value("5")))]
    #[command(after_long_help = "Examples:
  narrows bench fleet-distance
  narrows bench fleet-distance --seconds 10 --rounds 3 --json")]
    FleetDistance(InRounds),
    Flood(Flood),
    Policing(Policing),
    Qdisc(Qdisc),
    Classify(Classify),
    Policy(Policy),
    Coordination(Coordination),
    Cake(Cake),
    Tree(Tree),
    Wheels(Wheels),
    Xdp(Xdp),
    Balance(Balance),
    BareForwarder(BareForwarder),
    LiveFrames(LiveFrames),
    FloodFrames(FloodFrames),
    RoutedFrames(RoutedFrames),
    SwitchedFrames(SwitchedFrames),
    ConnectionFrames(ConnectionFrames),
    LookUps(LookUps),
    Drain(Drain),
    Verdict(Verdict),
    CakeWork(CakeWork),
    TreeFootprint(TreeFootprint),
    WheelsFootprint(WheelsFootprint),
    WheelsWork(WheelsWork),
}

impl Bench {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Forward(forward) => forward.execute(),
            What::Accuracy(accuracy) => accuracy.execute(),
            What::Uneven(rounds) => rounds.execute(uneven::run),
            What::Latency(rounds) => rounds.execute(latency::run),
            What::Trace(replay) => replay.execute(),
            What::Streams(rounds) => rounds.execute(streams::run),
            What::Delay(rounds) => rounds.execute(tree::delay::run),
            What::Waking(waking) => waking.execute(),
            What::Control(control) => control.execute(),
            What::Pacing(rounds) => rounds.execute(pacing::run),
            What::TreeReal(tree) => tree.execute(),
            What::Busy(rounds) => rounds.execute(tree::busy::run),
            What::Router(router) => router.execute(),
            What::Switch(rounds) => rounds.execute(switching::run),
            What::Fleet(rounds) => shared_by_a_fleet(rounds),
            What::FleetDistance(rounds) => over_a_distance(rounds),
            What::Flood(flood) => flood.execute(),
            What::Policing(policing) => policing.execute(),
            What::Qdisc(qdisc) => qdisc.execute(),
            What::Classify(classify) => classify.execute(),
            What::Policy(policy) => policy.execute(),
            What::Coordination(coordination) => coordination.execute(),
            What::Cake(cake) => cake.execute(),
            What::Tree(tree) => tree.execute(),
            What::Wheels(wheels) => wheels.execute(),
            What::Xdp(xdp) => xdp.execute(),
            What::Balance(balance) => balance.execute(),
            What::BareForwarder(bare) => bare.execute(),
            What::LiveFrames(frames) => frames.execute(),
            What::FloodFrames(frames) => frames.execute(),
            What::RoutedFrames(frames) => frames.execute(),
            What::SwitchedFrames(frames) => frames.execute(),
            What::ConnectionFrames(frames) => frames.execute(),
            What::LookUps(look_ups) => look_ups.execute(),
            What::Drain(drain) => drain.execute(),
            What::Verdict(verdict) => verdict.execute(),
            What::CakeWork(work) => work.execute(),
            What::TreeFootprint(work) => work.execute(),
            What::WheelsFootprint(work) => work.execute(),
            What::WheelsWork(work) => work.execute(),
        }
    }
}

// Options of benchmarks that run in rounds. Not a doc comment: clap would use it as the help of
// each command.
#[derive(Args)]
struct InRounds {
    /// Seconds per system and round.
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    /// The number of rounds.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    #[command(flatten)]
    format: Format,
}

impl InRounds {
    fn execute<R: Display + Serialize>(
        self,
        run: impl FnOnce(&Rounds) -> anyhow::Result<R>,
    ) -> anyhow::Result<ExitCode> {
        let format = self.format;
        print(&self.measure(run)?, format)
    }

    fn measure<R>(self, run: impl FnOnce(&Rounds) -> anyhow::Result<R>) -> anyhow::Result<R> {
        interrupt::watch()?;
        run(&Rounds {
            program: std::env::current_exe()?,
            window: Duration::from_secs(self.seconds),
            rounds: self.rounds,
        })
    }
}

fn shared_by_a_fleet(rounds: InRounds) -> anyhow::Result<ExitCode> {
    let (format, agent) = (rounds.format, agent()?);
    let report = rounds.measure(|rounds| sharing::run(rounds, &agent))?;
    let code = print(&report, format)?;
    Ok(if report.is_met { code } else { ExitCode::FAILURE })
}

fn over_a_distance(rounds: InRounds) -> anyhow::Result<ExitCode> {
    let (format, agent) = (rounds.format, agent()?);
    let report = rounds.measure(|rounds| distance::run(rounds, &agent, &distance::NETWORKS))?;
    let code = print(&report, format)?;
    Ok(if report.is_met { code } else { ExitCode::FAILURE })
}

/// The agent of a fleet, which lies beside this program.
fn agent() -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("narrows-fleet"))
}

/// Routing of 64-byte frames from a driver: the kernel beside Narrows on both planes.
///
/// With one route and with a table of 1,000,000, to one destination and to 60,000 in turn: packets
/// per second of one core, CPU time a packet, and the ratio to the kernel, interleaved in one run.
/// With one route also what limits add where packets leave: a tree of four levels on the XDP plane,
/// and `cake` with queues, beside a wire with the same. If a round fails, the others count, and the
/// exit code is 1. Needs root and two cores.
#[derive(Args)]
#[command(mut_arg("seconds", |it| it.help("Seconds for which each system is measured in each round")))]
#[command(after_long_help = "Examples:
  narrows bench router
  narrows bench router --systems narrows-xsk-cake,narrows-xsk-cake-binding --json")]
struct Router {
    /// The systems, separated by commas; measured with those that they are compared with [default:
    /// all]
    #[arg(long, value_name = "SYSTEM,..", value_delimiter = ',', value_parser = PossibleValuesParser::new(routing::systems()))]
    systems: Vec<String>,

    #[command(flatten)]
    rounds: InRounds,
}

impl Router {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { mut systems, rounds } = self;
        if systems.is_empty() {
            systems = routing::systems().into_iter().map(str::to_owned).collect();
        }
        let format = rounds.format;
        let report = rounds.measure(|rounds| routing::run(rounds, &systems))?;
        let code = print(&report, format)?;
        Ok(if report.failures.is_empty() { code } else { ExitCode::FAILURE })
    }
}

/// Forwarding, beside a bare AF_XDP forwarder, a Linux bridge and bridge + HTB.
///
/// Real packets of 64 and 1500 bytes between network namespaces, all systems interleaved in one
/// run: packets per second, CPU time a packet, and the ratios to the bare forwarder and to the
/// bridge. Loads: all that a packet socket sends (`saturated`), 100,000 packets a second (`fixed`),
/// all that a packet socket sends, received on another core (`other-core`), and the same as a NIC's
/// driver has it, without socket buffers (`from-driver`). Needs root.
#[derive(Args)]
#[command(mut_arg("seconds", |it| it.help("Seconds for which each system is measured with each frame size and load")))]
struct Forward {
    /// The loads, separated by commas [default: all]
    #[arg(long, value_name = "LOAD,..", value_delimiter = ',', value_parser = PossibleValuesParser::new(forward::Load::ALL.map(forward::Load::name)))]
    loads: Vec<String>,

    /// The systems, separated by commas [default: all]
    #[arg(long, value_name = "SYSTEM,..", value_delimiter = ',', value_parser = PossibleValuesParser::new(forward::System::ALL.map(forward::System::name)))]
    systems: Vec<String>,

    #[command(flatten)]
    rounds: InRounds,
}

impl Forward {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { loads, systems, rounds } = self;
        let mut what = forward::What::default();
        if !loads.is_empty() {
            what.loads.retain(|load| loads.iter().any(|name| name == load.name()));
        }
        if !systems.is_empty() {
            what.choose(|system| systems.iter().any(|name| name == system.name()));
        }
        rounds.execute(|rounds| forward::run(rounds, &what))
    }
}

/// TCP transactions that survive a flood which rises to what the machine can send: without a
/// filter, with nftables, with a blocklist of 100,000 addresses and with a rate for each source, in
/// front of both planes, and in the driver of the server itself. Needs root and two cores.
#[derive(Args)]
#[command(mut_arg("seconds", |it| it.help("Seconds for which each system is measured beside each flood in each round")))]
struct Flood {
    /// A system, may be repeated [default: all]
    #[arg(long, value_name = "SYSTEM", value_parser = PossibleValuesParser::new(attack::systems()))]
    system: Vec<String>,

    #[command(flatten)]
    rounds: InRounds,
}

impl Flood {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { mut system, rounds } = self;
        if system.is_empty() {
            system = attack::systems().into_iter().map(str::to_owned).collect();
        }
        rounds.execute(|rounds| attack::run(rounds, &system))
    }
}

/// A trace of bursty traffic over four queues at 100 Mbit/s: what each coordination strategy passes
/// of it, beside one bucket for all queues, and by how much the fullest 10 and 100 ms exceed the
/// limit. Needs root.
///
/// The frames come when they came in the trace, at mean rates of 90 % and 130 % of the limit. The
/// trace is made from published distributions, or is a capture.
#[derive(Args)]
#[command(mut_arg("seconds", |it| it.default_value("4").help("How long the bursty trace is at 100 Mbit/s, in seconds; without meaning for a capture")))]
#[command(after_long_help = "Examples:
  narrows bench trace
  narrows bench trace --trace uplink.pcap --json")]
struct Replay {
    /// Replay the frames of a capture (pcap or pcapng).
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    #[command(flatten)]
    rounds: InRounds,
}

impl Replay {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { trace, rounds } = self;
        rounds.execute(|rounds| replay::run(rounds, trace.as_deref()))
    }
}

/// The cost of wake-ups: the whole machine's CPU time and context switches with 4 TCP flows each
/// way under a limit, beside a bridge with `tbf` and with `htb`. Needs root and a quiet machine.
#[derive(Args)]
#[command(mut_arg("seconds", |it| it.default_value("4").help("Seconds for which each system is measured at each limit in each round")))]
struct Waking {
    /// The limits in Mbit/s, separated by commas.
    #[arg(long, value_name = "M,..", value_delimiter = ',', default_values_t = waking::LIMITS, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limits: Vec<u64>,

    #[command(flatten)]
    rounds: InRounds,
}

impl Waking {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { limits, rounds } = self;
        rounds.execute(|rounds| waking::run(rounds, &limits))
    }
}

/// A tree of classes: the kernel's HTB on a bridge and Narrows', with the same tree and traffic.
///
/// A small provider's tree of 27 classes on 80 Mbit/s and four queues, in Narrows by HTB's rules
/// and by FlowValve's (`coordination flowvalve`). For each class in four phases: the rate due by
/// HTB's rules, from a fluid model, and the rate delivered by each system. Then the delivered rates
/// of prioritized classes, and the cost of a packet. Needs root, and a quiet machine for the costs.
///
/// With `--classes`: the packets that arrive in a second, and the machine's time for each, where
/// the machine and not the tree's root is the limit. Each of many classes is offered twice its
/// ceiling, on one queue and on four.
#[derive(Args)]
#[command(mut_arg("seconds", |it| it.default_value("3").help("Seconds that each phase takes, and for which costs are measured")))]
struct TreeReal {
    /// Overload this many leaf classes instead, each at a ceiling of its own, at most 65,534.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(tree::many::CLASSES_MAX)))]
    classes: Option<u32>,

    #[command(flatten)]
    rounds: InRounds,
}

impl TreeReal {
    fn execute(self) -> anyhow::Result<ExitCode> {
        match self.classes {
            None => self.rounds.execute(tree::real::run),
            Some(classes) => self.rounds.execute(|rounds| tree::many::run(rounds, classes)),
        }
    }
}

/// How long it takes to change a policy of many circuits, and who waits meanwhile: a policy file
/// that is read again, unchanged, with another comment and with all rates changed, and a batch. The
/// longest wait of the watchdog, of `show`, of a single `tc` and of a ping. Needs root.
#[derive(Args)]
struct Control {
    /// The numbers of circuits, separated by commas.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = control::CIRCUITS, value_parser = clap::value_parser!(u32).range(1..=500_000))]
    circuits: Vec<u32>,

    #[command(flatten)]
    format: Format,
}

impl Control {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let program = std::env::current_exe()?;
        print(&control::run(&program, &self.circuits)?, self.format)
    }
}

/// How exactly a rate is kept: 10 Mbit/s to 1 Gbit/s, one queue and four, UDP and TCP, for each
/// coordination strategy. Needs root.
#[derive(Args)]
struct Accuracy {
    /// Seconds per rate.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    #[command(flatten)]
    format: Format,
}

impl Accuracy {
    fn execute(self) -> anyhow::Result<ExitCode> {
        interrupt::watch()?;
        let report = accuracy::run(&accuracy::Options {
            program: std::env::current_exe()?,
            window: Duration::from_secs(self.seconds),
        })?;
        print(&report, self.format)
    }
}

/// TCP throughput under a limit without a queue: the XDP plane beside plain drop and the kernel's
/// `police`.
///
/// CUBIC flows with a round-trip time of 20 ms, which `netem` in a second instance of Narrows adds.
/// Shows frames that arrive and payload that is read, in percent of the limit; the seconds with the
/// least and the most; and the accuracy of the limit under a UDP flood. All systems allow the same
/// burst. One flow takes seconds to recover from a drop, so measure it for long. Needs root.
#[derive(Args)]
struct Policing {
    /// The limits in Mbit/s, separated by commas.
    #[arg(long, value_name = "M,..", value_delimiter = ',', default_values_t = policing::LIMITS, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    limits: Vec<u64>,

    /// The numbers of flows, separated by commas.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = policing::FLOWS.map(|flows| flows as u64), value_parser = clap::value_parser!(u64).range(1..=128))]
    flows: Vec<u64>,

    /// The size of the virtual queue, in milliseconds at the rate.
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(5..=250))]
    queue: u64,

    /// Seconds for which flows run before the measurement.
    #[arg(long, value_name = "S", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=60))]
    settle: u64,

    /// Seconds of measurement.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    #[command(flatten)]
    format: Format,
}

impl Policing {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let report = policing::run(&policing::Options {
            program: std::env::current_exe()?,
            limits: self.limits,
            flows: self.flows.into_iter().map(|flows| flows as usize).collect(),
            queue: Duration::from_millis(self.queue),
            settle: Duration::from_secs(self.settle),
            window: Duration::from_secs(self.seconds),
        })?;
        print(&report, self.format)
    }
}

/// Queues, qdiscs and meters, beside the simplest queue; one core, no I/O.
#[derive(Args)]
struct Qdisc {
    #[command(flatten)]
    format: Format,
}

impl Qdisc {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let structures = narrows_bench::Structure::all();
        let rows = narrows_bench::qdisc::run(&structures, Default::default());
        if !self.format.is_text() {
            self.format.print(&serde_json::json!({ "rows": rows }), String::new)?;
            return Ok(ExitCode::SUCCESS);
        }
        output::say(format_args!(
            "{:<24} {:>6} {:>10} {:>7}",
            "structure", "queues", "ns/packet", "ratio"
        ));
        for row in rows {
            output::say(format_args!(
                "{:<24} {:>6} {:>10.1} {:>7.2}",
                row.structure, row.queues, row.ns_per_packet, row.ratio
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The cost of loading, changing, reloading and showing a policy of many subscribers; one core, no
/// I/O.
///
/// A class, a `cake` and a filter for each subscriber on four queues, as an instance handles them,
/// from the words of `tc` to the update of a queue. CPU time; for commands on one subscriber the
/// median. Also memory per subscriber.
#[derive(Args)]
struct Policy {
    /// The numbers of subscribers, separated by commas.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = policy::SUBSCRIBERS, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    subscribers: Vec<u32>,

    /// Repetitions of each command; the median is shown.
    #[arg(long, value_name = "R", default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,

    #[command(flatten)]
    format: Format,
}

impl Policy {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let options = policy::Options { subscribers: self.subscribers, repeats: self.repeats };
        let mut progress = Progress::over(policy::steps(&options));
        let report = policy::run(&options, |title| progress.begin(title))?;
        drop(progress);
        print(&report, self.format)
    }
}

/// The cost of finding a packet's class among 100,000 addresses, 100,000 prefixes and 1,000 filters
/// with ten masks; one core, no I/O.
///
/// The tables, starting from a packet's parsed headers and from its bytes, beside a walk over the
/// filters, a hash map and a prefix trie, all in turns on the same packets. Then the cost of
/// building the tables and of changing one filter, and their memory.
#[derive(Args)]
struct Classify {
    /// Repetitions of everything; medians are shown.
    #[arg(long, value_name = "R", default_value_t = 201, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,

    #[command(flatten)]
    format: Format,
}

impl Classify {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let options = classify::Options { repeats: self.repeats as usize, ..Default::default() };
        print(&classify::run(&options), self.format)
    }
}

/// The cost of sharing a limit between cores: every coordination strategy over queues in memory,
/// with real threads on cores of their own.
///
/// Far below the limit: packets per second, nanoseconds per packet, and how they scale with the
/// threads. At the limit: its accuracy and fairness. Also the cost of a shared cache line on this
/// machine.
#[derive(Args)]
struct Coordination {
    /// The most threads; 1, 2, 4 and so on up to this number are measured [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=coordination::MAX_THREADS as i64))]
    threads: Option<u16>,

    /// Seconds per strategy, load and number of threads.
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_seconds)]
    seconds: Duration,

    /// The number of rounds.
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    #[command(flatten)]
    format: Format,
}

impl Coordination {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let bench = coordination::Bench::new(coordination::Options {
            threads: self.threads.map(usize::from),
            window: self.seconds,
            rounds: self.rounds as usize,
        })?;
        let mut progress = Progress::over(bench.trials());
        let report = bench.run(|title| progress.begin(title))?;
        drop(progress);
        print(&report, self.format)
    }
}

/// `cake` with one tin and four, 1 to 65,536 flows, beside a FIFO and DPDK's `rte_sched`; one core,
/// no I/O.
///
/// Nanoseconds and instructions per packet for enqueue and dequeue, all structures on the same
/// packets in turns. Instructions are counted with valgrind. `rte_sched` needs Debian's package
/// librte-sched23; without it, the other rows are shown.
#[derive(Args)]
struct Cake {
    /// Repetitions of everything; medians are shown.
    #[arg(long, value_name = "R", default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,

    /// Do not count instructions, which takes most of the time.
    #[arg(long)]
    no_instructions: bool,

    #[command(flatten)]
    format: Format,
}

impl Cake {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let counted = counted(self.no_instructions, "cake-work")?;
        let repeats = self.repeats as usize;
        let options = cake::Options { packets: 100_000, repeats, counted };
        let mut progress = Progress::over(cake::steps(&options));
        let report = cake::run(&options, |title| progress.begin(title))?;
        drop(progress);
        print(&report, self.format)
    }
}

/// A tree of classes, 16 to 1,000,000 of them, beside a FIFO and DPDK's `rte_sched`; no I/O.
///
/// Nanoseconds per packet for enqueue and dequeue on one core, all structures in turns, with one
/// class above each leaf and with four, `pfifo` and `cake` below each leaf, and an `hfsc`; then
/// several threads on one tree. Rows with load `free` check every credit and never wait for one, as
/// `rte_sched` does; in rows with load `bound` the root's rate is the limit, with `ceil`
/// each leaf's own ceiling, and with `mixed` half of the leaves are at their ceilings and the
/// others borrow at the root. Also memory per class. A row that does not fit into memory says so.
/// `rte_sched` needs Debian's package librte-sched23.
#[derive(Args)]
struct Tree {
    /// The numbers of leaf classes, separated by commas.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = class_tree::CLASSES, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    classes: Vec<u32>,

    /// The trees, separated by commas: tree-fifo, tree-cake, hfsc-fifo [default: all]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', hide_default_value = true, default_values = ["tree-fifo", "tree-cake", "hfsc-fifo"], value_parser = work::parse_tree)]
    structures: Vec<class_tree::Subject>,

    /// What holds packets back, separated by commas: free, bound, ceil, mixed [default: all]
    #[arg(long, value_name = "LOAD,..", value_delimiter = ',', hide_default_value = true, default_values = ["free", "bound", "ceil", "mixed"], value_parser = work::parse_load)]
    loads: Vec<class_tree::Load>,

    /// Repetitions of everything; medians are shown.
    #[arg(long, value_name = "R", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,

    /// The most threads; 1, 2, 4 and so on up to this number are measured [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=coordination::MAX_THREADS as i64))]
    threads: Option<u16>,

    #[command(flatten)]
    format: Format,
}

impl Tree {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let arguments = vec!["bench".to_owned(), "tree-footprint".to_owned()];
        let options = class_tree::Options {
            classes: self.classes,
            structures: self.structures,
            loads: self.loads,
            packets: 100_000,
            repeats: self.repeats as usize,
            threads: self.threads.map(usize::from),
            window: Duration::from_millis(500),
            weighed: Program { path: std::env::current_exe()?, arguments },
        };
        let mut progress = Progress::over(class_tree::steps(&options));
        let report = class_tree::run(&options, |title| progress.begin(title))?;
        drop(progress);
        print(&report, self.format)
    }
}

/// The cost of a frame in the driver: the XDP plane's tree beside token buckets.
///
/// Test runs of the kernel with a frame of 64 bytes: an empty program, a token bucket for each CPU,
/// one that CPUs share, one under a spin lock, and the tree at depths 1 and 4 and with filters; on
/// one CPU and on all, each with a bucket or leaf of its own and all on one (contended), below the
/// rate and far above it. Sets with counters and with timeouts. Some also with live frames, which
/// leave by one end of a veth pair. Nanoseconds per frame, in CPU time. Needs root.
///
/// With --verdicts instead: what drop, tx, redirect, cpumap and pass take from a driver's queue on,
/// by a program of a few instructions, by Narrows, and by the kernel without XDP.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows bench xdp --repeats 5
  narrows bench xdp --verdicts --repeats 3 --json")]
struct Xdp {
    /// Measure XDP's verdicts, and not programs.
    #[arg(long)]
    verdicts: bool,

    /// Repetitions of everything; medians are shown.
    #[arg(long, value_name = "R", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,

    #[command(flatten)]
    format: Format,
}

impl Xdp {
    fn execute(self) -> anyhow::Result<ExitCode> {
        if self.verdicts {
            interrupt::watch()?;
            let report = verdicts::run(&Rounds {
                program: std::env::current_exe()?,
                window: Duration::from_secs(1),
                rounds: self.repeats,
            })?;
            return print(&report, self.format);
        }
        let bed = Testbed::up(1)?;
        let namespace = bed.shaper();
        // What leaves on one CPU arrives on it.
        let queues = std::thread::available_parallelism()?.to_string();
        let [port, end] = ["live", "live-end"];
        let queues = ["numtxqueues", &queues, "numrxqueues", &queues];
        let pair =
            [&["link", "add", port], &queues[..], &["type", "veth", "peer", "name", end], &queues];
        namespace.run("ip", &pair.concat())?;
        for device in [port, end] {
            namespace.run("ip", &["link", "set", device, "up"])?;
        }
        let report = namespace.enter(|| {
            let number = |name| narrows_link::Link::by_name(name).map(|link| link.status.ifindex);
            let live = Some(xdp::Live { port: number(port)?, end: number(end)? });
            let options = xdp::Options { packets: 200_000, repeats: self.repeats as usize, live };
            let mut progress = Progress::over(xdp::steps(&options));
            xdp::run(&options, |title| progress.begin(title))
        })?;
        print(&report, self.format)
    }
}

/// The cost of a packet to a service in the driver: the balancer beside a table of connections in
/// the kernel's LRU hash, and beside a program that only sends frames back.
///
/// Test runs of the kernel, in which each frame of 64 bytes is of another connection: `narrows`,
/// with consistent hashing, which records nothing; `narrows-recorded`, where servers take turns, so
/// that each connection is recorded and looked up; `lru`, a look-up in an LRU hash for each packet
/// and nothing else; and `tx`. Packets of known connections, and such that begin one (new). On one
/// CPU and on all. Nanoseconds of CPU time a packet, and in addition to `tx`. Needs root.
///
/// With --ipvs instead: from a driver's queue on, with receiving and sending, beside the kernel's
/// balancer (IPVS, configured by ipvsadm) with the same service, on one core. New connections are
/// then such as there were not before, however many there are. A kernel without IPVS is said.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows bench balance
  narrows bench balance --connections 100000 --servers 10 --repeats 5 --json
  narrows bench balance --ipvs --connections 100000 --servers 10 --repeats 3")]
struct Balance {
    /// Measure real packets, beside IPVS, and not test runs.
    #[arg(long)]
    ipvs: bool,

    /// The numbers of connections, separated by commas.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [1000, 100_000, 1_000_000], value_parser = clap::value_parser!(u32).range(1..=8_000_000))]
    connections: Vec<u32>,

    /// The numbers of servers, separated by commas.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [10, 1000], value_parser = clap::value_parser!(u16).range(1..=4096))]
    servers: Vec<u16>,

    /// Repetitions of everything; medians are shown.
    #[arg(long, value_name = "R", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,

    #[command(flatten)]
    format: Format,
}

impl Balance {
    fn execute(self) -> anyhow::Result<ExitCode> {
        if self.ipvs {
            interrupt::watch()?;
            let rounds = Rounds {
                program: std::env::current_exe()?,
                window: Duration::from_millis(500),
                rounds: self.repeats,
            };
            let report = balancing::run(&rounds, &self.connections, &self.servers)?;
            return print(&report, self.format);
        }
        let options = balance::Options {
            connections: self.connections,
            servers: self.servers,
            packets: 500_000,
            repeats: self.repeats as usize,
        };
        let mut progress = Progress::over(balance::steps(&options));
        let report = balance::run(&options, |title| progress.begin(title))?;
        print(&report, self.format)
    }
}

/// Timing wheels that hold packets until their departure, beside `fq`, a binary heap and a FIFO;
/// one core, no I/O.
///
/// `flowbundler`'s multi-level timing wheel (64 x 1024 slots), `carousel` and `eiffel` (slots of
/// 100 ns up to 10 s), the qdisc `fq`, a binary heap, and as lower bounds a FIFO that ignores times
/// and `order`, a ring of numbers that shows the cost of packet memory alone. 100 Gbit/s of
/// 1500-byte packets in virtual time: each packet that leaves is inserted again as the next packet
/// of its flow. Then one packet at a time, after pauses of up to 9 s, and the memory of the wheels
/// with the parameters of FlowBundler's paper.
///
/// Rates: `equal`, or a `mix` of 10 Kbit/s to 10 Gbit/s (bounded Pareto, 100 Gbit/s in all). Modes:
/// `drain` dequeues every 3840 ns, the time of 32 packets, `poll` every 120 ns, the time of one.
///
/// For each: nanoseconds and instructions per packet for departure, departure time and insertion,
/// all structures in turns; nanoseconds relative to `flowbundler`; packets per call that returned
/// any; memory; how early a packet left (never, except for the FIFO), and how late. Instructions
/// are counted with valgrind. Needs 2 GB of memory for 1,000,000 flows.
#[derive(Args)]
struct Wheels {
    /// The numbers of flows, separated by commas.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = wheels::FLOWS, value_parser = clap::value_parser!(u32).range(16..=1 << 22))]
    flows: Vec<u32>,

    /// Repetitions of everything; medians are shown.
    #[arg(long, value_name = "R", default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,

    /// Do not count instructions, which takes most of the time.
    #[arg(long)]
    no_instructions: bool,

    #[command(flatten)]
    format: Format,
}

impl Wheels {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let counted = counted(self.no_instructions, "wheels-work")?;
        let repeats = self.repeats as usize;
        let arguments = vec!["bench".to_owned(), "wheels-footprint".to_owned()];
        let weighed = Some(Program { path: std::env::current_exe()?, arguments });
        let flows = self.flows;
        let options =
            wheels::Options { flows, repeats, counted, weighed, ..wheels::Options::default() };
        let progress = RefCell::new(Progress::over(wheels::steps(&options)));
        let mut is_first = true;
        let show = |rows: &[wheels::Row]| {
            if !self.format.is_text() {
                return;
            }
            let begin = if is_first { wheels::header() } else { String::new() };
            is_first = false;
            let lines = rows.iter().fold(begin, |lines, row| format!("{lines}\n{row}"));
            progress.borrow().print(&lines);
        };
        let report = wheels::run(&options, |title| progress.borrow_mut().begin(title), show)?;
        drop(progress);
        print(&report, self.format)
    }
}

/// Seconds with a fraction, 0.01 to 60.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=60.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give a number of seconds from 0.01 to 60".to_owned()),
    }
}

/// Forward between two ports without a shaper, as the lower bound for `bench forward`.
#[derive(Args)]
#[command(hide = true)]
struct BareForwarder {
    /// The two interfaces, separated by a comma.
    #[arg(long, value_name = "A,B", value_parser = super::joined::parse_ports)]
    ports: [String; 2],
}

impl BareForwarder {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let session = super::run::default_session()?;
        let [a, b] = &self.ports;
        let wire = Forwarding::wire(a, b)?;
        let (forwarded, cpu_time) =
            narrows_dataplane::run::run_bare(&wire, &session, || output::say("ready"))?;
        let packets = forwarded[0] + forwarded[1];
        output::say(serde_json::json!({ "packets": packets, "cpu_ns": cpu_time.0 }));
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    #[test]
    fn wheels_are_measured_with_as_many_flows_as_are_named() {
        let flows = |words: &[&str]| {
            let line = ["bench", "wheels"].iter().chain(words);
            match Line::try_parse_from(line).map(|line| line.bench.what) {
                Ok(What::Wheels(wheels)) => Some(wheels.flows),
                _ => None,
            }
        };
        assert_eq!(flows(&[]), Some(wheels::FLOWS.to_vec()));
        assert_eq!(flows(&["--flows", "16,1024"]), Some(vec![16, 1024]));
        for refused in ["", "15", "16,", "5000000", "all"] {
            assert_eq!(flows(&["--flows", refused]), None, "{refused}");
        }
    }

    #[test]
    fn a_real_tree_has_as_many_classes_as_the_kernel_can_have() {
        let classes = |words: &[&str]| {
            let line = ["bench", "tree-real"].iter().chain(words);
            match Line::try_parse_from(line).map(|line| line.bench.what) {
                Ok(What::TreeReal(tree)) => Some((tree.classes, tree.rounds.seconds)),
                _ => None,
            }
        };
        assert_eq!(classes(&[]), Some((None, 3)));
        assert_eq!(classes(&["--classes", "1024"]), Some((Some(1024), 3)));
        assert_eq!(classes(&["--classes", "65534"]), Some((Some(65_534), 3)));
        for refused in ["", "0", "65535", "1024,2048"] {
            assert_eq!(classes(&["--classes", refused]), None, "{refused}");
        }
    }

    #[test]
    fn seconds_may_have_a_fraction_and_have_limits() {
        assert_eq!(parse_seconds("0.25"), Ok(Duration::from_millis(250)));
        for refused in ["0", "61", "NaN", "-1", "1s", ""] {
            assert!(parse_seconds(refused).unwrap_err().contains("0.01 to 60"), "{refused}");
        }
    }
}
