//! Why a command fails, with CNI's numbers.

use crate::version::Version;
use narrows_control::ControlError;
use narrows_link::LinkError;
use serde_json::json;

/// The reason of a failure.
#[derive(Debug, thiserror::Error)]
pub enum CniError {
    /// The configuration or the command is of a version of CNI that is not served.
    #[error("{0}")]
    Version(String),
    /// An environment variable is missing or wrong. The message names it.
    #[error("{0}")]
    Environment(String),
    /// Standard input cannot be read, or is too long.
    #[error("{0}")]
    Input(String),
    /// The configuration is no JSON, or has something else where a value should be.
    #[error("the network configuration on standard input cannot be read: {0}")]
    Decode(#[from] serde_json::Error),
    /// The configuration asks for what is not possible.
    #[error("{0}")]
    Config(String),
    /// No host plane answers for the device, or not in time.
    #[error("{0}")]
    TryAgain(String),
    /// No host plane answers at all.
    #[error("{0}")]
    Unavailable(String),
    /// The instance refuses.
    #[error("{0}")]
    Refused(String),
    /// The pod's interface has no other end on this host.
    #[error("{0}")]
    NoVeth(String),
    /// What holds is not what should hold.
    #[error("{0}")]
    NotInForce(String),
}

impl CniError {
    /// The number: those below 100 are CNI's.
    pub fn code(&self) -> u32 {
        match self {
            Self::Version(_) => 1,
            Self::Environment(_) => 4,
            Self::Input(_) => 5,
            Self::Decode(_) => 6,
            Self::Config(_) => 7,
            Self::TryAgain(_) => 11,
            Self::Unavailable(_) => 50,
            Self::Refused(_) => 100,
            Self::NoVeth(_) => 101,
            Self::NotInForce(_) => 102,
        }
    }

    /// What is printed for the runtime.
    pub(crate) fn json(&self, version: Version) -> String {
        let message = self.to_string();
        json!({ "cniVersion": version.name(), "code": self.code(), "msg": message }).to_string()
    }
}

impl From<ControlError> for CniError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Forbidden { .. } | ControlError::Refused(_) => {
                Self::Refused(error.to_string())
            }
            _ => Self::TryAgain(error.to_string()),
        }
    }
}

impl From<LinkError> for CniError {
    fn from(error: LinkError) -> Self {
        Self::NoVeth(error.to_string())
    }
}
