//! The table of groups: for each point of the sweep a line for each group of the traffic, and for
//! each measure of it what each strategy did.

use super::table::{empty, points};
use super::{name, numbers, short_keys};
use crate::scenario::Finished;
use comfy_table::Table;

/// The table, where the scenario names measures of groups.
pub(super) fn table(finished: &Finished<'_>) -> Option<Table> {
    let scenario = finished.scenario;
    if scenario.group_measures.is_empty() {
        return None;
    }
    let strategies = scenario.strategies();
    let keys = short_keys(scenario);
    let labels = keys.len() + 1;
    let mut header: Vec<String> = keys.into_iter().map(|key| format!("\n{key}")).collect();
    header.push("\ngroup".to_owned());
    for measure in &scenario.group_measures {
        for (number, strategy) in strategies.iter().enumerate() {
            // The name of the measure is above its first column.
            let above = if number == 0 { name(*measure) } else { String::new() };
            header.push(format!("{above}\n{strategy}"));
        }
    }
    let mut table = empty(header, labels);
    for rows in points(finished) {
        let Some((case, first)) = rows.first() else { continue };
        for (number, group) in first.groups.iter().enumerate() {
            let mut line: Vec<String> = case.at.iter().map(|(_, value)| value.clone()).collect();
            line.push(group.name.clone());
            for measure in &scenario.group_measures {
                for strategy in &strategies {
                    let row = rows.iter().find(|(case, _)| case.strategy == *strategy);
                    let value = row
                        .and_then(|(_, outcome)| outcome.groups.get(number)?.measures.get(measure));
                    line.push(match value {
                        Some(value) => numbers::show_of_group(*measure, *value),
                        None => "-".to_owned(),
                    });
                }
            }
            table.add_row(line);
        }
    }
    Some(table)
}
