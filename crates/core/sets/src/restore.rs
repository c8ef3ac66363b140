//! `ipset restore`: a text of commands, executed in steps so that other work can run in between.
//!
//! Like `ipset`, it stops at the first line that fails and names it. The lines before it are in
//! force.

use crate::command;
use crate::sets::{Failure, Host, Reply, Sets};
use crate::words::Words;
use narrows_units::{Nanos, without_mark};

/// The text of an `ipset restore`, and how much of it is done.
pub struct Restore {
    text: String,
    /// How many bytes of it are done.
    done: usize,
    /// The number of the line that is next.
    next: usize,
    may_exist: bool,
    failure: Option<String>,
    size: usize,
}

impl Restore {
    /// The restore of `text`, whose first line has the number `first`; `may_exist` applies `-exist`
    /// to every line.
    pub fn new(text: String, first: usize, may_exist: bool) -> Self {
        let done = text.len() - without_mark(&text).len();
        Self { size: text.len(), text, done, next: first, may_exist, failure: None }
    }

    /// Does one line. False if there is nothing more to do.
    pub fn step(&mut self, sets: &mut Sets, now: Nanos, host: &dyn Host) -> bool {
        let rest = self.text.get(self.done..).filter(|_| self.failure.is_none());
        let Some(line) = rest.and_then(|rest| rest.split_inclusive('\n').next()) else {
            sets.pack();
            (self.text, self.done) = (String::new(), 0);
            return false;
        };
        self.done += line.len();
        let number = self.next;
        self.next = self.next.saturating_add(1);
        if let Err(why) = Self::execute(line, self.may_exist, sets, now, host) {
            self.failure = Some(format!("narrows set: Error in line {number}: {why}\n"));
        }
        true
    }

    fn execute(
        line: &str,
        may_exist: bool,
        sets: &mut Sets,
        now: Nanos,
        host: &dyn Host,
    ) -> Result<(), String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let mut command = command::parse(Words::new(line)).map_err(|error| error.0)?;
        command.may_exist |= may_exist;
        match sets.execute(command, now, host) {
            Ok(_) => Ok(()),
            Err(Failure::Syntax(why) | Failure::Refused(why) | Failure::No(why)) => Err(why),
        }
    }

    /// The number of the last line that was done.
    pub fn line(&self) -> usize {
        self.next.saturating_sub(1)
    }

    /// How long its text is or, at the end, was, in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How it ended.
    pub fn end(&self) -> Reply {
        match &self.failure {
            None => Reply::default(),
            Some(why) => Reply { stderr: why.clone(), code: 1, ..Reply::default() },
        }
    }
}
