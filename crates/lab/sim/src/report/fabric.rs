//! The results of a network of hosts: a table with flow completion times and batch sizes, the same
//! relative to the first structure, and JSON.

use super::json::object;
use super::table::empty;
use super::{numbers, titles};
use crate::fabric::{Class, Late, Outcome, Pattern};
use crate::scenario::{FabricPaper, FabricScenario, Finished};
use serde_json::{Map, Value, json};

/// The subject of a table's row.
#[derive(Clone, Copy)]
enum Line {
    Class(Class),
    All,
    Batch,
}

impl Line {
    fn all() -> impl Iterator<Item = Self> {
        Class::ALL.into_iter().map(Self::Class).chain([Self::All, Self::Batch])
    }

    fn name(self) -> &'static str {
        match self {
            Self::Class(class) => class.name(),
            Self::All => "all",
            Self::Batch => "packets a batch",
        }
    }

    /// Microseconds, or packets; none if there was nothing.
    fn value(self, outcome: &Outcome, pattern: Pattern) -> Option<f64> {
        match self {
            Self::Class(class) => outcome.completion(pattern, class).mean_us(),
            Self::All => outcome.all(pattern).mean_us(),
            Self::Batch => outcome.batches(pattern).mean(),
        }
    }

    /// How many flows it is of.
    fn flows(self, outcome: &Outcome, pattern: Pattern) -> String {
        match self {
            Self::Class(class) => outcome.completion(pattern, class).flows.to_string(),
            Self::All => outcome.all(pattern).flows.to_string(),
            Self::Batch => String::new(),
        }
    }
}

fn name(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Fanout => "fan-out",
        Pattern::OneToOne => "one-to-one",
    }
}

fn written(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), numbers::show_plain)
}

/// `finished` as text.
pub fn table(finished: &Finished<'_, FabricScenario>) -> String {
    let scenario = finished.scenario;
    let mut lines = titles(&scenario.about);
    let setup = &scenario.setup;
    lines.push(format!(
        "seed {}; {} hosts, {} flows, load {:.0} %; a packet whose time has come leaves {}",
        setup.seed,
        setup.topology.hosts(),
        setup.traffic.flows,
        setup.traffic.load * 100.0,
        match setup.late {
            Late::NextSlot => "with the next slot",
            Late::AtOnce => "at once",
        }
    ));
    let first = &scenario.structures[0];
    format!(
        "{}\n\nMean completion time in us:\n\n{}\n\nRelative to {first}:\n\n{}\n",
        lines.join("\n"),
        absolute(finished),
        relative(finished)
    )
}

/// Whether there was nothing that `line` could be about.
fn is_empty(finished: &Finished<'_, FabricScenario>, line: Line, pattern: Pattern) -> bool {
    finished.outcomes.iter().all(|outcome| line.value(outcome, pattern).is_none())
}

fn absolute(finished: &Finished<'_, FabricScenario>) -> comfy_table::Table {
    let structures = finished.scenario.structures.iter().map(ToString::to_string);
    let header = ["traffic", "flow size", "flows"].map(str::to_owned).into_iter();
    let mut table = empty(header.chain(structures).collect(), 2);
    for pattern in Pattern::ALL {
        for line in Line::all() {
            if is_empty(finished, line, pattern) {
                continue;
            }
            let flows = finished.outcomes.first().map(|it| line.flows(it, pattern));
            let labels = [name(pattern).to_owned(), line.name().to_owned()];
            let cells = finished.outcomes.iter().map(|it| written(line.value(it, pattern)));
            table.add_row(labels.into_iter().chain(flows).chain(cells));
        }
    }
    let mut of_all = |what: &str, value: fn(&Outcome) -> String| {
        let labels = ["all", what, ""].map(str::to_owned);
        table.add_row(labels.into_iter().chain(finished.outcomes.iter().map(value)));
    };
    of_all("packets marked, %", |it| numbers::show_plain(it.marked_percent()));
    of_all("packets dropped", |it| it.books.dropped.to_string());
    table
}

fn relative(finished: &Finished<'_, FabricScenario>) -> comfy_table::Table {
    let scenario = finished.scenario;
    let mut header = vec!["traffic".to_owned(), "flow size".to_owned()];
    let mut columns: Vec<Box<dyn Fn(Line, Pattern) -> String>> = Vec::new();
    for (structure, outcome) in scenario.structures.iter().zip(&finished.outcomes).skip(1) {
        let of_paper: Vec<&FabricPaper> =
            scenario.paper.iter().filter(|paper| paper.structure == *structure).collect();
        if !of_paper.is_empty() {
            header.push(format!("paper, {structure}"));
            columns.push(Box::new(move |line, pattern| {
                let found = of_paper.iter().find(|it| it.pattern == pattern);
                let found = found.filter(|_| matches!(line, Line::Batch));
                found.map_or_else(String::new, |paper| numbers::show_plain(paper.batch))
            }));
        }
        header.push(structure.to_string());
        let first = &finished.outcomes[0];
        columns.push(Box::new(move |line, pattern| {
            let base = line.value(first, pattern);
            written(line.value(outcome, pattern).zip(base).map(|(value, base)| value / base))
        }));
    }
    let mut table = empty(header, 2);
    for pattern in Pattern::ALL {
        for line in Line::all() {
            if is_empty(finished, line, pattern) {
                continue;
            }
            let labels = [name(pattern).to_owned(), line.name().to_owned()];
            let cells = columns.iter().map(|column| column(line, pattern));
            table.add_row(labels.into_iter().chain(cells));
        }
    }
    table
}

/// `finished` as one object: the scenario, and `rows`, one for each structure.
pub fn json(finished: &Finished<'_, FabricScenario>) -> Value {
    let scenario = finished.scenario;
    let rows = scenario.structures.iter().zip(&finished.outcomes).map(|(structure, outcome)| {
        let patterns = Pattern::ALL.map(|pattern| {
            let classes = Class::ALL.map(|class| {
                let of_class = outcome.completion(pattern, class);
                json!({ "flow_size": class.name(), "flows": of_class.flows, "mean_us": of_class.mean_us() })
            });
            let all = outcome.all(pattern);
            let batches = outcome.batches(pattern);
            let value = json!({
                "classes": classes,
                "flows": all.flows,
                "mean_us": all.mean_us(),
                "packets": batches.packets,
                "batches": batches.batches,
                "packets_per_batch": batches.mean(),
            });
            (name(pattern).to_owned(), value)
        });
        let books = outcome.books;
        json!({
            "structure": structure.to_string(),
            "patterns": Map::from_iter(patterns),
            "sent": books.sent,
            "delivered": books.delivered,
            "dropped": books.dropped,
            "marked": outcome.marked,
            "events": outcome.events,
            "end_us": outcome.end.0 as f64 / 1000.0,
        })
    });
    let paper = scenario.paper.iter().map(|paper| {
        let FabricPaper { structure, pattern, batch } = paper;
        json!({ "structure": structure.to_string(), "pattern": name(*pattern), "relative_batch": batch })
    });
    let paper: Vec<Value> = paper.collect();
    object(
        &scenario.about,
        scenario.setup.seed,
        [("flows", json!(scenario.setup.traffic.flows)), ("paper", json!(paper))],
        rows,
    )
}
