//! The filters of a classful qdisc, and the classes to which they assign packets.
//!
//! Every command on a class asks whether a filter assigns packets to it, and there may be 100,000
//! filters. So references are counted when filters change.

use imbl::OrdMap;
use narrows_classify::{ActionId, Blocks, Filters};

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Assignments {
    /// The filters by the class to which they are attached; 0 for the qdisc itself.
    blocks: Blocks,
    /// For each class, how many filters assign packets to it.
    counts: OrdMap<u32, u32>,
}

impl Assignments {
    /// The filters by the class to which they are attached; 0 for the qdisc itself.
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The filters attached to the class `at`.
    pub(crate) fn at(&self, at: u32) -> Filters {
        self.blocks.get(&at).cloned().unwrap_or_default()
    }

    /// Replaces the filters attached to the class `at`.
    pub(crate) fn set(&mut self, at: u32, filters: Filters) {
        let before = self.at(at);
        before.changes(&filters, |_, old, new| {
            old.into_iter().for_each(|filter| self.count(filter.class, false));
            new.into_iter().for_each(|filter| self.count(filter.class, true));
        });
        match filters.is_empty() {
            true => drop(self.blocks.remove(&at)),
            false => drop(self.blocks.insert(at, filters)),
        }
    }

    /// Removes the filters attached to the class `at`. Returns their actions.
    pub(crate) fn take(&mut self, at: u32) -> Vec<ActionId> {
        let gone = self.at(at);
        self.set(at, Filters::default());
        gone.iter().flat_map(|(_, filter)| filter.actions.clone()).collect()
    }

    /// Whether a filter assigns packets to `class`.
    pub(crate) fn assigns(&self, class: u32) -> bool {
        self.counts.contains_key(&class)
    }

    /// The classes to which filters assign packets.
    pub(crate) fn classes(&self) -> impl Iterator<Item = u32> {
        self.counts.keys().copied()
    }

    /// Counts one filter more, or one less, for `class`.
    fn count(&mut self, class: u32, more: bool) {
        let present = self.counts.get(&class).copied().unwrap_or(0);
        match (class, more, present) {
            // The filter assigns no class.
            (0, ..) => {}
            (_, true, _) => drop(self.counts.insert(class, present + 1)),
            (_, false, 0..=1) => drop(self.counts.remove(&class)),
            (_, false, _) => drop(self.counts.insert(class, present - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_classify::{ANY_PROTOCOL, Filter, Matches};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn a_class_is_assigned_while_a_filter_names_it(
            edits in proptest::collection::vec((0..3_u32, 1..20_u32, 0..5_u32, any::<bool>()), 0..60),
        ) {
            let mut assignments = Assignments::default();
            for (at, handle, class, puts) in edits {
                let mut filters = assignments.at(at);
                let (pref, protocol, matches) = (1, ANY_PROTOCOL, Matches::All);
                let (named, actions) = (0, Vec::new());
                let filter = Filter { pref, protocol, handle, matches, class, named, actions };
                match puts {
                    true => filters.insert(filter.order(), Arc::new(filter)),
                    false => drop(filters.remove(filter.order())),
                }
                assignments.set(at, filters);
                let all = assignments.blocks().values().flat_map(|filters| filters.iter());
                let named: BTreeSet<u32> =
                    all.map(|(_, filter)| filter.class).filter(|class| *class != 0).collect();
                prop_assert!(assignments.classes().eq(named.iter().copied()));
                prop_assert!((0..6).all(|id| assignments.assigns(id) == named.contains(&id)));
            }
        }
    }
}
