//! The filters of a classful qdisc, and the classes to which they assign packets.
//!
//! Every command on a class asks whether a filter assigns packets to it, and there may be 100,000
//! filters. So references are counted when filters change.

use crate::reuse;
use imbl::OrdMap;
use narrows_classify::{ActionId, Blocks, Filter, Filters};
use std::sync::Arc;

/// What an edit did to the filters of one place.
#[derive(Default)]
pub(crate) struct Edited {
    /// The filters that are no longer there.
    pub(crate) removed: Vec<Arc<Filter>>,
    /// The new ones.
    pub(crate) added: Vec<Arc<Filter>>,
}

/// The filters of a classful qdisc, with a count of references for each class.
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

    /// Whether any filter is attached to the class `at`.
    pub(crate) fn has(&self, at: u32) -> bool {
        self.blocks.contains_key(&at)
    }

    /// Changes the filters attached to the class `at` in place. `edit` returns the filters that it
    /// removed and added. If it fails, they may be half changed, and so may its policy: it counts
    /// as lost.
    pub(crate) fn edit<E>(
        &mut self,
        at: u32,
        edit: impl FnOnce(&mut Filters) -> Result<Edited, E>,
    ) -> Result<(), E> {
        let filters = self.blocks.entry(at).or_default();
        let Edited { removed, added } = edit(filters)?;
        if filters.is_empty() {
            self.blocks.remove(&at);
        }
        removed.iter().for_each(|filter| self.count(filter.class, false));
        added.iter().for_each(|filter| self.count(filter.class, true));
        Ok(())
    }

    /// Removes the filters attached to the class `at`. Returns their actions.
    pub(crate) fn take(&mut self, at: u32) -> Vec<ActionId> {
        let gone = self.blocks.remove(&at).unwrap_or_default();
        gone.iter().for_each(|(_, filter)| self.count(filter.class, false));
        gone.iter().flat_map(|(_, filter)| filter.actions.clone()).collect()
    }

    /// Whether a filter assigns packets to `class`.
    pub(crate) fn assigns(&self, class: u32) -> bool {
        self.counts.contains_key(&class)
    }

    /// Those of the classes `inner`, which have classes below them, to which filters assign packets
    /// and which have no filters to choose a class.
    pub(crate) fn unfiltered(&self, inner: impl Iterator<Item = u32>) -> Vec<u32> {
        inner.filter(|minor| self.assigns(*minor) && !self.has(*minor)).collect()
    }

    /// The classes to which filters assign packets.
    pub(crate) fn classes(&self) -> impl Iterator<Item = u32> {
        self.counts.keys().copied()
    }

    /// These assignments, with the memory of `before` where both are equal.
    pub(crate) fn merged(&self, before: &Self) -> Self {
        let merge = |(at, filters): (&u32, &Filters)| {
            let before = before.blocks.get(at);
            let merged = before.map(|before| reuse::filters(before, filters));
            (*at, merged.unwrap_or_else(|| filters.clone()))
        };
        let blocks = self.blocks.iter().map(merge).collect();
        Self { blocks, counts: reuse::map(&before.counts, &self.counts, |_, new| *new) }
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
    use narrows_classify::{ANY_PROTOCOL, Matches};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_class_is_assigned_while_a_filter_names_it(
            edits in proptest::collection::vec((0..3_u32, 1..20_u32, 0..5_u32, any::<bool>()), 0..60),
        ) {
            let mut assignments = Assignments::default();
            for (at, handle, class, puts) in edits {
                let filter = Filter::new(1, handle, ANY_PROTOCOL, Matches::All, class);
                let edited = assignments.edit(at, |filters| {
                    let removed = filters.remove(filter.order()).into_iter().collect();
                    let added: Vec<_> = puts.then(|| Arc::new(filter)).into_iter().collect();
                    added.iter().for_each(|new| filters.insert(new.order(), Arc::clone(new)));
                    Ok::<_, ()>(Edited { removed, added })
                });
                prop_assert!(edited.is_ok());
                prop_assert!(assignments.blocks().values().all(|filters| !filters.is_empty()));
                let all = assignments.blocks().values().flat_map(|filters| filters.iter());
                let named: BTreeSet<u32> =
                    all.map(|(_, filter)| filter.class).filter(|class| *class != 0).collect();
                prop_assert!(assignments.classes().eq(named.iter().copied()));
                prop_assert!((0..6).all(|id| assignments.assigns(id) == named.contains(&id)));
            }
        }
    }
}
