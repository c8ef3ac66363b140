//! The classes of the tree as they are now, and what rate each has: by weights, by priorities, and
//! by the measured rates of classes that go first.

use super::epoch::{Bucket, EXPIRY};
use crate::label::{Label, Lenders};
use crate::line::Line;
use crate::sync::{AtomicI64, AtomicU64, Ordering};
use narrows_qdisc::htb::Class;
use narrows_units::{Bytes, Nanos};
use std::collections::HashMap;
use std::sync::Arc;

/// The least number of full frames that a bucket holds in addition to an epoch.
const LEAST_FRAMES: u64 = 2;
const FRAME: u64 = 1514;

/// The state of a class that all cores write. It outlives a change of the class.
#[derive(Default)]
pub(super) struct State {
    /// What the class may send.
    pub(super) own: Bucket,
    /// Tokens that it lends.
    pub(super) shadow: Bucket,
    /// The rest of its ceiling, where the ceiling limits what it borrows.
    pub(super) ceil: Bucket,
    /// Bytes forwarded in this epoch, of the class and of all below it.
    counted: AtomicI64,
    /// Bytes forwarded per second, over the last epochs.
    measured: AtomicU64,
}

impl State {
    /// Counts forwarded bytes.
    #[inline]
    pub(super) fn count(&self, bytes: i64) {
        self.counted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Its consumption in bytes per second, as of its last epoch: zero if that is outdated.
    #[inline]
    fn consumed(&self, now: Nanos) -> u64 {
        if self.own.is_expired(now) { 0 } else { self.measured.load(Ordering::Relaxed) }
    }

    /// Measures over an epoch of `span`. Only for the core that has the right to fill the bucket.
    fn measure(&self, span: Nanos) {
        let counted = u128::try_from(self.counted.swap(0, Ordering::Relaxed)).unwrap_or(0);
        let new = (counted * 1_000_000_000 / u128::from(span.0.max(1))) as u64;
        let old = if span > EXPIRY { 0 } else { self.measured.load(Ordering::Relaxed) };
        self.measured.store(u64::midpoint(old, new), Ordering::Relaxed);
    }
}

/// A class.
pub(super) struct Node {
    pub(super) state: Arc<Line<State>>,
    /// Its place in the graph.
    pub(super) parent: Option<usize>,
    children: Vec<usize>,
    /// The sum of its children's assured rates, in bytes per second.
    promised: u64,
    /// Its lenders, each with the distance to the lowest common ancestor. `None` if they follow
    /// from the tree.
    lenders: Option<Box<[(usize, u8)]>>,
    rate: u64,
    /// Its ceiling, or the lower one of an ancestor; the rate of a topmost class.
    ceil: u64,
    is_limited: bool,
    burst: Bytes,
    cburst: Bytes,
    prio: u8,
    weight: u64,
}

impl Node {
    /// Whether it may send less than it could borrow.
    #[inline]
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited
    }
}

/// The classes of a tree by their places, parents before their children.
#[derive(Default)]
pub(super) struct Graph {
    nodes: Vec<Node>,
}

impl Graph {
    /// Adds a class with the state `state`, and returns its place. `parent` is the place of its
    /// parent.
    pub(super) fn add(
        &mut self,
        class: &Class,
        label: &Label,
        parent: Option<usize>,
        state: Arc<Line<State>>,
    ) -> usize {
        let place = self.nodes.len();
        let rate = class.rate.bytes_per_sec();
        let (mut ceil, mut is_limited) = (rate, false);
        if let Some(parent) = parent {
            ceil = class.ceil.bytes_per_sec().max(rate).min(self.nodes[parent].ceil);
            let top = self.path(parent).last().unwrap_or(parent);
            is_limited = ceil < self.nodes[top].ceil;
        }
        if let Some(parent) = parent {
            let parent = &mut self.nodes[parent];
            parent.children.push(place);
            parent.promised = parent.promised.saturating_add(rate);
        }
        let least = Bytes(LEAST_FRAMES * FRAME);
        self.nodes.push(Node {
            state,
            parent,
            children: Vec::new(),
            promised: 0,
            lenders: None,
            rate,
            ceil,
            is_limited,
            burst: class.burst.max(least),
            cburst: class.cburst.max(least),
            prio: class.prio,
            weight: u64::from(label.weight()),
        });
        place
    }

    /// Sets the lenders of the class at `place`. `places` has the places of all classes, by number.
    pub(super) fn set_lenders(
        &mut self,
        place: usize,
        lenders: Lenders,
        places: &HashMap<u32, usize>,
    ) {
        self.nodes[place].lenders = match lenders {
            Lenders::Beside => None,
            Lenders::Only(_) => {
                let places = lenders.named().filter_map(|id| places.get(&id).copied());
                Some(places.map(|lender| (lender, self.steps(place, lender))).collect())
            }
        };
    }

    /// The distance from `place` to the lowest class that contains `other`, or is it.
    fn steps(&self, place: usize, other: usize) -> u8 {
        let below = |at: usize| self.path(other).any(|above| above == at);
        let steps = self.path(place).take_while(|at| !below(*at)).count();
        u8::try_from(steps.min(self.path(place).count() - 1)).unwrap_or(u8::MAX)
    }

    #[inline]
    pub(super) fn node(&self, place: usize) -> &Node {
        &self.nodes[place]
    }

    /// A class and its ancestors.
    #[inline]
    pub(super) fn path(&self, place: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(place), |at| self.nodes[*at].parent)
    }

    /// The lenders of the class at `place`, in order, with the distance to the lowest common
    /// ancestor.
    #[inline]
    pub(super) fn lenders(&self, place: usize) -> impl Iterator<Item = (usize, u8)> + '_ {
        let named = self.nodes[place].lenders.as_deref();
        // A label that names lenders excludes all others.
        let from = if named.is_some() { None } else { Some(place) };
        let path = std::iter::successors(from, |at| self.nodes[*at].parent);
        let beside = (1..).zip(path).flat_map(move |(steps, at)| {
            let prio = self.nodes[at].prio;
            self.beside(at)
                .filter(move |other| *other != at && self.nodes[*other].prio >= prio)
                .map(move |other| (other, steps))
        });
        named.into_iter().flatten().copied().chain(beside)
    }

    /// The siblings of the class at `place`, including itself. Topmost classes have no siblings.
    fn beside(&self, place: usize) -> impl Iterator<Item = usize> + '_ {
        let above = self.nodes[place].parent;
        above.map_or(&[][..], |above| &self.nodes[above].children).iter().copied()
    }

    /// Measures and fills the class at `place` and its ancestors, the topmost first, where the
    /// epoch is over and no other core is filling it.
    #[inline]
    pub(super) fn update(&self, place: usize, now: Nanos) {
        let node = &self.nodes[place];
        if let Some(parent) = node.parent {
            self.update(parent, now);
        }
        let state = &node.state;
        let Some(turn) = state.own.turn(now) else { return };
        state.measure(turn.span);
        turn.fill(self.share(place, now), node.burst);
        if node.is_limited()
            && let Some(turn) = state.ceil.turn(now)
        {
            turn.fill(node.ceil, node.cburst);
        }
    }

    /// Measures and fills the shadow bucket of the class at `place` where its epoch is over.
    #[inline]
    pub(super) fn update_lent(&self, place: usize, now: Nanos) {
        let node = &self.nodes[place];
        let shadow = &node.state.shadow;
        let Some(turn) = shadow.turn(now) else { return };
        let new = self.rate(place, now).saturating_sub(node.state.consumed(now));
        let old = if turn.span > EXPIRY { 0 } else { shadow.rate() };
        turn.fill(u64::midpoint(old, new), Bytes(LEAST_FRAMES * FRAME));
    }

    /// The rate of the class at `place` in bytes per second: as set, or as it would be now if that
    /// is outdated.
    fn rate(&self, place: usize, now: Nanos) -> u64 {
        let own = &self.nodes[place].state.own;
        if own.is_expired(now) { self.share(place, now) } else { own.rate() }
    }

    /// The rate of the class at `place`, out of that of the class above it: its assured rate, and
    /// its part, by weight, of what better priorities leave and no sibling is assured.
    fn share(&self, place: usize, now: Nanos) -> u64 {
        let node = &self.nodes[place];
        let Some(parent) = node.parent else { return node.rate.max(1) };
        let total = self.rate(parent, now);
        let promised = self.nodes[parent].promised;
        // If the assured rates do not fit, all are reduced by the same factor.
        let assured = |node: &Node| match promised <= total {
            true => node.rate,
            false => {
                (u128::from(node.rate) * u128::from(total) / u128::from(promised.max(1))) as u64
            }
        };
        let (mut left, mut weights) = (total, 0);
        for other in self.beside(place).map(|other| &self.nodes[other]) {
            if other.prio < node.prio {
                left = left.saturating_sub(other.state.consumed(now));
            } else {
                left = left.saturating_sub(assured(other));
                weights += if other.prio == node.prio { other.weight } else { 0 };
            }
        }
        let part = u128::from(left) * u128::from(node.weight) / u128::from(weights.max(1));
        // Never 0: as in FlowValve's code a class that starves has a rate of one.
        (assured(node) + part as u64).clamp(1, node.ceil.max(1))
    }
}
