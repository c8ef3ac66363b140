//! Scenarios that are built in, as `narrows sim` runs them.

use narrows_sim::measure::Outcome;
use narrows_sim::scenario::{Case, Override, Scenario, embedded, run};

/// The results of the scenario `name` with `overrides` under `strategy`, at every point of its
/// sweep.
#[track_caller]
pub fn rows(name: &str, strategy: &str, overrides: &[&str]) -> Vec<(Case, Outcome)> {
    let parse = |text: &&str| Override::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let overrides: Vec<Override> = overrides.iter().map(parse).collect();
    let text = embedded(name).unwrap_or_else(|| panic!("there is no scenario {name}"));
    let mut scenario =
        Scenario::read(name, text, &overrides).unwrap_or_else(|error| panic!("{error}"));
    scenario.cases.retain(|case| case.strategy == strategy);
    assert!(!scenario.cases.is_empty(), "{name} does not run {strategy}");
    let finished = run(&scenario, 1, &|_| {}).unwrap_or_else(|error| panic!("{error}"));
    let outcomes = finished.outcomes;
    scenario.cases.into_iter().zip(outcomes).collect()
}
