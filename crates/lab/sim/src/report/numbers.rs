//! Numbers as people read them.

use crate::measure::{GroupMeasure, Measure};

/// `value` of `measure`, with as many digits as say something.
pub(super) fn show(measure: Measure, value: f64) -> String {
    if !value.is_finite() {
        return "never".to_owned();
    }
    let decimals = match measure {
        Measure::Utilization | Measure::Jain | Measure::JainFlows | Measure::JainHosts => 4,
        Measure::DeviationPercent
        | Measure::Off1ms
        | Measure::OffMost1ms
        | Measure::Off10ms
        | Measure::Off100ms
        | Measure::AllOff100ms
        | Measure::ThreeAtOnce
        | Measure::Window1ms
        | Measure::Window10ms
        | Measure::Window100ms => 3,
        Measure::OvershootBytes | Measure::InducedQueueBytes => 0,
        _ => digits(value),
    };
    written(value, decimals)
}

/// `value` of a `measure` of a group, with as many digits as say something.
pub(super) fn show_of_group(measure: GroupMeasure, value: f64) -> String {
    let decimals = match measure {
        GroupMeasure::JainFlows => 4,
        GroupMeasure::Off1ms | GroupMeasure::Off10ms | GroupMeasure::ThreeAtOnce => 3,
        GroupMeasure::Packets | GroupMeasure::Drops | GroupMeasure::Marks => 0,
        _ => digits(value),
    };
    written(value, decimals)
}

/// `value`, in any unit.
pub(super) fn show_plain(value: f64) -> String {
    written(value, digits(value))
}

/// A cost that is the same everywhere, or from one to another.
pub(super) fn show_costs(least: f64, most: f64) -> String {
    let show = |ns: f64| if ns.fract() == 0.0 { ns.to_string() } else { show_plain(ns) };
    if least == most { show(least) } else { format!("{} to {}", show(least), show(most)) }
}

/// How many decimals make some four digits.
fn digits(value: f64) -> usize {
    match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    }
}

fn written(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    // What rounds to zero has no sign.
    match text.strip_prefix('-') {
        Some(digits) if digits.bytes().all(|byte| matches!(byte, b'0' | b'.')) => digits.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_significant_digits() {
        assert_eq!(show(Measure::Utilization, 0.99998), "1.0000");
        assert_eq!(show(Measure::DeviationPercent, -0.0001), "0.000");
        assert_eq!(show(Measure::InducedQueueBytes, 1514.4), "1514");
        assert_eq!(show(Measure::P99Us, 12_345.6), "12346");
        assert_eq!(show(Measure::P99Us, 12.345), "12.35");
        assert_eq!(show(Measure::SettleUs, f64::INFINITY), "never");
    }

    #[test]
    fn a_cost_that_varies_is_shown_from_the_least_to_the_most() {
        assert_eq!(show_costs(1300.0, 1300.0), "1300");
        assert_eq!(show_costs(112.5, 675.0), "112.5 to 675");
    }
}
