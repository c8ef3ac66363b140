//! Results for people and programs.
//!
//! The same rows three times: a [`table`](table()), [`json`](json()), and a self-contained
//! [`page`](page()) with plots. Each says that its numbers are simulated, with which seed, and
//! what cores were taken to cost.

pub mod autorate;
mod chart;
pub mod estimator;
pub mod fabric;
pub mod fleet;
mod groups;
mod json;
mod numbers;
mod page;
pub mod star;
mod table;
pub mod tree;

pub use json::json;
pub use page::page;
pub use table::table;

use crate::scenario::{About, Scenario};
use crate::setup::Costs;
use serde::Serialize;
use std::fmt::Debug;

/// The name of `measure`, of a run or of a group, in JSON and in columns.
pub(crate) fn name<M: Serialize + Debug + Copy>(measure: M) -> String {
    match serde_json::to_value(measure) {
        Ok(serde_json::Value::String(name)) => name,
        // A unit variant is serialised as its name.
        _ => format!("{measure:?}"),
    }
}

/// The last part of each key of the sweep, or all of it where two have the same.
fn short_keys(scenario: &Scenario) -> Vec<String> {
    let keys: Vec<&str> = match scenario.cases.first() {
        Some(case) => case.at.iter().map(|(key, _)| key.as_str()).collect(),
        None => Vec::new(),
    };
    let last = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    let unique = |key: &&str| keys.iter().filter(|other| last(other) == last(key)).count() == 1;
    keys.iter().map(|key| if unique(key) { last(key) } else { (*key).to_owned() }).collect()
}

/// The origin of a result: the scenario, and the figure that it reproduces.
fn titles(about: &About) -> Vec<String> {
    let About { name, title, source } = about;
    let first = format!("{name} (simulated): {title}");
    std::iter::once(first).chain(source.iter().map(|source| format!("after {source}"))).collect()
}

/// The head of every form of a result of one shaper.
fn heading(scenario: &Scenario) -> Vec<String> {
    let (least, most) = scenario.costs();
    let cost = |of: fn(Costs) -> f64| numbers::show_costs(of(least), of(most));
    let mut lines = titles(&scenario.about);
    lines.push(format!(
        "seed {}; a core is busy {} ns a step, {} ns a packet, {} ns a drop, {} ns a line read, {} ns a line updated{}",
        scenario.seed,
        cost(|it| it.step_ns),
        cost(|it| it.packet_ns),
        cost(|it| it.drop_ns),
        cost(|it| it.line_read_ns),
        cost(|it| it.line_update_ns),
        handed_over(
            scenario.has_lock().then(|| cost(|it| it.lock_handover_ns)),
            scenario.has_qdisc_lock().then(|| cost(|it| it.qdisc_handover_ns)),
        )
    ));
    lines
}

/// What is said about locks: of a bucket, and of a qdisc; those that are there.
fn handed_over(bucket: Option<String>, qdisc: Option<String>) -> String {
    let bucket = bucket.map(|ns| format!(", {ns} ns a lock handed over"));
    let qdisc = qdisc.map(|ns| format!(", {ns} ns a qdisc's lock handed over"));
    bucket.into_iter().chain(qdisc).collect()
}
