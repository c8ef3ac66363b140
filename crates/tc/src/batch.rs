//! Files of commands: `tc -batch` and policy files, which have the same format.

use crate::Host;
use crate::command::{self, Options};
use crate::complaint::Outcome;
use crate::oddities::Oddities;
use narrows_policy::{Policy, PortFacts};

/// Separators of words.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// Runs the commands in `text`, line by line, with the options of the command line that named the
/// file; `name` is the file's name in complaints. As with `tc`, lines before a failed one stay in
/// effect, and later ones are not run unless [`Options::force`] is set.
pub fn execute_batch(text: &str, name: &str, options: &Options, host: &mut dyn Host) -> Outcome {
    let mut batch = Batch::new(text, name, options.clone());
    while batch.step(host) {}
    batch.end()
}

/// A batch in progress, for hosts that have other work between two lines. See [`execute_batch`].
pub struct Batch {
    lines: std::vec::IntoIter<Line>,
    name: String,
    options: Options,
    outcome: Outcome,
    /// The odd values of the lines so far.
    oddities: Oddities,
    /// The number of the last line that was run.
    line: usize,
}

impl Batch {
    /// The commands in `text`, before the first is run.
    pub fn new(text: &str, name: &str, options: Options) -> Self {
        let lines = lines(text).into_iter();
        Self {
            lines,
            name: name.to_owned(),
            options,
            outcome: Outcome::default(),
            oddities: Oddities::default(),
            line: 0,
        }
    }

    /// Runs the next line against `host`. False if there is none, or no further line may run.
    pub fn step(&mut self, host: &mut dyn Host) -> bool {
        let Some(line) = self.lines.next() else { return false };
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

    /// The number of the last line that was run, from 1; 0 before the first.
    pub fn line(&self) -> usize {
        self.line
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
    let mut draft = Draft { host, policy: host.policy().anew() };
    let all = Options { force: true, ..Options::default() };
    let outcome = execute_batch(text, name, &all, &mut draft);
    if outcome.code == 0 { Ok(draft.policy.complete()) } else { Err(outcome.stderr) }
}

/// A policy under construction for the ports of another host.
struct Draft<'a> {
    host: &'a dyn Host,
    policy: Policy,
}

impl Host for Draft<'_> {
    fn devices(&self) -> Vec<String> {
        self.host.devices()
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        self.host.port(dev)
    }

    fn policy(&self) -> Policy {
        self.policy.clone()
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        self.policy = policy;
        Ok(())
    }
}

/// A line with its continuation lines.
pub(crate) struct Line {
    pub(crate) text: String,
    /// The number of its first line, from 1.
    pub(crate) first: usize,
    /// The number of its last line, which is the one that `tc` names.
    pub(crate) number: usize,
}

/// The lines of a file without comments. A comment begins with `#` anywhere; a backslash at the
/// very end of a line continues it.
pub(crate) fn lines(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut open = String::new();
    let mut number = 0;
    let mut first = 1;
    let mut continued = false;
    for line in text.split('\n') {
        number += 1;
        if !continued {
            first = number;
        }
        let code = line.split_once('#').map(|(code, _)| code);
        // A backslash before a comment is not at the end of the line.
        match (code, line.strip_suffix('\\')) {
            (None, Some(begun)) => {
                open.push_str(begun);
                continued = true;
            }
            (code, _) => {
                open.push_str(code.unwrap_or(line));
                lines.push(Line { text: std::mem::take(&mut open), first, number });
                continued = false;
            }
        }
    }
    if continued {
        lines.push(Line { text: open, first, number });
    }
    lines
}

/// The words of a line. A word that begins with a quote extends to the next such quote.
pub(crate) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start_matches(BLANKS);
    while let Some(first) = rest.chars().next() {
        let (word, behind) = if matches!(first, '\'' | '"') {
            rest[1..].split_once(first).ok_or_else(|| {
                format!("Unterminated quoted string: {rest}: a {first} is missing at its end.")
            })?
        } else {
            rest.split_at(rest.find(BLANKS).unwrap_or(rest.len()))
        };
        words.push(word.to_owned());
        rest = behind.trim_start_matches(BLANKS);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<(usize, Vec<String>)> {
        lines(text).iter().map(|line| (line.number, words(&line.text).unwrap())).collect()
    }

    fn say(text: &str) -> Vec<String> {
        text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn comments_and_blank_lines_hold_no_words_but_count() {
        assert_eq!(
            split("# a\n\nb c # d\ne#f"),
            [(1, say("")), (2, say("")), (3, say("b c")), (4, say("e"))]
        );
    }

    #[test]
    fn a_backslash_at_the_end_continues_a_line() {
        assert_eq!(split("a \\\n b\\\nc\nd"), [(3, say("a bc")), (4, say("d"))]);
        assert_eq!(split("a \\ # no\nb"), [(1, say("a \\")), (2, say("b"))]);
        assert_eq!(split("a \\"), [(1, say("a"))]);
    }

    #[test]
    fn quotes_keep_blanks_together() {
        assert_eq!(words("a 'b c'  \"d'\"e").unwrap(), ["a", "b c", "d'", "e"]);
        assert!(words("a 'b").unwrap_err().contains("'b"));
    }

    #[test]
    fn carriage_returns_are_blanks() {
        assert_eq!(split("a b\r\nc"), [(1, say("a b")), (2, say("c"))]);
    }
}
