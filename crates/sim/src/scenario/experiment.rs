//! What `narrows sim` runs: a scenario of one shaper, or of one of the smaller kinds.

use super::{EstimatorFinished, EstimatorScenario, FabricFinished, FabricScenario};
use super::{Finished, Override, RunError, Scenario, ScenarioError};
use super::{StarFinished, StarScenario, runner};
use crate::report;
use serde_json::Value;

/// A scenario of any kind.
#[derive(Clone, Debug)]
pub enum Experiment {
    /// One shaper on many cores.
    Shaper(Scenario),
    /// Hosts that pace, and switches between them.
    Fabric(FabricScenario),
    /// A host whose destinations' rates are estimated.
    Estimator(EstimatorScenario),
    /// Hosts that send to one.
    Star(StarScenario),
}

/// What came of one.
#[derive(Clone, Debug)]
pub enum Results<'a> {
    /// Of a shaper.
    Shaper(Finished<'a>),
    /// Of a network.
    Fabric(FabricFinished<'a>),
    /// Of estimates.
    Estimator(EstimatorFinished<'a>),
    /// Of hosts that send to one.
    Star(StarFinished<'a>),
}

impl Experiment {
    /// Reads the scenario `text`, which is called `name` in results, with `overrides`.
    ///
    /// # Errors
    /// What is wrong with it, where, and what to write instead.
    pub fn read(name: &str, text: &str, overrides: &[Override]) -> Result<Self, ScenarioError> {
        if FabricScenario::is_one(text) {
            return FabricScenario::read(name, text, overrides).map(Self::Fabric);
        }
        if EstimatorScenario::is_one(text) {
            return EstimatorScenario::read(name, text, overrides).map(Self::Estimator);
        }
        if StarScenario::is_one(text) {
            return StarScenario::read(name, text, overrides).map(Self::Star);
        }
        Scenario::read(name, text, overrides).map(Self::Shaper)
    }

    /// What it shows.
    pub fn title(&self) -> &str {
        match self {
            Self::Shaper(scenario) => &scenario.title,
            Self::Fabric(scenario) => &scenario.title,
            Self::Estimator(scenario) => &scenario.title,
            Self::Star(scenario) => &scenario.title,
        }
    }

    /// The figure that it reproduces.
    pub fn source(&self) -> Option<&str> {
        match self {
            Self::Shaper(scenario) => scenario.source.as_deref(),
            Self::Fabric(scenario) => scenario.source.as_deref(),
            Self::Estimator(scenario) => scenario.source.as_deref(),
            Self::Star(scenario) => scenario.source.as_deref(),
        }
    }

    /// Calls it `name` in results.
    pub fn rename(&mut self, name: String) {
        match self {
            Self::Shaper(scenario) => scenario.name = name,
            Self::Fabric(scenario) => scenario.name = name,
            Self::Estimator(scenario) => scenario.name = name,
            Self::Star(scenario) => scenario.name = name,
        }
    }

    /// Runs it on up to `jobs` threads. `progress` is told, from any of them, which part (0 to 1) is done.
    ///
    /// # Errors
    /// What the engine refuses, and runs that lost trace of packets.
    pub fn run(
        &self,
        jobs: usize,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<Results<'_>, RunError> {
        match self {
            Self::Shaper(scenario) => runner::run(scenario, jobs, progress).map(Results::Shaper),
            Self::Fabric(scenario) => scenario.run(jobs, progress).map(Results::Fabric),
            Self::Estimator(scenario) => Ok(Results::Estimator(scenario.run(jobs, progress))),
            Self::Star(scenario) => scenario.run(jobs, progress).map(Results::Star),
        }
    }
}

impl Results<'_> {
    /// As text.
    pub fn table(&self) -> String {
        match self {
            Self::Shaper(finished) => report::table(finished),
            Self::Fabric(finished) => report::fabric::table(finished),
            Self::Estimator(finished) => report::estimator::table(finished),
            Self::Star(finished) => report::star::table(finished),
        }
    }

    /// As one object.
    pub fn json(&self) -> Value {
        match self {
            Self::Shaper(finished) => report::json(finished),
            Self::Fabric(finished) => report::fabric::json(finished),
            Self::Estimator(finished) => report::estimator::json(finished),
            Self::Star(finished) => report::star::json(finished),
        }
    }

    /// As a self-contained page; only a shaper has one.
    pub fn page(&self) -> Option<String> {
        match self {
            Self::Shaper(finished) => Some(report::page(finished)),
            Self::Fabric(_) | Self::Estimator(_) | Self::Star(_) => None,
        }
    }
}
