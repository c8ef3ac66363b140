//! The result of HTB's rules if packets were a fluid: the reference for trees of classes.
//!
//! Each leaf gets its assured rate. Then, from the lowest lenders up, each class divides the rest
//! of its rate, best priority first and by quantum within a priority, up to every ceiling on the
//! way.
//!
//! It is slow and simple on purpose, and has no queues, packets or bursts. Only tests and
//! measurements use it.

use narrows_qdisc::htb::{Class, PRIORITIES};
use std::collections::BTreeMap;

/// The rates at which the classes of a tree pass a fluid, in bits per second.
#[derive(Debug)]
pub struct Fluid<'a> {
    classes: &'a BTreeMap<u32, Class>,
    /// The rate of each class, in bits per second.
    used: BTreeMap<u32, f64>,
}

impl<'a> Fluid<'a> {
    /// The rate of each class of `classes`, by number, for the `demands` of the leaves, in bits per
    /// second. A leaf without an entry in `demands` has none.
    ///
    /// # Panics
    /// If a demand or a parent names a class that is not among `classes`.
    pub fn of(classes: &'a BTreeMap<u32, Class>, demands: &BTreeMap<u32, f64>) -> Self {
        let used = classes.keys().map(|id| (*id, 0.0)).collect();
        let mut fluid = Self { classes, used };
        let by_depth = |depth: usize| move |id: &&u32| fluid_depth(classes, **id) == depth;
        for (leaf, demand) in demands {
            let assured = demand.min(rate(&classes[leaf]));
            fluid.give(*leaf, assured.min(fluid.room(*leaf)));
        }
        for depth in (0..16).rev() {
            for lender in classes.keys().filter(by_depth(depth)) {
                for prio in 0..PRIORITIES as u8 {
                    fluid.lend(*lender, prio, demands);
                }
            }
        }
        fluid
    }

    /// The rate of `class` in bits per second: its own, or the sum of its leaves.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn passes(&self, class: u32) -> f64 {
        self.used[&class]
    }

    fn path(&self, leaf: u32) -> impl Iterator<Item = u32> + use<'a> {
        let classes = self.classes;
        std::iter::successors(Some(leaf), move |id| classes[id].parent)
    }

    /// How much more the ceilings let a leaf pass.
    fn room(&self, leaf: u32) -> f64 {
        let room = |id: u32| self.classes[&id].ceil.bits_per_sec() as f64 - self.used[&id];
        self.path(leaf).map(room).fold(f64::INFINITY, f64::min).max(0.0)
    }

    fn give(&mut self, leaf: u32, bits: f64) {
        for id in self.path(leaf) {
            *self.used.entry(id).or_default() += bits;
        }
    }

    /// Distributes the rest of `lender` to leaves of `prio` below it, in small steps.
    fn lend(&mut self, lender: u32, prio: u8, demands: &BTreeMap<u32, f64>) {
        let step = 1e5;
        loop {
            let left = rate(&self.classes[&lender]) - self.used[&lender];
            let wants = |fluid: &Self, leaf: u32, demand: f64| {
                let class = &fluid.classes[&leaf];
                let more = (demand - fluid.used[&leaf]).min(fluid.room(leaf));
                (class.prio == prio && leaf != lender && more > 1.0).then_some(more)
            };
            let takers: Vec<(u32, f64)> = demands
                .iter()
                .filter(|(leaf, _)| self.path(**leaf).any(|id| id == lender))
                .filter_map(|(leaf, demand)| Some((*leaf, wants(self, *leaf, *demand)?)))
                .collect();
            let weight: f64 =
                takers.iter().map(|(leaf, _)| f64::from(self.classes[leaf].quantum)).sum();
            if left < 1.0 || takers.is_empty() {
                return;
            }
            for (leaf, more) in takers {
                let part = f64::from(self.classes[&leaf].quantum) / weight;
                let bits = (left.min(step) * part).min(more).min(self.room(leaf));
                self.give(leaf, bits);
            }
        }
    }
}

fn rate(class: &Class) -> f64 {
    class.rate.bits_per_sec() as f64
}

fn fluid_depth(classes: &BTreeMap<u32, Class>, id: u32) -> usize {
    std::iter::successors(Some(id), |id| classes[id].parent).count() - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_units::{Bytes, Rate, wire::Overhead};

    fn class(parent: Option<u32>, rate: u64, ceil: u64, prio: u8) -> Class {
        let megabits = |mbit: u64| Rate::from_bits_per_sec(mbit * 1_000_000);
        Class {
            parent,
            rate: megabits(rate),
            ceil: megabits(ceil),
            burst: Bytes(6_000),
            cburst: Bytes(6_000),
            prio,
            quantum: 3_000,
            overhead: Overhead::NONE,
        }
    }

    /// The rates of the leaves for these demands, in whole Mbit/s.
    fn passed(classes: &[(u32, Class)], demands: &[(u32, u32)]) -> Vec<u64> {
        let classes: BTreeMap<u32, Class> = classes.iter().copied().collect();
        let wanted: BTreeMap<u32, f64> =
            demands.iter().map(|(leaf, mbit)| (*leaf, f64::from(*mbit) * 1e6)).collect();
        let fluid = Fluid::of(&classes, &wanted);
        demands.iter().map(|(leaf, _)| (fluid.passes(*leaf) / 1e6).round() as u64).collect()
    }

    #[test]
    fn a_leaf_gets_its_assured_rate_and_borrows_by_priority_and_quantum() {
        let heavy = Class { quantum: 6_000, ..class(Some(1), 10, 100, 1) };
        let classes = [
            (1, class(None, 100, 100, 0)),
            (2, class(Some(1), 10, 40, 0)),
            (3, class(Some(1), 20, 100, 1)),
            (4, heavy),
        ];
        // The best priority up to its ceiling; 30 of the rest are shared as 1:2.
        assert_eq!(passed(&classes, &[(2, 99), (3, 99), (4, 99)]), [40, 30, 30]);
        assert_eq!(passed(&classes, &[(2, 5), (3, 99), (4, 0)]), [5, 95, 0]);
    }

    #[test]
    fn leaves_below_a_class_borrow_its_rest_first() {
        let classes = [
            (1, class(None, 100, 100, 0)),
            (2, class(Some(1), 60, 100, 0)),
            (3, class(Some(1), 40, 50, 0)),
            (20, class(Some(2), 10, 100, 7)),
            (21, class(Some(2), 50, 100, 7)),
            (30, class(Some(3), 5, 50, 0)),
        ];
        // A worse priority, but nearer to the lender: it gets all that its sibling leaves.
        assert_eq!(passed(&classes, &[(20, 99), (21, 0), (30, 99)]), [60, 0, 40]);
        // The rest of the root's rate is borrowed up to the ceiling above the leaf.
        assert_eq!(passed(&classes, &[(20, 20), (21, 0), (30, 99)]), [20, 0, 50]);
    }
}
