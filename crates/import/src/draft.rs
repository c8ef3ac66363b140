//! A policy as it is being written, and the report about it.

use std::collections::HashMap;
use std::fmt::Write;

/// What was imported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    /// A policy file.
    pub policy: String,
    /// The names of its classes, as `tc -nm` reads them: a line `1:10 NAME` each.
    pub names: String,
    /// What was read and written, in a line.
    pub summary: String,
    /// What has no equivalent, or was changed.
    pub notes: Vec<Note>,
}

/// Something that the operator should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// What it is.
    pub what: String,
    /// How often.
    pub count: usize,
    /// The first of them.
    pub example: String,
}

impl Imported {
    /// The report, a line for each kind of note.
    pub fn report(&self) -> String {
        let mut text = format!("{}\n", self.summary);
        for Note { what, count, example } in &self.notes {
            let times = if *count == 1 { String::new() } else { format!("{count} times, first ") };
            // Writing to a string cannot fail.
            let _ = match example.is_empty() {
                true if *count == 1 => writeln!(text, "note: {what}"),
                true => writeln!(text, "note: {what} ({count} times)"),
                false => writeln!(text, "note: {what} ({times}{example})"),
            };
        }
        text
    }
}

/// Lines of a policy, and notes by what they say.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    text: String,
    names: String,
    notes: Vec<Note>,
    /// Where a note stands in `notes`.
    places: HashMap<String, usize>,
}

impl Draft {
    /// Adds a command.
    pub(crate) fn line(&mut self, command: &str) {
        self.text.push_str(command);
        self.text.push('\n');
    }

    /// Names a class, in one word as its file has it.
    pub(crate) fn name(&mut self, class: &str, name: &str) {
        let word = |letter: char| match letter {
            letter if letter.is_whitespace() || letter.is_control() || letter == '#' => '_',
            letter => letter,
        };
        let name: String = printable(name.trim()).chars().map(word).collect();
        if !name.is_empty() {
            self.names.push_str(&format!("{class} {name}\n"));
        }
    }

    /// Adds a comment, with nothing in it that could end it.
    pub(crate) fn comment(&mut self, text: &str) {
        self.text.push_str("# ");
        self.text.push_str(&printable(text));
        self.text.push('\n');
    }

    pub(crate) fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Reports something, and says it as a comment where the policy is now.
    pub(crate) fn note(&mut self, what: &str, example: &str) {
        match example.is_empty() {
            true => self.comment(&format!("NOTE: {what}")),
            false => self.comment(&format!("NOTE: {what}: {example}")),
        }
        self.report(what, example);
    }

    /// Reports something that has no place in the policy.
    pub(crate) fn report(&mut self, what: &str, example: &str) {
        if let Some(&place) = self.places.get(what) {
            self.notes[place].count += 1;
        } else {
            self.places.insert(what.to_owned(), self.notes.len());
            let example = printable(example);
            self.notes.push(Note { what: printable(what), count: 1, example });
        }
    }

    pub(crate) fn finish(self, summary: String) -> Imported {
        Imported { policy: self.text, names: self.names, summary, notes: self.notes }
    }
}

/// On one line, without what could move a cursor, and not too long.
pub(crate) fn printable(text: &str) -> String {
    const LONGEST: usize = 200;
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    let mut text: String = text.chars().map(clean).take(LONGEST + 1).collect();
    if text.chars().count() > LONGEST {
        text = text.chars().take(LONGEST).chain("…".chars()).collect();
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_comment() {
        let mut draft = Draft::default();
        draft.comment("Ann\nqdisc del dev eth0 root\\");
        assert_eq!(draft.finish(String::new()).policy, "# Ann qdisc del dev eth0 root\\\n");
    }

    #[test]
    fn a_name_is_one_word_on_a_line_of_its_own() {
        let mut draft = Draft::default();
        draft.name("1:10", " Ann #7\n1:1 root ");
        draft.name("1:11", " ");
        assert_eq!(draft.finish(String::new()).names, "1:10 Ann__7_1:1_root\n");
    }

    #[test]
    fn equal_notes_are_counted() {
        let mut draft = Draft::default();
        draft.report("no address", "A");
        draft.report("no address", "B");
        draft.report("no rate", "");
        let report = draft.finish("2 circuits".to_owned()).report();
        assert_eq!(report, "2 circuits\nnote: no address (2 times, first A)\nnote: no rate\n");
    }
}
