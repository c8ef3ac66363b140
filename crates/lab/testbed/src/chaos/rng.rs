//! Pseudo-random numbers from a seed, the same on every machine: which fault strikes next and how.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng};
use std::ops::Range;
use std::time::Duration;

/// A generator.
#[derive(Debug)]
pub(super) struct Rng(Pcg64Mcg);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        // The bias of a remainder is negligible for the small numbers drawn here.
        (self.0.next_u64() % end.max(1) as u64) as usize
    }

    /// A span within `millis`, in milliseconds.
    pub(super) fn millis(&mut self, millis: Range<u64>) -> Duration {
        let span = millis.end - millis.start;
        Duration::from_millis(millis.start + self.below(span as usize) as u64)
    }

    /// One of `all`.
    pub(super) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// The next of `hand`, which is dealt from `all` again where it is empty: each of `all` comes
    /// once, in random order, before any comes again. None if there is none.
    pub(super) fn deal<T: Clone>(&mut self, hand: &mut Vec<T>, all: &[T]) -> Option<T> {
        if hand.is_empty() {
            hand.extend_from_slice(all);
            self.shuffle(hand);
        }
        hand.pop()
    }

    /// Shuffles `all`.
    pub(super) fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last + 1));
        }
    }
}
