//! The statistics of a class of a tree: sums over the leaves below it, and what its kind adds.

use crate::render::Json;
use narrows_policy::{ClassTree, TreeClass};
use narrows_qdisc::Stats;
use narrows_qdisc::htb::LeafFigures;
use narrows_units::Spread;

/// The statistics of one class, summed over its leaves.
#[derive(Default)]
pub(crate) struct TreeFigures {
    /// Those of all kinds.
    pub(crate) stats: Stats,
    /// The delays.
    pub(crate) delays: Spread,
    /// Those of this kind, as text.
    pub(crate) text: String,
    /// The figures as JSON.
    pub(crate) json: Vec<(&'static str, Json)>,
}

/// The sums for the class `minor` of `classes`, and 0 for all; `stats` are the qdisc's. `each` is
/// called with each leaf that a queue knows, and how many levels it is below the class.
pub(super) fn sum<C: TreeClass>(
    classes: &ClassTree<C>,
    minor: u32,
    stats: Option<&Stats>,
    mut each: impl FnMut(&LeafFigures, usize),
) -> TreeFigures {
    let mut sum = TreeFigures::default();
    let Some(figures) = stats.and_then(|stats| stats.detail.as_ref()?.htb()) else { return sum };
    let depth = classes.depth(minor);
    for below in classes.below(minor) {
        let Some(leaf) = figures.leaves.get(&below) else { continue };
        let stats = &mut sum.stats;
        stats.sent_bytes += leaf.sent_bytes;
        stats.sent_packets += leaf.sent_packets;
        stats.drops += leaf.drops;
        stats.overlimits += leaf.overlimits;
        stats.backlog += leaf.backlog;
        sum.delays.merge(&leaf.delays);
        each(leaf, classes.depth(below) - depth);
    }
    sum
}
