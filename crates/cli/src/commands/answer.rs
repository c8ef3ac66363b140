//! What the commands share that speak another tool's words (`tc`, `ipset`, `ipvsadm`): the instance
//! that they ask, the files that they read, and how they print its answer.

use crate::{csv, output};
use anyhow::{Context, bail};
use narrows_control::{Answer, Client, Request};
use narrows_escape::shell;
use narrows_tc::Outcome;
use std::io::Read;
use std::process::ExitCode;

/// What a command's standard output is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Output {
    /// For people.
    Text,
    /// Text that a command reads back.
    Saved,
    /// JSON.
    Json,
    /// CSV, made of JSON.
    Csv,
}

/// Takes the option for CSV out of `words`, which then ask for JSON by `json`. Whether it was
/// there.
pub(super) fn asks_for_csv(words: &mut [String], json: &str) -> bool {
    let option = words.iter_mut().find(|word| ["-csv", "--csv"].contains(&word.as_str()));
    option.map(|word| json.clone_into(word)).is_some()
}

/// The instance of `ports`, or the only one.
pub(super) fn instance(ports: &[String]) -> anyhow::Result<Client> {
    let mut found = Client::find(ports.first().map(String::as_str))?;
    if found.len() > 1 {
        let names: Vec<String> =
            found.iter().map(|one| shell(&one.ports.join(",")).into_owned()).collect();
        bail!("several instances run: choose one with --ports {}", names.join(" or --ports "));
    }
    Ok(found.remove(0))
}

/// What `client` answers to the command in `request`.
pub(super) fn ask(client: &Client, request: &Request) -> anyhow::Result<Outcome> {
    outcome(client.ask(request)?)
}

/// The outcome of a command, of which an instance has said `answer`.
pub(super) fn outcome(answer: Answer) -> anyhow::Result<Outcome> {
    answer.outcome().map_err(anyhow::Error::msg)
}

/// The text of `file`, or of standard input if it is "-" or none; at most `limit_mib` MiB.
pub(super) fn read(file: Option<&str>, limit_mib: u64) -> anyhow::Result<String> {
    let limit = limit_mib << 20;
    let mut bytes = Vec::new();
    match file.filter(|file| *file != "-") {
        Some(path) => {
            let read = std::fs::File::open(path)
                .and_then(|file| file.take(limit + 1).read_to_end(&mut bytes));
            read.with_context(|| format!("cannot read file \"{path}\""))?;
        }
        None => {
            let read = std::io::stdin().take(limit + 1).read_to_end(&mut bytes);
            read.context("cannot read standard input")?;
        }
    }
    if bytes.len() as u64 > limit {
        bail!("\"{}\" is longer than {limit_mib} MiB", file.unwrap_or("-"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Prints an outcome whose standard output is `output`. The exit code for it.
pub(super) fn print(outcome: &Outcome, output: Output) -> ExitCode {
    match output {
        Output::Text => output::text(&outcome.stdout),
        Output::Saved => output::data(&outcome.stdout),
        Output::Json => output::json_text(&outcome.stdout),
        Output::Csv => match serde_json::from_str::<serde_json::Value>(&outcome.stdout) {
            Ok(value) => output::data(&csv::table(&value)),
            // Nothing, or what is no table.
            Err(_) => output::text(&outcome.stdout),
        },
    }
    output::report(&outcome.stderr);
    ExitCode::from(u8::try_from(outcome.code).unwrap_or(u8::MAX))
}
