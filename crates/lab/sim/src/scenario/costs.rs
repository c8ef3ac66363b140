//! How long cores are busy with what: the cost model, as our own benchmarks measured it, and what
//! lines cost on other machines.

use super::machine::Machine;
use crate::setup::Costs;

/// The file, with the command behind each value.
const TEXT: &str = include_str!("../../cost-model.toml");

/// The most that lines may cost in relation to the measurement.
const FACTOR_MOST: f64 = 1_000.0;

/// The measured costs.
pub(super) fn measured() -> Costs {
    // The text is part of the program, and a test reads it.
    toml::from_str(TEXT).expect("cost-model.toml is well-formed")
}

/// The measured costs, with those of lines that `cores` cores of `machine` share, if one is named.
///
/// # Errors
/// There is no such machine, or its file is none; and what to write instead.
pub(super) fn on(machine: Option<&str>, cores: usize) -> Result<Costs, String> {
    let costs = |machine: &str| Ok(Machine::named(machine, measured())?.costs(cores));
    machine.map_or_else(|| Ok(measured()), costs)
}

/// `costs`, where all that cores do with shared lines takes `factor` times as long, if it is given.
///
/// # Errors
/// It is no factor.
pub(super) fn times(costs: Costs, factor: Option<f64>) -> Result<Costs, String> {
    let factor = factor.unwrap_or(1.0);
    if !(0.0..=FACTOR_MOST).contains(&factor) {
        return Err(format!("{factor} is no factor: write a number from 0 to {FACTOR_MOST}"));
    }
    Ok(Costs {
        line_read_ns: costs.line_read_ns * factor,
        line_update_ns: costs.line_update_ns * factor,
        lock_handover_ns: costs.lock_handover_ns * factor,
        qdisc_handover_ns: costs.qdisc_handover_ns * factor,
        ..costs
    })
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

    #[test]
    fn a_factor_concerns_what_cores_share() {
        let (costs, dear) = (measured(), times(measured(), Some(3.0)).unwrap());
        assert_eq!((dear.packet_ns, dear.step_ns), (costs.packet_ns, costs.step_ns));
        assert_eq!(dear.line_read_ns, 3.0 * costs.line_read_ns);
        assert_eq!(dear.qdisc_handover_ns, 3.0 * costs.qdisc_handover_ns);
        assert_eq!(times(costs, None), Ok(costs));
        for factor in [-1.0, f64::NAN, 1_001.0] {
            assert!(times(costs, Some(factor)).unwrap_err().contains("write a number"));
        }
    }
}
