//! A whole command line: options, object, command.

use crate::complaint::{Complaint, Outcome};
use crate::oddities::Oddities;
use crate::options::Options;
use crate::words::{Words, abbreviates};
use crate::{ClassNames, Host, Recipients, action, class, filter, qdisc, save, verb};
use std::sync::Arc;

const USAGE: &str = "Usage: tc [ OPTIONS ] qdisc { show | add | replace | change | del | help } ...
       tc [ OPTIONS ] class { show | add | replace | change | del | help } ...
       tc [ OPTIONS ] filter { show | add | replace | change | del | get | help } ...
       tc [ OPTIONS ] actions { show | add | replace | change | del | get | flush | help } ...
       tc save [ dev NAME ]
       tc [ -force ] -batch FILE
OPTIONS := { -s[tatistics] | -d[etails] | -j[son] | -p[retty] | -o[neline] | -iec | -g[raph] |
             -n[etns] NAME | -nm | -cf FILE | -V[ersion] | -c[olor] | -br[ief] }
FILE may be - for standard input.
";

/// What `-V` prints.
const VERSION: &str = concat!("tc utility, narrows-", env!("CARGO_PKG_VERSION"), "\n");

/// A parsed command line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommandLine {
    /// The options.
    pub options: Options,
    /// The file given with `-batch`. The caller reads it and passes it to
    /// [`execute_batch`](crate::execute_batch); `-` is standard input.
    pub batch: Option<String>,
    /// The network namespace given with `-netns`, by its name under `/run/netns`. The caller enters
    /// it.
    pub netns: Option<String>,
    /// `-nm`: names of classes are requested. The caller reads them
    /// ([`read_names`](crate::read_names)) and puts them into the options.
    pub names: bool,
    /// The names file, given with `-cf`.
    pub conf: Option<String>,
    /// The policy file given with `--policy`, an extension of `tc`'s options. The command edits
    /// this file instead of a running instance. The caller handles it
    /// ([`offline`](crate::offline)).
    pub policy: Option<String>,
    /// The object, the command and its words.
    pub words: Vec<String>,
}

impl CommandLine {
    /// Parses `args`, the words after `tc`.
    ///
    /// # Errors
    /// The outcome to print instead of executing a command: a complaint, or the requested help.
    pub fn parse(args: &[String]) -> Result<Self, Outcome> {
        let mut line = Self::default();
        let all: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut words = Words::new(&all);
        let mut rest = args;
        while let Some(word) = words.next().filter(|word| word.starts_with('-')) {
            rest = &rest[1..];
            let mut value = || {
                rest = rest.get(1..).unwrap_or_default();
                words.next().map(str::to_owned).ok_or_else(usage)
            };
            // As in tc, the order decides between options with the same beginning. One exception:
            // tc's manual calls -c colour, and tc reads it as -conf.
            if abbreviates(word, "-stats") || abbreviates(word, "-statistics") {
                line.options.statistics = true;
            } else if abbreviates(word, "-details") {
                line.options.details = true;
            } else if abbreviates(word, "-pretty") {
                line.options.pretty = true;
            } else if abbreviates(word, "-Version") {
                return Err(Outcome::printed(VERSION.to_owned()));
            } else if abbreviates(word, "-iec") {
                line.options.iec = true;
            } else if abbreviates(word, "-help") {
                return Err(usage());
            } else if abbreviates(word, "-force") {
                line.options.force = true;
            } else if abbreviates(word, "-batch") {
                line.batch = Some(value()?);
            } else if word == "--policy" {
                line.policy = Some(value()?);
            } else if let Some(file) = word.strip_prefix("--policy=") {
                line.policy = Some(file.to_owned());
            } else if abbreviates(word, "-netns") {
                line.netns = Some(value()?);
            } else if word == "-cf" || word.len() > 3 && abbreviates(word, "-conf") {
                line.conf = Some(value()?);
            } else if abbreviates(word, "-nm") || abbreviates(word, "-names") {
                line.names = true;
            } else if abbreviates(word, "-graph") {
                line.options.graph = true;
            } else if abbreviates(word, "-json") {
                line.options.json = true;
            } else if abbreviates(word, "-oneline") {
                line.options.oneline = true;
            } else if abbreviates(word, "-brief") {
                line.options.brief = true;
            } else if !is_without_effect(word) {
                return Err(Complaint::unreadable(format!(
                    "Option \"{word}\" is unknown, the options are -s, -d, -j, -p, -o, -iec, -g, -n NAME, -nm, -cf FILE, -batch FILE, -force and -V."
                ))
                .into());
            }
        }
        line.words = rest.to_vec();
        Ok(line)
    }
}

impl CommandLine {
    /// The words after the options.
    pub(crate) fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }
}

/// Whether `word` is an option of `tc` without effect here: colours (there are none), time stamps
/// of a monitor.
fn is_without_effect(word: &str) -> bool {
    let colour = word.split_once('=').map_or(word, |(colour, when)| {
        if ["always", "auto", "never"].contains(&when) { colour } else { "" }
    });
    abbreviates(colour, "-color")
        || ["-Numeric", "-timestamp", "-tshort"].iter().any(|option| abbreviates(word, option))
        || word == "-ts"
}

/// Runs one command line, the words after `tc`. A command that fails changes nothing.
///
/// The caller handles `-batch`, see [`CommandLine::batch`]: code that executes commands from a
/// client must not open files for it.
pub fn execute(args: &[String], host: &mut dyn Host) -> Outcome {
    execute_named(args, None, host)
}

/// Whether the command line `args` only shows something: `None` if it may change the policy,
/// otherwise whether it needs figures of what runs.
pub fn shows(args: &[String]) -> Option<bool> {
    let line = CommandLine::parse(args).ok()?;
    let mut words = line.words.iter().map(String::as_str);
    let object = words.next()?;
    let is = |name: &str| abbreviates(object, name);
    // The kernel prints some figures of a qdisc without being asked.
    let figures = line.options.statistics || is("qdisc") || is("class");
    let is_save = is("save") && !["qdisc", "class", "filter", "actions"].into_iter().any(is);
    let shows = is_save || words.next().is_none_or(|verb| verb::lists(verb) || verb == "get");
    shows.then_some(figures)
}

/// Runs one command line as [`execute`] does, with the names of classes that the caller has read.
pub fn execute_named(
    args: &[String],
    names: Option<Arc<ClassNames>>,
    host: &mut dyn Host,
) -> Outcome {
    match CommandLine::parse(args) {
        Err(outcome) => outcome,
        Ok(CommandLine { batch: Some(name), .. }) => Complaint::wrong(format!(
            "Cannot open file \"{name}\" for reading: batches are read where they are typed."
        ))
        .into(),
        Ok(CommandLine { policy: Some(name), .. }) => Complaint::wrong(format!(
            "Cannot work on file \"{name}\": policy files are edited where that is typed."
        ))
        .into(),
        Ok(line) if line.words.is_empty() => usage(),
        Ok(line) => run_alone(&line.words(), &Options { names, ..line.options }, host),
    }
}

/// The answer to a line that asks for help, or says nothing: it needs no instance. `None` for any
/// other line.
pub fn help(line: &CommandLine) -> Option<Outcome> {
    let asks = match line.words.as_slice() {
        [] => line.batch.is_none(),
        [.., before, last] => last == "help" && before != "dev",
        [only] => abbreviates(only, "help"),
    };
    let mut nobody = Recipients::elsewhere(&[]);
    asks.then(|| match line.words.is_empty() {
        true => usage(),
        false => run(&line.words(), &line.options, &mut nobody),
    })
}

/// Runs the words of a command that is not one of a batch, and warns about odd values.
pub(crate) fn run_alone(words: &[&str], options: &Options, host: &mut dyn Host) -> Outcome {
    let mut outcome = run(words, options, host);
    if outcome.code == 0 {
        let mut oddities = Oddities::default();
        oddities.look(words, String::new);
        outcome.stderr.push_str(&oddities.text());
    }
    outcome
}

/// Runs the words of one command.
pub(crate) fn run(words: &[&str], options: &Options, host: &mut dyn Host) -> Outcome {
    let mut words = Words::new(words);
    let outcome = match words.next() {
        Some(object) if abbreviates(object, "qdisc") => qdisc::run(words, options, host),
        Some(object) if abbreviates(object, "class") => class::run(words, options, host),
        Some(object) if abbreviates(object, "filter") => filter::run(words, options, host),
        Some(object) if abbreviates(object, "actions") => action::run(words, options, host),
        Some(object) if abbreviates(object, "save") => save::run(words, host),
        Some(object) if abbreviates(object, "help") => Ok(usage()),
        Some(object) => {
            let is_tc = object.rsplit('/').next() == Some("tc");
            let hint =
                if is_tc { " Leave it out: a command begins with one of these." } else { "" };
            Err(Complaint::unreadable(format!(
                "Object \"{object}\" is unknown: here are qdisc, class, filter, actions and save.{hint}"
            )))
        }
        None => Ok(usage()),
    };
    outcome.unwrap_or_else(Outcome::from)
}

fn usage() -> Outcome {
    Outcome { stderr: USAGE.to_owned(), ..Outcome::default() }
}
