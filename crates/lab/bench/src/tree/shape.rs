//! The trees that are measured: how many classes in how many levels, and which have packets.

use super::work::RATE;
use narrows_coordination::{Below, Classes, SharedTree, TreeKind};
use narrows_qdisc::htb::Class;
use narrows_qdisc::{Config, NodeId, hfsc};
use narrows_units::{Bytes, Rate, wire::Overhead};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A thousand times what any processor here sends.
const NEVER: Rate = Rate::from_bits_per_sec(100_000_000_000_000);
/// `tc`'s default burst for the rates of leaves here.
const BURST: Bytes = Bytes(1600);

/// What holds packets back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// Nothing: every class's assured rate exceeds the load. Credit is checked for every packet at
    /// every level and always suffices, as in `rte_sched`.
    Free,
    /// The root's rate, to which the leaves' assured rates add up: each leaf waits for its own rate
    /// and borrows what it can.
    Bound,
    /// Each leaf's own ceiling, twice its assured rate: it borrows the other half, which the
    /// classes above always have.
    Ceil,
    /// The root's rate, of which half is assured. Every second leaf has what it is assured as its
    /// ceiling, and the others borrow the rest.
    Mixed,
}

impl Load {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Free, Self::Bound, Self::Ceil, Self::Mixed];

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|load| load.name() == name)
    }

    /// Its name in tables and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Bound => "bound",
            Self::Ceil => "ceil",
            Self::Mixed => "mixed",
        }
    }

    /// The assured rate and the ceiling of class `number` of `size` at its level.
    fn limits(self, number: u32, size: u32, is_leaf: bool) -> [Rate; 2] {
        let part = |of: u64| Rate::from_bits_per_sec(RATE.bits_per_sec() / (u64::from(size) * of));
        match self {
            Self::Free => [NEVER, NEVER],
            Self::Bound => [part(1), RATE],
            Self::Ceil if is_leaf => [part(2), part(1)],
            Self::Ceil => [NEVER, NEVER],
            Self::Mixed if is_leaf && number % 2 == 1 => [part(2), part(2)],
            Self::Mixed if is_leaf => [part(2), RATE],
            Self::Mixed => [part(1), RATE],
        }
    }
}

/// One tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Leaf classes.
    pub classes: u32,
    /// Classes above each leaf, the root included.
    pub depth: u32,
    /// Leaf classes that have packets, at most `classes`: the others are idle.
    pub active: u32,
    /// What holds packets back.
    pub load: Load,
}

impl Shape {
    /// One in which all leaves have packets.
    pub const fn busy(classes: u32, depth: u32, load: Load) -> Self {
        Self { classes, depth, active: classes, load }
    }

    /// The number of the active leaf `leaf`. Those that are active are spread over all.
    #[inline]
    pub(super) fn class(self, leaf: u32) -> u32 {
        1 + (u64::from(leaf) * u64::from(self.classes) / u64::from(self.active)) as u32
    }

    /// A leaf of its tree, for unclassified packets.
    pub(super) const DEFAULT: u32 = 1;

    /// The tree: a root, and below it at every level as many classes as make all levels fan out
    /// alike, each of which may borrow all that the root has. Below each leaf is `below`.
    ///
    /// Leaves have the numbers from 1 on.
    pub(super) fn tree(self, kind: TreeKind, below: &Config) -> SharedTree {
        let mut classes = BTreeMap::new();
        let below = Arc::new(below.clone());
        let sizes: Vec<u32> = (0..=self.depth).map(|level| self.size(level)).collect();
        // Where the numbers of a level begin: inner classes come behind the leaves.
        let first = |level: u32| match level {
            level if level == self.depth => 1,
            level => 1 + self.classes + sizes[..level as usize].iter().sum::<u32>(),
        };
        for (level, &size) in (0u32..).zip(&sizes) {
            let is_leaf = level == self.depth;
            for number in 0..size {
                let [assured, ceil] = self.load.limits(number, size, is_leaf);
                let parent = level.checked_sub(1).map(|above| {
                    let siblings = u64::from(sizes[above as usize]);
                    first(above) + (u64::from(number) * siblings / u64::from(size)) as u32
                });
                let burst = BURST.max(Bytes(assured.bytes_per_sec() / 1000));
                let class = Class {
                    parent,
                    rate: assured,
                    ceil,
                    burst,
                    cburst: BURST.max(Bytes(ceil.bytes_per_sec() / 1000)),
                    prio: 0,
                    quantum: (assured.bytes_per_sec() / 10).clamp(1_000, 200_000) as u32,
                    overhead: Overhead::NONE,
                };
                let id = first(level) + number;
                let below = || Below::new(NodeId(u64::from(id)), Arc::clone(&below));
                classes.insert(id, (class, is_leaf.then(below)));
            }
        }
        let tree = SharedTree::new(kind);
        tree.replace_classes(Arc::new(Members(classes)), &BTreeMap::new());
        tree
    }

    /// How many classes there are at `level`; 0 is the root's.
    fn size(self, level: u32) -> u32 {
        let part = f64::from(level) / f64::from(self.depth);
        f64::from(self.classes).powf(part).round() as u32
    }
}

/// The classes, for either kind of tree: as those of an `hfsc` they share what is assured to them,
/// and have their ceilings as upper limits.
struct Members(BTreeMap<u32, (Class, Option<Below>)>);

impl Classes for Members {
    fn ids(&self) -> Box<dyn Iterator<Item = u32> + '_> {
        Box::new(self.0.keys().copied())
    }

    fn class(&self, id: u32) -> Option<Class> {
        self.0.class(id)
    }

    fn curves(&self, id: u32) -> Option<hfsc::Class> {
        let (class, _) = self.0.get(&id)?;
        let curve = |rate: Rate| Some(hfsc::Curve::line(rate));
        // A ceiling that never holds anything up is checked, as for an `htb`.
        let upper_limit = curve(class.ceil);
        Some(hfsc::Class {
            parent: class.parent,
            real_time: None,
            link_share: curve(class.rate),
            upper_limit,
        })
    }

    fn below(&self, id: u32) -> Option<Below> {
        self.0.below(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_fan_out_alike() {
        let sizes = |classes, depth| {
            let shape = Shape::busy(classes, depth, Load::Free);
            (0..=depth).map(|level| shape.size(level)).collect::<Vec<_>>()
        };
        assert_eq!(sizes(65_536, 4), [1, 16, 256, 4096, 65_536]);
        assert_eq!(sizes(1_024, 1), [1, 1_024]);
    }

    #[test]
    fn active_classes_are_spread_over_all() {
        let shape = Shape { classes: 1_000_000, depth: 1, active: 4, load: Load::Free };
        assert_eq!([0, 1, 2, 3].map(|leaf| shape.class(leaf)), [1, 250_001, 500_001, 750_001]);
        let shape = Shape::busy(16, 4, Load::Bound);
        assert!((0..16).map(|leaf| shape.class(leaf)).eq(1..=16));
    }
}
