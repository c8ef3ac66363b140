//! The classes of a tree, whatever schedules them: what the plan says of them, and how they change.
//!
//! Their owner is the plan. A tree has a [`ClassList`]: the plan's classes, what their qdiscs read,
//! and a log of changes, so that a queue looks only at those.

use log::Log;
use narrows_packet::Reading;
use narrows_qdisc::htb::Class;
use narrows_qdisc::{Config, NodeId, Spec, hfsc};
use std::collections::BTreeMap;
use std::sync::Arc;

mod log;

/// The qdisc below a leaf class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Below {
    /// Its name.
    pub id: NodeId,
    /// Its kind and parameters, shared with equal ones.
    pub config: Arc<Config>,
    /// The number of classful qdiscs above it.
    pub level: u8,
    /// The qdiscs below it.
    pub children: Vec<Self>,
}

impl Below {
    /// A qdisc without children, in a class of an `htb` at the root.
    pub fn new(id: NodeId, config: impl Into<Arc<Config>>) -> Self {
        Self { id, config: config.into(), level: 1, children: Vec::new() }
    }

    /// The qdisc that a queue builds below the class.
    pub(crate) fn spec(&self) -> Spec {
        let Self { id, config, level, children } = self;
        let children = children.iter().map(Self::spec).collect();
        Spec { id: *id, level: *level, children, ..Spec::new((**config).clone()) }
    }

    /// The packet fields that it and the qdiscs below it read.
    pub(crate) fn reading(&self) -> Reading {
        let own = self.config.reading();
        self.children.iter().fold(own, |reading, child| reading.and(child.reading()))
    }
}

/// The classes of a tree by number. Their owner is the plan; the tree has no copy.
pub trait Classes: Send + Sync {
    /// The numbers of all of them.
    fn ids(&self) -> Box<dyn Iterator<Item = u32> + '_>;

    /// The parameters of the class `id`, if there is one and it is of an `htb`.
    fn class(&self, id: u32) -> Option<Class>;

    /// The parameters of the class `id`, if there is one and it is of an `hfsc`.
    fn curves(&self, _id: u32) -> Option<hfsc::Class> {
        None
    }

    /// The qdisc of the class `id`, if it is a leaf.
    fn below(&self, id: u32) -> Option<Below>;

    /// The class above the class `id`, or `None` inside for none, if there is such a class.
    fn parent(&self, id: u32) -> Option<Option<u32>> {
        let htb = self.class(id).map(|class| class.parent);
        htb.or_else(|| self.curves(id).map(|class| class.parent))
    }
}

impl Classes for BTreeMap<u32, (Class, Option<Below>)> {
    fn ids(&self) -> Box<dyn Iterator<Item = u32> + '_> {
        Box::new(self.keys().copied())
    }

    fn class(&self, id: u32) -> Option<Class> {
        self.get(&id).map(|(class, _)| *class)
    }

    fn below(&self, id: u32) -> Option<Below> {
        self.get(&id).and_then(|(_, below)| below.clone())
    }
}

/// The class without one above it that answers for the class `id`: that above it or, where there is
/// no such class, the first of `ids`. `parent` has the class above each, as [`Classes::parent`].
pub fn topmost(
    id: u32,
    mut ids: impl Iterator<Item = u32>,
    parent: impl Fn(u32) -> Option<Option<u32>>,
) -> Option<u32> {
    let mut first = || ids.find(|id| parent(*id) == Some(None));
    if parent(id).is_none() {
        return first();
    }
    std::iter::successors(Some(id), |id| parent(*id).flatten()).last()
}

/// A change of some classes, prepared beside what runs.
pub struct Change {
    classes: Arc<dyn Classes>,
    /// The numbers of those that change, in order.
    ids: Vec<u32>,
    /// By how many qdiscs more, or less, each reading is needed.
    readings: Vec<(Reading, isize)>,
}

impl Change {
    /// The change from `before` to `classes`, which differ in the classes `ids` only. `None` if one
    /// of them moves, and with it those below, or if there were none before.
    pub fn of(before: &dyn Classes, classes: Arc<dyn Classes>, mut ids: Vec<u32>) -> Option<Self> {
        before.ids().next()?;
        ids.sort_unstable();
        let mut readings = Vec::new();
        for &id in &ids {
            if let (Some(present), Some(next)) = (before.parent(id), classes.parent(id))
                && present != next
            {
                return None;
            }
            for (below, more) in [(before.below(id), -1), (classes.below(id), 1)] {
                if let Some(below) = below {
                    count_readers(&mut readings, below.reading(), more);
                }
            }
        }
        Some(Self { classes, ids, readings })
    }

    /// The classes after it.
    pub(crate) fn classes(&self) -> &dyn Classes {
        self.classes.as_ref()
    }

    /// The numbers of those that change, in order.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }
}

/// Counts `more` readers of `reading`.
fn count_readers(readings: &mut Vec<(Reading, isize)>, reading: Reading, more: isize) {
    match readings.iter_mut().find(|(known, _)| *known == reading) {
        Some((_, readers)) => *readers += more,
        None => readings.push((reading, more)),
    }
}

/// The classes that a tree has now.
pub(crate) struct ClassList {
    classes: Arc<dyn Classes>,
    /// The packet fields that qdiscs below them read, each with the number of readers.
    readings: Vec<(Reading, isize)>,
    log: Log,
}

impl Default for ClassList {
    fn default() -> Self {
        Self { classes: Arc::new(BTreeMap::new()), readings: Vec::new(), log: Log::default() }
    }
}

impl ClassList {
    /// The classes.
    pub(crate) fn classes(&self) -> &dyn Classes {
        self.classes.as_ref()
    }

    /// Has `classes` instead, of which any may differ.
    pub(crate) fn replace(&mut self, classes: Arc<dyn Classes>) {
        self.log.forget();
        self.readings.clear();
        for below in classes.ids().filter_map(|id| classes.below(id)) {
            count_readers(&mut self.readings, below.reading(), 1);
        }
        self.classes = classes;
    }

    /// Applies `change`, which was prepared of these classes.
    pub(crate) fn apply(&mut self, change: &Change) {
        self.log.add(&change.ids);
        for &(reading, more) in &change.readings {
            count_readers(&mut self.readings, reading, more);
        }
        self.readings.retain(|(_, readers)| *readers != 0);
        self.classes = Arc::clone(&change.classes);
    }

    /// The position behind the last change.
    pub(crate) fn end(&self) -> u64 {
        self.log.end()
    }

    /// The classes that have changed since the position `seen`, which moves behind them; `None` if
    /// any may have.
    pub(crate) fn changes_since(&self, seen: &mut u64) -> Option<Vec<u32>> {
        let changes = self.log.since(*seen);
        *seen = self.log.end();
        changes
    }

    /// The packet fields that the qdiscs below any class read.
    pub(crate) fn reading(&self) -> Reading {
        self.readings.iter().fold(Reading::NOTHING, |all, (reading, _)| all.and(*reading))
    }
}
