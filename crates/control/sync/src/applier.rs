//! From the store to the running instance.
//!
//! *What runs* is taken to be what was applied last, if the same instance still runs; else it is
//! read from the instance. [`Compiler`] finds the commands, and [`instance`](crate::instance) gives
//! them.

use crate::compiler::Compiler;
use crate::files;
use crate::instance::{Instance, bring};
use narrows_control::{Client, ControlError};
use narrows_directory::{Form, Numbers, Options, Ports, Report};
use narrows_store::{Begun, Store, StoreError};
use narrows_tc::Lock;
use narrows_units::Rate;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

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
        Ok(store.how()?.and_then(|text| How::read(&text)).map(How::settings))
    }

    /// How a directory is compiled with `numbers`.
    pub(crate) fn options(&self, numbers: &Numbers) -> Options {
        let Self { ports, uplink, .. } = self.clone();
        Options { ports, uplink, numbers: numbers.clone() }
    }

    /// What the store keeps of them.
    pub(crate) fn note(&self) -> String {
        How::new(self, None).text()
    }
}

impl How {
    fn new(settings: &Settings, instance: Option<String>) -> Self {
        let Settings { ports, uplink, policy, names } = settings.clone();
        let uplink = uplink.map(|rate| rate.map(Rate::bits_per_sec));
        Self { ports, uplink, policy, names, instance }
    }

    fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    fn text(&self) -> String {
        // Text and numbers: nothing that JSON could not have.
        serde_json::to_string(self).unwrap_or_default()
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
    compiler: Compiler,
}

impl Applier {
    /// One that applies with `settings`.
    pub fn new(settings: Settings) -> Self {
        Self { settings, compiler: Compiler::default() }
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
        let mut applied = self.apply_without_files(store)?;
        applied.files = self.write_files(store)?;
        Ok(applied)
    }

    /// Writes the files that are older than what is in force. Returns which.
    ///
    /// # Errors
    /// If the store or a file cannot be used.
    pub fn write_files(&self, store: &mut Store) -> Result<Vec<PathBuf>, ApplyError> {
        files::write(store, &self.settings)
    }

    /// Applies it without the files: those of many subscribers take longer than a change of one,
    /// and sessions come and go all the time.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn apply_without_files(&mut self, store: &mut Store) -> Result<Applied, ApplyError> {
        let _lock = lock(store.path(), ".lock")?;
        let start = Instant::now();
        let client = match Client::find(Some(&self.settings.ports.subscribers)) {
            Ok(mut found) => Some(found.swap_remove(0)),
            Err(ControlError::NoInstance(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let instance = client.as_ref().map(|client| client as &dyn Instance);
        self.apply_on(store, instance, start)
    }

    fn apply_on(
        &mut self,
        store: &mut Store,
        instance: Option<&dyn Instance>,
        start: Instant,
    ) -> Result<Applied, ApplyError> {
        let begun = store.begin()?;
        let done = self.applied(store, &begun, instance, start);
        match &done {
            Ok((how, _)) => store.finish(how)?,
            // What runs is as it was.
            Err(ApplyError::Refused { .. } | ApplyError::Foreign(_) | ApplyError::Ports { .. })
                if begun.before.is_some() =>
            {
                self.compiler.back(&begun, store.begun());
                store.give_up()?
            }
            // What runs is not known: the next one reads it.
            Err(_) => self.compiler.forget(),
        }
        Ok(done?.1)
    }

    /// The note for the next application, and what was done.
    fn applied(
        &mut self,
        store: &Store,
        begun: &Begun,
        instance: Option<&dyn Instance>,
        start: Instant,
    ) -> Result<(String, Applied), ApplyError> {
        let (directory, numbers) = store.begun();
        let Ports { internet, subscribers } = &self.settings.ports.clone();
        if let Some(has) = instance.map(Instance::ports).filter(|has| !has.contains(internet)) {
            let (internet, subscribers) = (internet.clone(), subscribers.clone());
            return Err(ApplyError::Ports { internet, subscribers, has: has.join(", ") });
        }
        let identity = instance.and_then(Instance::identity);
        let how = begun.before.as_ref().and_then(|before| How::read(&before.how));
        let former = how.as_ref().filter(|how| how.is_of(identity.as_deref()));
        let former = former.map(|how| how.clone().settings());
        let (commands, report) =
            self.compiler.step(begun, (directory, numbers), &self.settings, former.as_ref());
        let mut applied = Applied {
            commands: None,
            took: Duration::ZERO,
            files: Vec::new(),
            report,
            warnings: String::new(),
        };
        if let Some(instance) = instance {
            let next = || Form::compile(directory, &self.settings.options(numbers)).0;
            let devs = [subscribers.as_str(), internet.as_str()];
            let (commands, warnings) = bring(instance, commands, next, devs)?;
            (applied.commands, applied.warnings) = (Some(commands), warnings);
        }
        applied.took = start.elapsed();
        Ok((How::new(&self.settings, identity).text(), applied))
    }
}

/// Waits until no other process has this lock of the store: the one that `ends` so.
pub(crate) fn lock(store: &Path, ends: &str) -> Result<Lock, ApplyError> {
    let mut path = store.as_os_str().to_owned();
    path.push(ends);
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

#[cfg(test)]
mod tests;
