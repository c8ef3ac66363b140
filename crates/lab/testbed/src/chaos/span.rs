//! Spans of time within an epoch.

use narrows_units::Nanos;

/// From a moment to another, by the clock of [`super::sender::now`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Nanos,
    pub(super) to: Nanos,
}

impl Span {
    pub(super) const fn new(from: Nanos, to: Nanos) -> Self {
        Self { from, to }
    }

    pub(super) fn holds(&self, at: Nanos) -> bool {
        self.from <= at && at <= self.to
    }

    /// How long it is.
    pub(super) fn length(&self) -> Nanos {
        self.to.since(self.from)
    }

    /// Begins `before` earlier and ends `after` later.
    pub(super) fn widened(&self, before: Nanos, after: Nanos) -> Self {
        Self::new(Nanos(self.from.0.saturating_sub(before.0)), self.to + after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_holds_its_edges_and_can_be_widened() {
        let span = Span::new(Nanos(10), Nanos(20));
        assert!(span.holds(Nanos(10)) && span.holds(Nanos(20)) && !span.holds(Nanos(21)));
        assert_eq!(span.widened(Nanos(15), Nanos(5)), Span::new(Nanos(0), Nanos(25)));
        assert_eq!(span.length(), Nanos(10));
    }
}
