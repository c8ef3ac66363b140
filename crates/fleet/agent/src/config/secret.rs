//! The seed of a box's key, from a file that nobody else may read, and its other files.

use super::Link;
use nkeys::{KeyPair, KeyPairType};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The permissions that nobody but the owner may have.
const OTHERS: u32 = 0o077;
/// More than any seed has.
const SEED_MAX: u64 = 4_096;

/// Why a file has no seed.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read it.
    #[error("others may read {}, which is secret: chmod 600 {}", .0.display(), .0.display())]
    Open(PathBuf),
    /// It is no seed of a user.
    #[error("{} has no seed of a user's key, a line that begins with SU", .0.display())]
    NoSeed(PathBuf),
}

/// Whether the authority's certificate, and this box's with its key, can be read: the engine reads
/// them each time that it connects, and would only try again.
///
/// # Errors
/// If one cannot be.
pub fn check_files(link: &Link) -> Result<(), SecretError> {
    let own = link.certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
    for path in link.authority.iter().chain(own) {
        let unreadable = |source| SecretError::Unreadable { path: path.clone(), source };
        std::fs::read(path).map_err(unreadable)?;
    }
    Ok(())
}

/// The seed in the file at `path`.
///
/// # Errors
/// If it cannot be read, if others may read it, or if it has none.
pub fn seed(path: &Path) -> Result<String, SecretError> {
    let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if metadata.permissions().mode() & OTHERS != 0 {
        return Err(SecretError::Open(path.to_owned()));
    }
    let no_seed = || SecretError::NoSeed(path.to_owned());
    if metadata.len() > SEED_MAX {
        return Err(no_seed());
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let is_seed = |line: &&str| {
        let pair = line.starts_with("SU").then(|| KeyPair::from_seed(line).ok()).flatten();
        pair.is_some_and(|pair| matches!(pair.key_pair_type(), KeyPairType::User))
    };
    text.lines().map(str::trim).find(is_seed).map(str::to_owned).ok_or_else(no_seed)
}
