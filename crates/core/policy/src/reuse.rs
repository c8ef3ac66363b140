//! Makes a policy share its equal parts with another one.
//!
//! A comparison of two versions of a policy skips what they share. A policy that was read from a
//! file shares nothing with the one in force, however alike they are. Here it takes over that one's
//! memory wherever both are equal. This compares everything once, on whatever thread. Comparisons
//! after that visit only the differences.

use crate::{Kind, Policy, PortPolicy};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use narrows_classify::{Filters, PersistentMap};

impl Policy {
    /// This policy, with the memory of `before` wherever both are equal.
    #[must_use]
    pub fn reusing(mut self, before: &Self) -> Self {
        self.actions.reuse(&before.actions);
        for (dev, port) in &mut self.ports {
            port.reuse(before.port(dev));
        }
        self.share_actions();
        self
    }
}

impl PortPolicy {
    fn reuse(&mut self, before: &Self) {
        self.reuse_nodes(before, |before, node| {
            let mut node = node.clone();
            match (&before.kind, &mut node.kind) {
                (Kind::Htb(old), Kind::Htb(htb)) => htb.classes = htb.classes.merged(&old.classes),
                (Kind::Hfsc(old), Kind::Hfsc(hfsc)) => {
                    hfsc.classes = hfsc.classes.merged(&old.classes);
                }
                _ => {}
            }
            if let (Some(before), Some(filters)) =
                (before.kind.assignments(), node.kind.assignments_mut())
            {
                *filters = filters.merged(before);
            }
            node
        });
        if let (Some(ends), Some(before)) = (&mut self.ends, &before.ends) {
            ends.ingress = filters(&before.ingress, &ends.ingress);
            ends.egress = filters(&before.egress, &ends.egress);
        }
    }
}

/// `next` with the memory of `before` where both are equal; `merge` combines two values that are
/// not.
pub(crate) fn map<K: Ord + Clone, V: PartialEq + Clone>(
    before: &OrdMap<K, V>,
    next: &OrdMap<K, V>,
    merge: impl Fn(&V, &V) -> V,
) -> OrdMap<K, V> {
    let mut merged = before.clone();
    for change in before.diff(next) {
        match change {
            DiffItem::Add(key, new) => drop(merged.insert(key.clone(), new.clone())),
            DiffItem::Remove(key, _) => drop(merged.remove(key)),
            DiffItem::Update { old: (_, old), new: (key, new) } => {
                merged.insert(key.clone(), merge(old, new));
            }
        }
    }
    merged
}

/// The filters `next` with the memory of `before` where both are equal.
pub(crate) fn filters(before: &Filters, next: &Filters) -> Filters {
    persistent_map(before, next)
}

/// The map `next` with the memory of `before` where both are equal.
pub(crate) fn persistent_map<V: PartialEq + Clone>(
    before: &PersistentMap<V>,
    next: &PersistentMap<V>,
) -> PersistentMap<V> {
    let mut merged = before.clone();
    before.changes(next, |key, _, new| match new {
        Some(new) => merged.insert(key, new.clone()),
        None => drop(merged.remove(key)),
    });
    merged
}
