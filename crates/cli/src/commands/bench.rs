//! `narrows bench`.

use super::report::print;
use clap::{Args, Subcommand};
use narrows_testbed::{accuracy, forward, latency};
use std::process::ExitCode;
use std::time::Duration;

/// Measure what things cost on this machine, each beside its peers in the same run.
#[derive(Args)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Forward(Forward),
    Accuracy(Accuracy),
    Latency(Latency),
    Qdisc(Qdisc),
    BareForwarder(BareForwarder),
}

impl Bench {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Forward(forward) => forward.execute(),
            What::Accuracy(accuracy) => accuracy.execute(),
            What::Latency(latency) => latency.execute(),
            What::Qdisc(qdisc) => qdisc.execute(),
            What::BareForwarder(bare) => bare.execute(),
        }
    }
}

/// Forwarding, beside a bare AF_XDP forwarder, a Linux bridge and bridge + HTB.
///
/// Real packets of 64 and 1500 bytes between network namespaces, all systems interleaved in
/// one run: packets per second, processor time a packet, and the ratio to the bare forwarder.
/// Needs root.
#[derive(Args)]
struct Forward {
    /// Seconds for which each system is measured with each frame size and load.
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    /// How often all of it is repeated.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Forward {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let report = forward::run(&forward::Options {
            program: std::env::current_exe()?,
            window: Duration::from_secs(self.seconds),
            rounds: self.rounds,
        })?;
        print(&report, self.json)
    }
}

/// How exactly a rate is kept: 10 Mbit/s to 1 Gbit/s, one queue and four, UDP and TCP, each
/// coordination strategy beside the others. Needs root.
#[derive(Args)]
struct Accuracy {
    /// Seconds for which each rate is measured.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Accuracy {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let report = accuracy::run(&accuracy::Options {
            program: std::env::current_exe()?,
            window: Duration::from_secs(self.seconds),
        })?;
        print(&report, self.json)
    }
}

/// What an idle Narrows adds to a ping, asleep and busy-polling, beside a bridge and a bare
/// cable. Needs root.
#[derive(Args)]
struct Latency {
    /// Seconds for which each system is measured in each round.
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,

    /// How often all of it is repeated.
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Latency {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let report = latency::run(&latency::Options {
            program: std::env::current_exe()?,
            window: Duration::from_secs(self.seconds),
            rounds: self.rounds,
        })?;
        print(&report, self.json)
    }
}

/// Queues, qdiscs and meters, beside the plainest queue there is; one core, no I/O.
#[derive(Args)]
struct Qdisc {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Qdisc {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let structures = narrows_bench::Structure::all();
        let rows = narrows_bench::qdisc::run(&structures, Default::default());
        if self.json {
            println!("{}", serde_json::to_string_pretty(&serde_json::json!({ "rows": rows }))?);
            return Ok(ExitCode::SUCCESS);
        }
        println!("{:<24} {:>6} {:>10} {:>7}", "structure", "queues", "ns/packet", "ratio");
        for row in rows {
            println!(
                "{:<24} {:>6} {:>10.1} {:>7.2}",
                row.structure, row.queues, row.ns_per_packet, row.ratio
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Forward between two ports without anything in between, as the floor for `bench forward`.
#[derive(Args)]
#[command(hide = true)]
struct BareForwarder {
    /// The two interfaces, separated by a comma.
    #[arg(long, value_name = "A,B", value_parser = super::run::parse_ports)]
    ports: [String; 2],
}

impl BareForwarder {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let session = super::run::default_session()?;
        let (forwarded, cpu_time) =
            narrows_dataplane::run::run_bare(&self.ports, &session, || println!("ready"))?;
        let packets = forwarded[0] + forwarded[1];
        println!("{}", serde_json::json!({ "packets": packets, "cpu_ns": cpu_time.0 }));
        Ok(ExitCode::SUCCESS)
    }
}
