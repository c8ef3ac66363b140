//! `narrows demo`.

use super::report::print;
use anyhow::Context;
use clap::{Args, Subcommand};
use narrows_testbed::attack::demo as flood;
use narrows_testbed::tree::demo as tree;
use narrows_testbed::{demo, interrupt, rrul};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// See Narrows shape real traffic on this machine, between network namespaces of its own.
///
/// Makes three namespaces with 4-queue veth pairs, joins them, and sends UDP and TCP in
/// many flows, and pings: without a limit, then at 100 Mbit/s, 500 Mbit/s and 1 Gbit/s. Takes less
/// than two minutes and always cleans up. Needs root.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows demo
  narrows demo latency --plot latency.svg")]
#[command(args_conflicts_with_subcommands = true)]
pub struct Demo {
    #[command(subcommand)]
    other: Option<Other>,

    /// Seconds for which each limit is measured with each load.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Other {
    Latency(Latency),
    Tree(Tree),
    Flood(Flood),
}

/// See what CAKE does to delay while the path is full.
///
/// Between the same namespaces, at 20, 100 and 500 Mbit/s in both directions: four TCP flows up
/// and four down (CS0, CS1, CS5, EF), and pings, UDP probes, a call and DNS-like requests. Compares
/// CAKE with a plain tbf over a pfifo, and with no shaper. Takes less than four minutes and always
/// cleans up. Needs root.
#[derive(Args)]
struct Latency {
    /// Seconds for which each system is measured under load at each limit.
    #[arg(long, value_name = "S", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Also draw how the added delays are distributed, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// See a tree of classes divide a link as classes wake, leave and borrow.
///
/// A small provider's tree between the same namespaces: two sites, six subscribers, three
/// applications each, on 80 Mbit/s and four queues. In six phases everyone sends at other rates;
/// shown is what each class asked for, what HTB's rules give it by a fluid model, and what arrived.
/// Takes half a minute and cleans up whatever happens. Needs root.
#[derive(Args)]
struct Tree {
    #[command(flatten)]
    phases: Phases,
}

/// See what a flood leaves of a server's transactions, without filters and with them.
///
/// Between the same namespaces: one-byte transactions over TCP, and beside them, twice, as many UDP
/// packets as a core sends, from the addresses of a blocklist and from invented ones. Takes less than
/// a minute and cleans up whatever happens. Needs root and two cores.
#[derive(Args)]
struct Flood {
    #[command(flatten)]
    phases: Phases,
}

/// Of a demo in phases.
#[derive(Args)]
struct Phases {
    /// Seconds that each phase takes.
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Also draw what was measured over time, as SVG.
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
            None => {}
        }
        let report = demo::run(&demo::Options {
            program: std::env::current_exe()?,
            window: Duration::from_secs(self.seconds),
        })?;
        print(&report, self.json)
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
        print(&report, self.json)
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
        print(&report, self.phases.json)
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
        print(&report, self.phases.json)
    }
}

fn write_plot(file: &Path, svg: &str) -> anyhow::Result<()> {
    std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("plot: {}", file.display());
    Ok(())
}
