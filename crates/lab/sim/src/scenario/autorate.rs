//! Scenarios of lines whose rate changes: from a file with a table `[autorate]` to runs.

use super::error::{ScenarioError, Wrong};
use super::overridden::{self, at};
use super::paths::Override;
use super::quantity::{Quantity, Scale};
use super::{About, Runs};
use crate::autorate::{self, Case, Line, Row, Setup, Step};
use narrows_units::{Bytes, Nanos};
use serde::Deserialize;

/// Tables in which a key without a dot is looked for.
const USUAL_TABLES: [&str; 2] = ["autorate", "run"];
/// The most steps of a line.
const STEPS_MOST: usize = 100_000;

/// A scenario, read and complete.
#[derive(Clone, Debug)]
pub struct AutorateScenario {
    /// Its description.
    pub about: About,
    /// What runs.
    pub setup: Setup,
}

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: Option<String>,
    autorate: AutorateTable,
    line: Vec<LineTable>,
    run: RunTable,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AutorateTable {
    least: Quantity,
    usual: Quantity,
    most: Quantity,
    flows: Quantity,
    rtt: Quantity,
    buffer: Quantity,
    turn: Quantity,
    settle: Quantity,
    length: Quantity,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LineTable {
    name: String,
    /// Rates, each with how long it lasts.
    steps: Option<Vec<(Quantity, Quantity)>>,
    /// The name of a built-in trace of rates.
    trace: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunTable {
    seed: Quantity,
}

impl AutorateScenario {
    /// Reads the scenario `text`, which is called `name` in results, with `overrides`.
    ///
    /// # Errors
    /// The mistake, where it is, and what to write instead.
    pub fn read(name: &str, text: &str, overrides: &[Override]) -> Result<Self, ScenarioError> {
        overridden::read(name, text, overrides, &USUAL_TABLES, |file| scenario(name, file))
    }
}

impl Runs for AutorateScenario {
    type Outcome = (Case, Row);

    fn about(&self) -> &About {
        &self.about
    }

    fn count(&self) -> usize {
        self.setup.cases().len()
    }

    fn run(&self, number: usize, tell: &mut dyn FnMut(f64)) -> Result<(Case, Row), String> {
        let case = self.setup.cases().get(number).copied().ok_or("there is no such run")?;
        Ok((case, autorate::run(&self.setup, &case, tell)?))
    }
}

fn scenario(name: &str, file: File) -> Result<AutorateScenario, Wrong> {
    let File { title, source, autorate, line, run } = file;
    let rate = |quantity: &Quantity, path: &str| quantity.rate().map_err(at(path));
    let [least, usual, most] = [
        rate(&autorate.least, "autorate.least")?,
        rate(&autorate.usual, "autorate.usual")?,
        rate(&autorate.most, "autorate.most")?,
    ];
    if least > usual || usual > most {
        let why = format!("write a rate from the least, {least}, to the most, {most}");
        return Err(Wrong::new("autorate.usual", why));
    }
    let scale = Scale { limit: usual, frame: Bytes(1514) };
    let bounded = |quantity: &Quantity, path: &str, [from, to]: [u64; 2]| {
        let (from, to) = (Nanos::from_millis(from), Nanos::from_millis(to));
        let time = quantity.time(scale).map_err(at(path))?;
        if time < from || time > to {
            return Err(Wrong::new(path, format!("write a time from {from} to {to}")));
        }
        Ok(time)
    };
    let settle = bounded(&autorate.settle, "autorate.settle", [1, 600_000])?;
    let length = bounded(&autorate.length, "autorate.length", [2, 3_600_000])?;
    if length <= settle {
        return Err(Wrong::new("autorate.length", format!("write more than settle, {settle}")));
    }
    let lines = line.iter().map(|table| self::line(table, scale)).collect::<Result<_, _>>();
    let setup = Setup {
        least,
        usual,
        most,
        flows: autorate.flows.number(1, 1_000).map_err(at("autorate.flows"))? as u32,
        rtt: bounded(&autorate.rtt, "autorate.rtt", [1, 2_000])?,
        buffer: autorate.buffer.size(scale).map_err(at("autorate.buffer"))?,
        turn: bounded(&autorate.turn, "autorate.turn", [5, 1_000])?,
        settle,
        length,
        seed: run.seed.number(0, u64::MAX).map_err(at("run.seed"))?,
        lines: lines.map_err(at("line"))?,
    };
    Ok(AutorateScenario { about: About::new(name, title, source), setup })
}

fn line(table: &LineTable, scale: Scale) -> Result<Line, String> {
    let name = table.name.clone();
    let steps = match (&table.steps, &table.trace) {
        (Some(steps), None) => steps
            .iter()
            .map(|(rate, lasts)| Ok(Step { rate: rate.rate()?, lasts: lasts.time(scale)? }))
            .collect::<Result<Vec<_>, String>>()?,
        (None, Some(trace)) => autorate::trace(trace)?,
        _ => return Err(format!("{name}: write either steps or trace")),
    };
    if steps.is_empty() || steps.len() > STEPS_MOST {
        return Err(format!("{name}: write 1 to {STEPS_MOST} steps"));
    }
    if steps.iter().any(|step| step.lasts < Nanos::from_millis(1)) {
        return Err(format!("{name}: a step lasts 1ms or more"));
    }
    Ok(Line { name, steps })
}
