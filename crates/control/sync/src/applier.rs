//! From the store to the running instance, and to the files from which it starts.
//!
//! *A batch is not all or nothing.* As with `tc -batch`, the lines before a refused one are in
//! force. So each command has an inverse, and what was done is undone in reverse order.
//!
//! *What runs* is taken to be what was applied last, if the same process still runs; else it is
//! read from the instance. If the instance refuses a command, then somebody has changed it
//! meanwhile: it is read, compared, and tried once more.

use crate::running;
use narrows_control::{Answer, BATCH_MAX, Client, ControlError, Request};
use narrows_directory::{
    Command, Compiled, Directory, Draft, Form, Numbers, Options, Ports, Report, compile,
};
use narrows_store::{Begun, Store, StoreError};
use narrows_tc::Lock;
use narrows_units::Rate;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The name of the batch in complaints.
const BATCH: &str = "narrows-sync";
/// How long it waits for another process that applies, and how often it looks.
const LOCK_TIME: Duration = Duration::from_secs(120);
const LOCK_EVERY: Duration = Duration::from_millis(10);

/// How a directory is applied.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// The two ports.
    pub ports: Ports,
    /// The capacity of the uplink, downstream and upstream; none: the sum at the top.
    pub uplink: [Option<Rate>; 2],
    /// The policy file, from which the instance starts.
    pub policy: Option<PathBuf>,
    /// The file with the names of classes.
    pub names: Option<PathBuf>,
}

/// What the store keeps beside the directory that was applied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct How {
    ports: Ports,
    /// In bit/s.
    uplink: [Option<u64>; 2],
    policy: Option<PathBuf>,
    names: Option<PathBuf>,
    /// The identity of the instance; none if none ran.
    instance: Option<String>,
}

impl Settings {
    /// Those with which the directory was applied last.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn last(store: &Store) -> Result<Option<Self>, StoreError> {
        let how = store.how()?.and_then(|text| serde_json::from_str::<How>(&text).ok());
        Ok(how.map(|how| how.settings()))
    }
}

impl How {
    fn new(settings: &Settings, instance: Option<String>) -> Self {
        let Settings { ports, uplink, policy, names } = settings.clone();
        let uplink = uplink.map(|rate| rate.map(Rate::bits_per_sec));
        Self { ports, uplink, policy, names, instance }
    }

    fn settings(self) -> Settings {
        let Self { ports, uplink, policy, names, .. } = self;
        let uplink = uplink.map(|rate| rate.map(Rate::from_bits_per_sec));
        Settings { ports, uplink, policy, names }
    }

    /// Whether the instance with this identity is the one to which this was applied.
    fn is_of(&self, instance: Option<&str>) -> bool {
        instance.is_some() && self.instance.as_deref() == instance
    }
}

/// Why a directory is not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The instance does not answer.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The instance has other ports.
    #[error(
        "no instance has both ports, {internet} and {subscribers}: the one with {subscribers} has {has}"
    )]
    Ports {
        /// The port towards the Internet.
        internet: String,
        /// The port towards subscribers.
        subscribers: String,
        /// The ports of that instance.
        has: String,
    },
    /// The instance runs something else.
    #[error("nothing is changed: {0}")]
    Foreign(String),
    /// The instance has refused a command. What was done before it is undone.
    #[error("nothing is changed: the instance refuses \"{command}\": {why}")]
    Refused {
        /// The command.
        command: String,
        /// Why.
        why: String,
    },
    /// It has refused a command, and then one that undoes what was done.
    #[error(
        "the instance refuses \"{command}\" ({why}), and what was done before could not be undone: \
         apply again, or reload its policy file"
    )]
    Half {
        /// The command.
        command: String,
        /// Why.
        why: String,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Another process applies a directory all the time.
    #[error("another narrows-sync applies this store for more than {} s: end it", LOCK_TIME.as_secs())]
    Busy,
}

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// How many commands the instance got; none if no instance runs.
    pub commands: Option<usize>,
    /// How long it took from the directory to the instance's answer, without the files.
    pub took: Duration,
    /// The files that were written.
    pub files: Vec<PathBuf>,
    /// What the operator should know of the compilation.
    pub report: Report,
    /// What the instance said beside.
    pub warnings: String,
}

/// Applies a store's directory, again and again.
#[derive(Debug)]
pub struct Applier {
    settings: Settings,
    /// What was compiled last, of which revision.
    last: Option<(u64, Form)>,
    /// The files may be older than what runs.
    has_old_files: bool,
}

impl Applier {
    /// One that applies with `settings`.
    pub fn new(settings: Settings) -> Self {
        Self { settings, last: None, has_old_files: false }
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Applies the directory of `store`, as it is now, to the instance that has the ports, and
    /// writes the files. If no instance runs, only the files are written.
    ///
    /// # Errors
    /// If the store or a file cannot be used, or the instance refuses. Then what runs is as it was,
    /// unless [`ApplyError::Half`] says otherwise.
    pub fn apply(&mut self, store: &mut Store) -> Result<Applied, ApplyError> {
        self.apply_to(store, true)
    }

    /// Applies it without the files, which the next [`apply`](Self::apply) writes: those of many
    /// subscribers take longer than a change of one, and sessions come and go all the time.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn apply_without_files(&mut self, store: &mut Store) -> Result<Applied, ApplyError> {
        self.apply_to(store, false)
    }

    /// The files count as older than what runs, as after a run that ended too early.
    pub fn distrust_files(&mut self) {
        self.has_old_files = true;
    }

    fn apply_to(&mut self, store: &mut Store, has_files: bool) -> Result<Applied, ApplyError> {
        let _lock = lock(store.path())?;
        let start = Instant::now();
        let begun = store.begin()?;
        let done = self.applied(store, &begun, start, has_files);
        match &done {
            Ok((how, ..)) => store.finish(how)?,
            // What runs is as it was.
            Err(ApplyError::Refused { .. } | ApplyError::Foreign(_) | ApplyError::Ports { .. })
                if begun.before.is_some() =>
            {
                store.give_up()?
            }
            // What runs is not known, or not in the files: the next one reads it, and writes them.
            Err(_) => {}
        }
        let (_, form, applied) = done?;
        self.last = Some((begun.revision, form));
        Ok(applied)
    }

    fn applied(
        &mut self,
        store: &mut Store,
        begun: &Begun,
        start: Instant,
        has_files: bool,
    ) -> Result<(String, Form, Applied), ApplyError> {
        let numbers = store.numbers()?.clone();
        let directory = store.directory()?;
        let options = self.options(&self.settings, &numbers);
        let (next, report) = Form::compile(directory, &options);
        let Ports { internet, subscribers } = &self.settings.ports.clone();
        let client = match Client::find(Some(subscribers)) {
            Ok(mut found) => Some(found.swap_remove(0)),
            Err(ControlError::NoInstance(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let mut applied = Applied {
            commands: None,
            took: Duration::ZERO,
            files: Vec::new(),
            report,
            warnings: String::new(),
        };
        let mut instance = None;
        if let Some(client) = &client {
            if !client.ports.contains(internet) {
                let has = client.ports.join(", ");
                let (internet, subscribers) = (internet.clone(), subscribers.clone());
                return Err(ApplyError::Ports { internet, subscribers, has });
            }
            instance = client.identity();
            let before = self.before(begun, directory, &numbers, instance.as_deref());
            let devs = [subscribers.as_str(), internet.as_str()];
            let (commands, warnings) = bring(client, before, &next, devs)?;
            (applied.commands, applied.warnings) = (Some(commands), warnings);
        }
        applied.took = start.elapsed();
        let is_known = begun.before.as_ref().is_some_and(|before| {
            let how: Option<How> = serde_json::from_str(&before.how).ok();
            how.is_some_and(|how| how.policy == self.settings.policy)
        });
        self.has_old_files |= !is_known || applied.commands != Some(0);
        if has_files {
            self.write_files(&compile(directory, &options), &mut applied.files)?;
            self.has_old_files = false;
        }
        let how = How::new(&self.settings, instance);
        let how = serde_json::to_string(&how).unwrap_or_default();
        Ok((how, next, applied))
    }

    /// Writes the files that are not as they should be.
    fn write_files(&self, compiled: &Compiled, files: &mut Vec<PathBuf>) -> Result<(), ApplyError> {
        let is_other = |path: &Path, text: &str| {
            std::fs::read(path).ok().is_none_or(|present| present != text.as_bytes())
        };
        let policy = self.settings.policy.as_ref();
        if let Some(path) = policy.filter(|path| self.has_old_files || !path.exists()) {
            let mut draft = Draft::default();
            draft.comment("Written by narrows-sync: changes to it are lost with the next sync.");
            compiled.write(&mut draft);
            let text = draft.finish().0;
            if is_other(path, &text) {
                write(path, &text, files)?;
            }
        }
        // A name may change without a command.
        if let Some(path) = &self.settings.names {
            let names = compiled.names();
            if is_other(path, &names) {
                write(path, &names, files)?;
            }
        }
        Ok(())
    }

    /// What runs, if it is known without asking.
    fn before(
        &mut self,
        begun: &Begun,
        now: &Directory,
        numbers: &Numbers,
        instance: Option<&str>,
    ) -> Option<Form> {
        let before = begun.before.as_ref()?;
        let how: How = serde_json::from_str(&before.how).ok()?;
        if !how.is_of(instance) {
            return None;
        }
        let settings = how.settings();
        if let Some((revision, form)) = self.last.take()
            && revision == before.revision
            && settings == self.settings
        {
            return Some(form);
        }
        Some(Form::compile(&before.directory(now), &self.options(&settings, numbers)).0)
    }

    fn options(&self, settings: &Settings, numbers: &Numbers) -> Options {
        let Settings { ports, uplink, .. } = settings.clone();
        Options { ports, uplink, numbers: numbers.clone() }
    }
}

/// Brings the instance to `next`; `before` is what it runs, if that is known. Returns how many
/// commands it took, and what the instance said.
fn bring(
    client: &Client,
    before: Option<Form>,
    next: &Form,
    devs: [&str; 2],
) -> Result<(usize, String), ApplyError> {
    if let Some(before) = before {
        let commands = before.towards(next);
        match give(client, &commands) {
            Ok(warnings) => return Ok((commands.len(), warnings)),
            // It is not as it was left.
            Err(ApplyError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let save = Request::Tc { args: vec!["save".to_owned()], names: None };
    let saved = outcome(client.ask(&save)?)?;
    let commands = running::form(&saved.0, devs).map_err(ApplyError::Foreign)?.towards(next);
    let warnings = give(client, &commands)?;
    Ok((commands.len(), warnings))
}

/// Gives the instance `commands`: all of them, or none.
fn give(client: &Client, commands: &[Command]) -> Result<String, ApplyError> {
    let mut warnings = String::new();
    let mut done = 0;
    while done < commands.len() {
        let (text, lines) = batch(&commands[done..]);
        match outcome(client.batch(&[], BATCH, &text, None)?) {
            Ok((_, stderr)) => warnings.push_str(&stderr),
            Err(ApplyError::Foreign(why)) => {
                let failed = failed_line(&why).filter(|line| (1..=lines).contains(line));
                let Some(line) = failed else {
                    let command = commands[done].line();
                    return Err(ApplyError::Half { command, why });
                };
                done += line - 1;
                let command = commands[done].line();
                let why = why.lines().next().unwrap_or_default();
                let why = why.trim_start_matches("Error: ").to_owned();
                let undo: Vec<Command> =
                    commands[..done].iter().rev().map(Command::inverse).collect();
                let undone = undo_all(client, &undo)?;
                return Err(match undone {
                    true => ApplyError::Refused { command, why },
                    false => ApplyError::Half { command, why },
                });
            }
            Err(error) => return Err(error),
        }
        done += lines;
    }
    Ok(warnings)
}

/// Whether all of `commands` are done.
fn undo_all(client: &Client, commands: &[Command]) -> Result<bool, ApplyError> {
    let mut done = 0;
    while done < commands.len() {
        let (text, lines) = batch(&commands[done..]);
        if outcome(client.batch(&[], BATCH, &text, None)?).is_err() {
            return Ok(false);
        }
        done += lines;
    }
    Ok(true)
}

/// The text of the first commands, as many as one batch may have, and how many these are.
fn batch(commands: &[Command]) -> (String, usize) {
    let mut text = String::new();
    let mut lines = 0;
    for command in commands {
        let line = command.line();
        if lines > 0 && (text.len() + line.len() + 1) as u64 > BATCH_MAX {
            break;
        }
        text.push_str(&line);
        text.push('\n');
        lines += 1;
    }
    (text, lines)
}

/// What a command printed, on both outputs; [`ApplyError::Foreign`] with its complaint if it
/// failed.
fn outcome(answer: Answer) -> Result<(String, String), ApplyError> {
    let outcome = answer.outcome().map_err(ControlError::Refused)?;
    match outcome.code {
        0 => Ok((outcome.stdout, outcome.stderr)),
        _ => Err(ApplyError::Foreign(outcome.stderr)),
    }
}

/// The line of the batch that was refused, from 1.
fn failed_line(complaint: &str) -> Option<usize> {
    let mut lines = complaint.lines().filter_map(|line| line.strip_prefix("Command failed "));
    lines.next_back()?.rsplit_once(':')?.1.trim().parse().ok()
}

/// Waits until no other process applies this store.
fn lock(store: &Path) -> Result<Lock, ApplyError> {
    let mut path = store.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let end = Instant::now() + LOCK_TIME;
    loop {
        match Lock::take(&path) {
            Ok(Some(lock)) => return Ok(lock),
            Ok(None) if Instant::now() < end => thread::sleep(LOCK_EVERY),
            Ok(None) => return Err(ApplyError::Busy),
            Err(error) => return Err(ApplyError::File { path, why: error.to_string() }),
        }
    }
}

fn write(path: &Path, text: &str, files: &mut Vec<PathBuf>) -> Result<(), ApplyError> {
    let file = |why: String| ApplyError::File { path: path.to_owned(), why };
    narrows_tc::replace(path, text).map_err(|error| file(error.to_string()))?;
    files.push(path.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refused_line_is_the_last_that_is_named() {
        let said = "Error: no\nRTNETLINK answers: x\nCommand failed narrows-sync:7\n";
        assert_eq!(failed_line(said), Some(7));
        assert_eq!(failed_line("Error: 7"), None);
    }

    #[test]
    fn what_runs_is_known_of_the_same_instance_only() {
        let how = |instance: Option<&str>| How::new(&Settings::default(), instance.map(Into::into));
        assert!(how(Some("a")).is_of(Some("a")));
        assert!(!how(Some("a")).is_of(Some("b")));
        assert!(!how(Some("a")).is_of(None) && !how(None).is_of(None));
    }
}
