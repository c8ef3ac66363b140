//! The table: a line for each point of the sweep; for each measure what the paper has and what
//! each strategy did.
//!
//! Measures that do not fit beside one another follow below, each table with the points
//! again. A scenario without a sweep has its measures as lines. Groups of the traffic follow where
//! the scenario names measures of them.

use super::{groups, heading, name, numbers, short_keys};
use crate::measure::{Measure, Outcome};
use crate::scenario::{Case, Finished};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use narrows_packet::DropReason;

/// As wide as tables get, in columns of text.
const WIDTH: usize = 110;

/// A column of a measure.
#[derive(Clone, Copy)]
enum Column<'a> {
    /// The paper's value for a strategy.
    Paper(&'a str),
    /// A strategy's result.
    Strategy(&'a str),
}

/// `finished` as text.
pub fn table(finished: &Finished<'_>) -> String {
    let mut text = heading(finished.scenario).join("\n");
    text.push_str("\n\n");
    let tables = match swept(finished) {
        true => by_point(finished),
        false => vec![by_measure(finished)],
    };
    let tables = tables.into_iter().chain(groups::table(finished));
    let tables: Vec<String> = tables.map(|table| table.to_string()).collect();
    text.push_str(&tables.join("\n\n"));
    text.push('\n');
    let notes: Vec<String> = finished.rows().filter_map(out_of_frames).collect();
    if !notes.is_empty() {
        text.push_str(&format!("\n{}\n", notes.join("\n")));
    }
    text
}

/// A note if it was the memory of the simulated workers that bounded a queue, and not its limit.
fn out_of_frames((case, outcome): (&Case, &Outcome)) -> Option<String> {
    let lost = outcome.drops.get(DropReason::NoFrame);
    let at = case.at.iter().map(|(key, value)| format!(", {key} {value}"));
    let run = format!("{}{}", case.strategy, at.collect::<String>());
    (lost != 0).then(|| format!("{run}: {lost} packets found no frame at their worker"))
}

fn swept(finished: &Finished<'_>) -> bool {
    finished.scenario.cases.first().is_some_and(|case| !case.at.is_empty())
}

/// The columns of `measure`: the paper only where it has something.
fn columns<'a>(finished: &'a Finished<'_>, measure: Measure) -> Vec<Column<'a>> {
    let scenario = finished.scenario;
    let in_paper = |strategy: &str| {
        let has = |case: &Case| {
            case.strategy == strategy && case.paper.iter().any(|(it, _)| *it == measure)
        };
        scenario.cases.iter().any(has)
    };
    let mut columns = Vec::new();
    for strategy in scenario.strategies() {
        if in_paper(strategy) {
            columns.push(Column::Paper(strategy));
        }
        columns.push(Column::Strategy(strategy));
    }
    columns
}

impl Column<'_> {
    fn title(self) -> String {
        match self {
            // mq-cake is `equal`.
            Self::Paper("equal") => "paper".to_owned(),
            Self::Paper(strategy) => format!("paper, {strategy}"),
            Self::Strategy(strategy) => strategy.to_owned(),
        }
    }

    fn cell(self, measure: Measure, rows: &[(&Case, &Outcome)]) -> String {
        let (Self::Paper(strategy) | Self::Strategy(strategy)) = self;
        let Some((case, outcome)) = rows.iter().find(|(case, _)| case.strategy == strategy) else {
            return String::new();
        };
        let value = match self {
            Self::Paper(_) => {
                case.paper.iter().find(|(it, _)| *it == measure).map(|(_, value)| *value)
            }
            Self::Strategy(_) => outcome.measures.get(&measure).copied(),
        };
        match (value, self) {
            (Some(value), _) => numbers::show(measure, value),
            (None, Self::Paper(_)) => String::new(),
            // Not every measure applies to every run.
            (None, Self::Strategy(_)) => "-".to_owned(),
        }
    }
}

/// The rows of each point, in order.
pub(super) fn points<'a>(finished: &'a Finished<'_>) -> Vec<Vec<(&'a Case, &'a Outcome)>> {
    let rows: Vec<_> = finished.rows().collect();
    rows.chunk_by(|(one, _), (other, _)| one.at == other.at).map(<[_]>::to_vec).collect()
}

/// A table without rows, whose columns behind the `labels` are numbers.
pub(super) fn empty(header: Vec<String>, labels: usize) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(header);
    for (number, column) in table.column_iter_mut().enumerate() {
        if number >= labels {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn by_point(finished: &Finished<'_>) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut taken: Vec<Measure> = Vec::new();
    for measure in &finished.scenario.measures {
        taken.push(*measure);
        let wider = points_table(finished, &taken);
        let fits = wider.lines().all(|line| line.chars().count() <= WIDTH);
        match tables.last_mut() {
            Some(last) if fits => *last = wider,
            _ => {
                taken = vec![*measure];
                tables.push(points_table(finished, &taken));
            }
        }
    }
    tables
}

fn points_table(finished: &Finished<'_>, measures: &[Measure]) -> Table {
    let keys = short_keys(finished.scenario);
    let columns: Vec<(Measure, Column<'_>)> = measures
        .iter()
        .flat_map(|it| columns(finished, *it).into_iter().map(|column| (*it, column)))
        .collect();
    let mut last = None;
    let title = |(measure, column): &(Measure, Column<'_>)| {
        // The name of the measure is above its first column.
        let first = last.replace(*measure) != Some(*measure);
        format!("{}\n{}", if first { name(*measure) } else { String::new() }, column.title())
    };
    let labels = keys.len();
    let header = keys.into_iter().map(|key| format!("\n{key}"));
    let header = header.chain(columns.iter().map(title)).collect();
    let mut table = empty(header, labels);
    for rows in points(finished) {
        let at = rows.iter().take(1).flat_map(|(case, _)| case.at.iter());
        let at = at.map(|(_, value)| value.clone());
        let cells = columns.iter().map(|(measure, column)| column.cell(*measure, &rows));
        table.add_row(at.chain(cells));
    }
    table
}

fn by_measure(finished: &Finished<'_>) -> Table {
    // The same columns for all measures: of every strategy that any measure has a paper for.
    let measures = &finished.scenario.measures;
    let widest = measures.iter().map(|measure| columns(finished, *measure));
    let columns = widest.max_by_key(Vec::len).unwrap_or_default();
    let header = std::iter::once("measure".to_owned());
    let mut table = empty(header.chain(columns.iter().map(|column| column.title())).collect(), 1);
    for rows in points(finished) {
        for measure in measures {
            let cells = columns.iter().map(|column| column.cell(*measure, &rows));
            table.add_row(std::iter::once(name(*measure)).chain(cells));
        }
    }
    table
}
