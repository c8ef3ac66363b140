//! What is measured: the strategies, and the kernel's way beside them.

use narrows_coordination::Strategy;

/// A way to share a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// A queue for each thread, and a strategy between them.
    Strategy(Strategy),
    /// One queue for all threads, behind one lock: a qdisc at the root of a device.
    QdiscLock,
}

impl System {
    /// All, in the order in which they take turns.
    pub fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::QdiscLock).chain(Strategy::ALL.map(Self::Strategy))
    }

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strategy(strategy) => strategy.name(),
            Self::QdiscLock => "qdisc-lock",
        }
    }
}
