//! Runs scenarios and reads their results.

use crate::scenarios;
use narrows_sim::measure::{GroupMeasure, Measure, Outcome};
use narrows_sim::scenario::Case;
use narrows_sim::setup::Setup;

/// One run.
pub(crate) struct Row {
    label: String,
    setup: Setup,
    outcome: Outcome,
}

/// Every point of the scenario `name` with `overrides` under `strategy`.
pub(crate) fn rows(name: &str, strategy: &str, overrides: &[&str]) -> Vec<Row> {
    let rows = scenarios::rows(name, strategy, overrides).into_iter();
    let row = |(case, outcome): (Case, Outcome)| Row {
        label: format!("{name}: {}", case.label()),
        setup: case.setup,
        outcome,
    };
    let rows: Vec<Row> = rows.map(row).collect();
    for Row { label, outcome, .. } in &rows {
        // Seen only where a test fails.
        println!("{label}: {:?}", outcome.measures);
        outcome.groups.iter().for_each(|group| println!("  {}: {:?}", group.name, group.measures));
        println!("  drops: {:?}, queues: {:?}", outcome.drops, outcome.queue_percent);
    }
    rows
}

/// The only point.
#[track_caller]
pub(crate) fn row(name: &str, strategy: &str, overrides: &[&str]) -> Row {
    let mut rows = rows(name, strategy, overrides);
    assert_eq!(rows.len(), 1, "{name} has one point");
    rows.remove(0)
}

impl Row {
    /// A measure of the run.
    #[track_caller]
    pub(crate) fn get(&self, measure: Measure) -> f64 {
        let value = self.outcome.measures.get(&measure);
        *value.unwrap_or_else(|| panic!("{}: no {measure:?}", self.label))
    }

    /// A measure of the group `name`.
    #[track_caller]
    pub(crate) fn of(&self, name: &str, measure: GroupMeasure) -> f64 {
        let group = self.outcome.groups.iter().find(|group| group.name == name);
        let value = group.and_then(|group| group.measures.get(&measure));
        *value.unwrap_or_else(|| panic!("{}: no {measure:?} of {name}", self.label))
    }

    /// The group `name`'s part of the total.
    #[track_caller]
    pub(crate) fn part(&self, name: &str) -> f64 {
        self.of(name, GroupMeasure::MbitPerSec) / self.get(Measure::MbitPerSec)
    }

    /// The rate of each flow of the group `name`, relative to their mean.
    #[track_caller]
    pub(crate) fn flows(&self, name: &str) -> Vec<f64> {
        let mut flows = self.outcome.flow_bytes.iter().map(|bytes| *bytes as f64);
        for group in &self.setup.traffic {
            let own: Vec<f64> = flows.by_ref().take(group.flows as usize).collect();
            if group.name == name {
                let mean = own.iter().sum::<f64>() / own.len() as f64;
                return own.iter().map(|bytes| bytes / mean).collect();
            }
        }
        panic!("{}: no group {name}", self.label)
    }

    /// Records over time, by milliseconds.
    #[track_caller]
    pub(crate) fn series(&self, name: &str) -> &[(f64, f64)] {
        let series = self.outcome.series.iter().find(|series| series.name == name);
        &series.unwrap_or_else(|| panic!("{}: no {name}", self.label)).points
    }

    /// The records of `name` between two times in milliseconds.
    #[track_caller]
    pub(crate) fn between(&self, name: &str, from: f64, to: f64) -> Vec<f64> {
        let points = self.series(name).iter();
        points.filter(|(at, _)| (from..to).contains(at)).map(|(_, value)| *value).collect()
    }

    /// Fails unless `value`, which is called `what`, is within `range`.
    #[track_caller]
    pub(crate) fn within(&self, what: &str, value: f64, range: std::ops::RangeInclusive<f64>) {
        assert!(range.contains(&value), "{}: {what} is {value}, not in {range:?}", self.label);
    }
}
