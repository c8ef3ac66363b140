//! `narrows-fleet init`.

use clap::Args;
use narrows_fleet::init::{AT, Host, Plan};
use narrows_fleet::name::Name;
use narrows_program::output;
use std::path::PathBuf;

/// Write what each box of a new fleet needs: keys, certificates, and the configurations of its NATS
/// server and of its agent.
///
/// DIR gets a folder for each box. What is printed says what belongs where.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows-fleet init --fleet edge --box a=10.0.0.1 --box b=10.0.0.2 --box c=10.0.0.3 ./edge
  narrows-fleet init --fleet edge --box a=10.0.0.1 --box b=10.0.0.2 --box c=10.0.0.3 \\
    --box d=10.0.0.4 --keep ./edge
  narrows-fleet init --fleet edge --existing tls://nats.example.net:4222 --box a=10.0.0.1 \\
    --box b=10.0.0.2 ./edge")]
pub struct Init {
    /// The fleet's name.
    #[arg(long, value_name = "NAME")]
    fleet: Name,

    /// A box: its name, and the address or the host's name at which the others reach it.
    #[arg(long = "box", value_name = "NAME=HOST", required = true, value_parser = member)]
    boxes: Vec<(Name, Host)>,

    /// Use the keys that are in DIR, and write everything else anew: to add a box, or to remove
    /// one.
    #[arg(long)]
    keep: bool,

    /// A server of a cluster that exists: then only the agents are configured.
    #[arg(long, value_name = "URL", value_parser = server)]
    existing: Vec<String>,

    /// Where the folder of a box will be on it; {box} is its name.
    #[arg(long, value_name = "PATH", default_value = AT)]
    at: String,

    /// Where to write.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

fn member(text: &str) -> Result<(Name, Host), String> {
    let (name, host) = text.split_once('=').ok_or("a box is NAME=HOST, as a=10.0.0.1")?;
    let name = name.parse::<Name>().map_err(|error| error.to_string())?;
    let host = host.parse::<Host>().map_err(|error| error.to_string())?;
    Ok((name, host))
}

fn server(text: &str) -> Result<String, String> {
    narrows_fleet::config::check_server(text).map(|()| text.to_owned())
}

impl Init {
    pub fn execute(self) -> anyhow::Result<()> {
        let Self { fleet, boxes, keep, existing, at, folder } = self;
        let report = Plan { fleet, boxes, existing, at, keep }.write(&folder)?;
        output::text(report);
        Ok(())
    }
}
