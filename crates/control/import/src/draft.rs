//! A policy under construction, and the report about it.

use narrows_escape::is_hidden;
use narrows_tc::{OfflineHost, execute};
use std::collections::HashMap;
use std::fmt::Write;

/// The result of an import.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    /// The policy file.
    pub policy: String,
    /// The names of its classes, in the format of `tc -nm`: one line `1:10 NAME` each.
    pub names: String,
    /// A one-line summary of what was read and written.
    pub summary: String,
    /// What the operator should know, although nothing is lost.
    pub notes: Vec<Note>,
    /// What was left out, or is not as it was, one sentence each. If there is any, the policy is
    /// not all of the configuration.
    pub faults: Vec<String>,
    /// The numbers of the classes, for the next import of [`libreqos`](crate::libreqos); empty for
    /// others.
    pub numbers: String,
}

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

impl Imported {
    /// The report, one line for each fault and each note.
    pub fn report(&self) -> String {
        let mut text = format!("{}\n", self.summary);
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
#[derive(Debug, Default)]
pub(crate) struct Draft {
    text: String,
    names: String,
    notes: Vec<Note>,
    faults: Vec<String>,
    /// The policy so far, of the commands that were [tried](Self::attempt).
    host: OfflineHost,
    /// The index of each note in `notes`.
    places: HashMap<String, usize>,
}

impl Draft {
    /// Adds a command.
    pub(crate) fn line(&mut self, command: &str) {
        self.text.push_str(command);
        self.text.push('\n');
    }

    /// Adds a command if the policy so far accepts it. A command that it refuses is left out, with
    /// `what` it was and the reason.
    pub(crate) fn attempt(&mut self, command: &str, what: &str) -> bool {
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let outcome = execute(&words, &mut self.host);
        if outcome.code == 0 {
            self.line(command);
            return true;
        }
        // Complaints may go on with a usage.
        let why = outcome.stderr.lines().next().unwrap_or("").trim_start_matches("Error: ");
        self.fault(&format!("{what} is left out: {why} ({command})"));
        false
    }

    /// Names a class, in the one word that the names file allows.
    pub(crate) fn name(&mut self, class: &str, name: &str) {
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
    pub(crate) fn comment(&mut self, text: &str) {
        self.text.push_str("# ");
        self.text.push_str(&printable(text));
        self.text.push('\n');
    }

    pub(crate) fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Reports something, also as a comment at the present place in the policy.
    pub(crate) fn note(&mut self, what: &str, example: &str) {
        match example.is_empty() {
            true => self.comment(&format!("NOTE: {what}")),
            false => self.comment(&format!("NOTE: {what}: {example}")),
        }
        self.report(what, example);
    }

    /// Says what is left out or changed, also as a comment at the present place in the policy.
    pub(crate) fn fault(&mut self, what: &str) {
        self.comment(&format!("NOTE: {what}"));
        self.faults.push(printable(what));
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
        let Self { text: policy, names, notes, faults, .. } = self;
        Imported { policy, names, summary, notes, faults, numbers: String::new() }
    }
}

/// The text on one line, without hidden characters, and shortened if it is long.
pub(crate) fn printable(text: &str) -> String {
    const LONGEST: usize = 400;
    let clean = |letter: char| if is_hidden(letter) { ' ' } else { letter };
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
    fn faults_are_all_listed_before_the_notes() {
        let mut draft = Draft::default();
        draft.report("b", "");
        draft.fault("line 1: a");
        draft.fault("line 2: a");
        let imported = draft.finish("1 circuit".to_owned());
        let report = "1 circuit\nwarning: line 1: a\nwarning: line 2: a\nnote: b\n";
        assert_eq!(imported.report(), report);
        assert_eq!(imported.policy, "# NOTE: line 1: a\n# NOTE: line 2: a\n");
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
