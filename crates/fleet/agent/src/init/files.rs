//! The folder to which `init` writes.

use super::InitError;
use crate::name::Name;
use crate::whole_file;
use std::cell::RefCell;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The folder with the authorities, beside those of the boxes.
pub(super) const AUTHORITIES: &str = "authorities";
/// In a box's folder: the configuration of its server, where Debian's package has it.
pub(super) const SERVER_CONF: &str = "nats-server.conf";
/// In a box's folder: what its server needs.
pub(super) const ENGINE: &str = "narrows/fleet/engine";
/// In a box's folder: what its agent needs.
pub(super) const AGENT: &str = "narrows/fleet/agent";

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secrecy {
    /// Everybody.
    Public,
    /// Its owner.
    Secret,
}

/// The folder, and what is known of it.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    keep: bool,
    public_keys: RefCell<Vec<(Name, String)>>,
}

impl Files {
    /// Makes the folder. It is the owner's only: it has the keys of all.
    pub(super) fn begin(root: &Path, keep: bool) -> Result<Self, InitError> {
        let failed = |source| InitError::File { path: root.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(failed)?;
        let is_empty = root.read_dir().map_err(failed)?.next().is_none();
        if !is_empty && !keep {
            return Err(InitError::NotEmpty(root.to_owned()));
        }
        Ok(Self { root: root.to_owned(), keep, public_keys: RefCell::default() })
    }

    /// Writes the file at `path`, as a whole.
    pub(super) fn put(&self, path: &Path, text: &str, secrecy: Secrecy) -> Result<(), InitError> {
        let path = self.root.join(path);
        let mode = if secrecy == Secrecy::Secret { 0o600 } else { 0o644 };
        let write = || {
            let folder = path.parent().unwrap_or(&self.root);
            DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
            whole_file::write(&path, text.as_bytes(), mode)
        };
        write().map_err(|source| InitError::File { path: path.clone(), source })
    }

    /// The text of the file at `path`, if there is one and it is kept.
    pub(super) fn kept(&self, path: &Path) -> Result<Option<String>, InitError> {
        if !self.keep {
            return Ok(None);
        }
        let path = self.root.join(path);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(InitError::File { path, source }),
        }
    }

    /// That the file at `path` has no key.
    pub(super) fn no_key(&self, path: &Path, why: String) -> InitError {
        InitError::Key { path: self.root.join(path), why }
    }

    /// Remembers the public key of the box `name`.
    pub(super) fn note_public_key(&self, name: &Name, key: String) {
        self.public_keys.borrow_mut().push((name.clone(), key));
    }

    /// The public keys of all boxes.
    pub(super) fn public_keys(self) -> Vec<(Name, String)> {
        self.public_keys.into_inner()
    }
}
