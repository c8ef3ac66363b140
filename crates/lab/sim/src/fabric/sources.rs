//! The next event, where every source of events has one next event at a time.
//!
//! A link delivers in order, so only its first packet counts; a host has one next time to act.
//! Their number is fixed. So instead of a heap of all events there is a tournament among sources: a
//! tree in which every node has the earlier of its two children, and a few kilobytes however much
//! is in flight.
//!
//! Cost: a comparison for each level up to the node that stays as it is, ten at most for 1024
//! sources.

use narrows_units::Nanos;

/// The next event of each source.
pub(crate) struct Sources {
    /// Time and source: the root at 1, the children of `n` at `2n` and `2n + 1`, sources in the
    /// second half.
    nodes: Vec<(Nanos, u32)>,
}

impl Sources {
    /// `count` of them, with nothing to do.
    pub(crate) fn new(count: usize) -> Self {
        let half = count.next_power_of_two().max(2);
        let mut nodes = vec![(Nanos::MAX, 0); 2 * half];
        for (source, node) in nodes[half..].iter_mut().enumerate() {
            node.1 = source as u32;
        }
        for node in (1..half).rev() {
            nodes[node] = nodes[2 * node];
        }
        Self { nodes }
    }

    /// The next event of `source` is at `at`; there is none at [`Nanos::MAX`].
    #[inline]
    pub(crate) fn set(&mut self, source: usize, at: Nanos) {
        let mut node = self.nodes.len() / 2 + source;
        self.nodes[node].0 = at;
        while node > 1 {
            node /= 2;
            let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
            // Of two at the same time the one with the lower number, on every machine.
            let winner = if right.0 < left.0 { right } else { left };
            if self.nodes[node] == winner {
                return;
            }
            self.nodes[node] = winner;
        }
    }

    /// When `source` is next.
    #[inline]
    pub(crate) fn get(&self, source: usize) -> Nanos {
        self.nodes[self.nodes.len() / 2 + source].0
    }

    /// What happens next, and when; none if nothing does any more.
    #[inline]
    pub(crate) fn next(&self) -> Option<(Nanos, usize)> {
        let (at, source) = self.nodes[1];
        (at != Nanos::MAX).then_some((at, source as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_next_event_is_the_earliest_of_all_sources(
            count in 1_usize..40,
            changes in prop::collection::vec((0_usize..40, prop::option::of(0_u64..30)), 1..200),
        ) {
            let mut sources = Sources::new(count);
            let mut naive = vec![Nanos::MAX; count];
            prop_assert_eq!(sources.next(), None);
            for (source, at) in changes {
                let (source, at) = (source % count, at.map_or(Nanos::MAX, Nanos));
                sources.set(source, at);
                naive[source] = at;
                prop_assert_eq!(sources.get(source), at);
                let earliest = naive.iter().zip(0..).map(|(at, source)| (*at, source)).min();
                prop_assert_eq!(sources.next(), earliest.filter(|(at, _)| *at != Nanos::MAX));
            }
        }
    }
}
