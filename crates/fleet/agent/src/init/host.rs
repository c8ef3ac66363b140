//! Where a box is: an address or a name.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address, or a name of DNS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name.
    Name(String),
}

/// It is neither.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither an address nor a host's name")]
pub struct HostError(String);

impl FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address));
        }
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && label.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'-')
        };
        // A number at the end is an address that is misspelt.
        let is_number = |label: &str| label.bytes().all(|letter| letter.is_ascii_digit());
        let last = text.rsplit('.').next().unwrap_or_default();
        if text.len() <= 253 && text.split('.').all(is_label) && !is_number(last) {
            return Ok(Self::Name(text.to_ascii_lowercase()));
        }
        Err(HostError(text.chars().take(64).collect()))
    }
}

impl Host {
    /// As it stands in a URL.
    pub fn in_url(&self) -> String {
        match self {
            Self::Address(IpAddr::V6(address)) => format!("[{address}]"),
            other => other.to_string(),
        }
    }

    /// Where its server listens: at its address, or everywhere if only its name is known.
    pub fn listens(&self) -> String {
        match self {
            Self::Address(_) => self.in_url(),
            Self::Name(_) => "0.0.0.0".into(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}
