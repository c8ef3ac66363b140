//! Scenarios of a host whose destinations' rates are estimated: from a file with a table
//! `[estimator]` to cases.

use super::error::{ScenarioError, Wrong};
use super::overridden::{self, at};
use super::paths::Override;
use super::quantity::{Quantity, Scale};
use super::{About, Runs};
use crate::estimator::{self, Case, Phase, Row, Setup, Shaping};
use narrows_units::{Bytes, Nanos, Rate};
use serde::Deserialize;

/// Tables in which a key without a dot is looked for.
const USUAL_TABLES: [&str; 2] = ["estimator", "run"];
/// The most connections of a case.
const CONNECTIONS: usize = 1000;

/// A scenario, read and complete.
#[derive(Clone, Debug)]
pub struct EstimatorScenario {
    /// Its description.
    pub about: About,
    /// The cases that run.
    pub setup: Setup,
}

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: Option<String>,
    estimator: EstimatorTable,
    case: Vec<CaseTable>,
    run: RunTable,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EstimatorTable {
    frame: Quantity,
    ahead: Quantity,
    every: Quantity,
    window: Quantity,
    settle: Quantity,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseTable {
    name: String,
    /// By connection.
    hosts: Vec<u32>,
    start: Option<Quantity>,
    /// How soon the paper's estimate is right.
    within: Option<Quantity>,
    phase: Vec<PhaseTable>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseTable {
    length: Quantity,
    /// By connection.
    each: Option<Vec<Quantity>>,
    together: Option<Quantity>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunTable {
    seed: Quantity,
}

impl EstimatorScenario {
    /// Reads the scenario `text`, which is called `name` in results, with `overrides`.
    ///
    /// # Errors
    /// The mistake, where it is, and what to write instead.
    pub fn read(name: &str, text: &str, overrides: &[Override]) -> Result<Self, ScenarioError> {
        overridden::read(name, text, overrides, &USUAL_TABLES, |file| scenario(name, file))
    }
}

impl Runs for EstimatorScenario {
    type Outcome = Vec<Row>;

    fn about(&self) -> &About {
        &self.about
    }

    fn count(&self) -> usize {
        self.setup.cases.len()
    }

    fn run(&self, number: usize, _: &mut dyn FnMut(f64)) -> Result<Vec<Row>, String> {
        Ok(estimator::run(&self.setup, &self.setup.cases[number]))
    }
}

fn scenario(name: &str, file: File) -> Result<EstimatorScenario, Wrong> {
    let File { title, source, estimator, case, run } = file;
    let time = |quantity: &Quantity, path: &str| quantity.time(scale()).map_err(at(path));
    let positive = |quantity: &Quantity, path: &str| {
        let time = time(quantity, path)?;
        if time == Nanos::ZERO {
            return Err(Wrong::new(path, "write a time above 0"));
        }
        Ok(time)
    };
    let window = positive(&estimator.window, "estimator.window")?;
    let frame = estimator.frame.number(64, 65_535).map_err(at("estimator.frame"))?;
    let ahead = estimator.ahead.number(1, 1000).map_err(at("estimator.ahead"))?;
    let setup = Setup {
        frame: Bytes(frame),
        ahead: ahead as u32,
        every: positive(&estimator.every, "estimator.every")?,
        window,
        settle: time(&estimator.settle, "estimator.settle")?,
        seed: run.seed.number(0, u64::MAX).map_err(at("run.seed"))?,
        cases: case
            .iter()
            .map(|it| self::case(it, window))
            .collect::<Result<_, _>>()
            .map_err(at("case"))?,
    };
    Ok(EstimatorScenario { about: About::new(name, title, source), setup })
}

/// The reference of relative times: none here.
fn scale() -> Scale {
    Scale { limit: Rate::from_bits_per_sec(10_000_000_000), frame: Bytes(1500) }
}

fn case(table: &CaseTable, window: Nanos) -> Result<Case, String> {
    if table.hosts.is_empty() || table.hosts.len() > CONNECTIONS {
        return Err(format!(
            "hosts of {} connections: write 1 to {CONNECTIONS}",
            table.hosts.len()
        ));
    }
    let phases = table.phase.iter().map(|it| phase(it, table.hosts.len(), window));
    Ok(Case {
        name: table.name.clone(),
        hosts: table.hosts.clone(),
        start: table.start.as_ref().map(Quantity::rate).transpose()?,
        phases: phases.collect::<Result<_, String>>()?,
        paper: table.within.as_ref().map(|within| within.time(scale())).transpose()?,
    })
}

fn phase(table: &PhaseTable, connections: usize, window: Nanos) -> Result<Phase, String> {
    let length = table.length.time(scale())?;
    if length == Nanos::ZERO || !length.0.is_multiple_of(window.0) {
        return Err(format!("a phase of {length}: write so many windows of {window}"));
    }
    let shaping = match (&table.each, &table.together) {
        (Some(rates), None) if rates.len() == connections => {
            Shaping::Each(rates.iter().map(Quantity::rate).collect::<Result<_, _>>()?)
        }
        (Some(rates), None) => {
            return Err(format!("{} rates for {connections} connections", rates.len()));
        }
        (None, Some(rate)) => Shaping::Together(rate.rate()?),
        _ => return Err("a phase has either each or together".to_owned()),
    };
    Ok(Phase { length, shaping })
}
