//! What came of a tree: a line for each application in each phase, or for each load of cores; and
//! JSON.

use super::json::object;
use super::table::empty;
use super::{handed_over, numbers, titles};
use crate::scenario::{Capacity, CapacityPoint, Finished, TreeOutcome, TreeScenario};
use crate::setup::Costs;
use crate::tree::Outcome;
use serde_json::{Map, Value, json};

/// `finished` as text.
pub fn table(finished: &Finished<'_, TreeScenario>) -> String {
    let scenario = finished.scenario;
    let setup = &scenario.setup;
    let mut lines = titles(&scenario.about);
    let table = match &scenario.capacity {
        Some(capacity) => {
            let (least, most) = capacity.costs();
            let cost = |of: fn(Costs) -> f64| numbers::show_costs(of(least), of(most));
            lines.push(format!(
                "a core is busy {} ns a packet, {} ns a line read, {} ns a line updated{}; millions of packets a second",
                cost(|it| it.packet_ns),
                cost(|it| it.line_read_ns),
                cost(|it| it.line_update_ns),
                handed_over(scenario.has_lock().then(|| cost(|it| it.lock_handover_ns)), None)
            ));
            of_cores(finished, capacity)
        }
        None => {
            lines.push(format!(
                "seed {}; Gbit/s, {} after a phase began and later; round trips of {}",
                setup.seed, setup.settle, setup.round_trip
            ));
            lines.push(lines_of(scenario));
            of_phases(finished)
        }
    };
    format!("{}\n\n{table}\n", lines.join("\n"))
}

/// Which line each scheduler has.
fn lines_of(scenario: &TreeScenario) -> String {
    let line = scenario.setup.line;
    let others = scenario.schedulers.iter().filter_map(|it| Some((it, it.line?)));
    let others: Vec<String> = others.map(|(it, line)| format!("{} {line}", it.name)).collect();
    let all = std::iter::once(format!("a line of {line}")).chain(others);
    all.collect::<Vec<_>>().join("; ")
}

/// By scheduler.
fn outcomes<'a>(finished: &'a Finished<'_, TreeScenario>) -> Vec<&'a Outcome> {
    let rates = |it: &'a TreeOutcome| match it {
        TreeOutcome::Rates(outcome) => Some(outcome),
        TreeOutcome::Mpps(_) => None,
    };
    finished.outcomes.iter().filter_map(rates).collect()
}

fn names<'a>(finished: &'a Finished<'_, TreeScenario>) -> impl Iterator<Item = String> + 'a {
    finished.scenario.schedulers.iter().map(|it| it.name.clone())
}

fn of_phases(finished: &Finished<'_, TreeScenario>) -> comfy_table::Table {
    let scenario = finished.scenario;
    let (setup, outcomes) = (&scenario.setup, outcomes(finished));
    let paper = |phase: usize, app: &str| {
        let it = scenario.paper.iter().find(|it| it.phase == phase + 1 && it.app == app);
        it.map_or_else(String::new, |it| numbers::show_plain(it.gbit))
    };
    let header = ["phase", "application", "paper"].map(str::to_owned);
    let mut table = empty(header.into_iter().chain(names(finished)).collect(), 1);
    for (number, phase) in setup.phases.iter().enumerate() {
        for (app, it) in setup.apps.iter().enumerate().filter(|(app, _)| phase.sends[*app]) {
            let rate = |it: &&Outcome| numbers::show_plain(it.rate(setup, number, app));
            let mut cells = vec![(number + 1).to_string(), it.name.clone()];
            cells.push(paper(number, &it.name));
            cells.extend(outcomes.iter().map(rate));
            table.add_row(cells);
        }
        let sum = |it: &&Outcome| numbers::show_plain(it.sum(setup, number));
        let mut cells = vec![(number + 1).to_string(), "all".to_owned(), paper(number, "all")];
        cells.extend(outcomes.iter().map(sum));
        table.add_row(cells);
    }
    let mut last = |name: String, value: &dyn Fn(&Outcome) -> f64| {
        let values = outcomes.iter().map(|it| numbers::show_plain(value(it)));
        table.add_row(["".to_owned(), name, String::new()].into_iter().chain(values));
    };
    last(format!("most in {}", setup.window), &|it| it.most(setup));
    last("lost, %".to_owned(), &|it| it.books.lost_percent());
    table
}

/// The systems of the paper, in the order in which they come.
fn systems(capacity: &Capacity) -> Vec<&str> {
    let mut systems: Vec<&str> = Vec::new();
    for it in &capacity.paper {
        if !systems.contains(&it.system.as_str()) {
            systems.push(&it.system);
        }
    }
    systems
}

/// The paper's value for `system`.
fn of_paper(capacity: &Capacity, system: &str, size: u64, cores: usize) -> Option<f64> {
    let is_it = |it: &&crate::scenario::CapacityPaper| {
        it.system == system && it.size == size && it.cores.is_none_or(|it| it == cores)
    };
    capacity.paper.iter().find(is_it).map(|it| it.mpps)
}

fn of_cores(finished: &Finished<'_, TreeScenario>, capacity: &Capacity) -> comfy_table::Table {
    let systems = systems(capacity);
    let varies = capacity.points.iter().any(|it| it.line_factor != 1.0);
    let mut header = vec!["bytes".to_owned(), "cores".to_owned()];
    if varies {
        header.insert(1, "a line costs".to_owned());
    }
    header.extend(systems.iter().map(|system| format!("paper, {system}")));
    header.extend(names(finished));
    let mut table = empty(header, 1);
    let rows = finished.outcomes.chunks(finished.scenario.schedulers.len());
    for (CapacityPoint { load, line_factor, .. }, outcomes) in capacity.points.iter().zip(rows) {
        let mut cells = vec![load.frame.0.to_string(), load.cores.to_string()];
        if varies {
            cells.insert(1, format!("{line_factor} times"));
        }
        cells.extend(systems.iter().map(|system| {
            let mpps = of_paper(capacity, system, load.frame.0, load.cores);
            mpps.map_or_else(String::new, numbers::show_plain)
        }));
        cells.extend(outcomes.iter().filter_map(|it| match it {
            TreeOutcome::Mpps(mpps) => Some(numbers::show_plain(*mpps)),
            TreeOutcome::Rates(_) => None,
        }));
        table.add_row(cells);
    }
    table
}

/// `finished` as one object: the scenario, and `rows`, one per run.
pub fn json(finished: &Finished<'_, TreeScenario>) -> Value {
    let scenario = finished.scenario;
    let schedulers = &scenario.schedulers;
    let row = |(number, outcome): (usize, &TreeOutcome)| {
        let scheduler = &schedulers[number % schedulers.len()];
        match outcome {
            TreeOutcome::Rates(outcome) => of_run(scenario, &scheduler.name, outcome),
            TreeOutcome::Mpps(mpps) => {
                let points = scenario.capacity.as_ref().map(|it| &it.points);
                let point = points.and_then(|points| points.get(number / schedulers.len()));
                let load = point.map(|point| &point.load);
                json!({
                    "strategy": scheduler.name,
                    "bytes": load.map(|load| load.frame.0),
                    "cores": load.map(|load| load.cores),
                    "line_factor": point.map(|point| point.line_factor),
                    "costs": point.map(|point| point.costs),
                    "mpps": mpps,
                })
            }
        }
    };
    object(&scenario.about, scenario.setup.seed, [], finished.outcomes.iter().enumerate().map(row))
}

fn of_run(scenario: &TreeScenario, name: &str, outcome: &Outcome) -> Value {
    let setup = &scenario.setup;
    let phase = |phase: usize| {
        let rates = setup.apps.iter().enumerate();
        let rates =
            rates.map(|(app, it)| (it.name.clone(), json!(outcome.rate(setup, phase, app))));
        Value::Object(Map::from_iter(rates))
    };
    json!({
        "strategy": name,
        "gbit": (0..setup.phases.len()).map(phase).collect::<Vec<_>>(),
        "most_gbit": outcome.most(setup),
        "lost_percent": outcome.books.lost_percent(),
        "dropped": outcome.books.dropped,
        "overflowed": outcome.books.overflowed,
        "delivered": outcome.books.delivered,
    })
}
