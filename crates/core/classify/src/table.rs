//! Filters of one shape, by their keys.
//!
//! A table is divided into pieces of some hundred keys. Each piece is an open-addressed hash table
//! behind an [`Arc`]. A change copies one piece, and all versions share the others. A slot holds
//! the key and the *rank* of its first filter: priority, number and class in one word. So most
//! look-ups end in the cache line in which they begin.
//!
//! The keys come from the operator, not from packets, so an attacker cannot make them collide.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of keys that a piece is sized for.
const PIECE: usize = 256;
/// A table is rebuilt with more pieces when it has this many times the keys it is sized for.
const CROWD: usize = 4;
/// 2^64 divided by the golden ratio (Knuth, 6.4).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Priority, number and class of a filter in one word, in the order in which filters are asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank(u64);

impl Rank {
    /// After all others; no filter has it.
    pub(crate) const LAST: Self = Self(u64::MAX);
    /// Before all others; marks a free slot.
    pub(crate) const FIRST: Self = Self(0);

    /// In place of a class: ask the filter.
    pub(crate) const UNSAID: u32 = u32::MAX;

    /// Stands for a class that does not fit.
    const WIDE: u16 = u16::MAX;

    /// The rank of the filter at `order`. Pass a `class` only if the key alone decides the match.
    pub(crate) fn new(order: u64, class: Option<u32>) -> Self {
        let class = class.map_or(0, |class| u16::try_from(class).unwrap_or(Self::WIDE));
        Self(order << 16 | u64::from(class))
    }

    /// The last rank that the filter at `order` can have.
    pub(crate) fn behind(order: u64) -> Self {
        Self(order << 16 | u64::from(u16::MAX))
    }

    pub(crate) fn order(self) -> u64 {
        self.0 >> 16
    }

    /// Whether the key alone decides the match.
    #[inline]
    pub(crate) fn is_plain(self) -> bool {
        self.0 as u16 != 0
    }

    /// The class, if the rank contains it.
    #[inline]
    pub(crate) fn class(self) -> Option<u32> {
        let class = self.0 as u16;
        Some(u32::from(class)).filter(|_| ![0, Self::WIDE].contains(&class))
    }
}

/// Where a look-up of a key begins: its hash.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spot(u64);

#[derive(Clone, Copy)]
struct Slot<const N: usize> {
    key: [u64; N],
    rank: Rank,
}

/// The filters of one shape: a hash table from a packet's key to the rank of its first filter.
#[derive(Clone)]
pub(crate) struct Table<const N: usize> {
    pieces: Vec<Arc<[Slot<N>]>>,
    /// The number of keys in each piece.
    used: Vec<u32>,
    len: usize,
    /// All ranks of a key that has several, in order.
    more: Arc<BTreeMap<[u64; N], Vec<Rank>>>,
}

impl<const N: usize> Table<N> {
    const FREE: Slot<N> = Slot { key: [0; N], rank: Rank::FIRST };

    /// An empty table for about `len` keys.
    pub(crate) fn with_capacity(len: usize) -> Self {
        let count = len.div_ceil(PIECE).next_power_of_two();
        let piece: Arc<[Slot<N>]> = vec![Self::FREE; 4].into();
        Self { pieces: vec![piece; count], used: vec![0; count], len: 0, more: Arc::default() }
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let slots: usize = self.pieces.iter().map(|piece| piece.len()).sum();
        slots * size_of::<Slot<N>>() + self.pieces.len() * 20
    }

    #[inline]
    fn hash(key: &[u64; N]) -> u64 {
        let mut hash = 0;
        for word in key {
            let product = u128::from(hash ^ word ^ GOLDEN) * u128::from(GOLDEN);
            hash = product as u64 ^ (product >> 64) as u64;
        }
        hash
    }

    /// Where a look-up of `key` begins.
    #[inline]
    pub(crate) fn spot(key: &[u64; N]) -> Spot {
        Spot(Self::hash(key))
    }

    /// Prefetches the slot at `spot`.
    #[inline]
    pub(crate) fn prefetch(&self, Spot(hash): Spot) {
        let piece = &self.pieces[self.piece(hash)];
        narrows_cpu::prefetch(&piece[hash as usize & (piece.len() - 1)]);
    }

    #[inline]
    fn piece(&self, hash: u64) -> usize {
        // The upper bits; the lower bits select the slot within the piece.
        (hash >> 40) as usize & (self.pieces.len() - 1)
    }

    /// The first rank of `key`.
    #[inline]
    pub(crate) fn get(&self, key: &[u64; N]) -> Option<Rank> {
        self.get_at(key, Self::spot(key))
    }

    /// The first rank of `key`, whose spot is `spot`.
    #[inline]
    pub(crate) fn get_at(&self, key: &[u64; N], Spot(hash): Spot) -> Option<Rank> {
        let piece = &self.pieces[self.piece(hash)];
        let mask = piece.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = &piece[at & mask];
            if slot.rank == Rank::FIRST {
                return None;
            }
            if slot.key == *key {
                return Some(slot.rank);
            }
            at += 1;
        }
    }

    /// All ranks of `key`, whose first is `first`.
    pub(crate) fn ranks<'a>(&'a self, key: &[u64; N], first: &'a Rank) -> &'a [Rank] {
        self.more.get(key).map_or(std::slice::from_ref(first), Vec::as_slice)
    }

    pub(crate) fn insert(&mut self, key: [u64; N], rank: Rank) {
        if let Some(present) = self.get(&key) {
            let ranks = Arc::make_mut(&mut self.more).entry(key).or_insert_with(|| vec![present]);
            let at = ranks.partition_point(|other| *other < rank);
            ranks.insert(at, rank);
            let first = ranks[0];
            self.set(key, first);
            return;
        }
        if self.len >= self.pieces.len() * PIECE * CROWD {
            self.spread();
        }
        let hash = Self::hash(&key);
        let piece = self.piece(hash);
        // At most two thirds of the slots are used.
        if (self.used[piece] as usize + 1) * 3 > self.pieces[piece].len() * 2 {
            self.grow(piece);
        }
        self.used[piece] += 1;
        self.len += 1;
        place(Arc::make_mut(&mut self.pieces[piece]), Slot { key, rank }, hash);
    }

    pub(crate) fn remove(&mut self, key: [u64; N], rank: Rank) {
        if self.more.contains_key(&key) {
            let more = Arc::make_mut(&mut self.more);
            if let Some(ranks) = more.get_mut(&key) {
                ranks.retain(|other| *other != rank);
                let (first, is_only) = (ranks[0], ranks.len() == 1);
                if is_only {
                    more.remove(&key);
                }
                self.set(key, first);
            }
            return;
        }
        let piece = self.piece(Self::hash(&key));
        let slots = Arc::make_mut(&mut self.pieces[piece]);
        let mask = slots.len() - 1;
        let mut at = Self::hash(&key) as usize & mask;
        while slots[at].key != key || slots[at].rank != rank {
            if slots[at].rank == Rank::FIRST {
                return;
            }
            at = (at + 1) & mask;
        }
        // Later slots move up, unless that would put them before their home slot.
        let mut next = (at + 1) & mask;
        while slots[next].rank != Rank::FIRST {
            let home = Self::hash(&slots[next].key) as usize & mask;
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(at) & mask) {
                slots[at] = slots[next];
                at = next;
            }
            next = (next + 1) & mask;
        }
        slots[at] = Self::FREE;
        self.used[piece] -= 1;
        self.len -= 1;
    }

    /// Makes `rank` the first one of `key`, which is present.
    fn set(&mut self, key: [u64; N], rank: Rank) {
        let hash = Self::hash(&key);
        let piece = self.piece(hash);
        let slots = Arc::make_mut(&mut self.pieces[piece]);
        let mask = slots.len() - 1;
        let mut at = hash as usize & mask;
        while slots[at].key != key || slots[at].rank == Rank::FIRST {
            at = (at + 1) & mask;
        }
        slots[at].rank = rank;
    }

    fn grow(&mut self, piece: usize) {
        let mut larger = vec![Self::FREE; self.pieces[piece].len() * 2];
        for slot in used(&self.pieces[piece]) {
            place(&mut larger, *slot, Self::hash(&slot.key));
        }
        self.pieces[piece] = larger.into();
    }

    /// Rebuilds the table with as many pieces as it needs now.
    fn spread(&mut self) {
        let mut wider = Self::with_capacity(self.len * 2);
        for slot in self.pieces.iter().flat_map(|piece| used(piece)) {
            wider.insert(slot.key, slot.rank);
        }
        wider.more = Arc::clone(&self.more);
        *self = wider;
    }

    /// The first rank of each key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u64; N], Rank)> {
        self.pieces.iter().flat_map(|piece| used(piece)).map(|slot| (&slot.key, slot.rank))
    }
}

fn used<const N: usize>(slots: &[Slot<N>]) -> impl Iterator<Item = &Slot<N>> {
    slots.iter().filter(|slot| slot.rank != Rank::FIRST)
}

/// Puts `slot` at its home position, or into the next free one.
fn place<const N: usize>(slots: &mut [Slot<N>], slot: Slot<N>, hash: u64) {
    let mask = slots.len() - 1;
    let mut at = hash as usize & mask;
    while slots[at].rank != Rank::FIRST {
        at = (at + 1) & mask;
    }
    slots[at] = slot;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_table_holds_what_a_tree_map_holds(
            edits in proptest::collection::vec((0..300_u64, 1..4_u64, any::<bool>()), 0..2_000),
        ) {
            let mut table = Table::<2>::with_capacity(8);
            let mut model: BTreeMap<[u64; 2], Vec<Rank>> = BTreeMap::new();
            for (key, order, puts) in edits {
                let (key, rank) = ([key, 7 << 40], Rank::new(order, None));
                let ranks = model.entry(key).or_default();
                match (puts, ranks.contains(&rank)) {
                    (true, false) => {
                        ranks.push(rank);
                        ranks.sort();
                        table.insert(key, rank);
                    }
                    (false, true) => {
                        ranks.retain(|other| *other != rank);
                        table.remove(key, rank);
                    }
                    _ => {}
                }
            }
            model.retain(|_, ranks| !ranks.is_empty());
            prop_assert_eq!(table.len(), model.len());
            prop_assert_eq!(table.iter().count(), model.len());
            for key in (0..300).map(|key| [key, 7 << 40]) {
                let ranks = table.get(&key).map(|first| table.ranks(&key, &first).to_vec());
                prop_assert_eq!(ranks.as_ref(), model.get(&key));
            }
        }
    }

    #[test]
    fn keys_that_count_up_stand_near_where_they_belong() {
        for shift in [0, 8, 16, 32, 40] {
            let mut table = Table::<1>::with_capacity(100_000);
            for key in 0..100_000_u64 {
                table.insert([key << shift], Rank::new(1 << 32 | key, None));
            }
            let far = |(key, _): (&[u64; 1], Rank)| {
                let hash = Table::hash(key);
                let piece = &table.pieces[table.piece(hash)];
                let at = piece.iter().position(|slot| slot.key == *key && slot.rank != Rank::FIRST);
                (at.unwrap() + piece.len() - (hash as usize & (piece.len() - 1))) % piece.len()
            };
            let sum: usize = table.iter().take(10_000).map(far).sum();
            assert!(sum < 15_000, "{sum} steps for 10,000 keys");
        }
    }
}
