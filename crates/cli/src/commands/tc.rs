//! `narrows tc`.

use anyhow::Context;
use clap::Args;
use narrows_dataplane::control::{Answer, Client, Request};
use narrows_policy::Policy;
use narrows_tc::{CommandLine, OfflineHost, Outcome};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Speak tc to a running instance, or to a policy file.
///
/// The words are those of tc(8), tc-tbf(8) and so on: `qdisc add|replace|change|del|show` with
/// handles, parents, units, -s, -d, -j, -p and -batch, and the exit codes, text and JSON
/// are tc's, too. What is added:
///
///   coordination fair|equal|edt|lock   behind a tbf at the root: how the queues of the port
///                                      share its one rate (fair)
///   sync TIME                          for how long shares hold: derived for fair, 200us
///                                      for equal
///   linklayer ptm                      VDSL2 framing
///
/// Examples:
///
///   narrows tc qdisc replace dev eth2 root tbf rate 1gbit burst 1mb latency 5ms
///   narrows tc -s qdisc show dev eth2
///   narrows tc --policy shaper.tc qdisc add dev eth2 root pfifo limit 100
#[derive(Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Tc {
    /// Work on this policy file instead of a running instance.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,

    /// The words of the command, as tc takes them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    words: Vec<OsString>,
}

impl Tc {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        // A word that is not UTF-8 cannot be one of tc's: the complaint will show it.
        let words: Vec<String> =
            self.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let outcome = match &self.policy {
            Some(path) => narrows_tc::offline(path, &words),
            None => live(&words)?,
        };
        print_all(&outcome)?;
        Ok(ExitCode::from(u8::try_from(outcome.code).unwrap_or(u8::MAX)))
    }
}

/// Reads a policy file as a whole, for `narrows run`.
pub fn load_policy(path: &Path) -> anyhow::Result<Policy> {
    let name = path.display().to_string();
    let text = read(&name)?;
    narrows_tc::load(&text, &name, &OfflineHost::default()).map_err(|complaints| {
        anyhow::anyhow!("the policy is not usable:\n{}", complaints.trim_end())
    })
}

/// Runs `words` on the running instances that they are for.
fn live(words: &[String]) -> anyhow::Result<Outcome> {
    let line = match CommandLine::parse(words) {
        Ok(line) => line,
        Err(outcome) => return Ok(outcome),
    };
    let request = match &line.batch {
        None => Request::Tc { args: words.to_vec() },
        Some(name) => Request::Batch {
            options: words[..words.len() - line.words.len()].to_vec(),
            name: name.clone(),
            text: read(name)?,
        },
    };
    let text = match &request {
        Request::Batch { text, .. } => text.split_whitespace().map(str::to_owned).collect(),
        _ => line.words.clone(),
    };
    let mut outcome = Outcome::default();
    for client in Client::find(device(&text))? {
        match client.ask(&request)? {
            Answer::Tc { stdout, stderr, code } => {
                outcome.stdout.push_str(&stdout);
                outcome.stderr.push_str(&stderr);
                outcome.code = outcome.code.max(code);
            }
            Answer::Refused(reason) => anyhow::bail!("{reason}"),
            other => anyhow::bail!("the instance answered something else: {other:?}"),
        }
    }
    Ok(outcome)
}

/// The interface that a command names: its instance is the one to ask.
fn device(words: &[String]) -> Option<&str> {
    let dev = words.iter().position(|word| word == "dev")?;
    words.get(dev + 1).map(String::as_str)
}

fn read(name: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    if name == "-" {
        std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        bytes = std::fs::read(name).with_context(|| format!("cannot open file \"{name}\""))?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn print_all(outcome: &Outcome) -> anyhow::Result<()> {
    std::io::stdout().write_all(outcome.stdout.as_bytes())?;
    std::io::stderr().write_all(outcome.stderr.as_bytes())?;
    Ok(())
}
