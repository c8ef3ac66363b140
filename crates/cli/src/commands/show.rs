//! `narrows show`.

use clap::Args;
use narrows_dataplane::control::Client;
use std::process::ExitCode;

/// Show ports, queues, rates, drops by reason and workers of the running instances.
///
/// Covers the instances in its own network namespace. With --json it prints one object for one
/// instance, and an array for several.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows show
  narrows show eth2 --json --trees")]
pub struct Show {
    /// Only the instance that has this port.
    #[arg(value_name = "DEV")]
    dev: Option<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Add the qdiscs and classes of each port, as `narrows tc -s -j` prints them.
    #[arg(long, requires = "json")]
    trees: bool,
}

impl Show {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let mut shown = Vec::new();
        for client in Client::find(self.dev.as_deref())? {
            shown.push(client.snapshot(self.trees)?);
        }
        if !self.json {
            let texts: Vec<String> = shown.iter().map(|show| show.render()).collect();
            print!("{}", texts.join("\n"));
        } else if let [only] = &shown[..] {
            println!("{}", serde_json::to_string_pretty(only)?);
        } else {
            println!("{}", serde_json::to_string_pretty(&shown)?);
        }
        Ok(ExitCode::SUCCESS)
    }
}
