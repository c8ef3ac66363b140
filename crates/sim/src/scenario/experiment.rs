//! What `narrows sim` runs: a scenario of one shaper, or one of a network of hosts.

use super::{FabricFinished, FabricScenario, Finished, Override, RunError, Scenario};
use super::{ScenarioError, runner};
use crate::report;
use serde_json::Value;

/// A scenario of either kind.
#[derive(Clone, Debug)]
pub enum Experiment {
    /// One shaper on many cores.
    Shaper(Scenario),
    /// Hosts that pace, and switches between them.
    Fabric(FabricScenario),
}

/// What came of one.
#[derive(Clone, Debug)]
pub enum Results<'a> {
    /// Of a shaper.
    Shaper(Finished<'a>),
    /// Of a network.
    Fabric(FabricFinished<'a>),
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
        Scenario::read(name, text, overrides).map(Self::Shaper)
    }

    /// What it shows.
    pub fn title(&self) -> &str {
        match self {
            Self::Shaper(scenario) => &scenario.title,
            Self::Fabric(scenario) => &scenario.title,
        }
    }

    /// The figure that it reproduces.
    pub fn source(&self) -> Option<&str> {
        match self {
            Self::Shaper(scenario) => scenario.source.as_deref(),
            Self::Fabric(scenario) => scenario.source.as_deref(),
        }
    }

    /// Calls it `name` in results.
    pub fn rename(&mut self, name: String) {
        match self {
            Self::Shaper(scenario) => scenario.name = name,
            Self::Fabric(scenario) => scenario.name = name,
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
        }
    }
}

impl Results<'_> {
    /// As text.
    pub fn table(&self) -> String {
        match self {
            Self::Shaper(finished) => report::table(finished),
            Self::Fabric(finished) => report::fabric::table(finished),
        }
    }

    /// As one object.
    pub fn json(&self) -> Value {
        match self {
            Self::Shaper(finished) => report::json(finished),
            Self::Fabric(finished) => report::fabric::json(finished),
        }
    }

    /// As a self-contained page; there is none for a network.
    pub fn page(&self) -> Option<String> {
        match self {
            Self::Shaper(finished) => Some(report::page(finished)),
            Self::Fabric(_) => None,
        }
    }
}
