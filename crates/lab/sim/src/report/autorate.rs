//! The results of lines whose rate changes: a table with a line for each run, and JSON.

use super::json::object;
use super::table::empty;
use super::titles;
use crate::autorate::{Case, Row};
use crate::scenario::{AutorateScenario, Finished};
use narrows_autorate::Side;
use serde_json::{Value, json};

/// Where the limit is, for people.
fn side(side: Side) -> &'static str {
    match side {
        Side::Before => "upload",
        Side::Behind => "download",
    }
}

/// `finished` as text.
pub fn table(finished: &Finished<'_, AutorateScenario>) -> String {
    let setup = &finished.scenario.setup;
    let mut lines = titles(&finished.scenario.about);
    lines.push(format!(
        "from {} to {}, {} at first; {} TCP flows, round trip {}, line's queue {}, turns of {}; {} \
         of which {} count, seed {}",
        setup.least,
        setup.most,
        setup.usual,
        setup.flows,
        setup.rtt,
        setup.buffer,
        setup.turn,
        setup.length,
        setup.length - setup.settle,
        setup.seed
    ));
    let header = [
        "line",
        "direction",
        "rate",
        "used, %",
        "added p50, ms",
        "p99",
        "in the second after a fall: p50, ms",
        "p99",
    ];
    let mut table = empty(header.map(str::to_owned).to_vec(), 3);
    for (case, row) in &finished.outcomes {
        let ms = |ms: Option<f64>| ms.map_or_else(String::new, |ms| format!("{ms:.1}"));
        table.add_row(vec![
            setup.lines[case.line].name.clone(),
            side(case.side).to_owned(),
            case.rules.name().to_owned(),
            format!("{:.1}", row.used * 100.0),
            ms(Some(row.p50_ms)),
            ms(Some(row.p99_ms)),
            ms(row.fall_p50_ms),
            ms(row.fall_p99_ms),
        ]);
    }
    format!("{}\n\n{table}\n", lines.join("\n"))
}

/// `finished` as one object: the scenario, and `rows`, one for each run.
pub fn json(finished: &Finished<'_, AutorateScenario>) -> Value {
    let setup = &finished.scenario.setup;
    let row = |(case, row): &(Case, Row)| {
        json!({
            "line": setup.lines[case.line].name,
            "direction": side(case.side),
            "rate": case.rules.name(),
            "used": row.used,
            "added_p50_ms": row.p50_ms,
            "added_p99_ms": row.p99_ms,
            "after_fall_p50_ms": row.fall_p50_ms,
            "after_fall_p99_ms": row.fall_p99_ms,
            "changes_per_s": row.changes_s,
        })
    };
    object(&finished.scenario.about, setup.seed, [], finished.outcomes.iter().map(row))
}
