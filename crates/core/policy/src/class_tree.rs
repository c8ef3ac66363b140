//! The classes of an `htb`, and aggregates over them.
//!
//! Versions of a policy share unchanged classes, as they share qdiscs. Children are found, counted
//! and summed up without a look at any other class.

use super::HtbClass;
use crate::reuse;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use std::sync::Arc;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct HtbClasses {
    all: OrdMap<u32, Arc<HtbClass>>,
    /// (parent, child) pairs; the qdisc is 0.
    below: OrdMap<(u32, u32), ()>,
    /// Aggregates over the children of each class that has some.
    sums: OrdMap<u32, Sum>,
}

/// Aggregates over the children of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sum {
    classes: u32,
    /// The sum of their assured rates, in bits per second.
    rates: u128,
}

impl HtbClasses {
    /// The class `minor`.
    pub fn get(&self, minor: u32) -> Option<&HtbClass> {
        self.all.get(&minor).map(AsRef::as_ref)
    }

    /// All of them, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &HtbClass)> {
        self.all.iter().map(|(minor, class)| (*minor, class.as_ref()))
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

    /// Whether the class has children.
    pub fn is_inner(&self, minor: u32) -> bool {
        self.sums.contains_key(&minor)
    }

    /// The classes that have children, by number.
    pub(crate) fn inner(&self) -> impl Iterator<Item = u32> {
        self.sums.keys().copied().filter(|minor| *minor != 0)
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

    /// The sum of the assured rates of the children of `minor`, in bits per second.
    pub fn rates_below(&self, minor: u32) -> u128 {
        self.sums.get(&minor).map_or(0, |sum| sum.rates)
    }

    /// Inserts `class`, in place of the present one.
    pub(crate) fn insert(&mut self, minor: u32, class: HtbClass) {
        if self.contains(minor) {
            self.remove(minor);
        }
        let above = class.parent.unwrap_or(0);
        self.below.insert((above, minor), ());
        let Sum { classes, rates } = self.sums.get(&above).copied().unwrap_or_default();
        let rates = rates + u128::from(class.params.assured().bits_per_sec());
        self.sums.insert(above, Sum { classes: classes + 1, rates });
        self.all.insert(minor, Arc::new(class));
    }

    /// Removes the class `minor`.
    pub(crate) fn remove(&mut self, minor: u32) {
        let Some(class) = self.all.remove(&minor) else { return };
        let above = class.parent.unwrap_or(0);
        self.below.remove(&(above, minor));
        let Sum { classes, rates } = self.sums.get(&above).copied().unwrap_or_default();
        if classes > 1 {
            let rates = rates - u128::from(class.params.assured().bits_per_sec());
            self.sums.insert(above, Sum { classes: classes - 1, rates });
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

    /// The classes that differ in `next`, or exist in only one of both.
    pub(crate) fn changes(&self, next: &Self) -> impl Iterator<Item = u32> {
        self.all.diff(&next.all).map(|change| match change {
            DiffItem::Add(minor, _) | DiffItem::Remove(minor, _) => *minor,
            DiffItem::Update { new: (minor, _), .. } => *minor,
        })
    }
}

/// The other fields are derived from the classes.
impl PartialEq for HtbClasses {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl Eq for HtbClasses {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HtbLabel, HtbParams};
    use narrows_units::{Bytes, Rate, wire::Overhead};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn class(parent: u32, mbit: u64) -> HtbClass {
        let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
        let (burst, prio, quantum) = (Bytes(1600), 0, None);
        let (overhead, label) = (Overhead::NONE, HtbLabel::default());
        let params =
            HtbParams { rate, ceil: rate, burst, cburst: burst, prio, quantum, overhead, label };
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
                    prop_assert_eq!(classes.rates_below(at), rates.map(u128::from).sum::<u128>());
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
