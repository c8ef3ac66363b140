//! Claims on the shares of boxes that are off, as a file that outlasts the agent.
//!
//! It is written anew beside itself and takes its own place once it is on the disk: what is there
//! is the last state or the one before.

use crate::whole_file;
use narrows_lending::Claim;
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The most bytes of the file.
const BYTES_MAX: u64 = 256 << 20;

/// Why claims cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ClaimsError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error(
        "{} has no claims on the shares of boxes that are off ({source}): to go on without them, \
         remove it, and then say `narrows fleet forget` again", path.display()
    )]
    Malformed {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// It cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The claims in the file at `path`; none if there is no file.
///
/// # Errors
/// If it cannot be read, or has something else.
pub fn read(path: &Path) -> Result<Vec<Claim>, ClaimsError> {
    let unreadable = |source| ClaimsError::Unreadable { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
    let malformed = |source| ClaimsError::Malformed { path: path.to_owned(), source };
    serde_json::from_str(&text).map_err(malformed)
}

/// Has the file at `path` have these claims, also after a loss of power.
///
/// # Errors
/// If it cannot be written. It is as before then.
pub fn write(path: &Path, claims: &[Claim]) -> Result<(), ClaimsError> {
    let write = || {
        let folder = path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        whole_file::write(path, &serde_json::to_vec(claims)?, 0o600)
    };
    write().map_err(|source| ClaimsError::Unwritable { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("nrw-claims-{}-{name}", std::process::id()))
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = path("written");
        let file = folder.join("edge.a.json");
        assert_eq!(read(&file).unwrap(), []);
        let shares = vec![("line".into(), 250_000_000)];
        let claims = [Claim { of: "b".to_owned(), shares }];
        write(&file, &claims).unwrap();
        assert_eq!(read(&file).unwrap(), claims);
        write(&file, &[]).unwrap();
        assert_eq!(read(&file).unwrap(), []);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_with_something_else_is_an_error_that_says_what_to_do() {
        let file = path("else");
        for text in ["", "{}", "[{\"of\":1}]", "\u{0}"] {
            std::fs::write(&file, text).unwrap();
            let error = read(&file).unwrap_err().to_string();
            assert!(error.contains("remove it"), "{error}");
        }
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_is_an_error() {
        let error = write(Path::new("/dev/null/claims.json"), &[]).unwrap_err().to_string();
        assert!(error.contains("cannot write /dev/null/claims.json"), "{error}");
    }
}
