//! The table of docs/kernels.md: what works where.

use crate::verdict::{Check, Outcome, Record};
use anyhow::{Context, Result};
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use std::fs;
use std::path::Path;

/// The lines between which the table stands.
const BEGIN: &str = "<!-- written by make test-vm WRITE=1 -->";
const END: &str = "<!-- end of what is written -->";

/// Puts the table of `records` into the document.
pub fn write(records: &[Record]) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kernels.md");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let text = replaced(&text, &render(records))
        .with_context(|| format!("{} has no place for the table", file.display()))?;
    fs::write(&file, text).with_context(|| file.display().to_string())
}

/// `text` with `table` between its two marks.
fn replaced(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

/// A row for each cell, a column for each check, and below what the words do not say.
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
    fn each_cell_has_a_row_and_what_did_not_pass_its_reason() {
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
        let text = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let new = replaced(&text, "new").unwrap();
        assert_eq!(new, format!("before\n{BEGIN}\n\nnew\n{END}\nafter\n"));
        assert_eq!(replaced(&new, "new").unwrap(), new);
        assert_eq!(replaced("no marks", "new"), None);
    }
}
