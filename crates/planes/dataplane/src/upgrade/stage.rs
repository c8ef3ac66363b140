//! The stages of an upgrade, as its old process sees them.

use std::fmt;

/// The step that the old process waits for, or does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The new process introduces itself.
    Greeting,
    /// It loads its programs, and maps frames and rings.
    Preparing,
    /// It queues the packets that it received. Nothing is forwarded meanwhile.
    Taking,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Greeting => "introducing itself",
            Self::Preparing => "getting ready",
            Self::Taking => "taking over queued packets",
        })
    }
}
