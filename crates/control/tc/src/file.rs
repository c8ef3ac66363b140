//! Policy files that one command at a time edits.
//!
//! A new file is written beside the old one and renamed over it, so that neither a reader nor a
//! power cut ever sees half of a file. Renaming replaces the file, so the lock is on one beside it.

use crate::lock::Lock;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long a pure replacement waits for commands that are editing.
const REPLACE_TIMEOUT: Duration = Duration::from_millis(200);
/// The interval at which it tries the lock.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Replaces the file at `path` with `text`, as a whole or not at all. Takes at most a fifth of a
/// second.
///
/// # Errors
/// If it cannot be written, or other commands hold the lock all the time. The file is unchanged.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    PolicyFile::lock(path, REPLACE_TIMEOUT)?.replace(text)
}

/// A policy file that no other command edits until this is dropped.
pub(crate) struct PolicyFile {
    /// Its path after resolving all links, so that they keep pointing to it.
    pub(crate) path: PathBuf,
    /// Its folder; `None` if there is none.
    folder: Option<File>,
    /// `None` where this user cannot write, so cannot edit either.
    _lock: Option<Lock>,
}

impl PolicyFile {
    /// Waits until no other command edits the file at `path`, for at most `timeout`.
    pub(crate) fn lock(path: &Path, timeout: Duration) -> io::Result<Self> {
        let path = behind_links(path);
        let folder = match path.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            Some(folder) => folder,
            None => return Err(io::ErrorKind::IsADirectory.into()),
        };
        let folder = match File::open(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            folder => Some(folder?),
        };
        let beside = path.with_file_name(hidden(&path, ".lock"));
        let end = Instant::now() + timeout;
        let lock = loop {
            match Lock::take(&beside) {
                Ok(Some(lock)) => break Some(lock),
                Ok(None) if Instant::now() < end => thread::sleep(LOOK_EVERY),
                Ok(None) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(error) => match error.kind() {
                    io::ErrorKind::NotFound
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::ReadOnlyFilesystem => break None,
                    _ => return Err(error),
                },
            }
        };
        Ok(Self { path, folder, _lock: lock })
    }

    /// Replaces the file with `text`, as a whole or not at all. Owner and permissions stay, as far
    /// as this user may set them.
    pub(crate) fn replace(&self, text: &str) -> io::Result<()> {
        let beside = self.path.with_file_name(hidden(&self.path, ".new"));
        // Left by a killed command: while the lock is held, no other writes here.
        let _ = fs::remove_file(&beside);
        let written = File::create_new(&beside).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            if let Ok(present) = fs::metadata(&self.path) {
                // Changing the owner needs a privilege that editing does not.
                let _ = fchown(&file, Some(present.uid()), Some(present.gid()))
                    .or_else(|_| fchown(&file, None, Some(present.gid())));
                file.set_permissions(present.permissions())?;
            }
            file.sync_all()?;
            fs::rename(&beside, &self.path)
        });
        if written.is_err() {
            // Cleans up; nothing more can be done.
            let _ = fs::remove_file(&beside);
        }
        written?;
        // The rename is part of the folder's content.
        self.folder.as_ref().map_or(Ok(()), File::sync_all)
    }
}

/// The name of a file for a moment beside that at `path`.
fn hidden(path: &Path, suffix: &str) -> OsString {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(suffix);
    name
}

/// The target of `path` after resolving links, even if it does not exist yet.
fn behind_links(path: &Path) -> PathBuf {
    if let Ok(path) = fs::canonicalize(path) {
        return path;
    }
    match (fs::read_link(path), path.parent()) {
        (Ok(target), Some(folder)) => folder.join(target),
        _ => path.to_owned(),
    }
}
