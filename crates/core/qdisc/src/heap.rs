//! Flows, or classes, by the time at which each may continue: a heap.
//!
//! Only the first of the waiting flows is ever needed, and none leaves out of order. So only the
//! path from a leaf to the root needs to be in order, and no flow needs to know its position: an
//! implicit heap takes 16 bytes per flow, where a balanced tree takes three links and twice the
//! comparisons. A node has four children and not two: half as many levels, and the children are
//! next to each other in memory.
//!
//! Source: D. B. Johnson, "Priority queues with update and finding minimum spanning trees" (1975).
//!
//! Cost: O(log n), log4(n) lines of memory on the way up and down. Grows only with
//! [`Heap::make_room`].

use narrows_units::Nanos;

/// Children of a node.
const ARITY: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Nanos,
    flow: u32,
}

/// Flows by time. Of those with the same time any may be first.
#[derive(Default)]
pub struct Heap {
    entries: Vec<Entry>,
}

impl Heap {
    /// Makes room for `flows` in all, so that nothing is allocated while there are no more.
    pub fn make_room(&mut self, flows: usize) {
        self.entries.reserve_exact(flows.saturating_sub(self.entries.len()));
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The first time.
    #[inline]
    pub fn first(&self) -> Option<Nanos> {
        self.entries.first().map(|entry| entry.at)
    }

    /// The flow that has this time.
    #[inline]
    pub fn first_flow(&self) -> Option<u32> {
        self.entries.first().map(|entry| entry.flow)
    }

    /// Puts `flow` in, to come out at `at`.
    pub fn insert(&mut self, at: Nanos, flow: u32) {
        let mut place = self.entries.len();
        let entry = Entry { at, flow };
        self.entries.push(entry);
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.entries[parent].at <= at {
                break;
            }
            self.entries[place] = self.entries[parent];
            place = parent;
        }
        self.entries[place] = entry;
    }

    /// Removes all flows for which `stays` is false.
    pub fn retain(&mut self, stays: impl Fn(u32) -> bool) {
        let before = self.entries.len();
        self.entries.retain(|entry| stays(entry.flow));
        if self.entries.len() != before {
            // What is sorted is a heap.
            self.entries.sort_unstable_by_key(|entry| entry.at);
        }
    }

    /// Takes the first.
    pub fn pop(&mut self) -> Option<(Nanos, u32)> {
        let first = *self.entries.first()?;
        let last = self.entries.pop()?;
        let len = self.entries.len();
        let mut place = 0;
        while place * ARITY + 1 < len {
            let children = place * ARITY + 1..(place * ARITY + 1 + ARITY).min(len);
            let (mut least, mut at) = (children.start, Nanos::MAX);
            for child in children {
                if self.entries[child].at < at {
                    (least, at) = (child, self.entries[child].at);
                }
            }
            if last.at <= at {
                break;
            }
            self.entries[place] = self.entries[least];
            place = least;
        }
        if let Some(hole) = self.entries.get_mut(place) {
            *hole = last;
        }
        Some((first.at, first.flow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn it_sorts() {
        let mut heap = Heap::default();
        let times = (0..1000u64).map(|flow| flow.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
        for (flow, at) in times.clone().enumerate() {
            heap.insert(Nanos(at), flow as u32);
        }
        let mut sorted: Vec<_> = times.collect();
        sorted.sort_unstable();
        let popped: Vec<_> = std::iter::from_fn(|| heap.pop()).map(|(at, _)| at.0).collect();
        assert_eq!(popped, sorted);
    }

    #[test]
    fn with_room_for_all_nothing_is_allocated() {
        let mut heap = Heap::default();
        heap.make_room(100);
        let memory = heap.entries.as_ptr();
        (0..100).for_each(|flow| heap.insert(Nanos(u64::from(100 - flow)), flow));
        heap.make_room(100);
        assert_eq!(heap.entries.as_ptr(), memory);
        assert_eq!(heap.first(), Some(Nanos(1)));
    }

    proptest! {
        /// The oracle is a sorted set of pairs: after any operations, the first is one of the
        /// earliest, and every flow comes out at its own time.
        #[test]
        fn the_earliest_comes_out_first(
            steps in prop::collection::vec(prop::option::weighted(0.6, 0u64..50), 1..400),
            removed in prop::option::of((0usize..400, 2u32..9)),
        ) {
            let mut heap = Heap::default();
            let mut model = BTreeSet::new();
            for (flow, step) in steps.into_iter().enumerate() {
                match step {
                    Some(at) => {
                        heap.insert(Nanos(at), flow as u32);
                        model.insert((Nanos(at), flow as u32));
                    }
                    None => {
                        let popped = heap.pop();
                        let earliest = model.first().map(|(at, _)| *at);
                        prop_assert_eq!(popped.map(|(at, _)| at), earliest);
                        prop_assert!(popped.is_none_or(|entry| model.remove(&entry)));
                    }
                }
                if let Some((_, every)) = removed.filter(|(at, _)| *at == flow) {
                    heap.retain(|flow| flow % every != 0);
                    model.retain(|(_, flow)| flow % every != 0);
                }
                prop_assert_eq!(heap.len(), model.len());
                prop_assert_eq!(heap.first(), model.first().map(|(at, _)| *at));
                let first = heap.first().zip(heap.first_flow());
                prop_assert!(first.is_none_or(|first| model.contains(&first)));
            }
        }
    }
}
