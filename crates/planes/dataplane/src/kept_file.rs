//! A file in which something is kept beside the state file: the sets in `STATE.sets`, the services
//! of a balancer in `STATE.services`.
//!
//! It is written at most once per second, rarely enough that writing takes at most a twentieth of
//! the time, and at the end. So a crash may lose changes of the last seconds, unlike changes of the
//! policy.
//!
//! Non-goals: what is in it ([`sets_file`](crate::sets_file),
//! [`services_file`](crate::services_file)).

use crate::clock;
use narrows_units::Nanos;
use std::path::{Path, PathBuf};

/// After writing, no writes for this many times as long.
const REST: u64 = 20;

/// A kept file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the {what} in {path}: {why}")]
pub struct KeptFileError {
    /// What is in it.
    pub what: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The mistake.
    pub why: String,
}

/// A file in which something is kept, and when it is written next.
pub(crate) struct KeptFile {
    path: PathBuf,
    what: &'static str,
    /// The state that the file has.
    kept: u64,
    /// When it may be written again.
    next: Nanos,
    /// Whether the last attempt failed.
    has_failed: bool,
}

impl KeptFile {
    /// The file for `what` beside the state file at `state`.
    pub(crate) fn beside(state: &Path, what: &'static str) -> Self {
        let mut path = state.as_os_str().to_owned();
        path.push(".");
        path.push(what);
        Self { path: path.into(), what, kept: 0, next: Nanos::ZERO, has_failed: false }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// It has the state `version`.
    pub(crate) fn has(&mut self, version: u64) {
        self.kept = version;
    }

    /// Whether it may be written at this time.
    pub(crate) fn is_due(&self) -> bool {
        clock::now() >= self.next
    }

    /// Writes `text` if the state `version` is another than that which it has.
    ///
    /// # Errors
    /// Why it cannot be written, once.
    pub(crate) fn keep(
        &mut self,
        version: u64,
        text: impl FnOnce() -> String,
    ) -> Result<(), String> {
        if version == self.kept {
            return Ok(());
        }
        let began = clock::now();
        let written = narrows_tc::replace(&self.path, &text());
        let now = clock::now();
        self.next = now + Nanos(now.since(began).0.saturating_mul(REST));
        match written {
            Ok(()) => {
                self.kept = version;
                self.has_failed = false;
                Ok(())
            }
            Err(error) => match std::mem::replace(&mut self.has_failed, true) {
                true => Ok(()),
                false => Err(format!(
                    "cannot keep the {} in {}: {error}",
                    self.what,
                    self.path.display()
                )),
            },
        }
    }

    /// What `read` makes of the text in the file at `path`; `None` if there is no such file.
    pub(crate) fn read<T>(
        path: &Path,
        what: &'static str,
        read: impl FnOnce(String) -> Result<T, String>,
    ) -> Result<Option<T>, KeptFileError> {
        let wrong = |why: String| KeptFileError { what, path: path.to_owned(), why };
        let text = match narrows_tc::read_input(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| wrong(error.to_string()))?,
        };
        read(String::from_utf8_lossy(&text).into_owned()).map(Some).map_err(wrong)
    }
}
