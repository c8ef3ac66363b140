//! The cost model: what our own benchmarks measured, built in.

use crate::setup::Costs;

/// The file, with the command behind each value.
const TEXT: &str = include_str!("../../cost-model.toml");

/// The measured costs.
pub(super) fn measured() -> Costs {
    // The text is part of the program, and a test reads it.
    toml::from_str(TEXT).expect("cost-model.toml is well-formed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_model_is_complete_and_positive() {
        for cost in measured().all() {
            assert!(cost > 0.0 && cost.is_finite());
        }
    }
}
