//! What HTB's rules come to where packets are a fluid: the oracle.
//!
//! Each leaf has what is assured. Then, from the lowest lenders up, each class hands out what its rate
//! leaves, to the best priority first and within one by quantum, up to every ceiling on the
//! way.

use narrows_qdisc::htb::{Class, PRIORITIES};
use std::collections::BTreeMap;

pub struct Fluid<'a> {
    classes: &'a BTreeMap<u32, Class>,
    /// What each class passes, in bits a second.
    used: BTreeMap<u32, f64>,
}

impl<'a> Fluid<'a> {
    /// What each class of `classes` passes where `demands` come for the leaves.
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
            *self.used.get_mut(&id).unwrap() += bits;
        }
    }

    /// Hands out what `lender` has left to leaves of `prio` below it, a little at a time.
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
