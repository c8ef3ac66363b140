//! The parameters of a class of `hfsc`: service curves.
//!
//! Packets, queues and the order of classes are those of any tree of classes
//! ([`htb::Scheduler`](crate::htb::Scheduler)).
//!
//! Source: I. Stoica, H. Zhang, T. S. E. Ng, "A hierarchical fair service curve algorithm for
//! link-sharing, real-time and priority services" (1997); `tc-hfsc(7)`.

use narrows_units::{Bytes, Nanos, Rate};

/// A service curve of two pieces: how much service is due how long after a backlogged period
/// began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Curve {
    /// The slope of the first piece.
    pub m1: Rate,
    /// How long the first piece is.
    pub d: Nanos,
    /// The slope of the second piece.
    pub m2: Rate,
}

impl Curve {
    /// A straight line.
    pub const fn line(rate: Rate) -> Self {
        Self { m1: rate, d: Nanos::ZERO, m2: rate }
    }
}

/// What a class has had, as `tc -s class show` says it; over all queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Service {
    /// How many backlogged periods it had.
    pub period: u32,
    /// What it has sent.
    pub work: Bytes,
    /// What of that it has sent by its real-time curve.
    pub real_time: Bytes,
}

/// The parameters of a class, as `tc-hfsc(8)` has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class {
    /// The class above it; `None` at the root.
    pub parent: Option<u32>,
    /// What it gets by its deadlines, whatever the classes above it are due (`rt`). Of a leaf.
    pub real_time: Option<Curve>,
    /// In which proportion it shares with the classes beside it (`ls`).
    pub link_share: Option<Curve>,
    /// What link sharing never exceeds (`ul`).
    pub upper_limit: Option<Curve>,
}
