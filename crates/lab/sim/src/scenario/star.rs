//! Scenarios of hosts that send to one: from a file with a table `[star]` to runs, each qdisc with
//! each number of flows.

use super::error::{ScenarioError, Wrong};
use super::overridden::{self, at};
use super::paths::Override;
use super::quantity::{Quantity, Scale};
use super::{About, Finished, Runs};
use crate::fabric::Buffer;
use crate::star::{self, Case, Measure, Outcome, Setup};
use narrows_units::{Bytes, Nanos, Rate};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Tables in which a key without a dot is looked for.
const USUAL_TABLES: [&str; 2] = ["star", "run"];
/// The most senders, and flows of each.
const MOST: u64 = 1000;

/// A scenario, read and complete.
#[derive(Clone, Debug)]
pub struct StarScenario {
    /// Its description.
    pub about: About,
    /// The names of the compared systems.
    pub strategies: Vec<String>,
    /// Numbers of flows.
    pub flows: Vec<u32>,
    /// The network.
    pub setup: Setup,
    /// By number of flows, and among them by strategy.
    pub cases: Vec<Case>,
    /// What the paper has.
    pub paper: Vec<StarPaper>,
}

/// What the paper has.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StarPaper {
    /// With this qdisc.
    pub strategy: String,
    /// Of this.
    pub measure: Measure,
    /// With this many flows of each host; with any number if absent.
    pub flows: Option<u32>,
    /// Its value.
    pub value: f64,
}

impl Finished<'_, StarScenario> {
    /// The result of `flows` flows of each sender under `strategy`.
    pub fn outcome(&self, flows: u32, strategy: &str) -> Option<&Outcome> {
        let row = self.scenario.flows.iter().position(|it| *it == flows)?;
        let column = self.scenario.strategies.iter().position(|it| it == strategy)?;
        self.outcomes.get(row * self.scenario.strategies.len() + column)
    }
}

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: Option<String>,
    /// Words of each qdisc; `{rate}` is a flow's rate.
    qdiscs: BTreeMap<String, String>,
    star: StarTable,
    run: RunTable,
    #[serde(default)]
    paper: Vec<StarPaper>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StarTable {
    senders: Quantity,
    rate: Quantity,
    /// The numbers of flows of each sender.
    flows: Vec<u32>,
    line: Quantity,
    buffer: Quantity,
    mark_above: Quantity,
    propagation: Quantity,
    host_delay: Quantity,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunTable {
    warmup: Quantity,
    length: Quantity,
    runs: Quantity,
    seed: Quantity,
}

impl StarScenario {
    /// Reads the scenario `text`, which is called `name` in results, with `overrides`.
    ///
    /// # Errors
    /// The mistake, where it is, and what to write instead.
    pub fn read(name: &str, text: &str, overrides: &[Override]) -> Result<Self, ScenarioError> {
        overridden::read(name, text, overrides, &USUAL_TABLES, |file| scenario(name, file))
    }
}

impl Runs for StarScenario {
    type Outcome = Outcome;

    fn about(&self) -> &About {
        &self.about
    }

    fn count(&self) -> usize {
        self.cases.len()
    }

    fn run(&self, number: usize, _: &mut dyn FnMut(f64)) -> Result<Outcome, String> {
        let case = &self.cases[number];
        star::run(&self.setup, case).map_err(|why| {
            let words = case.qdisc.join(" ");
            format!("{} flows, {words}, seed {}: {why}", case.flows, self.setup.seed)
        })
    }
}

fn scenario(name: &str, file: File) -> Result<StarScenario, Wrong> {
    let File { title, source, qdiscs, star, run, paper } = file;
    let rate = star.rate.rate().map_err(at("star.rate"))?;
    let line = star.line.rate().map_err(at("star.line"))?;
    let scale = Scale { limit: line, frame: Bytes(1500) };
    let time = |quantity: &Quantity, path: &str| quantity.time(scale).map_err(at(path));
    let size = |quantity: &Quantity, path: &str| quantity.size(scale).map_err(at(path));
    let setup = Setup {
        senders: star.senders.number(1, MOST).map_err(at("star.senders"))? as u32,
        rate,
        line,
        buffer: Buffer {
            limit: size(&star.buffer, "star.buffer")?,
            mark_above: size(&star.mark_above, "star.mark_above")?,
        },
        propagation: time(&star.propagation, "star.propagation")?,
        host_delay: time(&star.host_delay, "star.host_delay")?,
        warmup: time(&run.warmup, "run.warmup")?,
        length: time(&run.length, "run.length")?,
        runs: run.runs.number(1, 10_000).map_err(at("run.runs"))? as u32,
        seed: run.seed.number(0, u64::MAX).map_err(at("run.seed"))?,
    };
    if setup.length == Nanos::ZERO {
        return Err(Wrong::new("run.length", "write a time above 0"));
    }
    if star.flows.is_empty() || star.flows.iter().any(|it| *it == 0 || u64::from(*it) > MOST) {
        return Err(Wrong::new("star.flows", format!("write numbers from 1 to {MOST}")));
    }
    let mut cases = Vec::new();
    for &flows in &star.flows {
        for (strategy, words) in &qdiscs {
            let qdisc =
                words_of(words, Rate::from_bits_per_sec(rate.bits_per_sec() / u64::from(flows)));
            star::check(&qdisc).map_err(|why| Wrong::new(format!("qdiscs.{strategy}"), why))?;
            cases.push(Case { flows, qdisc });
        }
    }
    let strategies: Vec<String> = qdiscs.into_keys().collect();
    if strategies.is_empty() {
        return Err(Wrong::new(
            "qdiscs",
            "name at least one, as carousel = \"carousel maxrate {rate}\"",
        ));
    }
    if let Some(unknown) = paper.iter().find(|it| !strategies.contains(&it.strategy)) {
        return Err(Wrong::new("paper", format!("\"{}\" is not among qdiscs", unknown.strategy)));
    }
    let flows = star.flows;
    Ok(StarScenario {
        about: About::new(name, title, source),
        strategies,
        flows,
        setup,
        cases,
        paper,
    })
}

fn words_of(text: &str, rate: Rate) -> Vec<String> {
    let rate = format!("{}bit", rate.bits_per_sec());
    text.replace("{rate}", &rate).split_whitespace().map(str::to_owned).collect()
}
