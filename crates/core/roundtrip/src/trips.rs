//! Round trips to a host, or of packets of a class.

use narrows_units::{Nanos, Spread};

/// Round trips of a window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trips {
    /// The shortest; [`Nanos::MAX`] if there is none.
    pub shortest: Nanos,
    /// All of them.
    pub all: Spread,
}

impl Default for Trips {
    fn default() -> Self {
        Self { shortest: Nanos::MAX, all: Spread::default() }
    }
}

impl Trips {
    pub(crate) fn record(&mut self, trip: Nanos) {
        self.shortest = self.shortest.min(trip);
        self.all.record(trip);
    }

    /// Clears it, keeping the memory.
    pub(crate) fn cleared(mut self) -> Self {
        self.all.clear();
        Self { shortest: Nanos::MAX, all: self.all }
    }

    /// Adds another queue's round trips of the same key.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.shortest = self.shortest.min(other.shortest);
        self.all.merge(&other.all);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
