//! `eiffel`: a timing wheel with an index of the slots that hold packets.
//!
//! The index is a hierarchy of bitmaps: a bit for each slot, above that a bit for each word of 64
//! bits that are not all zero, and so on up to a single word. The first slot from any place on is
//! found by climbing until a word has a bit left and descending along first bits: no more than two
//! words a level, and as many again if the search wraps around the circle.
//!
//! Source: A. Saeed et al., "Eiffel: Efficient and Flexible Software Packet Scheduling" (NSDI
//! 2019), the circular hierarchical find-first-set queue; as a peer in D. Shan et al. (ToN 2025).
//!
//! Where ours differs: theirs keeps two queues, one for each half of the circle, so as to search
//! always from the first bit; here a search starts at the head.
//!
//! Cost: on arrival the packet, its slot, and, where the slot was empty, a bit in a word of each
//! level until one has others. At departure the same and one search for each slot that holds
//! packets, however far away it is. An eighth of a byte for each slot, and a little.
//!
//! Non-goals: Eiffel's ranks that change while a packet waits.

use super::wheel::{Search, Wheel};

/// A timing wheel that finds its next slot by find-first-set.
pub type Eiffel = Wheel<Bitmaps>;

const BITS: usize = u64::BITS as usize;

/// A set of indices, ordered.
pub struct Bitmaps {
    /// A bit of each tells whether a word of the one before has any. The last is one word.
    levels: Vec<Box<[u64]>>,
}

impl Bitmaps {
    /// The first index in the set that is no less than `from`.
    #[inline]
    fn first(&self, from: usize) -> Option<usize> {
        let mut index = from;
        for (level, words) in self.levels.iter().enumerate() {
            let word = index / BITS;
            let left = words.get(word)? & (u64::MAX << (index % BITS));
            if left != 0 {
                return Some(self.descend(level, word * BITS + left.trailing_zeros() as usize));
            }
            index = word + 1;
        }
        None
    }

    /// The first index below `index` of `level`, whose bit is set.
    #[inline]
    fn descend(&self, level: usize, index: usize) -> usize {
        let below = self.levels[..level].iter().rev();
        below.fold(index, |index, words| index * BITS + words[index].trailing_zeros() as usize)
    }
}

impl Search for Bitmaps {
    fn new(slots: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = slots;
        while levels.is_empty() || words > 1 {
            words = words.div_ceil(BITS);
            levels.push(vec![0; words].into_boxed_slice());
        }
        Self { levels }
    }

    #[inline]
    fn filled(&mut self, index: usize) {
        let mut index = index;
        for words in &mut self.levels {
            let word = &mut words[index / BITS];
            let had_others = *word != 0;
            *word |= 1 << (index % BITS);
            if had_others {
                return;
            }
            index /= BITS;
        }
    }

    #[inline]
    fn emptied(&mut self, index: usize) {
        let mut index = index;
        for words in &mut self.levels {
            let word = &mut words[index / BITS];
            *word &= !(1 << (index % BITS));
            if *word != 0 {
                return;
            }
            index /= BITS;
        }
    }

    #[inline]
    fn search(&self, slots: &[u32], from: u64, until: u64) -> u64 {
        let mask = slots.len() - 1;
        let start = from as usize & mask;
        match self.first(start).or_else(|| self.first(0)) {
            Some(found) => from + (found.wrapping_sub(start) & mask) as u64,
            None => until,
        }
    }

    fn memory(&self) -> usize {
        self.levels.iter().map(|words| size_of_val(&**words)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_as_many_levels_as_it_takes() {
        let levels = |slots| Bitmaps::new(slots).levels.len();
        assert_eq!([1, 64, 128, 4096, 8192, 1 << 18, 1 << 19].map(levels), [1, 1, 2, 2, 3, 3, 4]);
    }

    proptest! {
        /// The oracle is an ordered set.
        #[test]
        fn the_search_finds_the_first_from_its_start(
            bits in 0_u32..15,
            steps in prop::collection::vec((any::<u32>(), any::<bool>(), any::<u32>()), 1..60),
        ) {
            let size = 1_usize << bits;
            let mut bitmaps = Bitmaps::new(size);
            let mut model = BTreeSet::new();
            for (index, removes, from) in steps {
                let (index, from) = (index as usize % size, from as usize % size);
                if removes {
                    let taken = model.range(index..).next().copied();
                    if let Some(taken) = taken {
                        model.remove(&taken);
                        bitmaps.emptied(taken);
                    }
                } else if model.insert(index) {
                    bitmaps.filled(index);
                }
                prop_assert_eq!(bitmaps.first(from), model.range(from..).next().copied());
                prop_assert_eq!(bitmaps.first(size), None);
            }
        }
    }
}
