//! Credentials: one user with a password (RFC 7617).

use crate::ServeError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use subtle::ConstantTimeEq;

/// The largest credentials file, in bytes.
const FILE_MAX: u64 = 4096;

/// A user and a password.
#[derive(Clone)]
pub struct Credentials {
    /// The `Authorization` value of a client with these credentials.
    expected: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Reads the first line of the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, all users can read it, or it has no credentials.
    pub fn read(path: &Path) -> Result<Self, ServeError> {
        let failed = |error| ServeError::CredentialsFile(path.to_owned(), error);
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.mode() & 0o004 != 0 {
            return Err(ServeError::Readable(path.to_owned()));
        }
        let mut text = String::new();
        file.take(FILE_MAX).read_to_string(&mut text).map_err(failed)?;
        Self::parse(&text).ok_or_else(|| ServeError::NoCredentials(path.to_owned()))
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.trim();
        let (user, password) = line.split_once(':')?;
        let is_some = !user.is_empty() && !password.is_empty();
        is_some.then(|| Self { expected: format!("Basic {}", STANDARD.encode(line)) })
    }

    /// Whether `authorization` has these credentials. The time it takes reveals only whether the
    /// length is right.
    pub fn admit(&self, authorization: Option<&[u8]>) -> bool {
        let said = authorization.unwrap_or_default();
        said.ct_eq(self.expected.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_credentials_are_admitted() {
        // The example of RFC 7617, section 2.
        let credentials = Credentials::parse("Aladdin:open sesame\n").unwrap();
        assert!(credentials.admit(Some(b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")));
        for wrong in ["", "Basic ", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ", "Bearer x"] {
            assert!(!credentials.admit(Some(wrong.as_bytes())), "{wrong}");
        }
        assert!(!credentials.admit(None));
    }

    #[test]
    fn half_a_line_is_no_credentials() {
        for text in ["", "\n", "user", "user:", ":password", "\nuser:password"] {
            assert!(Credentials::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn a_password_is_never_printed() {
        assert_eq!(format!("{:?}", Credentials::parse("a:b")), "Some(Credentials)");
    }
}
