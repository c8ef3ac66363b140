//! The results of estimates: a table with a line for each host and phase, and JSON.

use super::json::object;
use super::table::empty;
use super::{numbers, titles};
use crate::estimator::{Case, Near, Row, Shaping};
use crate::scenario::{EstimatorScenario, Finished};
use narrows_units::Nanos;
use serde_json::{Value, json};

/// `finished` as text.
pub fn table(finished: &Finished<'_, EstimatorScenario>) -> String {
    let scenario = finished.scenario;
    let setup = &scenario.setup;
    let mut lines = titles(&scenario.about);
    lines.push(format!(
        "seed {}; the estimate is read every {}, {} after a phase began and later; what leaves is measured over {}",
        setup.seed, setup.every, setup.settle, setup.window
    ));
    let tables = setup
        .cases
        .iter()
        .zip(&finished.outcomes)
        .map(|(case, rows)| format!("{}:\n\n{}\n", case.name, of_case(case, rows)));
    let tables: Vec<String> = tables.collect();
    format!("{}\n\n{}", lines.join("\n"), tables.join("\n"))
}

fn of_case(case: &Case, rows: &[Row]) -> comfy_table::Table {
    let mut header = vec!["shaped", "to", "Gbit/s", "estimate", "least", "most"];
    header.extend(["error, %", "at worst", "wheels off"]);
    if case.paper.is_some() {
        header.push("paper, us");
    }
    header.extend(["10 % near, us", "5 % near, us"]);
    let mut table = empty(header.into_iter().map(str::to_owned).collect(), 1);
    for row in rows {
        let figures =
            [row.measured, row.mean, row.least, row.most, row.mean_error, row.largest_error];
        let mut cells = vec![shaped(case, row.phase), format!("host {}", row.host)];
        cells.extend(figures.map(numbers::show_plain));
        cells.push(row.wheels_off.to_string());
        cells.extend(case.paper.map(|paper| micros(Some(paper))));
        let Near { ten, five } = row.near;
        cells.extend([micros(ten), micros(five)]);
        table.add_row(cells);
    }
    table
}

/// How packets of `phase` are shaped.
fn shaped(case: &Case, phase: usize) -> String {
    match case.phases.get(phase).map(|phase| &phase.shaping) {
        Some(Shaping::Together(rate)) => format!("{}. together, {rate}", phase + 1),
        _ => format!("{}. each", phase + 1),
    }
}

fn micros(time: Option<Nanos>) -> String {
    time.map_or_else(|| "never".to_owned(), |time| numbers::show_plain(time.0 as f64 / 1000.0))
}

/// `finished` as one object: the scenario, and `rows`, one for each host and phase of each case.
pub fn json(finished: &Finished<'_, EstimatorScenario>) -> Value {
    let scenario = finished.scenario;
    let in_us = |time: Option<Nanos>| time.map(|time| time.0 as f64 / 1000.0);
    let of_case = |(case, rows): (&Case, &Vec<Row>)| {
        let name = case.name.clone();
        let paper = in_us(case.paper);
        let row = move |row: &Row| {
            json!({
                "case": name,
                "phase": row.phase + 1,
                "host": row.host,
                "measured_gbit": row.measured,
                "estimate_gbit": row.mean,
                "least_gbit": row.least,
                "most_gbit": row.most,
                "mean_error_percent": row.mean_error,
                "largest_error_percent": row.largest_error,
                "wheels_off": row.wheels_off,
                "paper_us": paper,
                "within_10_percent_us": in_us(row.near.ten),
                "within_5_percent_us": in_us(row.near.five),
            })
        };
        rows.iter().map(row).collect::<Vec<_>>()
    };
    let rows = scenario.setup.cases.iter().zip(&finished.outcomes).flat_map(of_case);
    object(&scenario.about, scenario.setup.seed, [], rows)
}
