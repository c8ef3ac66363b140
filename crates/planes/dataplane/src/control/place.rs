//! Which process may open a control socket.
//!
//! An instance holds a lock for each of its ports for as long as it lives. So of several that want
//! a port, at the same moment or later, exactly one gets it. Files whose lock is free are leftovers
//! and may be removed ([`Lock`]).

use crate::supervisor;
use narrows_control::place::{RUN_DIR, SOCKET, file, folder};
use narrows_forwarding::Forwarding;
use narrows_tc::Lock;
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The suffix of locks.
const LOCK: &str = "lock";
/// The suffix of the record of what an instance switched off.
pub(crate) const OFFLOADS: &str = "offloads";
/// The suffix of the record of the addresses that it took off.
pub(crate) const ADDRESSES: &str = "addresses";

/// An instance that cannot have its place.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The folder or the socket cannot be made.
    #[error("cannot open the control socket {path}: {source}{}", hint(source))]
    Open {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another instance has it.
    #[error(
        "another narrows already joins {port}, or is about to; stop it first, or change it with \
         `narrows tc`"
    )]
    Taken {
        /// Its port that is taken.
        port: String,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; joining ports needs root: run it with sudo",
        _ => "",
    }
}

/// The record with the suffix `kind` of the instance that joins `ports`, for the next one.
pub(crate) fn record(ports: &Forwarding, kind: &str) -> PathBuf {
    file(&folder().unwrap_or_else(|_| RUN_DIR.into()), ports.names(), kind)
}

/// The locks in `folder` of the instance that joins `ports`, each with its port or device. In a
/// fixed order, so that of two instances with the same ports in different order one gets all.
fn locks<'a>(
    folder: &'a Path,
    ports: &'a Forwarding,
) -> impl Iterator<Item = (&'a String, PathBuf)> {
    let names: BTreeSet<&String> = ports.names().iter().chain(ports.devices()).collect();
    names.into_iter().map(|port| (port, folder.join(format!("{port}.{LOCK}"))))
}

/// The place of one instance: its socket's path, and the locks on it. Released when dropped.
pub(super) struct Place {
    pub(super) socket: PathBuf,
    locks: Vec<Lock>,
}

impl Place {
    /// Takes the place of the instance that joins `ports` in `folder`, if it is free.
    pub(super) fn take(folder: &Path, ports: &Forwarding) -> Result<Self, PlaceError> {
        let socket = file(folder, ports.names(), SOCKET);
        let failed = |path: &Path, source| PlaceError::Open { path: path.to_owned(), source };
        if ports.devices().iter().any(|port| port.contains('/')) {
            return Err(failed(&socket, io::ErrorKind::InvalidInput.into()));
        }
        let mut taken = Vec::new();
        for (port, path) in locks(folder, ports) {
            match lock(folder, &path).map_err(|source| failed(&path, source))? {
                Some(lock) => taken.push(lock),
                None => return Err(PlaceError::Taken { port: port.clone() }),
            }
        }
        Ok(Self { socket, locks: taken })
    }

    /// Continues with the place of another process, which passed on the `locks`.
    pub(super) fn inherited(
        folder: &Path,
        ports: &Forwarding,
        locks: impl Iterator<Item = OwnedFd>,
    ) -> Self {
        let socket = file(folder, ports.names(), SOCKET);
        let paths = self::locks(folder, ports).map(|(_, path)| path);
        let lock = |(lock, path)| Lock::inherited(lock, path);
        Self { socket, locks: locks.zip(paths).map(lock).collect() }
    }

    /// Its locks, to be passed on.
    pub(super) fn locks(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.locks.iter().map(|lock| lock.as_fd())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The next instance would remove them, too.
        let _ = std::fs::remove_file(&self.socket);
        self.locks.clear();
        if let Some(folder) = self.socket.parent() {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Locks the file at `path` in `folder`, which is created if missing; `None` if another has the
/// lock.
fn lock(folder: &Path, path: &Path) -> io::Result<Option<Lock>> {
    loop {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        match Lock::take(path) {
            // The folder was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            taken => return taken,
        }
    }
}

/// Removes the files of instances that were killed in network namespaces that are gone. In one that
/// is still there, the next instance needs the record.
pub(super) fn clear() {
    let own = folder().ok();
    // Searched for only if there is another folder.
    let namespaces = LazyCell::new(narrows_link::namespaces::inodes);
    for entry in std::fs::read_dir(RUN_DIR).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let number = name.to_str().and_then(|name| name.strip_prefix("net-")?.parse().ok());
        let is_gone = |number: u64| own.as_ref() != Some(&path) && !namespaces.contains(&number);
        if number.is_some_and(is_gone) {
            clear_folder(&path);
        }
    }
}

/// Removes `folder`, if no instance has a place in it.
pub(super) fn clear_folder(folder: &Path) {
    let paths = |extension: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|is| is == extension)).collect()
    };
    let mut locks = Vec::new();
    for path in paths(LOCK) {
        match lock(folder, &path) {
            Ok(Some(lock)) => locks.push(lock),
            _ => return,
        }
    }
    let sockets = paths(SOCKET);
    // Held by an instance that knows no locks.
    if sockets.iter().any(|socket| UnixStream::connect(socket).is_ok()) {
        return;
    }
    supervisor::folder::clear(folder);
    for left in sockets.into_iter().chain(paths(OFFLOADS)).chain(paths(ADDRESSES)) {
        let _ = std::fs::remove_file(left);
    }
    drop(locks);
    let _ = std::fs::remove_dir(folder);
}
