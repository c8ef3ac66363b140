//! The wait queues whose classes may lend: the lowest class first, then the best priority, then
//! each in its turn.

use narrows_qdisc::htb::{DEPTH_MAX, PRIORITIES};
use std::collections::VecDeque;

/// Wait queues that may be served now, by depth and priority of the lender.
pub(super) struct Lenders {
    /// By how many classes are above the lender, and by priority.
    turns: Vec<[VecDeque<u32>; PRIORITIES]>,
    /// At which depths there are some, a bit for each.
    depths: u16,
    /// And of which priorities at each depth.
    prios: [u8; DEPTH_MAX],
}

impl Default for Lenders {
    fn default() -> Self {
        Self { turns: Vec::new(), depths: 0, prios: [0; DEPTH_MAX] }
    }
}

impl Lenders {
    /// Makes room for lenders that have `depth` classes above them.
    pub(super) fn make_room(&mut self, depth: usize) {
        if self.turns.len() <= depth {
            self.turns.resize_with(depth + 1, Default::default);
        }
    }

    /// Adds `queue` behind all others.
    #[inline]
    pub(super) fn push(&mut self, depth: usize, prio: usize, queue: u32) {
        self.turns[depth][prio].push_back(queue);
        self.depths |= 1 << depth;
        self.prios[depth] |= 1 << prio;
    }

    /// The first.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        let depth = self.depths.checked_ilog2()? as usize;
        let prio = self.prios[depth].trailing_zeros() as usize;
        self.turns[depth][prio].front().copied()
    }

    /// The first comes last of its depth and priority.
    #[inline]
    pub(super) fn rotate(&mut self, depth: usize, prio: usize) {
        let turns = &mut self.turns[depth][prio];
        if turns.len() > 1
            && let Some(queue) = turns.pop_front()
        {
            turns.push_back(queue);
        }
    }

    /// Takes `queue` out.
    pub(super) fn remove(&mut self, depth: usize, prio: usize, queue: u32) {
        let turns = &mut self.turns[depth][prio];
        if turns.front() == Some(&queue) {
            turns.pop_front();
        } else if turns.back() == Some(&queue) {
            // It has just had its turn.
            turns.pop_back();
        } else {
            turns.retain(|one| *one != queue);
        }
        if turns.is_empty() {
            self.prios[depth] &= !(1 << prio);
            if self.prios[depth] == 0 {
                self.depths &= !(1 << depth);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_class_comes_first_and_then_the_best_priority() {
        let mut lenders = Lenders::default();
        lenders.make_room(3);
        let all = [(3, 1, 10), (3, 1, 11), (3, 2, 12), (0, 0, 13)];
        for (depth, prio, queue) in [3, 2, 0, 1].map(|at| all[at]) {
            lenders.push(depth, prio, queue);
        }
        for (depth, prio, queue) in all {
            assert_eq!(lenders.first(), Some(queue));
            lenders.remove(depth, prio, queue);
        }
        assert_eq!(lenders.first(), None);
        lenders.push(1, 7, 14);
        lenders.push(1, 7, 15);
        lenders.rotate(1, 7);
        assert_eq!(lenders.first(), Some(15));
        lenders.remove(1, 7, 15);
        assert_eq!(lenders.first(), Some(14));
    }
}
