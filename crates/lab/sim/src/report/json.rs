//! The result as one JSON object.

use super::name;
use crate::scenario::{About, Finished};
use serde_json::{Map, Value, json};

/// `finished` as one object: the scenario, and `rows`, one per run, each with its strategy, the
/// point of the sweep by its paths, each measure by its name (`null` if there is no value), the
/// paper's values, each queue's rate in percent of the limit, each traffic group's measures, the
/// costs of a core, and the workers' drops by reason.
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
        row.insert("costs".to_owned(), json!(case.setup.cores.costs));
        let drops = outcome.drops.iter().filter(|(_, packets)| *packets > 0);
        let drops = drops.map(|(reason, packets)| (reason.name().to_owned(), json!(packets)));
        row.insert("drops".to_owned(), Value::Object(drops.collect()));
        Value::Object(row)
    });
    let more = [("measures", json!(scenario.measures))];
    object(&scenario.about, scenario.seed, more, rows)
}

/// A result of any kind: the scenario, the fields in `more` that belong to the kind, and `rows`.
pub(super) fn object<const N: usize>(
    about: &About,
    seed: u64,
    more: [(&str, Value); N],
    rows: impl Iterator<Item = Value>,
) -> Value {
    let mut object = Map::new();
    let mut add = |key: &str, value: Value| object.insert(key.to_owned(), value);
    add("scenario", json!(about.name));
    add("title", json!(about.title));
    add("source", json!(about.source));
    add("simulated", json!(true));
    add("seed", json!(seed));
    for (key, value) in more {
        add(key, value);
    }
    add("rows", rows.collect());
    Value::Object(object)
}
