//! What forwards between the ends: a wire of two ports, or a router of three.

use super::fault::Kind;
use serde::Serialize;

/// What forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarding {
    /// Two ports, each of which has what the other receives.
    Wire,
    /// Three ports and the kernel's routes.
    Router,
}

impl Forwarding {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Router => "router",
        }
    }

    /// Whether faults of `kind` are possible there: only a router has routes, and only a wire has a
    /// bridge that stands by.
    pub fn has(self, kind: Kind) -> bool {
        match self {
            Self::Wire => !matches!(kind, Kind::Routes | Kind::Neighbours),
            Self::Router => kind != Kind::Bridge,
        }
    }
}
