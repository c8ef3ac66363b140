//! Runs a scenario of any kind, several runs at a time; the results are in the order of the runs
//! and do not depend on how many go at a time.

use super::{About, Case, Scenario, parallel};
use crate::engine;
use crate::measure::Outcome;

/// A parsed scenario: a number of independent runs.
pub trait Runs: Sync {
    /// The result of a run.
    type Outcome: Send;

    /// Its description.
    fn about(&self) -> &About;

    /// How many runs there are.
    fn count(&self) -> usize;

    /// Executes run `number`. Reports the finished part (0 to 1) of it to `tell`.
    ///
    /// # Errors
    /// Why it has no result, after the run's name and seed.
    fn run(&self, number: usize, tell: &mut dyn FnMut(f64)) -> Result<Self::Outcome, String>;
}

/// A scenario with its results.
#[derive(Clone, Debug)]
pub struct Finished<'a, S: Runs = Scenario> {
    /// The case that ran.
    pub scenario: &'a S,
    /// By run: of all, or of the first ones if it was stopped.
    pub outcomes: Vec<S::Outcome>,
}

impl Finished<'_> {
    /// Cases with their results.
    pub fn rows(&self) -> impl Iterator<Item = (&Case, &Outcome)> {
        self.scenario.cases.iter().zip(&self.outcomes)
    }
}

/// Why a scenario has no result: which run, with its seed, and what happened.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RunError(String);

/// Runs `scenario` on up to `jobs` threads. Any of them reports the finished part (0 to 1) of all
/// runs to `progress`.
///
/// # Errors
/// Setups that the engine refuses, and runs that lost track of packets, each with its case and
/// seed.
pub fn run<'a, S: Runs>(
    scenario: &'a S,
    jobs: usize,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Finished<'a, S>, RunError> {
    run_until(scenario, jobs, progress, &|| false)
}

/// Runs `scenario` as [`run`] does until `stop` is true: then no further run starts, and the
/// results are those of the started runs, at least of the first.
///
/// # Errors
/// As [`run`].
pub fn run_until<'a, S: Runs>(
    scenario: &'a S,
    jobs: usize,
    progress: &(dyn Fn(f64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Finished<'a, S>, RunError> {
    let each = |number: usize, tell: &mut dyn FnMut(f64)| scenario.run(number, tell);
    let results = parallel::each(scenario.count(), jobs, progress, stop, each);
    let outcomes = results.into_iter().collect::<Result<_, _>>();
    let outcomes =
        outcomes.map_err(|why: String| RunError(format!("{}: {why}", scenario.about().name)))?;
    Ok(Finished { scenario, outcomes })
}

impl Runs for Scenario {
    type Outcome = Outcome;

    fn about(&self) -> &About {
        &self.about
    }

    fn count(&self) -> usize {
        self.cases.len()
    }

    fn run(&self, number: usize, tell: &mut dyn FnMut(f64)) -> Result<Outcome, String> {
        let case = &self.cases[number];
        let failed = |why: String| format!("{}: {why}", case.label());
        let outcome = engine::run(&case.setup, tell).map_err(|error| failed(error.to_string()))?;
        if outcome.unaccounted != 0 {
            return Err(failed(format!("no trace is left of {} packets", outcome.unaccounted)));
        }
        Ok(outcome)
    }
}
