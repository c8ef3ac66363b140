//! A whole command line: options, object, command.

use crate::complaint::{Complaint, Outcome};
use crate::words::{Words, abbreviates};
use crate::{Host, qdisc};

const USAGE: &str =
    "Usage: tc [ -s ] [ -d ] [ -j ] [ -p ] qdisc { show | add | replace | change | del | help } ...
       tc [ -force ] -batch FILE
-s prints statistics, -d details, -j JSON, -p JSON for people; FILE may be - for standard input.
";

/// How to print, and how to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// `-s`: with statistics.
    pub statistics: bool,
    /// `-d`: with parameters that are rarely of interest.
    pub details: bool,
    /// `-j`: as JSON.
    pub json: bool,
    /// `-p`: JSON with line breaks.
    pub pretty: bool,
    /// `-force`: a batch goes on behind a line that failed.
    pub force: bool,
}

/// A command line taken apart.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommandLine {
    /// The options.
    pub options: Options,
    /// The file given with `-batch`, to be read by the caller and passed to
    /// [`execute_batch`](crate::execute_batch); `-` is standard input.
    pub batch: Option<String>,
    /// The object, the command and its words.
    pub words: Vec<String>,
}

impl CommandLine {
    /// Takes `args` apart, the words behind `tc`.
    ///
    /// # Errors
    /// What to print and return instead of executing it: a complaint, or the help that was
    /// asked for.
    pub fn parse(args: &[String]) -> Result<Self, Outcome> {
        let mut line = Self::default();
        let mut words = Words::new(args);
        let mut rest = args;
        while let Some(word) = words.next().filter(|word| word.starts_with('-')) {
            rest = &rest[1..];
            if abbreviates(word, "-stats") || abbreviates(word, "-statistics") {
                line.options.statistics = true;
            } else if abbreviates(word, "-details") {
                line.options.details = true;
            } else if abbreviates(word, "-pretty") {
                line.options.pretty = true;
            } else if abbreviates(word, "-help") {
                return Err(usage());
            } else if abbreviates(word, "-force") {
                line.options.force = true;
            } else if abbreviates(word, "-batch") {
                line.batch = Some(words.next().ok_or_else(usage)?.to_owned());
                rest = &rest[1..];
            } else if abbreviates(word, "-json") {
                line.options.json = true;
            } else {
                return Err(Complaint::unreadable(format!(
                    "Option \"{word}\" is unknown, the options are -s, -d, -j, -p, -batch FILE and -force."
                ))
                .into());
            }
        }
        line.words = rest.to_vec();
        Ok(line)
    }
}

/// Runs one command line, the words behind `tc`. One that fails changes nothing.
///
/// `-batch` is for the caller to resolve, see [`CommandLine::batch`]: whoever executes
/// commands that came from elsewhere must not open files for them.
pub fn execute(args: &[String], host: &mut dyn Host) -> Outcome {
    match CommandLine::parse(args) {
        Err(outcome) => outcome,
        Ok(CommandLine { batch: Some(name), .. }) => Complaint::wrong(format!(
            "Cannot open file \"{name}\" for reading: batches are read where they are typed."
        ))
        .into(),
        Ok(line) if line.words.is_empty() => usage(),
        Ok(line) => run(&line.words, &line.options, host),
    }
}

/// Runs the words of one command.
pub(crate) fn run(words: &[String], options: &Options, host: &mut dyn Host) -> Outcome {
    let mut words = Words::new(words);
    let outcome = match words.next() {
        Some(object) if abbreviates(object, "qdisc") => qdisc::run(words, options, host),
        Some(object) if abbreviates(object, "help") => Ok(usage()),
        Some(object) => Err(Complaint::unreadable(format!(
            "Object \"{object}\" is unknown: the only one here is qdisc."
        ))),
        None => Ok(usage()),
    };
    outcome.unwrap_or_else(Outcome::from)
}

fn usage() -> Outcome {
    Outcome { stderr: USAGE.to_owned(), ..Outcome::default() }
}
