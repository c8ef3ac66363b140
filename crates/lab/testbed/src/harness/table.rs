//! Tables of results, which are Markdown, too.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Row, Table};
use std::collections::BTreeSet;
use std::fmt;

/// One of words.
pub(crate) fn of_words(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(header);
    table
}

/// A table of figures, aligned to the right; only the column `name` has words.
pub(crate) fn of_figures(name: usize, header: impl Into<Row>) -> Table {
    let mut table = of_words(header);
    for (number, column) in table.column_iter_mut().enumerate() {
        if number != name {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Writes below a table what systems need, and why others were not measured, each once.
pub(crate) fn write_notes<'a>(
    f: &mut fmt::Formatter<'_>,
    needs: impl Iterator<Item = (&'a str, &'a str)>,
    absent: impl Iterator<Item = &'a String>,
) -> fmt::Result {
    for (system, needs) in needs.collect::<BTreeSet<_>>() {
        writeln!(f, "{system} needs {needs}")?;
    }
    let mut absent = absent.collect::<BTreeSet<_>>().into_iter();
    absent.try_for_each(|why| writeln!(f, "not measured: {why}"))
}
