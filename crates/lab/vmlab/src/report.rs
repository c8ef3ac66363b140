//! The tables of docs/kernels.md (which feature works where) and of docs/cake.md (Narrows' `cake`
//! beside the kernel's).

use crate::cake::table;
use crate::verdict::{Check, Outcome, Record};
use anyhow::{Context, Result};
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use std::fs;
use std::path::Path;

/// The marker before the generated part of docs/kernels.md.
const KERNELS: &str = "<!-- written by make test-vm WRITE=1 -->";
/// The marker before that of docs/cake.md.
const CAKE: &str = "<!-- written by make test-vm-cake WRITE=1 -->";
/// The marker after it.
const END: &str = "<!-- end of what is written -->";

/// Puts the table of `records` into docs/kernels.md.
pub fn write_kernels(records: &[Record]) -> Result<()> {
    write("kernels.md", KERNELS, &render(records))
}

/// Puts the tables of the samples in `records` into docs/cake.md.
pub fn write_cake(records: &[Record]) -> Result<()> {
    let tables = |record: &Record| {
        format!(
            "Linux {}, {}:\n\n{}\n",
            record.release,
            record.mode,
            table::render(&record.samples)
        )
    };
    write("cake.md", CAKE, &records.iter().map(tables).collect::<String>())
}

fn write(document: &str, begin: &str, tables: &str) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs").join(document);
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let text = replaced(&text, begin, tables)
        .with_context(|| format!("{} has no place for the table", file.display()))?;
    fs::write(&file, text).with_context(|| file.display().to_string())
}

/// `text` with `tables` between its two markers.
fn replaced(text: &str, begin: &str, tables: &str) -> Option<String> {
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{begin}\n\n{tables}\n{END}{after}"))
}

/// A row for each cell, a column for each check, and notes below.
fn render(records: &[Record]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for check in records.iter().flat_map(|record| &record.checks) {
        if !names.contains(&check.name.as_str()) {
            names.push(&check.name);
        }
    }
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["cell", "kernel", "mode"].iter().chain(&names));
    let mut notes = String::new();
    for record in records {
        let Record { cell, release, mode, checks, .. } = record;
        let of = |name: &&str| checks.iter().find(|check| check.name == *name).map_or("", word);
        table.add_row([cell.as_str(), release, mode].into_iter().chain(names.iter().map(of)));
        for check in checks.iter().filter(|check| check.outcome != Outcome::Passed) {
            let note = check.note.lines().next().unwrap_or_default();
            notes.push_str(&format!("* {cell}, {} {}: {note}\n", check.name, word(check)));
        }
    }
    format!("{table}\n\n{notes}")
}

fn word(check: &Check) -> &'static str {
    match check.outcome {
        Outcome::Passed => "yes",
        Outcome::Failed => "**no**",
        Outcome::Skipped => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Message;

    fn record(cell: &str, outcomes: &[(&str, Outcome)]) -> Record {
        let mut record = Record { cell: cell.to_owned(), ..Record::default() };
        for (name, outcome) in outcomes {
            record.add(Message::Check(Check {
                name: (*name).to_owned(),
                outcome: *outcome,
                note: "one queue".to_owned(),
                seconds: 1.0,
            }));
        }
        record
    }

    #[test]
    fn each_cell_has_a_row_and_each_failure_a_reason() {
        let records = [
            record("6.1-igb", &[("ping", Outcome::Passed), ("queues", Outcome::Skipped)]),
            record("6.1-veth", &[("ping", Outcome::Failed)]),
        ];
        let text = render(&records);
        assert!(text.contains("| 6.1-igb  |        |      | yes    | -      |"), "{text}");
        assert!(text.contains("| 6.1-veth |        |      | **no** |        |"), "{text}");
        assert!(text.contains("* 6.1-igb, queues -: one queue\n"), "{text}");
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let text = format!("before\n{CAKE}\nold\n{END}\nafter\n");
        let new = replaced(&text, CAKE, "new").unwrap();
        assert_eq!(new, format!("before\n{CAKE}\n\nnew\n{END}\nafter\n"));
        assert_eq!(replaced(&new, CAKE, "new").unwrap(), new);
        assert_eq!(replaced(&new, KERNELS, "new"), None);
    }
}
