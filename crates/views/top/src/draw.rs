//! Draws the screen.

use crate::app::App;
use crate::chart::Charted;
use crate::look::Look;
use crate::spark::{self, History, POINTS};
use crate::text;
use crate::view::View;
use narrows_escape as escape;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use std::borrow::Cow;

/// The width of the sparkline beside a port's figures on a screen of [`WIDTH`]. A wider screen
/// gives it the rest.
const PORT_BARS: usize = 20;
/// The columns that every view fits into.
const WIDTH: usize = 80;
/// The fewest columns behind a table for which bars are worth their place.
const BARS_MIN: usize = 10;
/// The most lines of a chart.
const CHART_MAX: usize = 6;

/// Draws `app` over the whole of `frame`.
pub fn draw(app: &App, frame: &mut Frame, look: Look) {
    let all = frame.area();
    let width = usize::from(all.width);
    let header = text::header(app, look, PORT_BARS + width.saturating_sub(WIDTH));
    let mut screen = Screen { frame, area: all };
    header.into_iter().for_each(|line| screen.add(line));
    screen.add(tabs(app.view(), width, look));
    // The last line is for the keys.
    screen.area.height = screen.area.height.saturating_sub(1);
    let mut position = String::new();
    if app.shows_help() {
        text::help().into_iter().for_each(|line| screen.add(line));
    } else if let Some((key, charts)) = app.details() {
        details(app, (key, &charts), &mut screen, look);
    } else {
        position = table(app, &mut screen, look);
    }
    let last = Rect { y: all.bottom().saturating_sub(1), height: all.height.min(1), ..all };
    Screen { frame, area: last }.add(keys(app, look));
    let at = last.x + last.width.saturating_sub(position.chars().count() as u16);
    let end = Rect { x: at, width: last.right() - at, ..last };
    Screen { frame, area: end }.add(Line::styled(position, look.title()));
}

/// All that is known of a row: its charts, then its facts.
fn details(
    app: &App,
    (key, charts): (&str, &[(Charted, &History)]),
    screen: &mut Screen,
    look: Look,
) {
    screen.add(Line::styled(key.to_owned(), look.title()));
    let facts = app.now().map(|now| app.view().details(now, key)).unwrap_or_default();
    let columns = columns(&facts, screen.area);
    let room = usize::from(screen.area.height).saturating_sub(columns.len());
    let height = (room / charts.len().max(1)).saturating_sub(1).clamp(1, CHART_MAX);
    let size = (usize::from(screen.area.width), height);
    // What a row lacks has no chart: a class that does not measure delays, a direction.
    let mut charts =
        charts.iter().filter(|(_, history)| history.highest(POINTS).is_some()).peekable();
    if facts.is_empty() && charts.peek().is_none() {
        screen.add("nothing more is known of it".into());
    }
    for (chart, history) in charts {
        chart.lines(history, size, look).into_iter().for_each(|line| screen.add(line));
    }
    columns.into_iter().for_each(|line| screen.add(line.into()));
}

/// The rest of the screen, from the top.
struct Screen<'a, 'b> {
    frame: &'a mut Frame<'b>,
    area: Rect,
}

impl Screen<'_, '_> {
    /// Adds a line, if there is room.
    fn add(&mut self, mut line: Line) {
        for span in &mut line.spans {
            if let Cow::Owned(shown) = escape::line(&span.content) {
                span.content = shown.into();
            }
        }
        let Rect { x, y, width, height } = self.area;
        if height > 0 {
            self.frame.buffer_mut().set_line(x, y, &line, width);
            self.area = Rect { x, y: y + 1, width, height: height - 1 };
        }
    }
}

/// The names of the views with their keys; on a screen of [`WIDTH`] close together.
fn tabs(shown: View, width: usize, look: Look) -> Line<'static> {
    let with_gap = |gap: &str| {
        let mut line = Line::default();
        let tabs = View::ALL.into_iter().filter(|view| view.tab() == *view);
        for (number, view) in tabs.enumerate() {
            let style = if view == shown.tab() { look.selected() } else { look.heading() };
            let view = if view == shown.tab() { shown } else { view };
            if number > 0 {
                line.push_span(" ");
            }
            // The key of the tenth is 0.
            let key = (number + 1) % 10;
            line.push_span(Span::styled(format!("{key}{gap}{}", view.name()), style));
        }
        line
    };
    let line = with_gap(" ");
    if line.width() <= width { line } else { with_gap("") }
}

/// Draws the rows around the selected one. Where that is among all.
fn table(app: &App, screen: &mut Screen, look: Look) -> String {
    let Some(mut table) = app.table() else { return String::new() };
    let width = usize::from(screen.area.width);
    table.widen(width);
    if table.rows.is_empty() {
        screen.add(app.view().nothing().into());
        return String::new();
    }
    screen.add(text::headings(&table, app.sorting(), look));
    let rows = app.placed(&table);
    if rows.is_empty() {
        screen.add(format!("no row contains \"{}\"", app.filter()).into());
        return String::new();
    }
    let selected = app.position(&rows);
    let room = usize::from(screen.area.height).max(1);
    let first = selected.saturating_sub(room / 2).min(rows.len().saturating_sub(room));
    let shown = || rows.iter().enumerate().skip(first).take(room);
    let most = shown().filter_map(|(_, it)| it.row.rate).fold(0.0, f64::max);
    let spare = width.saturating_sub(table.width() + 1);
    for (number, placed) in shown() {
        let mut line = text::row(&table, placed, app.is_flat(), look);
        if number == selected {
            line = line.patch_style(look.selected());
        }
        if let (true, Some(rate)) = (spare >= BARS_MIN, placed.row.rate) {
            let bar = spark::bar(rate, most, spare, look.is_ascii);
            let gap = table.width() + 1 - line.width().min(table.width());
            line.push_span(" ".repeat(gap));
            line.push_span(Span::styled(bar, look.bars()));
        }
        screen.add(line);
    }
    format!(" {}/{}", selected + 1, rows.len())
}

/// Facts below each other, in as many columns as needed and possible.
fn columns(facts: &[(String, String)], area: Rect) -> Vec<String> {
    let cells: Vec<String> = facts.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let width = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0) + 2;
    let across = (usize::from(area.width) / width).max(1);
    let rows = cells.len().div_ceil(across);
    let line = |row: usize| {
        let cells = cells.iter().skip(row).step_by(rows.max(1));
        cells.map(|cell| format!("{cell:<width$}")).collect()
    };
    (0..rows).map(line).collect()
}

fn keys(app: &App, look: Look) -> Line<'static> {
    if app.is_typing() {
        return Line::styled(format!("/{}_  Enter keep, Esc clear", app.filter()), look.title());
    }
    let filter = match app.filter() {
        "" => "/ find".to_owned(),
        filter => format!("/{filter} (Esc clears)"),
    };
    let pause = if app.is_paused() { "p go on" } else { "p pause" };
    let keys = if app.details().is_some() {
        format!("Esc back  Up/Down next row  {pause}  ? help  q quit")
    } else {
        let flat = if app.is_flat() { "f tree" } else { "f flat" };
        format!("Enter details  s sort  {flat}  - fold  {filter}  {pause}  ? help  q quit")
    };
    Line::styled(keys, look.heading())
}
