//! The content of the screen, as lines.

use crate::app::App;
use crate::cell::Cell;
use crate::look::Look;
use crate::number::{duration, percent, short};
use crate::table::{Column, Row, Sorting, Table};
use crate::view::View;
use narrows_escape as escape;
use narrows_snapshot::{Port, Snapshot};
use ratatui::text::{Line, Span};

/// All views, or `only` one, as plain text: what `narrows top --once` prints.
pub fn once(app: &App, only: Option<View>, look: Look) -> String {
    let mut lines = header(app, look, 0);
    let change = app.change();
    for view in View::ALL.into_iter().filter(|view| only.is_none_or(|only| only == *view)) {
        let Some(now) = app.now() else { break };
        let mut table = view.table(now, change.as_ref());
        table.widen(usize::MAX / 2);
        if table.rows.is_empty() && only.is_none() {
            continue;
        }
        lines.push(Line::default());
        if table.rows.is_empty() {
            lines.push(view.nothing().into());
            continue;
        }
        lines.push(headings(&table, None, look));
        let rows = table.arranged(None, "");
        lines.extend(rows.iter().map(|(depth, row)| self::row(&table, *depth, row, look)));
    }
    let shown = |line: &Line<'_>| format!("{}\n", escape::line(line.to_string().trim_end()));
    lines.iter().map(shown).collect()
}

/// The lines above every view: the instance, its warnings, its ports with `bars` bars each, packet
/// conservation.
pub(crate) fn header(app: &App, look: Look, bars: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let Some(now) = app.now() else {
        lines.push(Line::styled("narrows: asking the instance", look.title()));
        return lines;
    };
    match app.gone() {
        Some(reason) => {
            let text = format!("narrows is GONE, waiting; last figures below: {reason}");
            lines.push(Line::styled(text, look.warning()));
        }
        None => lines.push(state(now, app.is_paused(), look)),
    }
    if let Some(first) = now.warnings.first() {
        let more = match now.warnings.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more: 7)"),
        };
        lines.push(Line::styled(format!("warning{more}: {first}"), look.warning()));
    }
    let width = now.ports.iter().map(|port| port.name.chars().count()).max().unwrap_or(0);
    lines.extend(now.ports.iter().map(|port| self::port(app, port, (width, bars), look)));
    lines.push(books(now, look));
    lines
}

fn state(now: &Snapshot, is_paused: bool, look: Look) -> Line<'static> {
    let mut text =
        format!("narrows {} for {}, fail-{}", now.state, duration(now.uptime_s), now.fail);
    if let Some(reason) = &now.waiting_for {
        text.push_str(&format!(": {reason}"));
    }
    let is_well = now.is_running() && now.waiting_for.is_none();
    let style = if is_well { look.title() } else { look.warning() };
    let mut line = Line::styled(text, style);
    if is_paused {
        line.push_span(Span::styled("  PAUSED", look.warning()));
    }
    line
}

fn port(app: &App, port: &Port, (width, bars): (usize, usize), look: Look) -> Line<'static> {
    let rates = app.change().map(|change| change.of_port(port)).unwrap_or_default();
    let limit = port.limit_bps().map(|limit| limit as f64);
    let sent = Cell::number(rates.tx_bps).text;
    let against = match limit {
        Some(limit) => {
            let used = rates.tx_bps.filter(|_| limit > 0.0).map(|sent| percent(sent / limit));
            format!("of {:>5}bit/s {:>5}", short(limit), used.unwrap_or("-".into()))
        }
        None => format!("{:<18}", "bit/s, no limit"),
    };
    let bars = app.delivered(port).map(|it| it.bars(bars, limit, look.is_ascii));
    let mut line = Line::default();
    line.push_span(Span::styled(format!("{:<width$}", port.name), look.title()));
    line.push_span(format!(" {sent:>5} {against} "));
    line.push_span(Span::styled(bars.unwrap_or_default(), look.bars()));
    let (backlog, drops) = (port.total.backlog_packets, Cell::number(rates.drops_pps).text);
    line.push_span(format!(" queued {:<5}", short(backlog as f64)));
    line.push_span(format!(" drop/s {drops}"));
    if port.no_carrier {
        line.push_span(Span::styled(" NO CARRIER", look.warning()));
    }
    line
}

fn books(now: &Snapshot, look: Look) -> Line<'static> {
    let sum = &now.conservation;
    let dropped: u64 = sum.dropped.values().sum();
    let text = format!(
        "received {}{} = sent {}{} + queued {} + dropped {}",
        sum.received,
        sum.copies(),
        sum.sent,
        sum.kept(),
        sum.queued,
        dropped
    );
    let mut line = Line::from(text);
    if sum.unaccounted != 0 {
        let text = format!(", {} UNACCOUNTED", sum.unaccounted);
        line.push_span(Span::styled(text, look.warning()));
    }
    if sum.bypassed > 0 {
        let text = format!(", {} BYPASSED", sum.bypassed);
        line.push_span(Span::styled(text, look.warning()));
    }
    line
}

/// The names of the columns.
pub(crate) fn headings(table: &Table, sorting: Option<Sorting>, look: Look) -> Line<'static> {
    let mut text = String::new();
    for (number, column) in table.columns.iter().enumerate() {
        let mark = match sorting {
            Some(sorting) if sorting.column == number => {
                if sorting.is_descending {
                    ">"
                } else {
                    "<"
                }
            }
            _ => "",
        };
        place(&mut text, number, column, &format!("{mark}{}", column.name));
    }
    Line::styled(text, look.heading())
}

/// A row at `depth`.
pub(crate) fn row(table: &Table, depth: usize, row: &Row, look: Look) -> Line<'static> {
    let mut text = String::new();
    for (number, (column, cell)) in table.columns.iter().zip(&row.cells).enumerate() {
        let indent = if number == 0 { " ".repeat(depth) } else { String::new() };
        place(&mut text, number, column, &format!("{indent}{}", cell.text));
    }
    if row.is_warning { Line::styled(text, look.warning()) } else { text.into() }
}

/// Adds a cell to a line. The first column, and the last if it is wide, are text and left-aligned.
/// Text that is too long is cut, except in the last column.
fn place(line: &mut String, number: usize, column: &Column, text: &str) {
    let width = column.width;
    if number == 0 {
        line.push_str(&format!("{text:<width$.width$}"));
    } else if width > 8 {
        line.push_str(&format!(" {text}"));
    } else {
        line.push_str(&format!(" {text:>width$.width$}"));
    }
}

/// The help on keys.
pub(crate) fn help() -> Vec<Line<'static>> {
    [
        "1 to 9, Tab       the views that are named above the table",
        "Up Down PgUp PgDn select a row; also j and k, Home and End",
        "Enter             details of the selected row; Esc goes back",
        "s                 sort by the next column; after the last, the instance's order",
        "r                 reverse the order",
        "/                 show only rows that contain a text; Enter keeps, Esc clears it",
        "p, Space          pause; the first rates after that are means over the pause",
        "?                 this page",
        "q, Ctrl-C         quit",
        "",
        "Rates are per second, over the time between two snapshots; - is not known yet.",
        "k M G: thousands, millions, billions. bit/s: Sent Recvd Arrvd Rate Ceil Thresh.",
        "Share: of what the port sent. Used: of the ceiling. Backlog: packets queued.",
        "Lent, Borr: packets sent within a class's own rate, and at borrowed rates.",
        "Bars: the rate of a port, relative to its limit.",
        "",
        "any key goes back",
    ]
    .into_iter()
    .map(Line::from)
    .collect()
}
