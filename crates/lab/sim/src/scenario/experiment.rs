//! What `narrows sim` runs: a scenario of one shaper, or of one of the smaller kinds.

use super::TreeScenario;
use super::overridden::has_table;
use super::{
    About, AutorateScenario, EstimatorScenario, FabricScenario, FleetScenario, Scenario,
    StarScenario,
};
use super::{Finished, Override, RunError, Runs, ScenarioError, runner};
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
    /// Applications that send through a tree of classes.
    Tree(TreeScenario),
    /// Boxes that share a limit.
    Fleet(FleetScenario),
    /// Lines whose rate changes.
    Autorate(AutorateScenario),
}

/// The outcome of one.
#[derive(Clone, Debug)]
pub enum Results<'a> {
    /// Of a shaper.
    Shaper(Finished<'a>),
    /// Of a network.
    Fabric(Finished<'a, FabricScenario>),
    /// Of estimates.
    Estimator(Finished<'a, EstimatorScenario>),
    /// Of hosts that send to one.
    Star(Finished<'a, StarScenario>),
    /// Of a tree of classes.
    Tree(Finished<'a, TreeScenario>),
    /// Of boxes that share a limit.
    Fleet(Finished<'a, FleetScenario>),
    /// Of lines whose rate changes.
    Autorate(Finished<'a, AutorateScenario>),
}

impl Experiment {
    /// Reads the scenario `text`, which is called `name` in results, with `overrides`.
    ///
    /// # Errors
    /// The mistake, where it is, and what to write instead.
    pub fn read(name: &str, text: &str, overrides: &[Override]) -> Result<Self, ScenarioError> {
        if has_table(text, "fabric") {
            FabricScenario::read(name, text, overrides).map(Self::Fabric)
        } else if has_table(text, "estimator") {
            EstimatorScenario::read(name, text, overrides).map(Self::Estimator)
        } else if has_table(text, "star") {
            StarScenario::read(name, text, overrides).map(Self::Star)
        } else if has_table(text, "tree") {
            TreeScenario::read(name, text, overrides).map(Self::Tree)
        } else if has_table(text, "fleet") {
            FleetScenario::read(name, text, overrides).map(Self::Fleet)
        } else if has_table(text, "autorate") {
            AutorateScenario::read(name, text, overrides).map(Self::Autorate)
        } else {
            Scenario::read(name, text, overrides).map(Self::Shaper)
        }
    }

    /// Its description.
    pub fn about(&self) -> &About {
        match self {
            Self::Shaper(scenario) => scenario.about(),
            Self::Fabric(scenario) => scenario.about(),
            Self::Estimator(scenario) => scenario.about(),
            Self::Star(scenario) => scenario.about(),
            Self::Tree(scenario) => scenario.about(),
            Self::Fleet(scenario) => scenario.about(),
            Self::Autorate(scenario) => scenario.about(),
        }
    }

    /// Calls it `name` in results.
    pub fn rename(&mut self, name: String) {
        let about = match self {
            Self::Shaper(scenario) => &mut scenario.about,
            Self::Fabric(scenario) => &mut scenario.about,
            Self::Estimator(scenario) => &mut scenario.about,
            Self::Star(scenario) => &mut scenario.about,
            Self::Tree(scenario) => &mut scenario.about,
            Self::Fleet(scenario) => &mut scenario.about,
            Self::Autorate(scenario) => &mut scenario.about,
        };
        about.name = name;
    }

    /// How many runs it is.
    pub fn count(&self) -> usize {
        match self {
            Self::Shaper(scenario) => scenario.count(),
            Self::Fabric(scenario) => scenario.count(),
            Self::Estimator(scenario) => scenario.count(),
            Self::Star(scenario) => scenario.count(),
            Self::Tree(scenario) => scenario.count(),
            Self::Fleet(scenario) => scenario.count(),
            Self::Autorate(scenario) => scenario.count(),
        }
    }

    /// Runs it on up to `jobs` threads. Any of them reports the finished part (0 to 1) to
    /// `progress`.
    ///
    /// # Errors
    /// Setups that the engine refuses, and runs that lost track of packets.
    pub fn run(
        &self,
        jobs: usize,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<Results<'_>, RunError> {
        self.run_until(jobs, progress, &|| false)
    }

    /// Runs it as [`Experiment::run`] does until `stop` is true: then no further run starts, and
    /// the results are those of the started runs, at least of the first.
    ///
    /// # Errors
    /// As [`Experiment::run`].
    pub fn run_until(
        &self,
        jobs: usize,
        progress: &(dyn Fn(f64) + Sync),
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Results<'_>, RunError> {
        use runner::run_until;
        match self {
            Self::Shaper(it) => run_until(it, jobs, progress, stop).map(Results::Shaper),
            Self::Fabric(it) => run_until(it, jobs, progress, stop).map(Results::Fabric),
            Self::Estimator(it) => run_until(it, jobs, progress, stop).map(Results::Estimator),
            Self::Star(it) => run_until(it, jobs, progress, stop).map(Results::Star),
            Self::Tree(it) => run_until(it, jobs, progress, stop).map(Results::Tree),
            Self::Fleet(it) => run_until(it, jobs, progress, stop).map(Results::Fleet),
            Self::Autorate(it) => run_until(it, jobs, progress, stop).map(Results::Autorate),
        }
    }
}

impl Results<'_> {
    /// The number of finished runs: not all if it was stopped.
    pub fn count(&self) -> usize {
        match self {
            Self::Shaper(finished) => finished.outcomes.len(),
            Self::Fabric(finished) => finished.outcomes.len(),
            Self::Estimator(finished) => finished.outcomes.len(),
            Self::Star(finished) => finished.outcomes.len(),
            Self::Tree(finished) => finished.outcomes.len(),
            Self::Fleet(finished) => finished.outcomes.len(),
            Self::Autorate(finished) => finished.outcomes.len(),
        }
    }

    /// As text.
    pub fn table(&self) -> String {
        match self {
            Self::Shaper(finished) => report::table(finished),
            Self::Fabric(finished) => report::fabric::table(finished),
            Self::Estimator(finished) => report::estimator::table(finished),
            Self::Star(finished) => report::star::table(finished),
            Self::Tree(finished) => report::tree::table(finished),
            Self::Fleet(finished) => report::fleet::table(finished),
            Self::Autorate(finished) => report::autorate::table(finished),
        }
    }

    /// As one object.
    pub fn json(&self) -> Value {
        match self {
            Self::Shaper(finished) => report::json(finished),
            Self::Fabric(finished) => report::fabric::json(finished),
            Self::Estimator(finished) => report::estimator::json(finished),
            Self::Star(finished) => report::star::json(finished),
            Self::Tree(finished) => report::tree::json(finished),
            Self::Fleet(finished) => report::fleet::json(finished),
            Self::Autorate(finished) => report::autorate::json(finished),
        }
    }

    /// As a self-contained page; only a shaper has one.
    pub fn page(&self) -> Option<String> {
        match self {
            Self::Shaper(finished) => Some(report::page(finished)),
            Self::Fabric(_)
            | Self::Estimator(_)
            | Self::Star(_)
            | Self::Tree(_)
            | Self::Fleet(_)
            | Self::Autorate(_) => None,
        }
    }
}
