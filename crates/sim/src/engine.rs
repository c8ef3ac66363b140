//! Cores, shaper and next hop in virtual time.

use crate::measure::Outcome;
use crate::setup::Setup;

/// Why a run cannot be.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The words for the qdisc are refused.
    #[error("{0}")]
    Qdisc(String),
}

/// Runs `setup`. `progress` is told, now and then, which part (0 to 1) is done.
///
/// # Errors
/// Where the qdisc's words are refused.
pub fn run(_setup: &Setup, _progress: &mut dyn FnMut(f64)) -> Result<Outcome, SimError> {
    todo!()
}
