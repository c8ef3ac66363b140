//! The first of many by a key: a tournament.
//!
//! Each place of a complete binary tree has the winner of the two below it. A key that changes is
//! compared again on its way up. So a place can come, go and change in the same number of steps,
//! however its key changes, and nothing is allocated once there is room.
//!
//! Source: D. E. Knuth, The Art of Computer Programming 3, 5.4.1 (trees of losers and winners).
//!
//! Cost: log2(n) comparisons and stores to set or remove, one load for the first.

use super::curve::is_before;

/// Nobody.
pub(super) const NONE: u32 = u32::MAX;

/// A tournament by key. Keys are times, which wrap. The earliest is first, and of equal
/// ones the lower place.
#[derive(Default, Debug)]
pub(super) struct Winners {
    keys: Vec<u64>,
    /// The winner of all at 1, of the halves at 2 and 3, and so on; of each place alone from
    /// `keys.len()` on.
    winners: Vec<u32>,
}

impl Winners {
    /// Makes room for `places` in all.
    pub(super) fn make_room(&mut self, places: usize) {
        let size = places.next_power_of_two().max(2);
        if size <= self.keys.len() {
            return;
        }
        let old: Vec<(u32, u64)> = self.iter().collect();
        self.keys.resize(size, 0);
        self.winners.clear();
        self.winners.resize(2 * size, NONE);
        old.into_iter().for_each(|(place, key)| self.set(place, key));
    }

    fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let leaves = self.winners.get(self.keys.len()..).unwrap_or_default();
        leaves
            .iter()
            .filter(|place| **place != NONE)
            .map(|place| (*place, self.keys[*place as usize]))
    }

    /// The first, and its key.
    #[inline]
    pub(super) fn first(&self) -> Option<(u32, u64)> {
        let first = *self.winners.get(1)?;
        Some((first, *self.keys.get(first as usize)?))
    }

    /// The key of `place`, if it takes part.
    #[inline]
    pub(super) fn key(&self, place: u32) -> Option<u64> {
        let at = self.keys.len() + place as usize;
        (*self.winners.get(at)? != NONE).then(|| self.keys[place as usize])
    }

    /// `place` takes part with this key.
    #[inline]
    pub(super) fn set(&mut self, place: u32, key: u64) {
        let at = self.keys.len() + place as usize;
        self.keys[place as usize] = key;
        self.winners[at] = place;
        self.play(place, at);
    }

    /// `place` takes no part.
    #[inline]
    pub(super) fn remove(&mut self, place: u32) {
        let at = self.keys.len() + place as usize;
        if self.winners.get(at).is_some_and(|winner| *winner != NONE) {
            self.winners[at] = NONE;
            self.play(place, at);
        }
    }

    /// Compares `place`, whose leaf of the tree is `at`, on its way up. Where another one wins as
    /// before, nothing changes further up.
    #[inline]
    fn play(&mut self, place: u32, mut at: usize) {
        while at > 1 {
            let (one, other) = (self.winners[at & !1], self.winners[at | 1]);
            at /= 2;
            let winner = if other == NONE {
                one
            } else if one == NONE || is_before(self.keys[other as usize], self.keys[one as usize]) {
                other
            } else {
                one
            };
            let before = std::mem::replace(&mut self.winners[at], winner);
            if winner == before && winner != place {
                return;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// A sorted map is the oracle.
        #[test]
        fn the_first_is_the_one_with_the_earliest_key(
            base: u64,
            steps in prop::collection::vec((0u32..40, prop::option::of(0u64..20)), 1..200),
        ) {
            let (mut winners, mut oracle) = (Winners::default(), BTreeMap::new());
            for (place, key) in steps {
                winners.make_room(place as usize + 1);
                match key {
                    Some(key) => {
                        winners.set(place, base.wrapping_add(key));
                        oracle.insert(place, key);
                    }
                    None => {
                        winners.remove(place);
                        oracle.remove(&place);
                    }
                }
                let first = oracle.iter().min_by_key(|(place, key)| (**key, **place));
                let first = first.map(|(place, key)| (*place, base.wrapping_add(*key)));
                prop_assert_eq!(winners.first(), first);
                let key = oracle.get(&place).map(|key| base.wrapping_add(*key));
                prop_assert_eq!(winners.key(place), key);
            }
        }
    }
}
