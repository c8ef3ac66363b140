//! Runs the cases of a scenario, several at a time; the results are in the order of the cases
//! and do not depend on how many run at a time.

use super::{Case, Scenario};
use crate::engine::{self, SimError};
use crate::measure::Outcome;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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
pub struct RunError(String);

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
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<Outcome, SimError>>>> =
        cases.iter().map(|_| Mutex::new(None)).collect();
    let parts: Mutex<Vec<f64>> = Mutex::new(vec![0.0; cases.len()]);
    let work = || {
        // Relaxed: each number is handed out once, and nothing is read in its wake.
        while let Some((number, case)) = {
            let number = next.fetch_add(1, Ordering::Relaxed);
            cases.get(number).map(|case| (number, case))
        } {
            let mut tell = |part: f64| {
                let mut parts = parts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                parts[number] = part;
                progress(parts.iter().sum::<f64>() / cases.len() as f64);
            };
            let result = engine::run(&case.setup, &mut tell);
            tell(1.0);
            *results[number].lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.clamp(1, cases.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let mut outcomes = Vec::with_capacity(cases.len());
    for (case, result) in cases.iter().zip(results) {
        let failed = |why: String| RunError(format!("{}: {}: {why}", scenario.name, case.label()));
        let result = result.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let outcome = match result {
            Some(Ok(outcome)) => outcome,
            Some(Err(error)) => return Err(failed(error.to_string())),
            None => return Err(failed("it was not run".to_owned())),
        };
        if outcome.unaccounted != 0 {
            return Err(failed(format!("no trace is left of {} packets", outcome.unaccounted)));
        }
        outcomes.push(outcome);
    }
    Ok(Finished { scenario, outcomes })
}
