//! The statistics of a port's qdiscs, indexed.

use narrows_policy::{Handle, NodeStats, Parent};
use narrows_qdisc::Stats;
use std::collections::HashMap;

/// The statistics of a port's qdiscs, by handle and by place.
#[derive(Default)]
pub(crate) struct StatsOf<'a> {
    handles: HashMap<Handle, &'a Stats>,
    places: HashMap<Parent, (Option<Handle>, &'a Stats)>,
}

impl<'a> StatsOf<'a> {
    /// Indexes `all`.
    pub(crate) fn new(all: &'a [NodeStats]) -> Self {
        let mut found = Self::default();
        for NodeStats { parent, handle, stats } in all {
            // If there are two in a place, the first with a handle counts: a size table has none.
            let there = found.places.entry(*parent).or_insert((*handle, stats));
            if there.0.is_none() {
                *there = (*handle, stats);
            }
            if let Some(handle) = handle {
                found.handles.entry(*handle).or_insert(stats);
            }
        }
        found
    }

    /// The statistics of the qdisc `handle`.
    pub(crate) fn of_handle(&self, handle: Handle) -> Option<&'a Stats> {
        self.handles.get(&handle).copied()
    }

    /// The statistics of the qdisc at `parent`.
    pub(crate) fn at(&self, parent: Parent) -> Option<&'a Stats> {
        self.places.get(&parent).map(|(_, stats)| *stats)
    }

    /// The statistics of `handle` at `parent`; for `None`, those of the default qdisc there.
    pub(crate) fn of(&self, parent: Parent, handle: Option<Handle>) -> Option<&'a Stats> {
        let (there, stats) = self.places.get(&parent)?;
        (*there == handle).then_some(*stats)
    }
}
