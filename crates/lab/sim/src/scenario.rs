//! Scenarios: files that a user can copy and edit.
//!
//! A scenario is a TOML file: a port, its cores, traffic, a next hop, a schedule, and what to
//! measure. It becomes [`Case`]s, each a complete [`Setup`]: every strategy at every point of the
//! sweep. In this order:
//!
//! 1. `--set key=value` changes the file ([`Override`]), by dotted paths into it;
//! 2. the sweep multiplies it, by the same paths;
//! 3. a strategy's entry inserts its words;
//! 4. `{key}` in any string becomes the value of that key of `[port]`;
//! 5. quantities are read as `tc` reads them (`quantity.rs`) and checked.
//!
//! A file with a table `[fabric]`, `[estimator]`, `[star]`, `[tree]`, `[fleet]` or `[autorate]` is
//! of another kind: a network of hosts (`fabric.rs`), a host whose destinations' rates are
//! estimated (`estimator.rs`), hosts that send to one (`star.rs`), applications below a tree of
//! classes (`tree.rs`), boxes that share a limit (`fleet.rs`), lines whose rate changes
//! (`autorate.rs`). An [`Experiment`] is a scenario of any kind.
//!
//! *Principles.* Unknown keys are errors, with the line and a suggestion. No input panics.
//! Everything random follows from `run.seed`; all strategies of a point get the same seed, and so
//! the same traffic.
//!
//! *Non-goals.* Arithmetic and conditions in files.

mod autorate;
mod cases;
mod catalogue;
mod costs;
mod error;
mod estimator;
mod experiment;
mod fabric;
mod file;
mod fleet;
mod headers;
mod machine;
mod overridden;
mod parallel;
mod paths;
mod quantity;
mod runner;
mod star;
mod traces;
mod tree;

pub use autorate::AutorateScenario;
pub use catalogue::{all_names, embedded, names, near};
pub use error::ScenarioError;
pub use estimator::EstimatorScenario;
pub use experiment::{Experiment, Results};
pub use fabric::{FabricPaper, FabricScenario};
pub use fleet::FleetScenario;
pub use paths::Override;
pub use runner::{Finished, RunError, Runs, run};
pub use star::{StarPaper, StarScenario};
pub use tree::{Capacity, CapacityPaper, CapacityPoint, TreeOutcome, TreePaper, TreeScenario};

use crate::measure::{GroupMeasure, Measure};
use crate::setup::{Costs, LockScope, Port, Setup};
use narrows_coordination::Strategy;

/// A scenario's own description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About {
    /// The name of its file, without the ending.
    pub name: String,
    /// Its purpose.
    pub title: String,
    /// The figure that it reproduces, as `mq-cake, IFIP, Fig. 4`.
    pub source: Option<String>,
}

impl About {
    fn new(name: &str, title: String, source: Option<String>) -> Self {
        Self { name: name.to_owned(), title, source }
    }
}

/// A scenario, read and complete.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its description.
    pub about: About,
    /// Columns.
    pub measures: Vec<Measure>,
    /// Columns of the table of groups, which is left out where there are none.
    pub group_measures: Vec<GroupMeasure>,
    /// The seed of everything random.
    pub seed: u64,
    /// The runs: every strategy at every point of the sweep, strategies of a point together.
    pub cases: Vec<Case>,
}

/// One run of a scenario.
#[derive(Clone, Debug)]
pub struct Case {
    /// The strategy under which the run is listed: `equal`, `fair`, `edt` …
    pub strategy: String,
    /// The point of the sweep: which key has which value.
    pub at: Vec<(String, String)>,
    /// The case to run.
    pub setup: Setup,
    /// The paper's values at this point, by measure.
    pub paper: Vec<(Measure, f64)>,
}

impl Case {
    /// Which run it is, for messages: `equal, port.rate = 1gbit, seed 1`.
    pub fn label(&self) -> String {
        let mut label = self.strategy.clone();
        for (key, value) in &self.at {
            label.push_str(&format!(", {key} = {value}"));
        }
        format!("{label}, seed {}", self.setup.seed)
    }
}

impl Scenario {
    /// Reads the scenario `text`, which is called `name` in results, with `overrides`.
    ///
    /// # Errors
    /// The mistake, where it is, and what to write instead.
    pub fn read(name: &str, text: &str, overrides: &[Override]) -> Result<Self, ScenarioError> {
        cases::expand(name, text, overrides)
    }

    /// Whether cores take the lock of a bucket in any run.
    pub(crate) fn has_lock(&self) -> bool {
        let lock = Strategy::Lock.name();
        let takes_it = |port: &Port| {
            port.lock == LockScope::Bucket && port.qdisc.iter().any(|word| word == lock)
        };
        self.cases.iter().any(|case| takes_it(&case.setup.port))
    }

    /// How long cores are busy with what: the least of all runs, and the most. They differ where
    /// the file varies them, or a machine has others for each number of cores.
    pub fn costs(&self) -> (Costs, Costs) {
        let all = self.cases.iter().map(|case| case.setup.cores.costs);
        Costs::range(all).unwrap_or_else(|| (costs::measured(), costs::measured()))
    }

    /// Whether cores take the lock of a qdisc in any run.
    pub(crate) fn has_qdisc_lock(&self) -> bool {
        self.cases.iter().any(|case| case.setup.port.lock == LockScope::Qdisc)
    }

    /// The strategies, in the order of the file.
    pub fn strategies(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for case in &self.cases {
            if !names.contains(&case.strategy.as_str()) {
                names.push(&case.strategy);
            }
        }
        names
    }
}
