//! The file that sets are kept in, beside the state file: `STATE.sets`.
//!
//! It is the output of `narrows set save`, with the remaining time of members. It is written at
//! most once per second, rarely enough that writing takes at most a twentieth of the time, and at
//! the end. So a crash may lose changes of the last seconds, unlike changes of the policy.
//!
//! Non-goals: the sets' own changes of time, counters: they alone are no reason to write.

use crate::clock;
use crate::instance::{Instance, read_sets};
use narrows_sets::Sets;
use narrows_units::Nanos;
use std::io;
use std::path::{Path, PathBuf};

/// After writing, no writes for this many times as long.
const REST: u64 = 20;

/// A file of sets cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the sets in {path}: {why}")]
pub struct SetsFileError {
    /// The file.
    pub path: PathBuf,
    /// The mistake.
    pub why: String,
}

/// The file that sets are kept in, and when it is written next.
pub(crate) struct SetsFile {
    path: PathBuf,
    /// The state of the sets that the file has.
    kept: u64,
    /// When it may be written again.
    next: Nanos,
    /// Whether the last attempt failed.
    has_failed: bool,
}

impl SetsFile {
    /// The sets file beside the state file at `state`.
    pub(crate) fn beside(state: &Path) -> Self {
        let mut path = state.as_os_str().to_owned();
        path.push(".sets");
        Self { path: path.into(), kept: 0, next: Nanos::ZERO, has_failed: false }
    }

    /// Writes the sets of `instance` if they have changed, and not too often.
    pub(crate) fn keep_in_time(&mut self, instance: &mut Instance) {
        if clock::now() >= self.next {
            self.keep(instance);
        }
    }

    /// Writes the sets of `instance` if they have changed.
    pub(crate) fn keep(&mut self, instance: &mut Instance) {
        let version = instance.sets().version();
        if version == self.kept {
            return;
        }
        let began = clock::now();
        match narrows_tc::replace(&self.path, &instance.save_sets()) {
            Ok(()) => {
                self.kept = version;
                self.has_failed = false;
            }
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                instance.warn(format!("cannot keep the sets in {}: {error}", self.path.display()));
            }
            Err(_) => {}
        }
        let now = clock::now();
        self.next = now + Nanos(now.since(began).0.saturating_mul(REST));
    }
}

/// The initial sets: the saved ones, or those of the file at `first`, or none.
pub(crate) fn first(
    first: Option<&Path>,
    kept: Option<&mut SetsFile>,
) -> Result<Sets, SetsFileError> {
    let read = |path: &Path| {
        let wrong = |why: String| SetsFileError { path: path.to_owned(), why };
        let text = match narrows_tc::read_input(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| wrong(error.to_string()))?,
        };
        read_sets(String::from_utf8_lossy(&text).into_owned()).map(Some).map_err(wrong)
    };
    if let Some(file) = kept
        && let Some(sets) = read(&file.path)?
    {
        file.kept = sets.version();
        return Ok(sets);
    }
    let Some(path) = first else { return Ok(Sets::default()) };
    let missing = || SetsFileError { path: path.to_owned(), why: "there is no such file".into() };
    read(path)?.ok_or_else(missing)
}
