//! `narrows show`.

use crate::output;
use anyhow::bail;
use clap::Args;
use narrows_control::Client;
use narrows_snapshot::Snapshot;
use narrows_views::names;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show ports, queues, rates, drops by reason and workers of the running instances.
///
/// Covers all instances in this network namespace. --json prints an object for one instance and an
/// array for several.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows show
  narrows show eth2 --json --trees
  narrows show eth2 --csv --trees > classes.csv")]
pub struct Show {
    /// Only the instance with this port.
    #[arg(value_name = "DEV")]
    dev: Option<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Print CSV: a line for each port, and with --trees one for each class instead.
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Add the qdiscs and classes of each port, as `narrows tc -s -j` prints them.
    #[arg(long)]
    trees: bool,

    /// Names of classes, a line `1:10 NAME` each. Default: tc's /etc/iproute2/tc_cls.
    #[arg(long, requires = "trees", value_name = "FILE")]
    names: Option<PathBuf>,
}

/// A row for each port of the instances, or for each class there.
fn rows(shown: &[Snapshot], of_classes: bool) -> anyhow::Result<Vec<Value>> {
    let mut rows = Vec::new();
    for (instance, port) in shown.iter().flat_map(|it| it.ports.iter().map(move |port| (it, port)))
    {
        if of_classes {
            for class in &port.classes {
                let mut row = serde_json::json!({ "port": port.name });
                if let (Some(row), Value::Object(class)) =
                    (row.as_object_mut(), serde_json::to_value(class)?)
                {
                    row.extend(class);
                }
                rows.push(row);
            }
        } else {
            let mut row = serde_json::to_value(port)?;
            if let Some(members) = row.as_object_mut() {
                // In a line there is no room for lists. The distribution is in the JSON.
                members.retain(|_, value| !value.is_array());
                members.shift_remove("heaviest");
                members.get_mut("delays").and_then(|it| it.as_object_mut()?.shift_remove("counts"));
                members.insert("state".to_owned(), instance.state.clone().into());
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

impl Show {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        if self.trees && !self.json && !self.csv {
            bail!("as text, trees are those of narrows tc -s: add --json or --csv");
        }
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
        } else if self.csv {
            output::csv(&rows(&shown, self.trees)?)?;
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
