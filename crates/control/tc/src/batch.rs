//! Files of commands: `tc -batch` and policy files, which have the same format.

use crate::command;
use crate::complaint::Outcome;
use crate::host::{Editing, Host};
use crate::lines::{Lines, words};
use crate::oddities::Oddities;
use crate::options::Options;
use crate::verb;
use narrows_policy::{Policy, PortFacts, Verb};

/// Runs the commands in `text`, line by line, with the options of the command line that named the
/// file; `name` is the file's name in complaints. As with `tc`, lines before a failed one stay in
/// effect, and later ones are not run unless [`Options::force`] is set.
pub fn execute_batch(text: &str, name: &str, options: &Options, host: &mut dyn Host) -> Outcome {
    let mut batch = Batch::new(text.to_owned(), name, options.clone());
    while batch.step(host) {}
    batch.end()
}

/// A batch in progress, for hosts that have other work between two lines. See [`execute_batch`].
pub struct Batch {
    text: String,
    /// Where the next line begins.
    at: usize,
    /// How many line breaks are before that.
    breaks: usize,
    name: String,
    options: Options,
    outcome: Outcome,
    /// The odd values of the lines so far.
    oddities: Oddities,
    /// The number of the last line that was run.
    line: usize,
}

/// A point within a batch to which it can go [back](Batch::back).
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    at: usize,
    breaks: usize,
    line: usize,
    code: i32,
    /// The lengths of its output.
    said: [usize; 2],
}

impl Batch {
    /// The commands in `text`, before the first is run.
    pub fn new(text: String, name: &str, options: Options) -> Self {
        Self {
            text,
            at: 0,
            breaks: 0,
            name: name.to_owned(),
            options,
            outcome: Outcome::default(),
            oddities: Oddities::default(),
            line: 0,
        }
    }

    /// Runs the next line against `host`. False if there is none, or no further line may run.
    pub fn step(&mut self, host: &mut dyn Host) -> bool {
        let mut rest = Lines { at: self.at, breaks: self.breaks, text: &self.text };
        let Some(line) = rest.next() else { return false };
        (self.at, self.breaks) = (rest.at, rest.breaks);
        self.line = line.number;
        let result = match words(&line.text) {
            Ok(words) if words.is_empty() => return true,
            Ok(words) => {
                let result = command::run(&words, &self.options, host);
                if result.code == 0 {
                    self.oddities.look(&words, || format!(" ({}:{})", self.name, line.number));
                }
                result
            }
            Err(why) => {
                Outcome { stderr: format!("{why}\n"), code: Outcome::WRONG, ..Outcome::default() }
            }
        };
        self.outcome.stdout.push_str(&result.stdout);
        self.outcome.stderr.push_str(&result.stderr);
        if result.code == 0 {
            return true;
        }
        let failed = format!("Command failed {}:{}\n", self.name, line.number);
        self.outcome.stderr.push_str(&failed);
        self.outcome.code = Outcome::WRONG;
        self.options.force
    }

    /// Whether the next line removes something.
    pub fn removes_next(&self) -> bool {
        let mut rest = Lines { at: self.at, breaks: self.breaks, text: &self.text };
        let Some(next) = rest.next() else { return false };
        let verb = words(&next.text).ok().and_then(|words| verb::parse(words.get(1)?));
        verb == Some(Verb::Delete)
    }

    /// The length of its text, in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The number of the last line that was run, from 1; 0 before the first.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The present point.
    pub fn mark(&self) -> Mark {
        let Outcome { stdout, stderr, code } = &self.outcome;
        let said = [stdout.len(), stderr.len()];
        Mark { at: self.at, breaks: self.breaks, line: self.line, code: *code, said }
    }

    /// Goes back to `mark`, as if no line had been run since. What those lines did to the host is
    /// the caller's to undo.
    pub fn back(&mut self, mark: Mark) {
        (self.at, self.breaks, self.line) = (mark.at, mark.breaks, mark.line);
        self.outcome.code = mark.code;
        self.outcome.stdout.truncate(mark.said[0]);
        self.outcome.stderr.truncate(mark.said[1]);
    }

    /// Takes the output and exit code of the lines so far.
    pub fn end(&mut self) -> Outcome {
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.stderr.push_str(&std::mem::take(&mut self.oddities).text());
        outcome
    }
}

/// The policy that the file `text`, called `name`, describes for the ports of `host`. It starts
/// from nothing and does not change the host. A qdisc without a handle in the file gets the
/// automatic handle of the qdisc in its place on the host.
///
/// # Errors
/// The complaints about all failed lines, each with file and line.
pub fn load(text: &str, name: &str, host: &dyn Host) -> Result<Policy, String> {
    let read = |in_place: bool| {
        let all = Options { force: true, ..Options::default() };
        let mut batch = Batch::new(text.to_owned(), name, all);
        let mut draft = Draft { host, policy: host.policy().anew(), in_place, is_lost: false };
        while !draft.is_lost && batch.step(&mut draft) {}
        (batch.end(), draft)
    };
    // From the first refusal on, complaints need the policy as it was before that line.
    let (outcome, draft) = match read(true) {
        (_, Draft { is_lost: true, .. }) => read(false),
        read => read,
    };
    if outcome.code == 0 { Ok(draft.policy.complete()) } else { Err(outcome.stderr) }
}

/// A policy under construction for the ports of another host.
struct Draft<'a> {
    host: &'a dyn Host,
    policy: Policy,
    /// Whether it is changed without a copy, which takes a fraction of the time. A change that is
    /// refused loses it.
    in_place: bool,
    is_lost: bool,
}

impl Host for Draft<'_> {
    fn has_device(&self, name: &str) -> bool {
        self.host.has_device(name)
    }

    fn devices(&self) -> Vec<String> {
        self.host.devices()
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        self.host.port(dev)
    }

    fn is_asked(&self) -> bool {
        false
    }

    fn policy(&self) -> Policy {
        self.policy.clone()
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        self.policy = policy;
        Ok(())
    }

    fn edit(&mut self, edit: &mut Editing<'_>) -> Result<(), String> {
        let present =
            if self.in_place { std::mem::take(&mut self.policy) } else { self.policy.clone() };
        match edit(present) {
            Ok(next) => self.apply(next),
            Err(error) => {
                self.is_lost = self.in_place;
                Err(crate::refusal(&error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_went_back_runs_the_same_lines_again() {
        let text = "qdisc add dev a root pfifo\nqdisc show dev a\n\nqdisc add dev a root x\n# end";
        let run = |goes_back: bool| {
            let mut host = crate::OfflineHost::default();
            let mut batch =
                Batch::new(text.to_owned(), "f", Options { force: true, ..Options::default() });
            assert!(batch.step(&mut host));
            let (mark, before) = (batch.mark(), host.clone());
            while goes_back && batch.step(&mut host) {}
            if goes_back {
                batch.back(mark);
                host = before;
            }
            while batch.step(&mut host) {}
            (batch.line(), batch.end())
        };
        assert_eq!(run(true), run(false));
    }

    #[test]
    fn what_removes_something_is_known_before_it_runs() {
        let text = "qdisc d dev a root\nclass show dev a\nqdisc \\\n del".to_owned();
        let mut batch = Batch::new(text, "f", Options { force: true, ..Options::default() });
        let mut removes = Vec::new();
        for _ in 0..4 {
            removes.push(batch.removes_next());
            batch.step(&mut crate::OfflineHost::default());
        }
        assert_eq!(removes, [true, false, true, false]);
    }
}
