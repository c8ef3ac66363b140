//! The result as one self-contained HTML page: the table and plots, nothing to load.
//!
//! A plot for each measure, against the points of the sweep, a line for each strategy, crosses
//! for the paper's values. Runs with an event add the records over time.

use super::chart::{Axis, Line, Mark, svg};
use super::{heading, name, numbers, short_keys};
use crate::measure::{Measure, Outcome};
use crate::scenario::{Case, Finished};
use narrows_escape::html as escape;
use std::fmt::Write;

/// The most points of a line over time; of the values between two of them the largest is shown.
const MAX_POINTS: usize = 500;

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 94rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: 0.2rem; }
h2 { font-size: 1.1rem; margin-top: 2rem; }
p { margin: 0.2rem 0; }
.simulated { font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.7rem; text-align: right; white-space: nowrap; }
th { border-bottom: 1px solid currentColor; }
tr + tr td { border-top: 1px solid color-mix(in srgb, currentColor 18%, transparent); }
th:first-child, td:first-child { text-align: left; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; }
.plots svg { width: 720px; max-width: 100%; height: auto; }
";

/// `finished` as a page.
pub fn page(finished: &Finished<'_>) -> String {
    let scenario = finished.scenario;
    let mut html = String::new();
    let title = format!("{}: {}", scenario.about.name, scenario.about.title);
    let title = escape(&title);
    html.push_str("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width\">");
    add(&mut html, format_args!("<title>{title} (simulated)</title>"));
    add(&mut html, format_args!("<style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"));
    html.push_str("<p class=\"simulated\">Simulated: the workers, qdiscs and coordination of Narrows on virtual cores.</p>\n");
    for line in heading(scenario).iter().skip(1) {
        add(&mut html, format_args!("<p>{}</p>\n", escape(line)));
    }
    rows(&mut html, finished);
    section(&mut html, "By strategy", &measure_plots(finished));
    section(&mut html, "Over time", &time_plots(finished));
    html.push_str("</body></html>\n");
    html
}

/// Writing to a string does not fail.
fn add(html: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = html.write_fmt(text);
}

fn section(html: &mut String, title: &str, plots: &[String]) {
    if !plots.is_empty() {
        add(html, format_args!("<h2>{title}</h2>\n<div class=\"plots\">\n"));
        html.push_str(&plots.join("\n"));
        html.push_str("</div>\n");
    }
}

/// A line for each run, with the paper's figure in brackets behind ours.
fn rows(html: &mut String, finished: &Finished<'_>) {
    html.push_str("<h2>Results</h2>\n<div class=\"scroll\"><table>\n<tr><th>strategy</th>");
    let measures = &finished.scenario.measures;
    let names = measures.iter().map(|measure| name(*measure));
    for title in short_keys(finished.scenario).into_iter().chain(names) {
        add(html, format_args!("<th>{}</th>", escape(&title)));
    }
    html.push_str("<th>seed</th></tr>\n");
    for (case, outcome) in finished.rows() {
        add(html, format_args!("<tr><td>{}</td>", escape(&case.strategy)));
        for (_, value) in &case.at {
            add(html, format_args!("<td>{}</td>", escape(value)));
        }
        for measure in measures {
            let value = outcome.measures.get(measure);
            let value = value.map_or("-".to_owned(), |value| numbers::show(*measure, *value));
            let paper = case.paper.iter().find(|(it, _)| it == measure);
            let paper = paper
                .map(|(_, value)| format!(" (paper: {})", numbers::show(*measure, *value)))
                .unwrap_or_default();
            add(html, format_args!("<td>{value}{paper}</td>"));
        }
        add(html, format_args!("<td>{}</td></tr>\n", case.setup.seed));
    }
    html.push_str("</table></div>\n");
}

type Row<'a> = (&'a Case, &'a Outcome);

/// The key of the sweep along which to plot: the one with the most values, the last of those.
fn axis_key(finished: &Finished<'_>) -> Option<usize> {
    let case = finished.scenario.cases.first()?;
    let values = |key: &usize| {
        let mut values: Vec<&str> = Vec::new();
        for case in &finished.scenario.cases {
            if !values.contains(&case.at[*key].1.as_str()) {
                values.push(&case.at[*key].1);
            }
        }
        values.len()
    };
    (0..case.at.len()).max_by_key(values)
}

/// Runs that agree in all keys but `key`, with the common values.
fn groups<'a>(finished: &'a Finished<'_>, key: usize) -> Vec<(String, Vec<Row<'a>>)> {
    let short = short_keys(finished.scenario);
    let mut groups: Vec<(String, Vec<Row<'a>>)> = Vec::new();
    for (case, outcome) in finished.rows() {
        let others = case.at.iter().zip(&short).enumerate().filter(|(number, _)| *number != key);
        let others = others.map(|(_, ((_, value), name))| format!("{name} {value}"));
        let label = others.collect::<Vec<_>>().join(", ");
        match groups.iter_mut().find(|(known, _)| *known == label) {
            Some((_, rows)) => rows.push((case, outcome)),
            None => groups.push((label, vec![(case, outcome)])),
        }
    }
    // One point is no line.
    groups.retain(|(_, rows)| rows.iter().any(|(case, _)| case.at[key] != rows[0].0.at[key]));
    groups
}

fn measure_plots(finished: &Finished<'_>) -> Vec<String> {
    let Some(key) = axis_key(finished) else { return Vec::new() };
    let axis_name = short_keys(finished.scenario).swap_remove(key);
    let mut plots = Vec::new();
    for (label, rows) in groups(finished, key) {
        let mut labels: Vec<String> = Vec::new();
        for (case, _) in &rows {
            if !labels.contains(&case.at[key].1) {
                labels.push(case.at[key].1.clone());
            }
        }
        let x = |case: &Case| labels.iter().position(|label| *label == case.at[key].1);
        for measure in &finished.scenario.measures {
            let mut title = format!("{} by {axis_name}", name(*measure));
            if !label.is_empty() {
                title.push_str(&format!(" ({label})"));
            }
            let lines = measure_lines(finished, *measure, &rows, &x);
            plots.extend(svg(&title, &Axis::Labels(&labels), &lines));
        }
    }
    plots
}

fn measure_lines(
    finished: &Finished<'_>,
    measure: Measure,
    rows: &[Row<'_>],
    x: &dyn Fn(&Case) -> Option<usize>,
) -> Vec<Line> {
    let mut lines = Vec::new();
    for (colour, strategy) in finished.scenario.strategies().into_iter().enumerate() {
        let (mut ours, mut paper) = (Vec::new(), Vec::new());
        for (case, outcome) in rows.iter().filter(|(case, _)| case.strategy == strategy) {
            let Some(x) = x(case) else { continue };
            ours.extend(outcome.measures.get(&measure).map(|value| (x as f64, *value)));
            let known = case.paper.iter().find(|(it, _)| *it == measure);
            paper.extend(known.map(|(_, value)| (x as f64, *value)));
        }
        lines.push(Line { name: strategy.to_owned(), colour, mark: Mark::Line, points: ours });
        if !paper.is_empty() {
            let name = format!("paper, {strategy}");
            lines.push(Line { name, colour, mark: Mark::Points, points: paper });
        }
    }
    lines
}

/// For each point of the sweep whose runs have an event, the records.
fn time_plots(finished: &Finished<'_>) -> Vec<String> {
    let mut plots = Vec::new();
    let rows: Vec<Row<'_>> = finished.rows().collect();
    let short = short_keys(finished.scenario);
    let strategies = finished.scenario.strategies();
    for rows in rows.chunk_by(|(one, _), (other, _)| one.at == other.at) {
        if rows.iter().all(|(case, _)| case.setup.run.event.is_none()) {
            continue;
        }
        let at =
            rows[0].0.at.iter().zip(&short).map(|((_, value), name)| format!("{name} {value}"));
        let at = at.collect::<Vec<_>>().join(", ");
        for series in &rows[0].1.series {
            let line = |(case, outcome): &Row<'_>| {
                let own = outcome.series.iter().find(|own| own.name == series.name)?;
                let colour = strategies.iter().position(|name| *name == case.strategy)?;
                let points = thin(&own.points);
                Some(Line { name: case.strategy.clone(), colour, mark: Mark::Line, points })
            };
            let lines: Vec<Line> = rows.iter().filter_map(line).collect();
            let title = match at.as_str() {
                "" => series.name.clone(),
                at => format!("{} ({at})", series.name),
            };
            plots.extend(svg(&title, &Axis::Numbers("ms"), &lines));
        }
    }
    plots
}

/// At most [`MAX_POINTS`] of `points`: the largest of each stretch, so that no spike is lost.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stretch = points.len().div_ceil(MAX_POINTS).max(1);
    let largest = |stretch: &[(f64, f64)]| {
        stretch.iter().copied().max_by(|(_, one), (_, other)| one.total_cmp(other))
    };
    points.chunks(stretch).filter_map(largest).collect()
}
