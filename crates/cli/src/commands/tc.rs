//! `narrows tc`.

use super::answer::{self, Output};
use clap::Args;
use narrows_control::{BATCH_MAX, Client, ControlError, Request};
use narrows_tc::{CommandLine, Options, Outcome, Recipients};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run tc commands on a running instance, or on a policy file.
///
/// The syntax is that of tc(8), tc-tbf(8) and so on: `qdisc`, `class` and `filter` with
/// `add|replace|change|del|show`, handles, parents, units, -s, -d, -j, -p, -o, -iec, -n, -nm
/// and -batch. Exit codes, text and JSON are tc's, too. Additions:
///
///   save [ dev NAME ]                  print the policy, exactly, as commands that restore it
///   coordination fair|equal|edt|lock   behind a tbf at the root: how the queues of the port
///                                      share its one rate (fair); behind an htb, flowvalve has
///                                      other rules for its classes
///   sync TIME                          how long shares are valid: derived for fair, 200us
///                                      for equal
///   linklayer ptm                      VDSL2 framing
///   -csv                               like -j, as CSV: a line for each qdisc or class
///
/// Examples:
///
///   narrows tc qdisc replace dev eth2 root tbf rate 1gbit burst 1mb latency 5ms
///   narrows tc -s qdisc show dev eth2
///   narrows tc -s -csv class show dev eth2
///   narrows tc --policy shaper.tc qdisc add dev eth2 root pfifo limit 100
///   narrows tc save > shaper.tc
#[derive(Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Tc {
    /// Use this policy file instead of a running instance. May be among tc's options.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,

    /// The command, as tc takes it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    words: Vec<OsString>,
}

impl Tc {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        // A word that is not UTF-8 cannot be one of tc's: the complaint shows it.
        let mut words: Vec<String> =
            self.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        // tc's options come first, and behind them a name may be anything.
        let options = words.iter().take_while(|word| word.starts_with('-')).count();
        let csv = answer::asks_for_csv(&mut words[..options], "-j");
        let line = CommandLine::parse(&words);
        let said = line.as_ref().ok();
        let output = match said {
            Some(_) if csv => Output::Csv,
            Some(line) if line.options.json => Output::Json,
            Some(line) if line.words.first().is_some_and(|it| it == "save") => Output::Saved,
            _ => Output::Text,
        };
        let outcome = match line {
            Err(outcome) => outcome,
            Ok(line) => match self.policy.as_deref().or(line.policy.as_deref().map(Path::new)) {
                Some(path) => narrows_tc::offline(path, &words),
                None => match narrows_tc::help(&line) {
                    Some(help) => help,
                    None => live(&words, &line)?,
                },
            },
        };
        Ok(answer::print(&outcome, output))
    }
}

/// Runs `words` on the running instances that they are for.
fn live(words: &[String], line: &CommandLine) -> anyhow::Result<Outcome> {
    if let Some(name) = &line.netns
        && let Err(error) = enter(name)
    {
        let stderr = format!("Cannot open network namespace \"{name}\": {error}\n");
        return Ok(Outcome { stderr, code: Outcome::UNREADABLE, ..Outcome::default() });
    }
    let names = match narrows_tc::read_names(line) {
        Ok(names) => names,
        Err(outcome) => return Ok(outcome),
    };
    let batch = match &line.batch {
        Some(name) => Some((name, answer::read(Some(name), BATCH_MAX >> 20)?)),
        None => None,
    };
    // One that does not answer hinders no command to another.
    let dev =
        line.words.iter().position(|word| word == "dev").and_then(|at| line.words.get(at + 1));
    let instances = match dev.filter(|_| batch.is_none()).map(|dev| Client::find(Some(dev))) {
        None | Some(Err(ControlError::NoInstance(_))) => Client::find(None)?,
        Some(found) => found?,
    };
    let ports: Vec<Vec<String>> = instances.iter().map(|client| client.ports.clone()).collect();
    let live = Live { instances: &instances, ports: &ports, options: &line.options };
    let Some((name, text)) = batch else {
        let to = narrows_tc::recipients(&line.words, &ports);
        return live.ask(to, &Asked::Command { words, names });
    };
    let options = &words[..words.len() - line.words.len()];
    let asked = |text| Asked::Batch { options, name, text, names: names.clone() };
    if instances.len() == 1 {
        return live.ask(Recipients::One(0), &asked(&text));
    }
    let mut whole = Outcome::default();
    let legs = narrows_tc::route(&text, &ports);
    for leg in &legs {
        let outcome = live.ask(leg.to, &asked(&leg.text))?;
        whole.stdout.push_str(&outcome.stdout);
        whole.stderr.push_str(&outcome.stderr);
        whole.code = whole.code.max(outcome.code);
        if outcome.code != 0 && !line.options.force {
            break;
        }
    }
    Ok(whole)
}

/// Enters the network namespace called `name`, as `tc -netns` does.
fn enter(name: &str) -> std::io::Result<()> {
    let namespace = std::fs::File::open(Path::new("/run/netns").join(name))?;
    let network = Some(rustix::thread::LinkNameSpaceType::Network);
    Ok(rustix::thread::move_into_link_name_space(namespace.as_fd(), network)?)
}

/// The instances that run in this network namespace.
struct Live<'a> {
    instances: &'a [Client],
    /// The ports of each.
    ports: &'a [Vec<String>],
    options: &'a Options,
}

/// What they are asked.
enum Asked<'a> {
    Command { words: &'a [String], names: Option<String> },
    Batch { options: &'a [String], name: &'a str, text: &'a str, names: Option<String> },
}

impl Live<'_> {
    /// The answers of the instances in `to`.
    fn ask(&self, to: Recipients, asked: &Asked<'_>) -> anyhow::Result<Outcome> {
        match to {
            Recipients::One(index) => ask(&self.instances[index], asked),
            Recipients::All => {
                let answers = self.instances.iter().map(|client| ask(client, asked));
                let outcomes: Vec<Outcome> = answers.collect::<anyhow::Result<_>>()?;
                Ok(narrows_tc::gather(&outcomes, self.options))
            }
            Recipients::None => {
                let mut elsewhere = Recipients::elsewhere(self.ports);
                Ok(match asked {
                    Asked::Batch { name, text, .. } => {
                        narrows_tc::execute_batch(text, name, self.options, &mut elsewhere)
                    }
                    Asked::Command { words, .. } => narrows_tc::execute(words, &mut elsewhere),
                })
            }
        }
    }
}

fn ask(client: &Client, asked: &Asked<'_>) -> anyhow::Result<Outcome> {
    let answer = match asked {
        Asked::Command { words, names } => {
            client.ask(&Request::Tc { args: words.to_vec(), names: names.clone() })?
        }
        Asked::Batch { options, name, text, names } => {
            client.batch(options, name, text, names.clone())?
        }
    };
    answer::outcome(answer)
}
