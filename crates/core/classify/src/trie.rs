//! Filters that differ only in a prefix, whatever its length.
//!
//! Prefixes of 25 lengths would make 25 tables. Here they make one trie over the bits that they
//! test. A slot stands for the first 16 bits. It lists the prefixes that overlap it by rank, so the
//! first one that contains an address is the first filter that matches. In a routing table it has
//! one or two prefixes, in one cache line; one more line says where they are. If a slot has many
//! that are longer, they get a page of their own, for six more bits.
//!
//! *Short prefixes*, of 8 to 15 bits, would be in too many slots. They have lists of their own, by
//! their first 8 bits; a slot has only the first of them that contains it. A look-up goes through
//! the others only if it has to find more than the first match, or if there are any that the prefix
//! alone does not decide. Still shorter prefixes have tables, as other filters do.
//!
//! *IPv6.* Most addresses have the same first bits. So prefixes of 32 to 64 bits are found by a
//! hash of the first 32, and shorter ones are in a trie of their own, as above. Longer ones have
//! tables.
//!
//! *A change* copies one page, or the few that a short prefix overlaps, and where the lists are.
//! All versions share the rest.
//!
//! Source: the idea of buckets at the leaves is that of LC-tries and HiCuts (Nilsson, Karlsson
//! 1999; Gupta, McKeown 1999).

mod page;
mod top;

use crate::ahead::{Finds, Places};
use crate::fields::{DESTINATION_HIGH, SOURCE_HIGH};
use crate::shape::{From, Guard, Read, Shape};
use crate::table::Rank;
use crate::{Filters, Subject};
use page::{SLOTS, STRIDE};
use top::Top;

/// The bits by which the slots of the first pages are found.
const FIRST: u32 = 16;
/// The number of these pages.
const PAGES: usize = 1 << (FIRST - STRIDE);
/// The bits of the shortest prefixes in a trie.
const SHORTEST: u32 = 8;
/// The bits of an IPv6 address of which the hash is taken.
const HASHED: u32 = 32;

/// The filters that can share a trie: they have the same guard and test the same bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Family {
    pub(crate) guard: Guard,
    from: From,
    /// Which bits of their word.
    part: Part,
    /// The bits that a slot of the first pages stands for.
    depth: u32,
}

/// The part of a word that prefixes test.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Part {
    /// The lower half.
    Lower,
    /// The upper half.
    Upper,
    /// All of it: the first half of an IPv6 address.
    All,
}

/// A prefix; its bits are the upper ones of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Prefix {
    bits: u64,
    mask: u64,
}

impl Family {
    /// The family of the filters of `shape`, if they test only a prefix that is long enough.
    pub(crate) fn of(shape: &Shape) -> Option<Self> {
        let [Read { from, mask }] = shape.reads[..] else { return None };
        let is_v6 = [DESTINATION_HIGH, SOURCE_HIGH].map(|place| From::Field(place as u8));
        let part = match mask {
            _ if is_v6.contains(&from) => Part::All,
            mask if mask >> u32::BITS == 0 => Part::Lower,
            _ => Part::Upper,
        };
        let bits = part.first(mask);
        let len = bits.leading_ones();
        let is_prefix = mask & !part.mask() == 0 && bits.count_ones() == len;
        let depth = if part == Part::All && len >= HASHED { HASHED } else { FIRST };
        let family = Self { guard: shape.guard, from, part, depth };
        (is_prefix && len >= SHORTEST).then_some(family)
    }

    /// The prefix that a filter of `shape`, which is in this family, tests with `key`.
    pub(crate) fn prefix(self, shape: &Shape, key: &[u64]) -> Prefix {
        Prefix { bits: self.part.first(key[0]), mask: self.part.first(shape.reads[0].mask) }
    }

    /// The slot of the first pages for addresses that begin with the bits of `word`.
    #[inline]
    fn place(self, word: u64) -> Place {
        let index = if self.depth == HASHED {
            // 2^64 divided by the golden ratio (Knuth, 6.4).
            (word >> (u64::BITS - HASHED)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        } else {
            word
        };
        let index = (index >> (u64::BITS - FIRST)) as usize;
        Place { page: index / SLOTS, slot: index % SLOTS }
    }

    #[inline]
    fn read(self) -> Read {
        Read { from: self.from, mask: self.part.mask() }
    }
}

/// A slot of the first pages.
#[derive(Clone, Copy, Default)]
struct Place {
    page: usize,
    slot: usize,
}

impl Part {
    /// These bits of a word.
    fn mask(self) -> u64 {
        match self {
            Self::Lower => u64::from(u32::MAX),
            Self::Upper => !u64::from(u32::MAX),
            Self::All => u64::MAX,
        }
    }

    /// These bits of `word` as its first bits.
    #[inline]
    fn first(self, word: u64) -> u64 {
        match self {
            Self::Lower => word << u32::BITS,
            Self::Upper => word & self.mask(),
            Self::All => word,
        }
    }
}

impl Prefix {
    fn len(self) -> u32 {
        self.mask.count_ones()
    }

    /// Whether it is shorter than what a slot of the first pages stands for.
    fn is_short(self) -> bool {
        self.len() < FIRST
    }

    /// Its first bits, by which short ones are found.
    fn first(self) -> usize {
        first(self.bits)
    }
}

/// The first bits of `word`, by which short prefixes are found.
#[inline]
fn first(word: u64) -> usize {
    (word >> (u64::BITS - SHORTEST)) as usize
}

/// The filters that differ only in a prefix: a trie from an address to the first that matches.
#[derive(Clone)]
pub(crate) struct Trie {
    pub(crate) family: Family,
    /// No filter in it has a rank before this one. It stays when its filter is removed.
    pub(crate) best: Rank,
    len: usize,
    top: Width,
}

/// The first pages, for prefixes that need half a word or a whole one.
#[derive(Clone)]
enum Width {
    Half(Top<u32>),
    Whole(Top<u64>),
}

/// Runs the same code on the first pages, however long their prefixes are.
macro_rules! with {
    ($width:expr, $top:ident => $code:expr) => {
        match $width {
            Width::Half($top) => $code,
            Width::Whole($top) => $code,
        }
    };
}

impl Trie {
    /// The trie of these filters of a family.
    pub(crate) fn of(family: Family, filters: impl Iterator<Item = (Prefix, Rank)>) -> Self {
        let filters: Vec<_> = filters.collect();
        let best = filters.iter().map(|(_, rank)| *rank).min().unwrap_or(Rank::LAST);
        let top = match family.part {
            Part::All => Width::Whole(Top::of(family, &filters)),
            Part::Lower | Part::Upper => Width::Half(Top::of(family, &filters)),
        };
        Self { family, best, len: filters.len(), top }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        with!(&self.top, top => top.bytes())
    }

    pub(crate) fn insert(&mut self, prefix: Prefix, rank: Rank) {
        self.best = self.best.min(rank);
        self.len += 1;
        with!(&mut self.top, top => top.insert(self.family, prefix, rank));
    }

    /// Removes a filter, which must be present.
    pub(crate) fn remove(&mut self, prefix: Prefix, rank: Rank) {
        self.len -= 1;
        with!(&mut self.top, top => top.remove(self.family, prefix, rank));
    }

    /// The first filter between `after` and `before` that matches `subject`.
    #[inline]
    pub(crate) fn find(
        &self,
        subject: &Subject<'_>,
        after: Rank,
        before: Rank,
        filters: &Filters,
    ) -> Option<Rank> {
        let word = self.family.part.first(self.family.read().of(subject)?);
        let place = self.family.place(word);
        let depth = self.family.depth;
        with!(&self.top, top => top.find(word, place, depth, (subject, filters), after, before))
    }

    /// Notes in `found` which filters match those of `subjects` at `places`.
    pub(crate) fn find_all(
        &self,
        subjects: &[Option<Subject<'_>>],
        places: Places,
        filters: &Filters,
        found: &mut Finds,
    ) {
        with!(&self.top, top => top.find_all(self.family, subjects, places, filters, found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn family(part: Part, depth: u32) -> Family {
        Family { guard: Guard { mask: 0, value: 0 }, from: From::Field(1), part, depth }
    }

    /// Those that tries are made of: of half a word, and of a whole one.
    fn families() -> impl Strategy<Value = Family> {
        let all = [(Part::Upper, FIRST), (Part::All, FIRST), (Part::All, HASHED)];
        proptest::sample::select(all.map(|(part, depth)| family(part, depth)).to_vec())
    }

    /// Addresses that have many bits in common.
    fn word(high: u64, low: u64) -> u64 {
        0x0a << 56 | high << 53 | low << 35 | low << 4 | low >> 3
    }

    /// The prefix of such an address, for a trie of this family.
    fn prefix(family: Family, high: u64, low: u64, len: u32) -> Prefix {
        let [least, most] = match (family.part, family.depth) {
            (Part::All, HASHED) => [HASHED, 64],
            _ => [SHORTEST, 32],
        };
        let mask = u64::MAX << (64 - (least + len % (most - least + 1)));
        Prefix { bits: word(high, low) & mask, mask }
    }

    /// All filters that contain the address, each found after the one before.
    fn found(trie: &Trie, word: u64) -> Vec<Rank> {
        let (place, depth) = (trie.family.place(word), trie.family.depth);
        let (subject, filters) = (Subject::new(&[0; 14]).unwrap(), Filters::default());
        let packet = (&subject, &filters);
        let after =
            |rank| with!(&trie.top, top => top.find(word, place, depth, packet, rank, Rank::LAST));
        std::iter::successors(after(Rank::FIRST), |rank| after(*rank)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn a_trie_finds_for_each_address_the_prefixes_that_contain_it(
            family in families(),
            initial in proptest::collection::vec((0..4_u64, 0..64_u64, 0..64_u32), 0..400),
            edits in proptest::collection::vec(
                (0..4_u64, 0..64_u64, 0..64_u32, any::<bool>(), any::<bool>()), 0..300,
            ),
        ) {
            // A rank that does not decide alone asks for its filter, and there is none.
            let rank = |order: u64, is_plain: bool| Rank::new(order, is_plain.then_some(1));
            let initial = initial.into_iter().zip(1..).map(|((high, low, len), order)| {
                (prefix(family, high, low, len), rank(order * 2, order % 9 > 0))
            });
            let mut model: Vec<(Prefix, Rank)> = initial.collect();
            let mut trie = Trie::of(family, model.iter().copied());
            let before = (trie.clone(), model.clone());
            for ((high, low, len, puts, is_plain), order) in edits.into_iter().zip(1000..) {
                if puts {
                    let prefix = prefix(family, high, low, len);
                    let rank = rank(order * 7919 % 1009 * 2 + 1, is_plain);
                    trie.insert(prefix, rank);
                    model.push((prefix, rank));
                } else if !model.is_empty() {
                    let (prefix, rank) = model.swap_remove(order as usize * 7919 % model.len());
                    trie.remove(prefix, rank);
                }
            }
            for (trie, model) in [(trie, model), before] {
                prop_assert_eq!(trie.is_empty(), model.is_empty());
                prop_assert!(model.iter().all(|(_, rank)| trie.best <= *rank));
                for address in (0..256).map(|at| word(at & 3, at >> 2)) {
                    let containing = model.iter().filter(|(prefix, rank)| {
                        address & prefix.mask == prefix.bits && rank.is_plain()
                    });
                    let mut expected: Vec<Rank> = containing.map(|(_, rank)| *rank).collect();
                    expected.sort();
                    prop_assert_eq!(found(&trie, address), expected);
                }
            }
        }
    }
}
