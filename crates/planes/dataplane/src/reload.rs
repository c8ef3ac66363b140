//! Reading the policy file again, all or nothing, beside the loop.
//!
//! A thread reads, checks and plans the whole file, while the loop goes on with the policy in
//! force. Then the loop applies the result like a batch: an unchanged qdisc keeps its queue, its
//! credit and its counters. A file with an error changes nothing. The file wins: live edits since
//! the last read are discarded.
//!
//! *Commands meanwhile.* A reload counts from when it was asked for. A command after that is in
//! force at once; when the file is in force, it is given again, so that the result is the same as
//! if it had waited.
//!
//! *An unchanged file* is not parsed, if the policy in force is still the one that was read from
//! it.

use crate::beside::{Beside, Lost, Pending};
use crate::instance::{Instance, Planned};
use crate::policy_file::PolicyFileError;
use crate::policy_file::{self, Source};
use crate::tc_host::Commands;
use narrows_policy::Policy;
use narrows_tc::{ClassNames, Outcome};
use std::path::Path;
use std::sync::Arc;

/// How many mistakes are kept among the events; the log has them all.
const MISTAKES_KEPT: usize = 8;

/// A policy, and what it was read from.
#[derive(Clone)]
pub(crate) struct LastRead {
    pub(crate) source: Source,
    pub(crate) policy: Policy,
}

/// A policy file that is being read again.
pub(crate) struct Reload {
    name: String,
    reading: Pending<Result<Read, String>>,
    /// The commands since, which have changed the policy.
    since: Vec<Given>,
}

/// A command that was given.
struct Given {
    words: Vec<String>,
    names: Option<Arc<ClassNames>>,
}

/// What came of reading.
enum Read {
    /// The file and the policy in force are those of the last time.
    Unchanged,
    /// A policy, planned.
    Policy(Source, Box<Planned>),
    /// The file cannot be read.
    Refused(PolicyFileError),
}

impl Reload {
    /// Begins to read the file at `path` for `instance`; `last` is what was read before.
    ///
    /// # Errors
    /// If there is no file to read.
    pub(crate) fn begin(
        beside: &Beside,
        instance: &mut Instance,
        path: Option<&Path>,
        last: Option<&LastRead>,
    ) -> Result<Self, String> {
        let Some(path) = path.filter(|path| !policy_file::is_stdin(path)) else {
            let why = "nothing to reload: name the policy file at the start, with --batch FILE";
            instance.warn(why.to_owned());
            return Err(why.to_owned());
        };
        let (planner, ports) = (instance.planner(), instance.forwarding().clone());
        let (path, last) = (path.to_owned(), last.cloned());
        let name = path.display().to_string();
        let reading = beside.start("reload", move || {
            let file = match policy_file::read(&path, &ports) {
                Ok(file) => file,
                Err(error) => return Ok(Read::Refused(error)),
            };
            let source = file.source();
            let is_last =
                |last: &LastRead| last.source == source && last.policy == *planner.policy();
            if last.as_ref().is_some_and(is_last) {
                return Ok(Read::Unchanged);
            }
            // It is large, and dropping it takes time that the loop need not spend.
            drop(last);
            let policy = match file.policy(planner.policy()) {
                Ok(policy) => policy.reusing(planner.policy()),
                Err(error) => return Ok(Read::Refused(error)),
            };
            planner.prepare(policy).map_or_else(
                |error| Err(error.to_string()),
                |planned| Ok(Read::Policy(source, Box::new(planned))),
            )
        });
        Ok(Self { name, reading, since: Vec::new() })
    }

    /// Records a command that has changed the policy since.
    pub(crate) fn given(&mut self, words: &[String], names: Option<Arc<ClassNames>>) {
        self.since.push(Given { words: words.to_vec(), names });
    }

    /// Puts the result in force, if it is there, and reports the outcome: as events and, on
    /// failure, as the service's status line. Returns what was read, if that is new.
    pub(crate) fn end(
        &self,
        instance: &mut Instance,
        beside: &Beside,
    ) -> Option<Result<Option<LastRead>, String>> {
        let read = self.reading.take()?;
        let ended = self.put_in_force(read, instance, beside);
        if ended.is_ok() {
            self.give_again(instance);
        }
        Some(ended)
    }

    fn put_in_force(
        &self,
        read: Result<Result<Read, String>, Lost>,
        instance: &mut Instance,
        beside: &Beside,
    ) -> Result<Option<LastRead>, String> {
        let name = &self.name;
        let read = read.map_err(|lost| lost.to_string()).and_then(|read| read);
        let changed = |changes: bool| if changes { "" } else { ", which changes nothing" };
        let ended = match read {
            Ok(Read::Refused(error)) => return Err(refuse(instance, name, &error)),
            Ok(Read::Unchanged) => Ok((None, false)),
            Ok(Read::Policy(source, planned)) => {
                let policy = planned.policy.clone();
                let changes = policy != *instance.policy();
                let read = LastRead { source, policy };
                let replaced = instance.put_in_force(*planned);
                let replaced = replaced.map(|replaced| {
                    drop(beside.start("replaced", move || drop(replaced)));
                    (Some(read), changes)
                });
                replaced.map_err(|error| error.to_string())
            }
            Err(error) => Err(error),
        };
        match ended {
            Ok((read, changes)) => {
                instance.say(format!("reloaded {name}{}", changed(changes)));
                Ok(read)
            }
            Err(error) => {
                let why = format!("reload of {name}: {error}");
                instance.warn(why.clone());
                Err(why)
            }
        }
    }

    /// Gives the commands again that came while the file was read.
    fn give_again(&self, instance: &mut Instance) {
        for Given { words, names } in &self.since {
            let mut host = Commands::at_once(instance);
            let Outcome { stderr, code, .. } =
                narrows_tc::execute_named(words, names.clone(), &mut host);
            if code != 0 {
                instance.warn(format!(
                    "`tc {}`, given while {} was read, does not fit what is in it: {}",
                    words.join(" "),
                    self.name,
                    stderr.trim_end()
                ));
            }
        }
    }
}

/// Reports a file that is not usable, and returns the summary.
fn refuse(instance: &mut Instance, name: &str, error: &PolicyFileError) -> String {
    let PolicyFileError::Wrong(mistakes) = error else {
        let why = format!("reload refused, nothing changed: {error}");
        instance.warn(why.clone());
        return why;
    };
    let lines = mistakes.lines();
    let summary = format!("reload of {name} refused, nothing changed");
    instance.warn(format!("{summary}: {}", narrows_units::counted(lines.len(), "mistake")));
    for (index, mistake) in lines.iter().enumerate() {
        match index {
            0..MISTAKES_KEPT => instance.warn(mistake.clone()),
            _ => log::warn!("{mistake}"),
        }
    }
    // A message to the service manager must not take a file's length.
    let first: Vec<&str> = lines.iter().take(MISTAKES_KEPT).map(String::as_str).collect();
    format!("{summary}: {}", first.join("; "))
}
