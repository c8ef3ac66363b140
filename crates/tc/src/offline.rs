//! `tc --policy FILE`: the same commands on a policy file, nothing running needed.
//!
//! The only module of this crate that touches files. A command that changes the policy rewrites
//! the whole file: the comment at its head is kept, the commands are written anew, beside the
//! file first and then renamed over it, so that no reader ever sees half of one.

use crate::command::{self, CommandLine};
use crate::complaint::{Complaint, Outcome};
use crate::{Host, execute_batch, load, save};
use narrows_policy::{Policy, PortFacts};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// A policy on paper: it takes any device name, since it may be for another box, and knows
/// neither how many queues a device has nor any figures.
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
        is_device_name(dev).then_some(PortFacts::ETHERNET)
    }

    fn policy(&self) -> Policy {
        self.policy.clone()
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        self.policy = policy;
        Ok(())
    }
}

/// Whether the kernel would take it, and a policy file can hold it.
fn is_device_name(name: &str) -> bool {
    /// `IFNAMSIZ` without the closing zero.
    const LONGEST: usize = 15;
    (1..=LONGEST).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.contains(|letter: char| {
            letter.is_whitespace() || letter.is_control() || "/:#'\"\\".contains(letter)
        })
}

/// Runs one command line, the words behind `tc --policy PATH`, on the policy file at `path`,
/// which a change makes if it does not exist. `-batch` reads its file, or standard input.
pub fn offline(path: &Path, args: &[String]) -> Outcome {
    let line = match CommandLine::parse(args) {
        Ok(line) => line,
        Err(outcome) => return outcome,
    };
    match run(path, &line) {
        Ok(outcome) => outcome,
        Err(why) => Complaint::wrong(why).into(),
    }
}

fn run(path: &Path, line: &CommandLine) -> Result<Outcome, String> {
    let name = path.display().to_string();
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(cannot_read(&name, &error)),
    };
    let before =
        load(&text, &name, &OfflineHost::default()).map_err(|why| why.trim_end().to_owned())?;
    let mut host = OfflineHost::new(before.clone());
    let outcome = match &line.batch {
        Some(batch) => {
            let commands = read(batch).map_err(|error| cannot_read(batch, &error))?;
            execute_batch(&commands, batch, &line.options, &mut host)
        }
        None => command::run(&line.words, &line.options, &mut host),
    };
    if host.policy != before {
        let text = format!("{}{}", heading(&text), save(&host.policy));
        replace(path, &text)
            .map_err(|error| format!("Cannot write file \"{name}\": {error}; it is as it was."))?;
    }
    Ok(outcome)
}

fn cannot_read(name: &str, error: &io::Error) -> String {
    format!("Cannot open file \"{name}\" for reading: {error}")
}

/// The file of that name, or standard input for `-`. What is no UTF-8 will be no word either.
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

/// Puts `text` in the place of the file at `path`, as a whole or not at all.
///
/// # Errors
/// Where it cannot be written; the file is as it was.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    // A link is followed, so that it keeps pointing to the file.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let written = File::create_new(&beside).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        if let Ok(present) = fs::metadata(&path) {
            file.set_permissions(present.permissions())?;
        }
        file.sync_all()?;
        fs::rename(&beside, &path)
    });
    if written.is_err() {
        // Nothing more can be done than not to leave it lying about.
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_name_is_what_the_kernel_takes_and_a_file_can_hold() {
        for name in ["eth0", "wan.100", "a", "fifteen-letters"] {
            assert!(is_device_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a:b", "a b", "a#b", "a\"b", "sixteen-letters-", "a\0"] {
            assert!(!is_device_name(name), "{name}");
        }
    }

    #[test]
    fn the_heading_ends_at_the_first_command() {
        assert_eq!(heading("# a\n\n  # b\nqdisc\n# c\n"), "# a\n\n  # b\n");
        assert_eq!(heading(""), "");
        assert_eq!(heading("# no end"), "");
    }
}
