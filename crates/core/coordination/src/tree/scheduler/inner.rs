//! A class with children, as one queue sees it, and the leaves that its ceiling holds up although
//! they have credit of their own.

use super::event::Event;
use super::leaf::{NONE, State};
use super::wait_queue::WaitQueue;
use super::{Scheduler, Turn};
use crate::tree::buying::Lack;
use crate::tree::node::{Limit, Node};
use narrows_qdisc::htb::PRIORITIES;
use narrows_units::{Bytes, Nanos};
use std::collections::VecDeque;
use std::sync::Arc;

/// A class with children, as one queue sees it.
pub(super) struct Inner {
    node: Arc<Node>,
    /// The place of the class above it, or [`NONE`].
    parent: u32,
    /// How many leaves and classes are directly below it.
    pub(super) children: u32,
    /// Its wait queues, by priority.
    queues: [u32; PRIORITIES],
    /// Leaves with credit of their own that its ceiling holds up.
    held: VecDeque<u32>,
    /// Until when it does.
    holds_until: Nanos,
}

impl Scheduler {
    /// The place of the class `node`, which has children.
    pub(super) fn open_inner(&mut self, node: &Arc<Node>) -> u32 {
        if let Some(&place) = self.places.get(&node.serial) {
            return place;
        }
        let parent = node.parent.as_ref().map_or(NONE, |parent| self.open_inner(parent));
        if let Some(above) = self.inners.get_mut(parent as usize) {
            above.children += 1;
        }
        let inner = Inner {
            node: Arc::clone(node),
            parent,
            children: 0,
            queues: [NONE; PRIORITIES],
            held: VecDeque::new(),
            holds_until: Nanos::ZERO,
        };
        self.lenders.make_room(node.depth());
        let place = match self.vacant_inners.pop() {
            Some(place) => {
                self.inners[place as usize] = inner;
                place
            }
            None => {
                self.inners.push(inner);
                self.inners.len() as u32 - 1
            }
        };
        self.places.insert(node.serial, place);
        if parent == NONE {
            self.roots.push(place);
        }
        place
    }

    /// One child less of the class at `place`, and of those above that have none then.
    pub(super) fn close_inner(&mut self, mut place: u32) {
        while let Some(inner) = self.inners.get_mut(place as usize) {
            inner.children -= 1;
            if inner.children > 0 {
                return;
            }
            let (parent, queues) = (inner.parent, inner.queues);
            self.places.remove(&inner.node.serial);
            self.released.retain(|one| *one != place);
            self.roots.retain(|one| *one != place);
            for queue in queues.into_iter().filter(|queue| *queue != NONE) {
                self.unlist(queue);
                self.detach(queue);
                self.closed -= u32::from(self.queues[queue as usize].is_closed());
                self.vacant_queues.push(queue);
            }
            self.vacant_inners.push(place);
            place = parent;
        }
    }

    /// The wait queue of the class at `place` for `prio`.
    pub(super) fn open_queue(&mut self, place: u32, prio: u8) -> u32 {
        let Some(inner) = self.inners.get(place as usize) else { return NONE };
        let at = inner.queues[usize::from(prio)];
        if at != NONE {
            return at;
        }
        let node = Arc::clone(&inner.node);
        let above = self.open_queue(inner.parent, prio);
        let queue = WaitQueue::new(&node, place, above, prio);
        let at = match self.vacant_queues.pop() {
            Some(at) => {
                self.queues[at as usize] = queue;
                at
            }
            None => {
                self.queues.push(queue);
                self.queues.len() as u32 - 1
            }
        };
        self.inners[place as usize].queues[usize::from(prio)] = at;
        at
    }

    /// The leaf at `place` has credit of its own, and something above it lacks it.
    #[inline(never)]
    pub(super) fn hold(&mut self, place: u32, lack: Lack, now: Nanos) {
        let at = self.queue_above(place, lack.steps);
        let Some(Some(leaf)) = self.leaves.get_mut(place as usize) else { return };
        self.marks[place as usize].state = State::Held;
        leaf.handle.announce(lack.until, now);
        leaf.handle.node.enter();
        let queue = &mut self.queues[at as usize];
        queue.announce(Limit::Ceil, leaf, lack.until, now);
        let at = queue.inner;
        let inner = &mut self.inners[at as usize];
        self.holding += u32::from(inner.held.is_empty());
        if inner.holds_until <= now || inner.held.is_empty() {
            inner.holds_until = lack.until;
            self.times.insert(lack.until, Event::Releases(at).to_number());
        }
        if self.turn == Turn::Released {
            inner.held.push_front(place);
        } else {
            inner.held.push_back(place);
        }
    }

    /// Whether a class above the leaf at `place` holds others up, and with them this leaf, of which
    /// the next packet costs `bytes`.
    #[inline(never)]
    pub(super) fn is_held_with_others(&mut self, place: u32, bytes: Bytes, now: Nanos) -> bool {
        let Self { marks, leaves, inners, .. } = self;
        let Some(Some(leaf)) = leaves.get_mut(place as usize) else { return false };
        let mut at = leaf.parent;
        while let Some(inner) = inners.get_mut(at as usize) {
            if inner.holds_until > now
                && !inner.held.is_empty()
                && leaf.handle.ceil_of_due(&inner.node, bytes, now) > now
            {
                marks[place as usize].state = State::Held;
                leaf.handle.announce(inner.holds_until, now);
                inner.held.push_back(place);
                return true;
            }
            at = inner.parent;
        }
        false
    }

    /// Whether the class `steps` above the leaf at `place` is the root of all.
    pub(super) fn is_only_root(&self, place: u32, steps: usize) -> bool {
        let leaf = self.leaves[place as usize].as_ref();
        self.roots.len() == 1 && leaf.is_some_and(|leaf| leaf.node().depth() == steps)
    }

    /// Whether all leaves have one root, and its ceiling lets nothing pass.
    #[inline]
    pub(super) fn nothing_passes(&self, now: Nanos) -> bool {
        self.holding > 0 && self.roots.len() == 1 && {
            let root = &self.inners[self.roots[0] as usize];
            root.holds_until > now && !root.held.is_empty()
        }
    }

    /// Whether the class at `place` holds leaves up.
    pub(super) fn holds(&self, place: u32) -> bool {
        !self.inners[place as usize].held.is_empty()
    }

    /// The class at `place` may let those pass that it holds up.
    pub(super) fn releases(&mut self, place: u32, now: Nanos) {
        let inner = &self.inners[place as usize];
        if inner.holds_until <= now && !inner.held.is_empty() && !self.released.contains(&place) {
            self.released.push_back(place);
        }
    }

    /// A leaf that a class held up, and holds up no longer.
    #[inline(never)]
    pub(super) fn next_released(&mut self, now: Nanos) -> Option<u32> {
        while let Some(&at) = self.released.front() {
            let inner = &mut self.inners[at as usize];
            if inner.holds_until <= now
                && let Some(place) = inner.held.pop_front()
            {
                self.holding -= u32::from(inner.held.is_empty());
                self.released.rotate_left(1);
                return Some(place);
            }
            self.released.pop_front();
        }
        None
    }

    /// The leaf at `place` is held up no longer.
    pub(super) fn leave_held(&mut self, place: u32) {
        let mut at = match &self.leaves[place as usize] {
            Some(leaf) if self.marks[place as usize].state == State::Held => leaf.parent,
            _ => return,
        };
        while let Some(inner) = self.inners.get_mut(at as usize) {
            let was_empty = inner.held.is_empty();
            inner.held.retain(|one| *one != place);
            self.holding -= u32::from(!was_empty && inner.held.is_empty());
            at = inner.parent;
        }
    }
}
