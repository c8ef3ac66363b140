//! The next turns of a rotation, known some turns in advance, so that their data is prefetched.
//!
//! A rotation is a list. Walking it from its start in each turn would cost as much as prefetching
//! saves. It changes only at its ends, so the entries that were found stay valid: each turn walks
//! one step further.
//!
//! It is a hint: if turns come in another order, only time is lost.
//!
//! Cost: one link read per turn, or two if entries were added behind the last known one.

use crate::rotation::{Link, Rotation};

/// The turns that are known in advance, a power of two.
const TURNS: usize = 8;

/// See the module's documentation.
pub(super) struct Upcoming {
    places: [u32; TURNS],
    /// The index of the first in the ring,
    start: usize,
    /// and their number.
    len: usize,
}

impl Upcoming {
    /// No turns.
    pub(super) const NONE: Self = Self { places: [0; TURNS], start: 0, len: 0 };

    /// The entry at `place`, which was the first of `rotation`, has its turn and has left it.
    /// Passes newly known entries to `find`: at most two, so that one turn costs little.
    #[inline]
    pub(super) fn follow(
        &mut self,
        rotation: &Rotation,
        links: &mut [Link],
        place: u32,
        mut find: impl FnMut(u32),
    ) {
        if self.after(0) == Some(place) {
            self.start = (self.start + 1) % TURNS;
            self.len -= 1;
        } else {
            self.len = 0;
        }
        for _ in 0..2 {
            let next = match self.len {
                0 => rotation.front(),
                TURNS => None,
                len => rotation.behind(links, self.places[(self.start + len - 1) % TURNS]),
            };
            let Some(next) = next else { break };
            self.places[(self.start + self.len) % TURNS] = next;
            self.len += 1;
            find(next);
        }
    }

    /// The entry whose turn comes after this many others.
    #[inline]
    pub(super) fn after(&self, turns: usize) -> Option<u32> {
        (turns < self.len).then(|| self.places[(self.start + turns) % TURNS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Beside a queue: who is found ahead is who comes then, and each is found once.
        #[test]
        fn who_is_found_ahead_comes_in_this_order(acts in prop::collection::vec(0..3u32, 0..200)) {
            let mut links = [Link::END; 16];
            let (mut rotation, mut queue) = (Rotation::EMPTY, VecDeque::new());
            let (mut upcoming, mut found) = (Upcoming::NONE, VecDeque::new());
            for act in acts {
                let free = (0..16).find(|place| !queue.contains(place));
                if act > 0 && let Some(place) = free {
                    rotation.push_back(&mut links, place);
                    queue.push_back(place);
                } else if let Some(place) = rotation.pop_front(&mut links) {
                    prop_assert_eq!(queue.pop_front(), Some(place));
                    if !found.is_empty() {
                        prop_assert_eq!(found.pop_front(), Some(place));
                    }
                    upcoming.follow(&rotation, &mut links, place, |next| found.push_back(next));
                    let known = (0..=TURNS).map_while(|turns| upcoming.after(turns));
                    prop_assert!(known.eq(found.iter().copied()));
                    prop_assert!(queue.iter().zip(&found).all(|(one, other)| one == other));
                    prop_assert_eq!(found.is_empty(), queue.is_empty());
                }
            }
        }
    }
}
