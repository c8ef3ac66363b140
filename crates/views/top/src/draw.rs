//! Draws the screen.

use crate::app::App;
use crate::look::Look;
use crate::text;
use crate::view::View;
use narrows_escape as escape;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use std::borrow::Cow;

/// The width of the sparkline beside a port's figures.
const PORT_BARS: usize = 20;
/// The width of the sparkline above the details of a row.
const BARS: usize = 60;

/// Draws `app` over the whole of `frame`.
pub fn draw(app: &App, frame: &mut Frame, look: Look) {
    let all = frame.area();
    let header = text::header(app, look, PORT_BARS);
    let mut screen = Screen { frame, area: all };
    header.into_iter().for_each(|line| screen.add(line));
    screen.add(tabs(app.view(), look));
    // The last line is for the keys.
    screen.area.height = screen.area.height.saturating_sub(1);
    if app.shows_help() {
        text::help().into_iter().for_each(|line| screen.add(line));
    } else if let Some((key, history)) = app.details() {
        let bars = history.bars(BARS, None, look.is_ascii);
        screen.add(Line::styled(key.to_owned(), look.title()));
        screen.add(Line::styled(bars, look.bars()));
        let facts = app.now().map(|now| app.view().details(now, key)).unwrap_or_default();
        if facts.is_empty() {
            screen.add("nothing more is known of it".into());
        }
        columns(&facts, screen.area).into_iter().for_each(|line| screen.add(line.into()));
    } else {
        table(app, &mut screen, look);
    }
    let last = Rect { y: all.bottom().saturating_sub(1), height: all.height.min(1), ..all };
    Screen { frame, area: last }.add(keys(app, look));
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

fn tabs(shown: View, look: Look) -> Line<'static> {
    let mut line = Line::default();
    for (number, view) in View::ALL.into_iter().enumerate() {
        let style = if view == shown { look.selected() } else { look.heading() };
        if number > 0 {
            line.push_span(" ");
        }
        line.push_span(Span::styled(format!("{} {}", number + 1, view.name()), style));
    }
    line
}

fn table(app: &App, screen: &mut Screen, look: Look) {
    let Some(mut table) = app.table() else { return };
    table.widen(usize::from(screen.area.width));
    if table.rows.is_empty() {
        screen.add(app.view().nothing().into());
        return;
    }
    screen.add(text::headings(&table, app.sorting(), look));
    let rows = table.arranged(app.sorting(), app.filter());
    if rows.is_empty() {
        screen.add(format!("no row contains \"{}\"", app.filter()).into());
        return;
    }
    let selected = app.position(rows.iter().map(|(_, row)| row.key.as_str()));
    let room = usize::from(screen.area.height).max(1);
    let first = selected.saturating_sub(room / 2).min(rows.len().saturating_sub(room));
    for (number, (depth, row)) in rows.iter().enumerate().skip(first).take(room) {
        let mut line = text::row(&table, *depth, row, look);
        if number == selected {
            line = line.patch_style(look.selected());
        }
        screen.add(line);
    }
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
        "" => "/ filter".to_owned(),
        filter => format!("/{filter} (Esc clears)"),
    };
    let pause = if app.is_paused() { "p go on" } else { "p pause" };
    let keys = if app.details().is_some() {
        format!("Esc back  Up/Down next row  {pause}  ? help  q quit")
    } else {
        format!("Enter details  s sort  r reverse  {filter}  {pause}  ? help  q quit")
    };
    Line::styled(keys, look.heading())
}
