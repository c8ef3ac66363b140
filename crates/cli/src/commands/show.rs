//! `narrows show`.

use clap::Args;
use narrows_dataplane::control::{Answer, Client, Request};
use std::process::ExitCode;

/// Show ports, queues, rates, drops by reason and workers of the running instances.
///
/// Looks in the network namespace in which it is run. With --json it prints one object for
/// one instance, and an array where there are several.
#[derive(Args)]
pub struct Show {
    /// Only the instance that has this port.
    #[arg(value_name = "DEV")]
    dev: Option<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let mut shown = Vec::new();
        for client in Client::find(self.dev.as_deref())? {
            match client.ask(&Request::Show)? {
                Answer::Show(show) => shown.push(show),
                Answer::Refused(reason) => anyhow::bail!("{reason}"),
                other => anyhow::bail!("the instance answered something else: {other:?}"),
            }
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
