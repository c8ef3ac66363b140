//! The classes of a tree: those that the operator made below each other, and sums over them.
//!
//! Versions of a policy share unchanged classes, as they share qdiscs. Children are found, counted
//! and summed up without a look at any other class. What all kinds with such classes have in common
//! about commands is here, too: which class a command names, where a new one goes, and when one may
//! be deleted.

use crate::assignments::Assignments;
use crate::edit::Changed;
use crate::{ClassId, Handle, Parent, PolicyError, Verb, reuse};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use narrows_qdisc::htb::DEPTH_MAX;
use std::fmt::Debug;
use std::ops::{AddAssign, SubAssign};
use std::sync::Arc;

/// A class that has a place in a tree.
pub trait TreeClass: Clone + PartialEq {
    /// What is summed up over the classes below another one.
    type Sum: Copy + Default + PartialEq + Debug + AddAssign + SubAssign;

    /// The parent class; `None` if it is the qdisc.
    fn parent(&self) -> Option<u32>;

    /// What the class adds to the sum of its parent.
    fn amount(&self) -> Self::Sum;
}

/// The classes of one tree.
#[derive(Clone, Debug)]
pub struct ClassTree<C: TreeClass> {
    all: OrdMap<u32, Arc<C>>,
    /// (parent, child) pairs; the qdisc is 0.
    below: OrdMap<(u32, u32), ()>,
    /// Over the children of each class that has some.
    sums: OrdMap<u32, Children<C::Sum>>,
}

/// The number of children of a class, and the sum over them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Children<S> {
    classes: u32,
    sum: S,
}

impl<C: TreeClass> Default for ClassTree<C> {
    fn default() -> Self {
        Self { all: OrdMap::new(), below: OrdMap::new(), sums: OrdMap::new() }
    }
}

impl<C: TreeClass> ClassTree<C> {
    /// The class `minor`.
    pub fn get(&self, minor: u32) -> Option<&C> {
        self.all.get(&minor).map(AsRef::as_ref)
    }

    /// All of them, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &C)> {
        self.all.iter().map(|(minor, class)| (*minor, class.as_ref()))
    }

    /// All of them, parents first.
    pub fn from_above(&self) -> Vec<(u32, &C)> {
        let mut order: Vec<(u32, &C)> = self.iter().collect();
        order.sort_by_cached_key(|(minor, _)| (self.depth(*minor), *minor));
        order
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether the class `minor` exists.
    pub fn contains(&self, minor: u32) -> bool {
        self.all.contains_key(&minor)
    }

    /// The parent of the class, if that is a class.
    pub fn parent(&self, minor: u32) -> Option<u32> {
        self.get(minor)?.parent()
    }

    /// The number of ancestors of the class.
    pub fn depth(&self, minor: u32) -> usize {
        std::iter::successors(self.parent(minor), |above| self.parent(*above)).count()
    }

    /// Whether the class has children.
    pub fn is_inner(&self, minor: u32) -> bool {
        self.sums.contains_key(&minor)
    }

    /// The classes that have children, by number.
    pub(crate) fn inner(&self) -> impl Iterator<Item = u32> {
        self.sums.keys().copied().filter(|minor| *minor != 0)
    }

    /// The classes that have none, by number.
    pub(crate) fn leaves(&self) -> Vec<u32> {
        self.all.keys().copied().filter(|minor| !self.is_inner(*minor)).collect()
    }

    /// The children of `minor`, by number; 0 is the qdisc.
    pub fn children(&self, minor: u32) -> impl Iterator<Item = u32> {
        self.below.range((minor, 0)..=(minor, u32::MAX)).map(|((_, child), ())| *child)
    }

    /// The class `minor` and all its descendants, each after its parent.
    pub fn below(&self, minor: u32) -> Vec<u32> {
        let mut found = vec![minor];
        let mut next = 0;
        while let Some(&at) = found.get(next) {
            if self.is_inner(at) {
                found.extend(self.children(at));
            }
            next += 1;
        }
        found
    }

    /// The sum over the children of `minor`; 0 is the qdisc.
    pub fn sum_below(&self, minor: u32) -> C::Sum {
        self.sums.get(&minor).map_or_else(C::Sum::default, |children| children.sum)
    }

    /// Inserts `class`, in place of the present one.
    pub(crate) fn insert(&mut self, minor: u32, class: C) {
        if self.contains(minor) {
            self.remove(minor);
        }
        let above = class.parent().unwrap_or(0);
        self.below.insert((above, minor), ());
        let mut children = self.sums.get(&above).copied().unwrap_or_default();
        children.classes += 1;
        children.sum += class.amount();
        self.sums.insert(above, children);
        self.all.insert(minor, Arc::new(class));
    }

    /// Removes the class `minor`.
    pub(crate) fn remove(&mut self, minor: u32) {
        let Some(class) = self.all.remove(&minor) else { return };
        let above = class.parent().unwrap_or(0);
        self.below.remove(&(above, minor));
        let mut children = self.sums.get(&above).copied().unwrap_or_default();
        if children.classes > 1 {
            children.classes -= 1;
            children.sum -= class.amount();
            self.sums.insert(above, children);
        } else {
            self.sums.remove(&above);
        }
    }

    /// These classes, with the memory of `before` where both are equal.
    pub(crate) fn merged(&self, before: &Self) -> Self {
        Self {
            all: reuse::map(&before.all, &self.all, |_, new| Arc::clone(new)),
            below: reuse::map(&before.below, &self.below, |(), ()| ()),
            sums: reuse::map(&before.sums, &self.sums, |_, new| *new),
        }
    }

    /// These classes with the changes from `before` to `next`.
    pub(crate) fn following(&self, before: &Self, next: &Self) -> Self {
        let mut follows = self.clone();
        for minor in before.changes(next) {
            match next.get(minor) {
                Some(class) => follows.insert(minor, class.clone()),
                None => follows.remove(minor),
            }
        }
        follows
    }

    /// The classes that differ in `next`, or exist in only one of both.
    pub(crate) fn changes(&self, next: &Self) -> impl Iterator<Item = u32> {
        self.all.diff(&next.all).map(|change| match change {
            DiffItem::Add(minor, _) | DiffItem::Remove(minor, _) => *minor,
            DiffItem::Update { new: (minor, _), .. } => *minor,
        })
    }

    /// The class `id` as a command with `verb` finds it.
    pub(crate) fn find(&self, id: ClassId, verb: Verb) -> Result<Option<&C>, PolicyError> {
        match (verb, self.get(id.minor)) {
            (Verb::Delete | Verb::Change, None) => Err(PolicyError::NoSuchClass(id)),
            (Verb::Add, Some(_)) => Err(PolicyError::ClassExists(id)),
            (_, present) => Ok(present),
        }
    }

    /// Deletes the class `id` of a qdisc of `kind`, unless classes are below it or `filters` assign
    /// packets to it.
    pub(crate) fn delete(
        &mut self,
        kind: &'static str,
        id: ClassId,
        filters: &mut Assignments,
    ) -> Result<Changed, PolicyError> {
        if self.is_inner(id.minor) || filters.assigns(id.minor) {
            return Err(PolicyError::ClassInUse { kind, class: id });
        }
        self.remove(id.minor);
        Ok(Changed { without_qdisc: Some(id.minor), gone: filters.take(id.minor) })
    }

    /// Where a new class goes: the parent class that a command means by `parent`, or `None` for
    /// the qdisc with this `handle`.
    pub(crate) fn place(&self, handle: Handle, parent: Parent) -> Result<Option<u32>, String> {
        let minor = match parent {
            Parent::Root => return Ok(None),
            Parent::Class(ClassId { major, .. }) if ![0, handle.major()].contains(&major) => {
                return Err(format!(
                    "a class of {handle} is below {handle} or one of its classes."
                ));
            }
            Parent::Class(ClassId { minor: 0, .. }) => return Ok(None),
            Parent::Class(ClassId { minor, .. }) => minor,
        };
        let class = handle.class(minor);
        if !self.contains(minor) {
            return Err(format!("there is no class {class} to be the parent: add it first."));
        }
        if self.depth(minor) + 2 > DEPTH_MAX {
            return Err(format!("tree is too deep: classes can nest at most {DEPTH_MAX} deep."));
        }
        Ok(Some(minor))
    }
}

/// The other fields are derived from the classes.
impl<C: TreeClass> PartialEq for ClassTree<C> {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl<C: TreeClass + Eq> Eq for ClassTree<C> {}

#[cfg(test)]
mod tests {
    use crate::{HtbClass, HtbClasses, HtbLabel, HtbParams};
    use narrows_units::{Bytes, Rate, wire::Overhead};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn class(parent: u32, mbit: u64) -> HtbClass {
        let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
        let (burst, prio, quantum) = (Bytes(1600), 0, None);
        let (overhead, label, fleet) = (Overhead::NONE, HtbLabel::default(), None);
        let (ceil, cburst) = (rate, burst);
        let params = HtbParams { rate, ceil, burst, cburst, prio, quantum, overhead, label, fleet };
        HtbClass { parent: Some(parent).filter(|parent| *parent != 0), params }
    }

    /// Parents have lower numbers than their children, so there are no cycles.
    fn edits() -> impl Strategy<Value = Vec<(u32, u32, u64, bool)>> {
        let edit = (1..40_u32, any::<u32>(), 1..9_u64, any::<bool>());
        let edit = edit.prop_map(|(minor, above, mbit, puts)| (minor, above % minor, mbit, puts));
        proptest::collection::vec(edit, 0..120)
    }

    proptest! {
        #[test]
        fn what_is_said_of_all_is_what_a_look_at_all_says(edits in edits()) {
            let mut classes = HtbClasses::default();
            let mut model: BTreeMap<u32, HtbClass> = BTreeMap::new();
            for (minor, above, mbit, puts) in edits {
                let before = (classes.clone(), model.clone());
                match puts {
                    true => {
                        classes.insert(minor, class(above, mbit));
                        model.insert(minor, class(above, mbit));
                    }
                    false => {
                        classes.remove(minor);
                        model.remove(&minor);
                    }
                }
                prop_assert!(classes.iter().eq(model.iter().map(|(minor, class)| (*minor, class))));
                for at in 0..40 {
                    let is_below = |class: &HtbClass| class.parent.unwrap_or(0) == at;
                    let below = || model.iter().filter(|(_, class)| is_below(class));
                    prop_assert!(classes.children(at).eq(below().map(|(minor, _)| *minor)));
                    prop_assert_eq!(classes.is_inner(at), below().next().is_some());
                    let rates = below().map(|(_, class)| class.params.rate.bits_per_sec());
                    prop_assert_eq!(classes.sum_below(at), rates.map(u128::from).sum::<u128>());
                }
                let inner = (1..40).filter(|at| classes.is_inner(*at));
                prop_assert!(classes.inner().eq(inner));
                let differs = before.1.get(&minor) != model.get(&minor);
                let changes: Vec<u32> = before.0.changes(&classes).collect();
                prop_assert_eq!(changes, if differs { vec![minor] } else { vec![] });
                prop_assert_eq!(before.0 == classes, !differs);
            }
        }
    }
}
