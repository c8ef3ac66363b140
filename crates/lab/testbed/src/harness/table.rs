//! Tables of results, which are Markdown, too.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Row, Table};

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
