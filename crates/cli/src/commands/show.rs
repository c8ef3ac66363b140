//! `narrows show`.

use crate::output;
use anyhow::Context;
use clap::Args;
use narrows_control::{Client, NamesFile};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show ports, queues, rates, drops by reason and workers of the running instances.
///
/// Covers all instances in this network namespace. --json prints an object for one instance and an
/// array for several.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows show
  narrows show eth2 --json --trees")]
pub struct Show {
    /// Only the instance with this port.
    #[arg(value_name = "DEV")]
    dev: Option<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Add the qdiscs and classes of each port, as `narrows tc -s -j` prints them.
    #[arg(long, requires = "json")]
    trees: bool,

    /// Names of classes, a line `1:10 NAME` each. Default: tc's /etc/iproute2/tc_cls.
    #[arg(long, requires = "trees", value_name = "FILE")]
    names: Option<PathBuf>,
}

/// The names of classes in `file`, or in that of `tc`.
pub fn names(file: Option<&Path>) -> anyhow::Result<NamesFile> {
    NamesFile::open(file).with_context(|| {
        format!("cannot read the names of classes in {}", file.unwrap_or(Path::new("")).display())
    })
}

impl Show {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let mut names = names(self.names.as_deref())?;
        let mut shown = Vec::new();
        let (found, silent) = Client::survey(self.dev.as_deref())?;
        for client in found {
            let mut snapshot = client.snapshot(self.trees)?;
            names.name(&mut snapshot);
            shown.push(snapshot);
        }
        if let (true, [_, ..]) = (shown.is_empty(), &silent[..]) {
            // Nothing to show.
        } else if !self.json {
            let texts: Vec<String> = shown.iter().map(|show| show.render()).collect();
            output::text(texts.join("\n"));
        } else if let [only] = &shown[..] {
            output::json(only)?;
        } else {
            output::json(&shown)?;
        }
        // After what the others say, so that one does not hide them.
        for error in &silent {
            output::complain(error);
        }
        Ok(if silent.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
