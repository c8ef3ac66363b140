//! Scenarios: files that a user can copy and edit.

use crate::measure::Measure;
use crate::setup::Setup;

/// A scenario, read and complete.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The name of its file, without the ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The figure that it reproduces, as `mq-cake, IFIP, Fig. 4`.
    pub source: Option<String>,
    /// Columns.
    pub measures: Vec<Measure>,
    /// The runs: every strategy at every point of the sweep.
    pub cases: Vec<Case>,
}

/// One run of a scenario.
#[derive(Clone, Debug)]
pub struct Case {
    /// The strategy under which the run is listed: `equal`, `fair`, `edt` …
    pub strategy: String,
    /// The point of the sweep: which key has which value.
    pub at: Vec<(String, String)>,
    /// What to run.
    pub setup: Setup,
    /// What the paper has at this point, by measure.
    pub paper: Vec<(Measure, f64)>,
}
