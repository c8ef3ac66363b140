//! The strategies of a tree of classes, by name, and a tree that is kept by one of them.

use crate::label::Label;
use crate::{Below, Change, Classes, Spent, Tree, flowvalve, hfsc, locked};
use narrows_qdisc::htb::{Class, Scheduler};
use narrows_units::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How queues keep a tree of classes together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TreeStrategy {
    /// Ledgers and virtual times, without a lock: exact at every class.
    #[default]
    Fair,
    /// FlowValve as published: measured rates, epochs, shadow buckets, borrow labels.
    FlowValve,
    /// One lock, and the kernel's rules.
    Lock,
}

impl TreeStrategy {
    /// Every strategy.
    pub const ALL: [Self; 3] = [Self::Fair, Self::FlowValve, Self::Lock];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::FlowValve => "flowvalve",
            Self::Lock => "lock",
        }
    }

    /// The strategy named `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }
}

/// What schedules the classes of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeKind {
    /// Rates, ceilings and priorities (`htb`), kept in this way.
    Htb(TreeStrategy),
    /// Service curves (`hfsc`).
    Hfsc,
}

impl Default for TreeKind {
    fn default() -> Self {
        Self::Htb(TreeStrategy::default())
    }
}

/// A tree, kept by one of the strategies.
#[derive(Clone)]
pub enum SharedTree {
    /// See [`TreeKind::Hfsc`].
    Hfsc(Arc<hfsc::Tree>),
    /// See [`TreeStrategy::Fair`].
    Fair(Arc<Tree>),
    /// See [`TreeStrategy::FlowValve`].
    FlowValve(Arc<flowvalve::Tree>),
    /// See [`TreeStrategy::Lock`].
    Lock(Arc<locked::Tree>),
}

impl SharedTree {
    /// One without classes.
    pub fn new(kind: TreeKind) -> Self {
        match kind {
            TreeKind::Hfsc => Self::Hfsc(Arc::default()),
            TreeKind::Htb(TreeStrategy::Fair) => Self::Fair(Tree::new()),
            TreeKind::Htb(TreeStrategy::FlowValve) => Self::FlowValve(Arc::default()),
            TreeKind::Htb(TreeStrategy::Lock) => Self::Lock(Arc::default()),
        }
    }

    /// What schedules its classes, and how it is kept.
    pub fn kind(&self) -> TreeKind {
        match self {
            Self::Hfsc(_) => TreeKind::Hfsc,
            Self::Fair(_) => TreeKind::Htb(TreeStrategy::Fair),
            Self::FlowValve(_) => TreeKind::Htb(TreeStrategy::FlowValve),
            Self::Lock(_) => TreeKind::Htb(TreeStrategy::Lock),
        }
    }

    /// Applies `classes`, of which those of the tree's kind count. `labels` are FlowValve's; the
    /// other strategies follow rates, ceilings, priorities and quanta only. A class carries on if
    /// its ancestors are the same as before.
    ///
    /// # Panics
    /// If a parent is not among the classes. The policy checks this.
    pub fn replace_classes(&self, classes: Arc<dyn Classes>, labels: &BTreeMap<u32, Label>) {
        match self {
            Self::Hfsc(tree) => tree.replace(classes),
            Self::Fair(tree) => tree.replace_classes(classes),
            Self::FlowValve(tree) => tree.replace_classes(&all_of(classes.as_ref()), labels),
            Self::Lock(tree) => tree.replace_classes(&all_of(classes.as_ref())),
        }
    }

    /// Applies a [`Change`] of the present classes. False if it needs all classes instead: then
    /// nothing has changed.
    pub fn apply(&self, change: &Change) -> bool {
        match self {
            Self::Fair(tree) => {
                tree.apply(change);
                true
            }
            Self::Hfsc(tree) => {
                tree.apply(change);
                true
            }
            Self::FlowValve(_) | Self::Lock(_) => false,
        }
    }

    /// The classes that do not have their whole credit at `now`. Those of the other strategies
    /// are not told: there, credit starts over in another process.
    pub fn spent(&self, now: Nanos) -> Vec<Spent> {
        match self {
            Self::Fair(tree) => tree.spent(now),
            Self::Hfsc(_) | Self::FlowValve(_) | Self::Lock(_) => Vec::new(),
        }
    }

    /// Continues where an equal tree of another process was, before any queue buys.
    pub fn resume(&self, spent: &[Spent]) {
        if let Self::Fair(tree) = self {
            tree.resume(spent);
        }
    }

    /// The scheduler of one queue.
    pub fn scheduler(&self) -> Box<dyn Scheduler> {
        match self {
            Self::Hfsc(tree) => tree.scheduler(),
            Self::Fair(tree) => tree.scheduler(),
            Self::FlowValve(tree) => tree.scheduler(),
            Self::Lock(tree) => tree.scheduler(),
        }
    }

    /// Whether both are one tree.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Hfsc(one), Self::Hfsc(other)) => Arc::ptr_eq(one, other),
            (Self::Fair(one), Self::Fair(other)) => Arc::ptr_eq(one, other),
            (Self::FlowValve(one), Self::FlowValve(other)) => Arc::ptr_eq(one, other),
            (Self::Lock(one), Self::Lock(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// All of `classes`, with the qdisc of each.
fn all_of(classes: &dyn Classes) -> BTreeMap<u32, (Class, Option<Below>)> {
    let with = |id| Some((id, (classes.class(id)?, classes.below(id))));
    classes.ids().filter_map(with).collect()
}

/// Those of `ids` that are in `classes`, parents first.
pub(crate) fn from_above(
    classes: &BTreeMap<u32, (Class, Option<Below>)>,
    ids: impl Iterator<Item = u32>,
) -> Vec<u32> {
    let above = |id: &u32| classes.get(id).and_then(|(class, _)| class.parent);
    let mut order: Vec<u32> = ids.filter(|id| classes.contains_key(id)).collect();
    order.sort_by_cached_key(|id| std::iter::successors(Some(*id), above).count());
    order
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_is_found_by_its_name() {
        for strategy in TreeStrategy::ALL {
            assert_eq!(TreeStrategy::from_name(strategy.name()), Some(strategy));
            let kind = TreeKind::Htb(strategy);
            assert_eq!(SharedTree::new(kind).kind(), kind);
        }
        assert_eq!(TreeStrategy::from_name("edt"), None);
    }
}
