//! Present warnings, then events, the latest first.

use crate::cell::Cell;
use crate::table::{Column, Row, Table};
use narrows_snapshot::Snapshot;

const COLUMNS: &[Column] = &[Column { name: "", width: 8 }, Column { name: "What", width: 71 }];

pub(super) fn table(now: &Snapshot) -> Table {
    let warnings = now.warnings.iter().enumerate().map(|(number, text)| {
        let cells = vec![Cell::text("warning"), Cell::text(text)];
        Row { is_warning: true, ..Row::new(format!("warning {number}"), None, cells) }
    });
    let events = now.events.iter().enumerate().rev().map(|(number, text)| {
        Row::new(format!("event {number}"), None, vec![Cell::text("event"), Cell::text(text)])
    });
    Table { columns: COLUMNS.to_vec(), rows: warnings.chain(events).collect() }
}
