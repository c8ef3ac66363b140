//! The text of a policy under construction, and the report about it.

use crate::said::printable;
use narrows_escape::is_hidden;
use std::collections::HashMap;
use std::fmt::Write;

/// Something that the operator should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// The message.
    pub what: String,
    /// How often it applies.
    pub count: usize,
    /// The first occurrence.
    pub example: String,
}

/// What a source or a compilation has to say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// What the operator should know, although nothing is lost.
    pub notes: Vec<Note>,
    /// What was left out, or is not as the source has it, one sentence each.
    pub faults: Vec<String>,
}

impl Report {
    /// One line for each fault and each note.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for fault in &self.faults {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "warning: {fault}");
        }
        for Note { what, count, example } in &self.notes {
            let times = if *count == 1 { String::new() } else { format!("{count} times, first ") };
            let _ = match example.is_empty() {
                true if *count == 1 => writeln!(text, "note: {what}"),
                true => writeln!(text, "note: {what} ({count} times)"),
                false => writeln!(text, "note: {what} ({times}{example})"),
            };
        }
        text
    }
}

/// Lines of a policy, and notes by their message.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    text: String,
    names: String,
    report: Report,
    /// The index of each note in the report.
    places: HashMap<String, usize>,
}

impl Draft {
    /// Adds a command.
    pub fn line(&mut self, command: &str) {
        self.text.push_str(command);
        self.text.push('\n');
    }

    /// Names a class, in the one word that the names file allows.
    pub fn name(&mut self, class: &str, name: &str) {
        let word = |letter: char| match letter {
            letter if letter.is_whitespace() || is_hidden(letter) || letter == '#' => '_',
            letter => letter,
        };
        let name: String = printable(name.trim()).chars().map(word).collect();
        if !name.is_empty() {
            self.names.push_str(&format!("{class} {name}\n"));
        }
    }

    /// Adds a comment, without characters that could end it.
    pub fn comment(&mut self, text: &str) {
        self.text.push_str("# ");
        self.text.push_str(&printable(text));
        self.text.push('\n');
    }

    /// Adds an empty line.
    pub fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Reports something, also as a comment at the present place in the policy.
    pub fn note(&mut self, what: &str, example: &str) {
        match example.is_empty() {
            true => self.comment(&format!("NOTE: {what}")),
            false => self.comment(&format!("NOTE: {what}: {example}")),
        }
        self.report(what, example);
    }

    /// Says what is left out or changed, also as a comment at the present place in the policy.
    pub fn fault(&mut self, what: &str) {
        self.comment(&format!("NOTE: {what}"));
        self.report.faults.push(printable(what));
    }

    /// Reports something that has no place in the policy.
    pub fn report(&mut self, what: &str, example: &str) {
        self.report_times(what, 1, example);
    }

    /// Reports something that applies `count` times, `example` first.
    pub(crate) fn report_times(&mut self, what: &str, count: usize, example: &str) {
        if let Some(&place) = self.places.get(what) {
            self.report.notes[place].count += count;
        } else {
            self.places.insert(what.to_owned(), self.report.notes.len());
            let example = printable(example);
            self.report.notes.push(Note { what: printable(what), count, example });
        }
    }

    /// The policy, the names of its classes, and the report.
    pub fn finish(self) -> (String, String, Report) {
        (self.text, self.names, self.report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_comment() {
        let mut draft = Draft::default();
        draft.comment("Ann\nqdisc del dev eth0 root\\");
        assert_eq!(draft.finish().0, "# Ann qdisc del dev eth0 root\\\n");
    }

    #[test]
    fn a_name_is_one_word_on_a_line_of_its_own() {
        let mut draft = Draft::default();
        draft.name("1:10", " Ann #7\n1:1 root ");
        draft.name("1:11", " ");
        assert_eq!(draft.finish().1, "1:10 Ann__7_1:1_root\n");
    }

    #[test]
    fn faults_are_all_listed_before_the_notes() {
        let mut draft = Draft::default();
        draft.report("b", "");
        draft.fault("line 1: a");
        draft.fault("line 2: a");
        let (policy, _, report) = draft.finish();
        assert_eq!(report.lines(), "warning: line 1: a\nwarning: line 2: a\nnote: b\n");
        assert_eq!(policy, "# NOTE: line 1: a\n# NOTE: line 2: a\n");
    }

    #[test]
    fn equal_notes_are_counted() {
        let mut draft = Draft::default();
        draft.report("no address", "A");
        draft.report("no address", "B");
        draft.report("no rate", "");
        let report = draft.finish().2.lines();
        assert_eq!(report, "note: no address (2 times, first A)\nnote: no rate\n");
    }
}
