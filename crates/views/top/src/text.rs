//! The content of the screen, as lines.

use crate::app::App;
use crate::cell::Cell;
use crate::look::Look;
use crate::number::{duration, percent, short};
use crate::table::{Arrangement, Column, Placed, Sorting, Table};
use crate::view::View;
use narrows_escape as escape;
use narrows_snapshot::{Port, Snapshot};
use ratatui::text::{Line, Span};

/// What `narrows top --once` prints of the views.
#[derive(Clone, Debug, Default)]
pub struct Excerpt {
    /// Only this view.
    pub only: Option<View>,
    /// Sorted by the column with this name, the largest first.
    pub sort: Option<String>,
    /// One list, without the tree.
    pub is_flat: bool,
    /// At most so many rows of each view.
    pub rows: Option<usize>,
}

/// All views, or only one, as plain text.
///
/// # Errors
/// If no view that is asked for has the column to sort by: the names that there are.
pub fn once(app: &App, excerpt: &Excerpt, look: Look) -> Result<String, String> {
    let mut lines = header(app, look, 0);
    let change = app.change();
    let mut known = Vec::new();
    let mut is_sorted = excerpt.sort.is_none();
    for view in View::ALL.into_iter().filter(|view| excerpt.only.is_none_or(|only| only == *view)) {
        let Some(now) = app.now() else { break };
        let mut table = view.table(now, change.as_ref());
        table.widen(usize::MAX / 2);
        let column = excerpt.sort.as_deref().and_then(|name| table.column(name));
        is_sorted |= column.is_some();
        known.extend(table.columns.iter().map(|column| column.name));
        if table.rows.is_empty() && excerpt.only.is_none() {
            continue;
        }
        lines.push(Line::default());
        if table.rows.is_empty() {
            lines.push(view.nothing().into());
            continue;
        }
        let sorting = column.map(|column| Sorting { column, is_descending: true });
        lines.push(headings(&table, sorting, look));
        let is_flat = excerpt.is_flat;
        let rows = table.arranged(&Arrangement { sorting, is_flat, ..Arrangement::default() });
        let shown = rows.iter().take(excerpt.rows.unwrap_or(usize::MAX));
        lines.extend(shown.map(|placed| row(&table, placed, is_flat, look)));
    }
    if !is_sorted {
        known.sort_unstable();
        known.dedup();
        return Err(format!("no such column; there are {}", known.join(", ")));
    }
    let shown = |line: &Line<'_>| format!("{}\n", escape::line(line.to_string().trim_end()));
    Ok(lines.iter().map(shown).collect())
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
    lines.push(balance(now, look));
    lines
}

fn state(now: &Snapshot, is_paused: bool, look: Look) -> Line<'static> {
    let state = now.state_with(&duration(now.uptime_s));
    let mut text = format!("narrows {state}, fail-{}", now.fail);
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

fn balance(now: &Snapshot, look: Look) -> Line<'static> {
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

/// A row at its depth; in a list with the name of what it stands below, unless its key says it.
pub(crate) fn row(table: &Table, placed: &Placed<'_>, is_flat: bool, look: Look) -> Line<'static> {
    let row = placed.row;
    let mut text = String::new();
    for (number, (column, cell)) in table.columns.iter().zip(&row.cells).enumerate() {
        let said = match number {
            0 if is_flat => {
                let above = row.parent.and_then(|above| table.rows[above].cells.first());
                let above = above.map(|above| format!(" < {}", above.text)).unwrap_or_default();
                format!("{}{above}", cell.text)
            }
            0 if placed.hidden > 0 => {
                let indent = " ".repeat(placed.depth);
                format!("{indent}{} +{}", cell.text, placed.hidden)
            }
            0 => format!("{}{}", " ".repeat(placed.depth), cell.text),
            _ => cell.text.clone(),
        };
        place(&mut text, number, column, &said);
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
        "0 to 9, Tab       the views that are named above the table",
        "Up Down PgUp PgDn select a row; also j and k, Home and End",
        "Enter             details of the selected row; Esc goes back",
        "s                 sort by the next column; after the last, the instance's order",
        "r                 reverse the order",
        "f                 all rows as one list, the most first; again: the tree",
        "b, or 3 again     both directions of a class in a row; again: the trees of ports",
        "- +, Left Right   hide what is below a row, and show it",
        "/                 show only rows that contain a text; Enter keeps, Esc clears it",
        "p, Space          pause; the first rates after that are means over the pause",
        "?                 this page",
        "q, Ctrl-C         quit",
        "Rates are per second, over the time between two snapshots; - is not known yet.",
        "k M G: thousands, millions, billions. bit/s: Sent Recvd Arrvd Rate Ceil Thresh.",
        "Share: of what the port sent. Used: of the ceiling. Backlog: packets queued.",
        "Lent, Borr: packets sent within a class's own rate, and at borrowed rates.",
        "Bars: the rate of a port against its limit; of a row against the largest shown.",
        "any key goes back",
    ]
    .into_iter()
    .map(Line::from)
    .collect()
}
