//! Which plane of Narrows the faults strike, and which of them that plane has.

use super::fault::Kind;
use serde::Serialize;

/// The plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plane {
    /// Workers behind AF_XDP, which queue.
    Xsk,
    /// A program in the driver, which polices. It goes on while the process is stopped, and has
    /// neither workers nor an upgrade.
    Xdp,
}

impl Plane {
    /// Its name, as `narrows run` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xsk => "xsk",
            Self::Xdp => "xdp",
        }
    }

    /// Whether faults of `kind` are possible there.
    pub fn has(self, kind: Kind) -> bool {
        self == Self::Xsk || kind != Kind::Hang
    }

    /// Whether shaping stops while the process does not run.
    pub(super) const fn needs_the_process(self) -> bool {
        matches!(self, Self::Xsk)
    }
}
