//! `tc --policy FILE`: the same commands on a policy file; nothing needs to run.
//!
//! A command that changes the policy rewrites the whole file: it keeps the comment at the head and
//! writes the commands anew, to a file beside it that it then renames. So neither a reader nor a
//! power cut sees half of a file. The file's folder is locked from reading to renaming, so that of
//! two concurrent commands the second edits the result of the first.

use crate::command::{self, CommandLine};
use crate::complaint::{Complaint, Outcome};
use crate::file::PolicyFile;
use crate::{ClassNames, Host, NAMES_FILE, device, execute_batch, load, save};
use narrows_policy::{Policy, PortFacts};
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a command waits for others that edit files in the same folder. Each takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A policy file as a host. It accepts any device name, because the policy may be for another
/// machine, and knows neither the number of queues nor statistics.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OfflineHost {
    policy: Policy,
}

impl OfflineHost {
    /// A host with that policy.
    pub fn new(policy: Policy) -> Self {
        Self { policy }
    }
}

impl Host for OfflineHost {
    fn devices(&self) -> Vec<String> {
        self.policy.ports().map(|(dev, _)| dev.to_owned()).collect()
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        device::is_name(dev).then_some(PortFacts::ETHERNET)
    }

    fn policy(&self) -> Policy {
        self.policy.clone()
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        self.policy = policy;
        Ok(())
    }
}

/// Runs one command line, the words after `tc --policy PATH`, on the policy file at `path`. A
/// change creates the file if it does not exist. `-batch` reads its file, or standard input.
pub fn offline(path: &Path, args: &[String]) -> Outcome {
    let mut line = match CommandLine::parse(args) {
        Ok(line) => line,
        Err(outcome) => return outcome,
    };
    match read_names(&line) {
        Ok(names) => line.options.names = names.map(|text| Arc::new(ClassNames::parse(&text))),
        Err(outcome) => return outcome,
    }
    match run(path, &line) {
        Ok(outcome) => outcome,
        Err(why) => Complaint::wrong(why).into(),
    }
}

fn run(path: &Path, line: &CommandLine) -> Result<Outcome, String> {
    let name = path.display().to_string();
    // Before the lock is taken: standard input may be a terminal.
    let batch = match &line.batch {
        Some(batch) => {
            let commands = read(batch).map_err(|error| cannot_read(batch, &error))?;
            Some((batch, commands))
        }
        None => None,
    };
    let file = PolicyFile::lock(path, TIMEOUT)
        .map_err(|error| format!("Cannot lock the file \"{name}\": {error}"))?;
    let text = match fs::read(&file.path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(cannot_read(&name, &error)),
    };
    let before =
        load(&text, &name, &OfflineHost::default()).map_err(|why| why.trim_end().to_owned())?;
    let mut host = OfflineHost::new(before.clone());
    let outcome = match &batch {
        Some((batch, commands)) => execute_batch(commands, batch, &line.options, &mut host),
        None => command::run_alone(&line.words(), &line.options, &mut host),
    };
    if host.policy != before {
        let text = format!("{}{}", heading(&text), save(&host.policy));
        file.replace(&text)
            .map_err(|error| format!("Cannot write file \"{name}\": {error}; it is as it was."))?;
    }
    Ok(outcome)
}

/// The text of the names file that `line` asks for: that of `-cf`, or [`NAMES_FILE`], which may be
/// absent.
///
/// # Errors
/// What to print if it cannot be read.
pub fn read_names(line: &CommandLine) -> Result<Option<String>, Outcome> {
    let name = line.conf.as_deref().unwrap_or(NAMES_FILE);
    if !line.names {
        return Ok(None);
    }
    match read(name) {
        Ok(text) => Ok(Some(text)),
        Err(error) if line.conf.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Complaint::wrong(cannot_read(name, &error)).into()),
    }
}

fn cannot_read(name: &str, error: &io::Error) -> String {
    format!("Cannot open file \"{name}\" for reading: {error}")
}

/// The file of that name, or standard input for `-`. Text that is not UTF-8 fails as a word later.
fn read(name: &str) -> io::Result<String> {
    let bytes = if name == "-" {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes)?;
        bytes
    } else {
        fs::read(name)?
    };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The comments and blank lines at the head of a policy file.
fn heading(text: &str) -> &str {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        let comment = line.trim_start();
        if !(comment.is_empty() || comment.starts_with('#')) || !line.ends_with('\n') {
            break;
        }
        end += line.len();
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heading_ends_at_the_first_command() {
        assert_eq!(heading("# a\n\n  # b\nqdisc\n# c\n"), "# a\n\n  # b\n");
        assert_eq!(heading(""), "");
        assert_eq!(heading("# no end"), "");
    }
}
