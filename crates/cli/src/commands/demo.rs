//! `narrows demo`.

use super::report::print;
use anyhow::Context;
use clap::{Args, Subcommand};
use narrows_testbed::{demo, rrul};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// See Narrows shape real traffic on this machine, between network namespaces of its own.
///
/// Makes three namespaces with 4-queue veth pairs, joins them, and sends UDP and TCP in
/// many flows with ping alongside: without a limit, then at 100 Mbit/s, 500 Mbit/s and
/// 1 Gbit/s. Takes below two minutes and cleans up whatever happens. Needs root.
#[derive(Args)]
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
}

/// See what CAKE does to the delay of everything else while the path is full.
///
/// Between the same namespaces, at 20, 100 and 500 Mbit/s in both directions: four TCP flows up
/// and four down (CS0, CS1, CS5, EF), and beside them ping, UDP probes, a call and look-ups of
/// names. CAKE is shown beside a plain tbf with a pfifo, and beside no shaper at all. Takes
/// below four minutes and cleans up whatever happens. Needs root.
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

impl Demo {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        if let Some(Other::Latency(latency)) = self.other {
            return latency.execute();
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
            std::fs::write(file, rrul::svg(&report)?)
                .with_context(|| format!("cannot write {}", file.display()))?;
            eprintln!("plot: {}", file.display());
        }
        print(&report, self.json)
    }
}
