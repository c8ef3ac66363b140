//! Exclusive locks between processes.
//!
//! A lock is on a file of its own, which only its owner may open: a process that can open a file
//! can lock it, so a lock on a folder that others may read could be taken by anybody. The file is
//! removed with its lock. Its holder may remove it after another process has opened it and before
//! that one has locked it, so a lock counts only on the file that still has the name. The kernel
//! drops a lock with the process that held it, so the file of a killed process is a leftover.
//!
//! Source: flock(2).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// An exclusive lock. Dropping it removes its file.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Locks the file at `path`, which is created if missing; `None` if another has the lock.
    ///
    /// # Errors
    /// If it cannot be opened: `NotFound` if its folder is missing.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let mut options = OpenOptions::new();
            options.write(true).create(true).mode(0o600);
            // A link or a pipe that another put there is not followed and not waited for.
            options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
            let file = options.open(path)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
                Ok(()) => {}
            }
            let own = file.metadata()?;
            let is_this =
                |named: fs::Metadata| (own.dev(), own.ino()) == (named.dev(), named.ino());
            if fs::symlink_metadata(path).is_ok_and(is_this) {
                return Ok(Some(Self { file, path: path.to_owned() }));
            }
        }
    }

    /// The lock on the file at `path` that another process passed on.
    pub fn inherited(file: OwnedFd, path: PathBuf) -> Self {
        Self { file: File::from(file), path }
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is held; the descriptor is closed after this.
        let _ = fs::remove_file(&self.path);
    }
}
