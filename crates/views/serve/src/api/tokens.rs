//! Tokens and what they allow.

use crate::ServeError;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use subtle::ConstantTimeEq;

/// The permissions that nobody but the owner may have.
const OTHERS: u32 = 0o077;
/// The largest file, in bytes.
const FILE_MAX: u64 = 1 << 20;
/// The shortest token, in characters: too long to be guessed.
const TOKEN_MIN: usize = 32;

/// What a token allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// To read.
    Read,
    /// To read and to write.
    Write,
}

/// The tokens of a file.
#[derive(Clone)]
pub struct Tokens(Vec<(Scope, String)>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens")
    }
}

impl Tokens {
    /// Reads the tokens of a file that only its owner can read: on each line `read` or `write`, and
    /// a token of at least 32 characters. Lines that begin with `#` are comments.
    ///
    /// # Errors
    /// If it cannot be read, others can read it, or a line is none of these.
    pub fn read(path: &Path) -> Result<Self, ServeError> {
        let bad = |why: String| ServeError::Tokens(path.to_owned(), why);
        let file = File::open(path).map_err(|error| bad(error.to_string()))?;
        let mode = file.metadata().map_err(|error| bad(error.to_string()))?.permissions().mode();
        if mode & OTHERS != 0 {
            return Err(bad(format!("others may read it: chmod 600 {}", path.display())));
        }
        let mut text = String::new();
        let read = file.take(FILE_MAX).read_to_string(&mut text);
        read.map_err(|error| bad(error.to_string()))?;
        Self::parse(&text).map_err(bad)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |why: &str| format!("line {}: {why}", index + 1);
            let (scope, token) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let scope = match scope {
                "read" => Scope::Read,
                "write" => Scope::Write,
                _ => return Err(bad("it is read or write, and a token behind it")),
            };
            let token = token.trim();
            // What may stand behind Bearer (RFC 6750, section 2.1).
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
            if token.len() < TOKEN_MIN || !token.bytes().all(is_plain) {
                return Err(bad(
                    "a token has 32 characters or more, letters, digits and -._~+/=: \
                                openssl rand -hex 32 makes one",
                ));
            }
            if tokens.iter().any(|(_, known)| known == token) {
                return Err(bad("this token is there before"));
            }
            tokens.push((scope, token.to_owned()));
        }
        if tokens.is_empty() {
            return Err("it has no token: a line is read or write, and a token".to_owned());
        }
        Ok(Self(tokens))
    }

    /// What `authorization` allows: `Bearer TOKEN`. The time that it takes reveals only lengths.
    pub(super) fn scope(&self, authorization: &[u8]) -> Option<Scope> {
        let (scheme, token) = authorization.split_at_checked(7)?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") {
            return None;
        }
        let mut found = None;
        for (scope, known) in &self.0 {
            if bool::from(known.as_bytes().ct_eq(token.trim_ascii())) {
                found = Some(*scope);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_token_has_the_scope_of_its_line() {
        let two = ONE.replace('0', "x");
        let tokens = Tokens::parse(&format!("# who\nwrite {ONE}\n\nread\t{two}\n")).unwrap();
        let scope = |said: String| tokens.scope(said.as_bytes());
        assert_eq!(scope(format!("Bearer {ONE}")), Some(Scope::Write));
        assert_eq!(scope(format!("bearer {two}")), Some(Scope::Read));
        for wrong in
            ["".to_owned(), ONE.to_owned(), format!("Basic {ONE}"), format!("Bearer {ONE}x")]
        {
            assert_eq!(scope(wrong), None);
        }
    }

    #[test]
    fn a_line_that_is_no_token_is_named() {
        for text in ["", "write short", "admin 0", &format!("read {ONE} x"), ONE] {
            assert!(Tokens::parse(text).is_err(), "{text}");
        }
        let twice = format!("read {ONE}\nwrite {ONE}");
        assert!(Tokens::parse(&twice).unwrap_err().starts_with("line 2: "));
    }
}
