//! `narrows demo`.

use super::report::print;
use crate::output::{self, Format};
use anyhow::Context;
use clap::{Args, Subcommand};
use narrows_testbed::attack::demo as flood;
use narrows_testbed::demo::{balance, fleet, router};
use narrows_testbed::own_traffic::{self, Place};
use narrows_testbed::tree::demo as tree;
use narrows_testbed::{demo, interrupt, rrul};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Shape real traffic on this machine, between temporary network namespaces.
///
/// Makes three namespaces with 4-queue veth pairs, joins them, and sends UDP and TCP in many flows,
/// and pings: without a limit, then at 100 Mbit/s, 500 Mbit/s and 1 Gbit/s. Takes less than two
/// minutes and always cleans up. Needs root.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows demo
  narrows demo latency --plot latency.svg")]
#[command(args_conflicts_with_subcommands = true)]
pub struct Demo {
    #[command(subcommand)]
    other: Option<Other>,

    /// Seconds per limit and load.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    #[command(flatten)]
    format: Format,
}

#[derive(Subcommand)]
enum Other {
    Latency(Latency),
    Tree(Tree),
    Flood(Flood),
    Router(Router),
    Balance(Balance),
    Host(Host),
    Fleet(Fleet),
}

/// Show the delay under load with CAKE.
///
/// Between the same namespaces, at 20, 100 and 500 Mbit/s in both directions: four TCP flows up and
/// four down (CS0, CS1, CS5, EF), and pings, UDP probes, a call and DNS-like requests. Compares
/// CAKE with a plain tbf over a pfifo, and with no shaper. Takes less than four minutes and always
/// cleans up. Needs root.
#[derive(Args)]
struct Latency {
    /// Seconds under load per system and limit.
    #[arg(long, value_name = "S", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    #[command(flatten)]
    format: Format,

    /// Also plot the distribution of the added delays, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Show how a tree of classes divides a link as classes start, stop and borrow.
///
/// A small provider's tree between the same namespaces: two sites, six subscribers, three
/// applications each, on 80 Mbit/s and four queues. The offered rates change in six phases. Shows
/// the rate offered in each class, the rate due by HTB's rules from a fluid model, and the rate
/// delivered. Takes half a minute and always cleans up. Needs root.
#[derive(Args)]
struct Tree {
    #[command(flatten)]
    phases: Phases,
}

/// Show how many of a server's transactions survive a flood, with and without filters.
///
/// Between the same namespaces: one-byte transactions over TCP and, in two phases, as many UDP
/// packets as a core can send, from the addresses of a blocklist and from random ones. Takes less
/// than a minute and always cleans up. Needs root and two cores.
#[derive(Args)]
struct Flood {
    #[command(flatten)]
    phases: Phases,
}

/// Show a routing daemon move a flow when a link fails, and the delay on the link that is left.
///
/// Four routers with BIRD between two hosts, all in namespaces; Narrows routes in the two at the
/// ends. Two links fail and are repaired, under TCP: once with plain queues at the limits, once
/// with CAKE. Takes two minutes and always cleans up. Fails if the flow does not move, if CAKE does
/// not keep the delay low, or if a packet is missing. Needs root.
#[derive(Args)]
struct Router {
    /// Seconds that each phase is measured.
    #[arg(long, value_name = "S", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    #[command(flatten)]
    format: Format,
}

/// Show a website whose servers drain, die and come back behind the balancer, under requests.
///
/// Four nginx and a wrk, all in namespaces. One server drains and is stopped, one is killed, both
/// come back; then comes a flood from invented sources, which a filter drops, and an upgrade in its
/// midst. Takes a minute and always cleans up. Fails if a request fails that no killed server
/// explains, or if a packet is missing. Needs root.
#[derive(Args)]
struct Balance {
    /// Seconds that each phase takes.
    #[arg(long, value_name = "S", default_value_t = 6, value_parser = clap::value_parser!(u64).range(2..=60))]
    seconds: u64,

    #[command(flatten)]
    format: Format,
}

/// Show four boxes with one limit, while load moves, a box is killed, and a wire is cut.
///
/// Four instances between clients and servers, each with an agent (narrows-fleet, which lies beside
/// this program) and a NATS server of its own, in namespaces. Shows what is due to each box, what
/// it delivered, how soon it had its share, and the sum of all in the worst tenth of a second.
/// Takes a minute and always cleans up. Fails if the sum exceeds the limit by more than the boxes'
/// buckets hold, if less than 95 % of what can be used is used, or if a packet is missing. Needs
/// root.
#[derive(Args)]
struct Fleet {
    /// Seconds per phase.
    #[arg(long, value_name = "S", default_value_t = 6, value_parser = clap::value_parser!(u64).range(4..=60))]
    seconds: u64,

    #[command(flatten)]
    format: Format,

    /// Also plot the rates over time, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Show what a limit does to a box's own traffic: the host plane beside the kernel's shapers.
///
/// Between two namespaces: TCP flows of the box with the limit, in super-packets, and UDP probes
/// beside them; with --ifb flows that arrive at the box, which routes them. Compares no shaper,
/// tbf, htb with fq_codel, cake, as far as this kernel has them, and the host plane. Takes less
/// than three minutes and always cleans up. Without fq, limits of the host plane police, and the
/// last line says so. Needs root.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows demo host --plot host.svg
  narrows demo host --ifb --limits 50
  narrows demo host --limits 1000 --flows 64
  narrows demo host --limits 10,50 --hosts 4")]
struct Host {
    /// Limit what arrives at the box, at an ifb, and not what it sends itself.
    #[arg(long)]
    ifb: bool,

    /// The limits, in Mbit/s.
    #[arg(
        long, value_name = "MBIT", value_delimiter = ',', default_values_t = own_traffic::LIMITS,
        value_parser = clap::value_parser!(u64).range(1..=100_000),
    )]
    limits: Vec<u64>,

    /// How many TCP flows there are.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=512))]
    flows: u16,

    /// Instead, between how many hosts the limit is shared: the first one has one flow, and each
    /// other one twice as many as that before it. Jain's index is that of the hosts.
    #[arg(long, value_name = "N", conflicts_with = "flows", value_parser = clap::value_parser!(u8).range(2..=i64::from(own_traffic::HOSTS_MAX)))]
    hosts: Option<u8>,

    /// Seconds under load per system and limit.
    #[arg(long, value_name = "S", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    #[command(flatten)]
    format: Format,

    /// Also plot the distribution of the added delays, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Options of a demo in phases.
#[derive(Args)]
struct Phases {
    /// Seconds per phase.
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    #[command(flatten)]
    format: Format,

    /// Also plot the results over time, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl Demo {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        interrupt::watch()?;
        match self.other {
            Some(Other::Latency(latency)) => return latency.execute(),
            Some(Other::Tree(tree)) => return tree.execute(),
            Some(Other::Flood(flood)) => return flood.execute(),
            Some(Other::Router(router)) => return router.execute(),
            Some(Other::Balance(balance)) => return balance.execute(),
            Some(Other::Host(host)) => return host.execute(),
            Some(Other::Fleet(fleet)) => return fleet.execute(),
            None => {}
        }
        let report = demo::run(&demo::Options {
            program: std::env::current_exe()?,
            window: Duration::from_secs(self.seconds),
        })?;
        print(&report, self.format)
    }
}

impl Latency {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let report = rrul::run(&rrul::Options {
            program: std::env::current_exe()?,
            window: Duration::from_secs(self.seconds),
        })?;
        if let Some(file) = &self.plot {
            write_plot(file, &rrul::svg(&report)?)?;
        }
        print(&report, self.format)
    }
}

impl Tree {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let report = tree::run(&tree::Options {
            program: std::env::current_exe()?,
            phase: Duration::from_secs(self.phases.seconds),
        })?;
        if let Some(file) = &self.phases.plot {
            write_plot(file, &tree::svg(&report)?)?;
        }
        print(&report, self.phases.format)
    }
}

impl Flood {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let report = flood::run(&flood::Options {
            program: std::env::current_exe()?,
            phase: Duration::from_secs(self.phases.seconds),
        })?;
        if let Some(file) = &self.phases.plot {
            write_plot(file, &flood::svg(&report)?)?;
        }
        print(&report, self.phases.format)
    }
}

impl Router {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let report = router::run(&router::Options {
            program: std::env::current_exe()?,
            phase: Duration::from_secs(self.seconds),
        })?;
        judged(print(&report, self.format)?, report.is_met)
    }
}

impl Balance {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let report = balance::run(&balance::Options {
            program: std::env::current_exe()?,
            phase: Duration::from_secs(self.seconds),
        })?;
        judged(print(&report, self.format)?, report.is_met)
    }
}

impl Host {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let report = own_traffic::run(&own_traffic::Options {
            program: std::env::current_exe()?,
            place: if self.ifb { Place::Arrives } else { Place::Leaves },
            limits: self.limits,
            flows: usize::from(self.flows),
            hosts: self.hosts,
            window: Duration::from_secs(self.seconds),
        })?;
        if let Some(file) = &self.plot {
            write_plot(file, &own_traffic::svg(&report)?)?;
        }
        print(&report, self.format)
    }
}

impl Fleet {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let program = std::env::current_exe()?;
        let report = fleet::run(&fleet::Options {
            agent: program.with_file_name("narrows-fleet"),
            program,
            phase: Duration::from_secs(self.seconds),
        })?;
        if let Some(file) = &self.plot {
            write_plot(file, &fleet::svg(&report)?)?;
        }
        judged(print(&report, self.format)?, report.is_met)
    }
}

/// What a demo that is whole ends with.
fn judged(code: ExitCode, is_met: bool) -> anyhow::Result<ExitCode> {
    let is_whole = !interrupt::requested();
    Ok(if is_whole && !is_met { ExitCode::FAILURE } else { code })
}

fn write_plot(file: &Path, svg: &str) -> anyhow::Result<()> {
    std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    output::report(format_args!("plot: {}\n", file.display()));
    Ok(())
}
