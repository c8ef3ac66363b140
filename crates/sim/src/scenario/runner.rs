//! Runs the cases of a scenario, several at a time; the results are in the order of the cases
//! and do not depend on how many run at a time.

use super::{Case, Scenario, parallel};
use crate::engine;
use crate::measure::Outcome;

/// A scenario with what came of it.
#[derive(Clone, Debug)]
pub struct Finished<'a> {
    /// What was run.
    pub scenario: &'a Scenario,
    /// By case.
    pub outcomes: Vec<Outcome>,
}

impl Finished<'_> {
    /// Cases with what came of each.
    pub fn rows(&self) -> impl Iterator<Item = (&Case, &Outcome)> {
        self.scenario.cases.iter().zip(&self.outcomes)
    }
}

/// Why a scenario has no result: which run, with its seed, and what happened.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RunError(pub(super) String);

/// Runs `scenario` on up to `jobs` threads. `progress` is told, from any of them, which part
/// (0 to 1) of all runs is done.
///
/// # Errors
/// What the engine refuses, and runs that lost trace of packets, each with its case and seed.
pub fn run<'a>(
    scenario: &'a Scenario,
    jobs: usize,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Finished<'a>, RunError> {
    let cases = &scenario.cases;
    let results = parallel::each(cases.len(), jobs, progress, |number, tell| {
        engine::run(&cases[number].setup, tell)
    });
    let mut outcomes = Vec::with_capacity(cases.len());
    for (case, result) in cases.iter().zip(results) {
        let failed = |why: String| RunError(format!("{}: {}: {why}", scenario.name, case.label()));
        let outcome = result.map_err(|error| failed(error.to_string()))?;
        if outcome.unaccounted != 0 {
            return Err(failed(format!("no trace is left of {} packets", outcome.unaccounted)));
        }
        outcomes.push(outcome);
    }
    Ok(Finished { scenario, outcomes })
}
