//! The result as one JSON object.

use super::name;
use crate::scenario::Finished;
use serde_json::{Map, Value, json};

/// `finished` as one object: what was run, and `rows`, one a run, each with its strategy, the
/// point of the sweep by its paths, each measure by its name (`null` where it never came about),
/// what the paper has, by queue what left in per cent of the limit, by group of the traffic its
/// measures, and what workers dropped by reason.
pub fn json(finished: &Finished<'_>) -> Value {
    let scenario = finished.scenario;
    let rows = finished.rows().map(|(case, outcome)| {
        let mut row = Map::new();
        row.insert("strategy".to_owned(), json!(case.strategy));
        row.insert("seed".to_owned(), json!(case.setup.seed));
        for (key, value) in &case.at {
            row.insert(key.clone(), json!(value));
        }
        for (measure, value) in &outcome.measures {
            row.insert(name(*measure), json!(value));
        }
        let paper = case.paper.iter().map(|(measure, value)| (name(*measure), json!(value)));
        row.insert("paper".to_owned(), Value::Object(paper.collect()));
        row.insert("queues".to_owned(), json!(outcome.queue_percent));
        let groups = outcome.groups.iter().map(|group| {
            let measures = group.measures.iter().map(|(it, value)| (name(*it), json!(value)));
            (group.name.clone(), Value::Object(measures.collect()))
        });
        row.insert("groups".to_owned(), Value::Object(groups.collect()));
        let drops = outcome.drops.iter().filter(|(_, packets)| *packets > 0);
        let drops = drops.map(|(reason, packets)| (reason.name().to_owned(), json!(packets)));
        row.insert("drops".to_owned(), Value::Object(drops.collect()));
        Value::Object(row)
    });
    let rows: Vec<Value> = rows.collect();
    json!({
        "scenario": scenario.name,
        "title": scenario.title,
        "source": scenario.source,
        "simulated": true,
        "seed": scenario.seed,
        "cost_model": scenario.costs,
        "measures": scenario.measures,
        "rows": rows,
    })
}
