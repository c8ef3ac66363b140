//! Files that hold a policy, edited by one command at a time.
//!
//! A file is written anew beside itself and renamed, so that no reader and no power cut ever sees
//! half of one. That puts another file in its place, so it is the folder that is locked.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long whoever only replaces a file waits for those who edit one.
const REPLACE_TIMEOUT: Duration = Duration::from_millis(200);
/// How often it looks whether they are done.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Puts `text` in the place of the file at `path`, as a whole or not at all. Takes a fifth of a
/// second at most.
///
/// # Errors
/// Where it cannot be written, or others edit files there all the time; the file is as it was.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    PolicyFile::lock(path, REPLACE_TIMEOUT)?.replace(text)
}

/// A policy file that no other command edits until this is dropped.
pub(crate) struct PolicyFile {
    /// Where it is, or is to be, behind all links: so they keep pointing to it.
    pub(crate) path: PathBuf,
    /// Locked. The file itself could not be: it is replaced. `None` where there is no such folder.
    folder: Option<File>,
}

impl PolicyFile {
    /// Waits until no other command edits a file in the folder of `path`, for `timeout` at most.
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
        if let Some(folder) = &folder {
            let end = Instant::now() + timeout;
            while let Err(error) = folder.try_lock() {
                match error {
                    TryLockError::WouldBlock if Instant::now() < end => thread::sleep(LOOK_EVERY),
                    error => return Err(error.into()),
                }
            }
        }
        Ok(Self { path, folder })
    }

    /// Puts `text` in the place of the file, as a whole or not at all. Its owner and who may read
    /// it stay what they were, as far as this user may say so.
    pub(crate) fn replace(&self, text: &str) -> io::Result<()> {
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(".new");
        let beside = self.path.with_file_name(name);
        // By a command that was killed: nobody else writes here while the folder is locked.
        let _ = fs::remove_file(&beside);
        let written = File::create_new(&beside).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            if let Ok(present) = fs::metadata(&self.path) {
                // Giving away needs privilege that editing does not.
                let _ = fchown(&file, Some(present.uid()), Some(present.gid()))
                    .or_else(|_| fchown(&file, None, Some(present.gid())));
                file.set_permissions(present.permissions())?;
            }
            file.sync_all()?;
            fs::rename(&beside, &self.path)
        });
        if written.is_err() {
            // Nothing more can be done than not to leave it lying about.
            let _ = fs::remove_file(&beside);
        }
        written?;
        // The file's name is the folder's content.
        self.folder.as_ref().map_or(Ok(()), File::sync_all)
    }
}

/// What `path` leads to, though it may not be there yet.
fn behind_links(path: &Path) -> PathBuf {
    if let Ok(path) = fs::canonicalize(path) {
        return path;
    }
    match (fs::read_link(path), path.parent()) {
        (Ok(target), Some(folder)) => folder.join(target),
        _ => path.to_owned(),
    }
}
