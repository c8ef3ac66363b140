//! The results of fleets: a table with a line for each case, and JSON.

use super::json::object;
use super::table::empty;
use super::{numbers, titles};
use crate::fleet::{Case, Row};
use crate::scenario::{Finished, FleetScenario};
use serde_json::{Value, json};

/// `finished` as text.
pub fn table(finished: &Finished<'_, FleetScenario>) -> String {
    let setup = &finished.scenario.setup;
    let mut lines = titles(&finished.scenario.about);
    lines.push(format!(
        "limit {}, turns every {}, lease {}, histories of {} of which {} are counted, seed {}",
        setup.limit,
        setup.interval,
        setup.lease,
        setup.length,
        narrows_units::Nanos(setup.length.0 - setup.settle.0),
        setup.seed
    ));
    let header = [
        "case",
        "boxes",
        "histories",
        "above the limit, %",
        "used, %",
        "in the worst",
        "divided, %",
        "wait, ms",
        "longest",
        "messages/s",
        "Mbit/s",
    ];
    let mut header = header.map(str::to_owned).to_vec();
    let has_flows = finished.outcomes.iter().any(|row| row.jain.is_some());
    if has_flows {
        header.splice(7..9, ["Jain of flows".to_owned(), "least".to_owned()]);
    }
    let mut table = empty(header, 1);
    for (case, row) in setup.cases.iter().zip(&finished.outcomes) {
        let above = row.excess_bps as f64 / setup.limit.bits_per_sec() as f64 * 100.0;
        let wait = |number: Option<&u64>| number.map_or_else(String::new, u64::to_string);
        let percent = |part: f64| format!("{:.1}", part * 100.0);
        let fair = |number: f64| format!("{number:.4}");
        let [third, fourth] = match row.jain {
            Some(jain) => jain.map(fair),
            None if has_flows => Default::default(),
            None => [wait(row.waits_ms.get(row.waits_ms.len() / 2)), wait(row.waits_ms.last())],
        };
        table.add_row(vec![
            case.name.clone(),
            case.boxes.to_string(),
            case.histories.to_string(),
            format!("{above:.2}"),
            percent(row.used),
            percent(row.used_worst),
            percent(row.divided),
            third,
            fourth,
            numbers::show_plain(row.messages_s),
            numbers::show_plain(row.mbit_s),
        ]);
    }
    format!("{}\n\n{table}\n", lines.join("\n"))
}

/// `finished` as one object: the scenario, and `rows`, one for each case.
pub fn json(finished: &Finished<'_, FleetScenario>) -> Value {
    let setup = &finished.scenario.setup;
    let row = |(case, row): (&Case, &Row)| {
        json!({
            "case": case.name,
            "boxes": case.boxes,
            "histories": case.histories,
            "excess_bps": row.excess_bps,
            "used": row.used,
            "used_worst": row.used_worst,
            "divided": row.divided,
            "waits_ms": row.waits_ms,
            "jain": row.jain.map(|[mean, _]| mean),
            "jain_least": row.jain.map(|[_, least]| least),
            "messages_per_s": row.messages_s,
            "mbit_per_s": row.mbit_s,
        })
    };
    let rows = setup.cases.iter().zip(&finished.outcomes).map(row);
    object(&finished.scenario.about, setup.seed, [], rows)
}
