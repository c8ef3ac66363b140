//! Names of fleets and boxes.
//!
//! A name is a token of a subject of the engine, a part of a file's path and a column of a table,
//! so it has letters, digits, `-` and `_` only.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The longest name.
const LEN_MAX: usize = 32;

/// The name of a fleet or of a box: 1 to 32 letters, digits, `-` or `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// It is no name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name: it has 1 to 32 letters, digits, '-' or '_', and begins with none of the last \
     two"
)]
pub struct NameError(String);

impl Name {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let is_known = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'_');
        let begins = text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if begins && text.len() <= LEN_MAX && text.bytes().all(is_known) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(text.chars().take(2 * LEN_MAX).collect()))
        }
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
