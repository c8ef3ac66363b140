//! Routes a command to one of several running instances, and joins their answers.
//!
//! Interfaces belong to instances. A command that names an interface is for the instance that has
//! it. A command that lists without naming one is for all of them, and their answers are printed as
//! one. A batch is divided into legs, each for one recipient, to be run in order. A leg keeps the
//! line numbers of the batch, so that complaints name the right lines.

use crate::complaint::Outcome;
use crate::lines::{lines, words};
use crate::render;
use crate::words::abbreviates;
use crate::{Host, Options, verb};
use narrows_policy::{Policy, PortFacts, is_intermediate};

/// The instances that run a command. An instance is identified by its index in the list of ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recipients {
    /// The instance that has the interface.
    One(usize),
    /// Every instance.
    All,
    /// No instance has the interface; see [`elsewhere`](Self::elsewhere).
    None,
}

impl Recipients {
    /// A substitute for the missing instance. It knows the names of all `ports`, has none of them,
    /// and so refuses any other name with that list.
    pub fn elsewhere(ports: &[Vec<String>]) -> impl Host + use<> {
        Elsewhere(ports.iter().flatten().cloned().collect())
    }
}

/// A part of a batch for the same recipients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leg {
    /// The recipients.
    pub to: Recipients,
    /// Its lines, each at its line number in the batch.
    pub text: String,
}

/// The recipients of the command `words`; `ports` are those of each instance.
pub fn recipients(words: &[String], ports: &[Vec<String>]) -> Recipients {
    // Actions belong to no interface, so each instance has them all.
    if words.first().is_some_and(|word| abbreviates(word, "actions")) {
        return Recipients::All;
    }
    match named(words) {
        Some(dev) => ports
            .iter()
            .position(|ports| ports.iter().any(|port| port == dev))
            // An intermediate device belongs to the only instance, if there is one alone.
            .or((ports.len() == 1 && is_intermediate(dev)).then_some(0))
            .map_or(Recipients::None, Recipients::One),
        None if lists(words) => Recipients::All,
        // One instance refuses it.
        None => Recipients::One(0),
    }
}

/// The interface that a command's `words` name.
pub(crate) fn named<W: AsRef<str>>(words: &[W]) -> Option<&str> {
    let dev = words.iter().position(|word| word.as_ref() == "dev")?;
    words.get(dev + 1).map(AsRef::as_ref)
}

/// Whether `words` list something without changing it.
fn lists(words: &[String]) -> bool {
    words.get(1).is_none_or(|word| verb::lists(word))
}

/// Divides the batch `text` into legs; `ports` are those of each instance. A line for all instances
/// has a leg of its own, because its answers must be joined.
pub fn route(text: &str, ports: &[Vec<String>]) -> Vec<Leg> {
    let mut legs: Vec<(Recipients, Vec<(usize, usize)>)> = Vec::new();
    for line in lines(text) {
        let to = match words(&line.text) {
            Ok(words) if words.is_empty() => continue,
            Ok(words) => {
                let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
                recipients(&words, ports)
            }
            Err(_) => Recipients::One(0),
        };
        match legs.last_mut() {
            Some((last, lines)) if *last == to && to != Recipients::All => {
                lines.push((line.first, line.number));
            }
            _ => legs.push((to, vec![(line.first, line.number)])),
        }
    }
    let all: Vec<&str> = text.split('\n').collect();
    legs.into_iter().map(|(to, lines)| Leg { to, text: only(&all, &lines) }).collect()
}

/// The lines of `all` in the ranges `wanted`, each after as many line breaks as in the whole.
fn only(all: &[&str], wanted: &[(usize, usize)]) -> String {
    let mut text = String::new();
    let mut at = 1;
    for &(first, last) in wanted {
        text.extend(std::iter::repeat_n('\n', first - at));
        text.push_str(&all[first - 1..last].join("\n"));
        at = last;
    }
    text
}

/// Joins the answers of several instances to the same command.
/// Equal answers are one: each instance has the actions that no filter refers to.
pub fn gather(outcomes: &[Outcome], options: &Options) -> Outcome {
    if let [first, others @ ..] = outcomes
        && others.iter().all(|other| other == first)
    {
        return first.clone();
    }
    let stdouts = outcomes.iter().map(|outcome| outcome.stdout.as_str());
    let is_json = options.json && outcomes.iter().all(|outcome| outcome.stdout.starts_with('['));
    Outcome {
        stdout: if is_json { render::join(stdouts, options.pretty) } else { stdouts.collect() },
        stderr: outcomes.iter().map(|outcome| outcome.stderr.as_str()).collect(),
        code: outcomes.iter().map(|outcome| outcome.code).max().unwrap_or(0),
    }
}

/// See [`Recipients::elsewhere`].
struct Elsewhere(Vec<String>);

impl Host for Elsewhere {
    fn devices(&self) -> Vec<String> {
        self.0.clone()
    }

    fn port(&self, _dev: &str) -> Option<PortFacts> {
        None
    }

    fn policy(&self) -> Policy {
        Policy::default()
    }

    fn apply(&mut self, _policy: Policy) -> Result<(), String> {
        Err("no instance has this interface".to_owned())
    }
}
