//! The places of classes, by their numbers.
//!
//! An operator chooses the numbers: `1`, `10`, `7fffffff`. So the size of the table follows from
//! how many numbers are in it, and never from the numbers themselves.
//!
//! *Pages.* Numbers that follow each other share a page, which is a cache line: of those that
//! people and importers choose most do. Pages are found by hash, with linear probing, in a table
//! that is at most half full.
//!
//! Cost: a multiplication and two cache lines, of which the first is shared by 256 numbers that
//! follow each other.

/// Places on a page: 64 bytes.
const PAGE: usize = 16;
/// The bits of a number that select the place on its page.
const PAGE_BITS: u32 = PAGE.trailing_zeros();
/// The fewest slots of a table that holds any.
const LEAST: usize = 8;
/// No page has this number.
const EMPTY: u32 = u32::MAX;
/// 2^64 over the golden ratio: numbers in any regular distance spread evenly.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A table from a class's number to a place, 0 for none.
pub(crate) struct Places {
    /// By slot, the number of the page there. Their count is a power of two.
    numbers: Vec<u32>,
    /// By slot.
    pages: Vec<[u32; PAGE]>,
    /// How many slots have a page.
    used: usize,
}

impl Default for Places {
    fn default() -> Self {
        Self { numbers: vec![EMPTY], pages: vec![[0; PAGE]], used: 0 }
    }
}

impl Places {
    /// The place of `class`; 0 for none.
    #[inline]
    pub(crate) fn get(&self, class: u32) -> u32 {
        let slot = self.slot(class >> PAGE_BITS);
        // The page of an empty slot is empty.
        self.pages.get(slot).map_or(0, |page| page[class as usize % PAGE])
    }

    /// Sets the place of `class`.
    pub(crate) fn set(&mut self, class: u32, place: u32) {
        let number = class >> PAGE_BITS;
        let mut slot = self.slot(number);
        if self.numbers[slot] == EMPTY {
            if place == 0 {
                return;
            }
            if 2 * (self.used + 1) > self.numbers.len() {
                self.grow();
                slot = self.slot(number);
            }
            self.numbers[slot] = number;
            self.used += 1;
        }
        self.pages[slot][class as usize % PAGE] = place;
    }

    /// Forgets all places.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The slot of the page `number`, or the empty one where it would be.
    #[inline]
    fn slot(&self, number: u32) -> usize {
        let mask = self.numbers.len() - 1;
        let mut slot = (u64::from(number).wrapping_mul(SPREAD) >> 32) as usize & mask;
        // Terminates: at least half of the slots are empty.
        while self.numbers[slot] != number && self.numbers[slot] != EMPTY {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Makes room for one more page than have a place on them, at least, and forgets the others.
    #[cold]
    fn grow(&mut self) {
        let pages = self.numbers.iter().zip(&self.pages);
        let kept: Vec<(u32, [u32; PAGE])> = pages
            .filter(|(number, page)| **number != EMPTY && **page != [0; PAGE])
            .map(|(number, page)| (*number, *page))
            .collect();
        let slots = (2 * (kept.len() + 1)).next_power_of_two().max(LEAST);
        self.numbers = vec![EMPTY; slots];
        self.pages = vec![[0; PAGE]; slots];
        self.used = kept.len();
        for (number, page) in kept {
            let slot = self.slot(number);
            (self.numbers[slot], self.pages[slot]) = (number, page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Numbers as operators choose them: small ones, neighbours, regular distances, the last ones.
    fn number() -> impl Strategy<Value = u32> {
        prop_oneof![
            0u32..40,
            (0u32..40).prop_map(|n| n << 16),
            (0u32..40).prop_map(|n| u32::MAX - n),
            any::<u32>(),
        ]
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(
            changes in prop::collection::vec((number(), 0u32..3), 0..200),
            asked in prop::collection::vec(number(), 0..20),
        ) {
            let (mut places, mut map) = (Places::default(), BTreeMap::new());
            for (class, place) in &changes {
                places.set(*class, *place);
                map.insert(*class, *place);
            }
            for class in asked.iter().chain(map.keys()) {
                prop_assert_eq!(places.get(*class), map.get(class).copied().unwrap_or(0));
            }
            places.clear();
            for class in map.keys() {
                prop_assert_eq!(places.get(*class), 0);
            }
        }
    }

    #[test]
    fn its_size_follows_from_how_many_numbers_it_holds() {
        let mut places = Places::default();
        places.set(0x7fff_ffff, 1);
        places.set(u32::MAX, 2);
        assert!(places.pages.len() <= 8);
        for class in 0..1000 {
            places.set(class << 20 | class, 1);
        }
        assert!(places.pages.len() <= 4 * 1002);
    }

    #[test]
    fn numbers_that_come_and_go_leave_nothing_behind() {
        let mut places = Places::default();
        for class in 0..100_000 {
            places.set(class << 8, 1);
            places.set(class << 8, 0);
        }
        assert!(places.pages.len() <= 16);
    }
}
