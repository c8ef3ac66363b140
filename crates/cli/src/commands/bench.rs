//! `narrows bench`.

use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Measure what things cost on this machine, each beside its peers in the same run.
#[derive(Args)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    BareForwarder(BareForwarder),
}

impl Bench {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::BareForwarder(bare) => bare.execute(),
        }
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
