//! The results of hosts that send to one: a table for each measure with a line for each number of
//! flows, and JSON.

use super::json::object;
use super::table::empty;
use super::{numbers, titles};
use crate::scenario::{Finished, StarScenario};
use crate::star::Measure;
use serde_json::{Map, Value, json};

/// `finished` as text.
pub fn table(finished: &Finished<'_, StarScenario>) -> String {
    let scenario = finished.scenario;
    let setup = &scenario.setup;
    let mut lines = titles(&scenario.about);
    lines.push(format!(
        "seed {}; {} senders of {} each, links of {}, marks above {} bytes; {} runs of {} after {}",
        setup.seed,
        setup.senders,
        setup.rate,
        setup.line,
        setup.buffer.mark_above.0,
        setup.runs,
        setup.length,
        setup.warmup
    ));
    let tables = Measure::ALL
        .map(|measure| format!("{}:\n\n{}\n", measure.name(), of_measure(finished, measure)));
    format!("{}\n\n{}", lines.join("\n"), tables.join("\n"))
}

/// The paper's value for `strategy`.
fn of_paper(
    finished: &Finished<'_, StarScenario>,
    measure: Measure,
    strategy: &str,
    flows: u32,
) -> Option<f64> {
    let paper = finished.scenario.paper.iter().find(|it| {
        it.measure == measure && it.strategy == strategy && it.flows.is_none_or(|it| it == flows)
    });
    paper.map(|it| it.value)
}

fn of_measure(finished: &Finished<'_, StarScenario>, measure: Measure) -> comfy_table::Table {
    let scenario = finished.scenario;
    let has_paper = |strategy: &str| {
        scenario.flows.iter().any(|flows| of_paper(finished, measure, strategy, *flows).is_some())
    };
    let mut header = vec!["flows a host".to_owned()];
    for strategy in &scenario.strategies {
        if has_paper(strategy) {
            header.push(format!("paper, {strategy}"));
        }
        header.push(strategy.clone());
    }
    let mut table = empty(header, 0);
    for &flows in &scenario.flows {
        let mut cells = vec![flows.to_string()];
        for strategy in &scenario.strategies {
            if has_paper(strategy) {
                let value = of_paper(finished, measure, strategy, flows);
                cells.push(value.map_or_else(String::new, numbers::show_plain));
            }
            let outcome = finished.outcome(flows, strategy);
            let value = outcome.map(|outcome| outcome.value(measure, &scenario.setup));
            cells.push(value.map_or_else(String::new, numbers::show_plain));
        }
        table.add_row(cells);
    }
    table
}

/// `finished` as one object: the scenario, and `rows`, one for each qdisc with each number of
/// flows.
pub fn json(finished: &Finished<'_, StarScenario>) -> Value {
    let scenario = finished.scenario;
    let strategies = scenario.strategies.iter().cycle();
    let rows = scenario.cases.iter().zip(strategies).zip(&finished.outcomes);
    let row =
        |((case, strategy), outcome): ((&crate::star::Case, &String), &crate::star::Outcome)| {
            let name = super::name::<Measure>;
            let values =
                Measure::ALL.map(|it| (name(it), json!(outcome.value(it, &scenario.setup))));
            let paper = Measure::ALL.into_iter().filter_map(|it| {
                Some((name(it), json!(of_paper(finished, it, strategy, case.flows)?)))
            });
            json!({
                "strategy": strategy,
                "qdisc": case.qdisc.join(" "),
                "flows": case.flows,
                "values": Map::from_iter(values),
                "paper": Map::from_iter(paper),
                "packets": outcome.packets,
                "marked": outcome.marked,
                "congestion": outcome.congestion,
                "dropped": outcome.books.dropped,
            })
        };
    object(&scenario.about, scenario.setup.seed, [], rows.map(row))
}
