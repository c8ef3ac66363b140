//! A policy under construction whose commands are tried, and the result of an import.

use narrows_directory::{Note, Report};
use narrows_tc::{OfflineHost, execute};
use std::ops::{Deref, DerefMut};

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

impl Imported {
    pub(crate) fn of(draft: narrows_directory::Draft, summary: String) -> Self {
        let (policy, names, Report { notes, faults }) = draft.finish();
        Self { policy, names, summary, notes, faults, numbers: String::new() }
    }

    /// The report, one line for each fault and each note.
    pub fn report(&self) -> String {
        let report = Report { notes: self.notes.clone(), faults: self.faults.clone() };
        format!("{}\n{}", self.summary, report.lines())
    }
}

/// Lines of a policy, each of which the policy so far has accepted.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    draft: narrows_directory::Draft,
    /// The policy so far, of the commands that were [tried](Self::attempt).
    host: OfflineHost,
}

impl Deref for Draft {
    type Target = narrows_directory::Draft;

    fn deref(&self) -> &Self::Target {
        &self.draft
    }
}

impl DerefMut for Draft {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.draft
    }
}

impl Draft {
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

    pub(crate) fn finish(self, summary: String) -> Imported {
        Imported::of(self.draft, summary)
    }
}
