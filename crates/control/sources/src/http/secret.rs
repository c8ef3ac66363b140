//! The token of an API.

use super::HttpError;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The permissions that nobody but the owner may have.
const OTHERS: u32 = 0o077;
/// More than any token has.
const LENGTH_MAX: u64 = 16_384;

/// A token, which no message shows.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// The first line of a file that only its owner may read.
    ///
    /// # Errors
    /// If it cannot be read, others may read it, or it has no token.
    pub fn read(path: &Path) -> Result<Self, HttpError> {
        let shown = path.display();
        let unreadable = |error| HttpError::Token(format!("cannot read {shown}: {error}"));
        let file = File::open(path).map_err(unreadable)?;
        let mode = file.metadata().map_err(unreadable)?.permissions().mode();
        if mode & OTHERS != 0 {
            return Err(HttpError::Token(format!(
                "others may read {shown}, which is secret: chmod 600 {shown}"
            )));
        }
        let mut text = String::new();
        file.take(LENGTH_MAX).read_to_string(&mut text).map_err(unreadable)?;
        let token = text.lines().next().unwrap_or_default().trim();
        if token.is_empty() || token.chars().any(char::is_control) {
            return Err(HttpError::Token(format!("{shown} has no token in its first line")));
        }
        Ok(Self(token.to_owned()))
    }

    /// `text` with the token for `{token}`.
    pub(super) fn fill(&self, text: &str) -> String {
        text.replace("{token}", &self.0)
    }

    /// The token, for the header that it is made for.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}
