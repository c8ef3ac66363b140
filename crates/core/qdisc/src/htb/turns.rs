//! Classes in the order of their turns, and how far ahead they are fetched into the caches.
//!
//! With thousands of classes, none is in the caches when its turn comes, and where the next part of
//! it is, only the part before tells. So a class is fetched in [`Stage`]s, a few turns apart, and
//! for each stage a group of classes at once. One prefetch alone may hold up the processor: it has
//! to find the page first. For several in a row it does so at the same time. But a processor waits
//! for a limited number of cache lines at once, and more prefetches than that are lost or hold it
//! up: a group, in all stages, is about 20 lines.
//!
//! In a queue that is shorter than the distance between the first stage and the last, several
//! stages follow each other at once. In a very short one there is nothing to gain.

use super::class::Stage;
use std::collections::VecDeque;

impl Stage {
    const ALL: [Self; 3] = [Self::Leaf, Self::Parts, Self::Turn];
}

/// Turns that are fetched together.
const GROUP: usize = 4;

/// With fewer turns than this in a queue there is little to gain.
const WORTH: usize = 16;

/// The places of classes in the order of their turns. A list through the classes would show the
/// next turn only when the class before it is in the cache.
#[derive(Default, Debug)]
pub struct Turns {
    places: VecDeque<u32>,
    /// How many turns there have been,
    taken: usize,
    /// and how many of them and of the next ones have passed each stage.
    passed: [usize; Stage::ALL.len()],
}

impl Turns {
    /// Whether no class has its turn.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Makes room for `room` classes in all.
    #[inline]
    pub fn make_room(&mut self, room: usize) {
        self.places.reserve_exact(room.saturating_sub(self.places.len()));
    }

    /// Adds a class behind all others.
    #[inline]
    pub fn push(&mut self, place: u32) {
        self.places.push_back(place);
    }

    /// Takes the first class.
    #[inline]
    pub fn pop(&mut self) -> Option<u32> {
        let place = self.places.pop_front()?;
        self.taken = self.taken.wrapping_add(1);
        Some(place)
    }

    /// Removes all classes for which `stays` is false. The others are looked at again.
    pub fn retain(&mut self, stays: impl Fn(u32) -> bool) {
        let before = self.places.len();
        self.places.retain(|place| stays(*place));
        if self.places.len() != before {
            self.passed = [self.taken; Stage::ALL.len()];
        }
    }

    /// Whether to look ahead: the next turn has not passed all stages, and there are enough turns
    /// to gain by it.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.is_prepared() && self.places.len() >= WORTH
    }

    /// Whether the next turn has passed all stages.
    #[inline]
    fn is_prepared(&self) -> bool {
        let [.., last] = self.passed;
        last.wrapping_sub(self.taken) as isize > 0
    }

    /// Passes the next turns through the stages: the next group through all of them, each group
    /// behind it through one less. Those that `pass` gets at once follow each other.
    #[inline]
    pub fn look_ahead(&mut self, mut pass: impl FnMut(Stage, &[u32])) {
        let (front, back) = self.places.as_slices();
        for (before_last, (stage, passed)) in
            (0..Stage::ALL.len()).rev().zip(Stage::ALL.into_iter().zip(&mut self.passed))
        {
            let from = passed.wrapping_sub(self.taken);
            // None that is there now, if it was long ago.
            let from = if from as isize > 0 { from } else { 0 };
            let to = (GROUP * (before_last + 1)).min(self.places.len()).max(from);
            let (middle, end) = (from.min(front.len()), to.min(front.len()));
            if middle < end {
                pass(stage, &front[middle..end]);
            }
            if end < to {
                pass(stage, &back[from.max(end) - front.len()..to - front.len()]);
            }
            *passed = self.taken.wrapping_add(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// The oracle is a queue of classes, each with the stages that it has passed.
        #[test]
        fn each_turn_passes_each_stage_once_and_in_order(
            steps in prop::collection::vec((0usize..40, 0usize..40), 1..20),
            start in prop::sample::select(vec![0, usize::MAX - 20]),
        ) {
            let mut turns = Turns { taken: start, passed: [start; 3], ..Turns::default() };
            let mut model: VecDeque<(u32, Vec<Stage>)> = VecDeque::new();
            let mut next = 0;
            for (pushes, pops) in steps {
                for _ in 0..pushes {
                    turns.push(next);
                    model.push_back((next, Vec::new()));
                    next += 1;
                }
                for _ in 0..pops {
                    if !turns.is_prepared() {
                        let first = model.front().map(|(place, _)| *place);
                        turns.look_ahead(|stage, places| {
                            for place in places {
                                let at = (place - first.unwrap()) as usize;
                                model[at].1.push(stage);
                            }
                        });
                    }
                    let popped = model.pop_front();
                    prop_assert_eq!(turns.pop(), popped.as_ref().map(|(place, _)| *place));
                    if let Some((_, stages)) = popped {
                        prop_assert_eq!(stages, Stage::ALL);
                    }
                }
                prop_assert!(model.iter().all(|(_, stages)| Stage::ALL.starts_with(stages)));
                prop_assert_eq!(turns.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn a_long_queue_is_looked_at_a_group_at_a_time() {
        let mut turns = Turns::default();
        (0..100).for_each(|place| turns.push(place));
        let mut passed = Vec::new();
        for turn in 0..3 * GROUP {
            assert_eq!(turns.is_due(), turn % GROUP == 0);
            if turns.is_due() {
                passed.clear();
                turns.look_ahead(|stage, places| {
                    passed.extend(places.iter().map(|place| (stage, *place as usize)));
                });
            }
            turns.pop();
        }
        let group = |stage, start: usize| (start..start + GROUP).map(move |at| (stage, at));
        let expected = group(Stage::Leaf, 4 * GROUP)
            .chain(group(Stage::Parts, 3 * GROUP))
            .chain(group(Stage::Turn, 2 * GROUP));
        assert!(passed.into_iter().eq(expected));
    }

    #[test]
    fn what_has_been_removed_counts_no_more() {
        let mut turns = Turns::default();
        (0..100).for_each(|place| turns.push(place));
        turns.look_ahead(|_, _| {});
        turns.retain(|_| false);
        turns.push(7);
        let mut passed = Vec::new();
        turns.look_ahead(|stage, places| {
            passed.extend(places.iter().map(|place| (stage, *place)));
        });
        assert_eq!(passed, Stage::ALL.map(|stage| (stage, 7)));
        turns.retain(|place| place != 7);
        assert!(turns.is_empty());
    }
}
