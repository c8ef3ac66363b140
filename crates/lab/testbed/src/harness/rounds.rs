//! Measurements in rounds: everything that is compared takes its turn in each round, so that other
//! work on the machine affects all systems alike.

use std::path::PathBuf;
use std::time::Duration;

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// The `narrows` program.
    pub program: PathBuf,
    /// How long each turn is measured.
    pub window: Duration,
    /// How often everything has its turns, at least once.
    pub rounds: u32,
}
