//! The guest's messages to the host, one line of JSON each.

use crate::cake::Sample;
use serde::{Deserialize, Serialize};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It is as it should be.
    Passed,
    /// It is not.
    Failed,
    /// It does not apply here.
    Skipped,
}

/// One check of one cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Its name, as in the table.
    pub name: String,
    /// The result.
    pub outcome: Outcome,
    /// The observation, or the reason.
    pub note: String,
    /// How long it took, in seconds of the guest's clock.
    pub seconds: f64,
}

/// A line from the guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Message {
    /// The guest's program runs, on the kernel of this release.
    Hello(String),
    /// The mode of Narrows: XDP, copying, queues.
    Mode(String),
    /// A check has ended.
    Check(Check),
    /// One system has been measured under one load.
    Sample(Sample),
    /// A line that a command printed.
    Said(String),
    /// All checks have ended.
    End,
}

/// The stored result of a cell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub cell: String,
    /// The kernel's release; empty if the guest did not boot.
    pub release: String,
    /// The mode of Narrows and, for a cell that measures, the kind of processors; empty if Narrows
    /// does not run.
    pub mode: String,
    /// The completed checks.
    pub checks: Vec<Check>,
    /// The samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// Whether the guest completed all of them.
    pub complete: bool,
    /// A hash of the tested program.
    pub program: u64,
}

impl Record {
    /// Adds a message.
    pub fn add(&mut self, message: Message) {
        match message {
            Message::Hello(release) => self.release = release,
            Message::Mode(mode) => self.mode = mode,
            Message::Check(check) => self.checks.push(check),
            Message::Sample(sample) => self.samples.push(sample),
            Message::Said(_) => {}
            Message::End => self.complete = true,
        }
    }

    /// The result of the cell: it passes if the guest completed and no check failed.
    pub fn outcome(&self) -> Outcome {
        let failed = self.checks.iter().any(|check| check.outcome == Outcome::Failed);
        if self.complete && !failed { Outcome::Passed } else { Outcome::Failed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(outcomes: &[Outcome], complete: bool) -> Record {
        let mut record = Record::default();
        for outcome in outcomes {
            record.add(Message::Check(Check {
                name: "ping".to_owned(),
                outcome: *outcome,
                note: String::new(),
                seconds: 1.0,
            }));
        }
        if complete {
            record.add(Message::End);
        }
        record
    }

    #[test]
    fn a_cell_that_stops_in_the_middle_has_failed() {
        assert_eq!(record(&[Outcome::Passed], true).outcome(), Outcome::Passed);
        assert_eq!(record(&[Outcome::Passed], false).outcome(), Outcome::Failed);
        assert_eq!(record(&[], false).outcome(), Outcome::Failed);
    }

    #[test]
    fn one_failed_check_is_enough() {
        use Outcome::{Failed, Passed, Skipped};
        assert_eq!(record(&[Passed, Failed, Passed], true).outcome(), Failed);
        assert_eq!(record(&[Passed, Skipped], true).outcome(), Passed);
    }
}
