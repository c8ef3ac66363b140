//! A class with children, as one queue sees it: who waits for it.

use super::feed::{Feed, NOWHERE};
use crate::sync::Ordering;
use crate::tree::node::{Limit, Node};
use narrows_qdisc::htb::PRIORITIES;
use narrows_units::Nanos;
use std::collections::VecDeque;
use std::sync::Arc;

/// No class.
pub(super) const NONE: u32 = u32::MAX;

/// See the module's documentation.
pub(super) struct Inner {
    pub(super) node: Arc<Node>,
    /// The place of the class above it, or [`NONE`].
    pub(super) parent: u32,
    /// How many classes are above it.
    pub(super) depth: usize,
    /// How many leaves and classes are directly below it.
    pub(super) children: u32,
    /// The borrowers below it, by priority.
    pub(super) borrowers: [Option<Box<Borrowers>>; PRIORITIES],
    /// Leaves with credit of their own that its ceiling holds up.
    pub(super) held: VecDeque<u32>,
    /// Until when it does.
    pub(super) holds_until: Nanos,
}

/// The borrowers of one priority below a class.
pub(super) struct Borrowers {
    /// By how many classes are above the lender, its own children by their virtual times there.
    pub(super) feeds: Box<[Feed]>,
    /// By the same, the position of the class in the feed of the one above it.
    pub(super) positions: Box<[u32]>,
    /// How many leaves below it wait.
    pub(super) waiting: u32,
    /// From when on the class lends.
    pub(super) lends_from: Nanos,
    /// The virtual time of the leaf to which it lent nothing before.
    pub(super) refused: u64,
    /// From when on its ceiling lets borrowers pass, if it does not.
    pub(super) closed_until: Option<Nanos>,
    /// Whether it is in the list of lenders.
    pub(super) is_listed: bool,
    /// The times that were announced to other queues, by limit.
    announced: [Option<Nanos>; 2],
}

impl Borrowers {
    /// Those of a class that has `depth` above it.
    fn new(depth: usize) -> Box<Self> {
        Box::new(Self {
            feeds: (0..=depth).map(|_| Feed::default()).collect(),
            positions: vec![NOWHERE; depth].into(),
            waiting: 0,
            lends_from: Nanos::ZERO,
            refused: 0,
            closed_until: None,
            is_listed: false,
            announced: [None; 2],
        })
    }
}

impl Borrowers {
    /// Whether other queues know that one of them waits for what the class lends.
    #[inline]
    pub(super) fn is_announced(&self) -> bool {
        self.announced[Limit::Rate as usize].is_some()
    }
}

impl Inner {
    pub(super) fn new(node: Arc<Node>, parent: u32) -> Self {
        let depth = node.depth();
        Self {
            node,
            parent,
            depth,
            children: 0,
            borrowers: Default::default(),
            held: VecDeque::new(),
            holds_until: Nanos::ZERO,
        }
    }

    /// The borrowers of `prio` below it.
    #[inline]
    pub(super) fn of(&mut self, prio: usize) -> &mut Borrowers {
        let depth = self.depth;
        self.borrowers[prio].get_or_insert_with(|| Borrowers::new(depth))
    }

    /// Announces to other queues that the `leaf` waits for `limit` until `until`.
    pub(super) fn announce(&mut self, limit: Limit, leaf: &Node, until: Nanos, now: Nanos) {
        let (prio, weight) = (leaf.prio(), u64::from(leaf.quantum()));
        let kind = limit as usize;
        let limit = self.node.counted(limit);
        let race = &self.node.borrowers(limit)[prio];
        let place = leaf.place(leaf.depth() - self.depth, limit);
        let from = place.load(Ordering::Relaxed);
        let to = race.floor(from, weight);
        if to != from {
            // If another queue has bought meanwhile, the class is less far behind.
            let _ = place.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        }
        let wanted = race.want(to, until, now);
        self.of(prio).announced[kind] = Some(wanted);
    }

    /// Withdraws what was announced, after `leaf` has had its turn or waits no longer.
    #[inline]
    pub(super) fn withdraw(&mut self, leaf: &Node, now: Nanos) {
        let prio = leaf.prio();
        let Some(own) = &mut self.borrowers[prio] else { return };
        if own.announced == [None; 2] {
            return;
        }
        for limit in Limit::BOTH {
            if let Some(wanted) = own.announced[limit as usize].take() {
                let limit = self.node.counted(limit);
                let race = &self.node.borrowers(limit)[prio];
                race.has_had(wanted, now);
                let place = leaf.place(leaf.depth() - self.depth, limit);
                race.rests(place.load(Ordering::Relaxed), now);
            }
        }
    }
}
