//! Filters that differ only in a prefix, whatever its length.
//!
//! Prefixes of 25 lengths would make 25 tables. Here they make two tries over the 32 bits that they
//! test. Each slot of a page lists the prefixes that overlap it by rank, so the first one that
//! contains an address is the first filter that matches. A slot of the first pages stands for 16
//! bits. In a routing table it has one or two prefixes, in one cache line. If a slot has many that
//! are longer, they get a page of their own, for six more bits.
//!
//! *Short prefixes* would be in too many slots. Those of 8 to 15 bits have a trie whose first slots
//! stand for 8 bits. Still shorter ones have tables, as other filters do.
//!
//! *A change* copies one page. All versions share the rest.
//!
//! Source: the idea of buckets at the leaves is that of LC-tries and HiCuts (Nilsson, Karlsson
//! 1999; Gupta, McKeown 1999).

use crate::ahead::{AHEAD, Finds, Places};
use crate::group::is_match;
use crate::shape::{From, Guard, Read, Shape};
use crate::table::Rank;
use crate::{Filters, Subject};
use std::ops::Range;
use std::sync::Arc;

/// The bits by which a page's slots are found.
const STRIDE: u32 = 6;
const SLOTS: usize = 1 << STRIDE;
/// The bits that a slot of the first pages stands for, in the trie of long prefixes and in that of
/// short ones. No prefix in it is shorter.
const FIRST: [u32; 2] = [16, 8];
/// All bits.
const BITS: u32 = u32::BITS;
/// A slot lists at most this many prefixes that are longer than its bits.
const CROWD: usize = 12;

/// The filters that can share a trie: they have the same guard and test the same 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Family {
    pub(crate) guard: Guard,
    from: From,
    /// How far above the lowest of their word the bits are.
    shift: u32,
    /// The bits that a slot of the first pages stands for.
    depth: u32,
}

/// A prefix of 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Prefix {
    bits: u32,
    mask: u32,
}

impl Family {
    /// The family of the filters of `shape`, if they test only a prefix that is long enough.
    pub(crate) fn of(shape: &Shape) -> Option<Self> {
        let [Read { from, mask }] = shape.reads[..] else { return None };
        let shift = if mask >> BITS == 0 { 0 } else { BITS };
        let bits = (mask >> shift) as u32;
        let len = bits.leading_ones();
        let depth = FIRST.into_iter().find(|first| len >= *first)?;
        let is_prefix = mask == u64::from(bits) << shift && bits.count_ones() == len;
        is_prefix.then_some(Self { guard: shape.guard, from, shift, depth })
    }

    /// The prefix that a filter of `shape`, which is in this family, tests with `key`.
    pub(crate) fn prefix(self, shape: &Shape, key: &[u64]) -> Prefix {
        Prefix { bits: self.narrow(key[0]), mask: self.narrow(shape.reads[0].mask) }
    }

    /// The bits that it tests.
    #[inline]
    fn narrow(self, word: u64) -> u32 {
        (word >> self.shift) as u32
    }

    /// The number of first pages.
    fn pages(self) -> usize {
        1 << (self.depth - STRIDE)
    }

    /// The first page for the prefixes with these first bits.
    #[inline]
    fn page(self, bits: u32) -> usize {
        (bits >> (BITS + STRIDE - self.depth)) as usize
    }

    #[inline]
    fn read(self) -> Read {
        Read { from: self.from, mask: u64::from(u32::MAX) << self.shift }
    }
}

impl Prefix {
    fn len(self) -> u32 {
        self.mask.count_ones()
    }

    #[inline]
    fn contains(self, address: u32) -> bool {
        address & self.mask == self.bits
    }
}

/// See the module's documentation.
#[derive(Clone)]
pub(crate) struct Trie {
    pub(crate) family: Family,
    /// No filter in it has a rank before this one. It stays when its filter is removed.
    pub(crate) best: Rank,
    len: usize,
    pages: Vec<Arc<Page>>,
}

#[derive(Clone)]
struct Page {
    /// Where the list of each slot starts. It ends where the next one starts.
    starts: [u32; SLOTS + 1],
    /// For each slot, the page with the prefixes that are longer than its bits, counted from 1; 0
    /// if they are in its list.
    deeper: [u8; SLOTS],
    /// The lists of all slots: the prefixes that overlap it, by rank.
    listed: Box<[Listed]>,
    below: Vec<Arc<Self>>,
}

#[derive(Clone, Copy)]
struct Listed {
    prefix: Prefix,
    rank: Rank,
}

impl Trie {
    /// The trie of these filters of a family.
    pub(crate) fn of(family: Family, filters: impl Iterator<Item = (Prefix, Rank)>) -> Self {
        let mut lists = vec![Vec::new(); family.pages()];
        for (prefix, rank) in filters {
            lists[family.page(prefix.bits)].push(Listed { prefix, rank });
        }
        let len = lists.iter().map(Vec::len).sum();
        let best = lists.iter().flatten().map(|listed| listed.rank).min().unwrap_or(Rank::LAST);
        let pages = lists.into_iter().map(|mut list| {
            list.sort_by_key(|listed| listed.rank);
            Arc::new(Page::of(&list, family.depth))
        });
        Self { family, best, len, pages: pages.collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.iter().map(Page::bytes).sum()
    }

    pub(crate) fn insert(&mut self, prefix: Prefix, rank: Rank) {
        self.best = self.best.min(rank);
        self.len += 1;
        let page = Arc::make_mut(&mut self.pages[self.family.page(prefix.bits)]);
        page.change(self.family.depth, prefix, |list| {
            let at = list.partition_point(|other| other.rank < rank);
            list.insert(at, Listed { prefix, rank });
        });
    }

    /// Removes a filter, which must be present.
    pub(crate) fn remove(&mut self, prefix: Prefix, rank: Rank) {
        self.len -= 1;
        let page = Arc::make_mut(&mut self.pages[self.family.page(prefix.bits)]);
        page.change(self.family.depth, prefix, |list| list.retain(|other| other.rank != rank));
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
        let address = self.family.narrow(self.family.read().of(subject)?);
        let mut page = self.pages.get(self.family.page(address));
        let mut depth = self.family.depth;
        let mut found = before;
        while let Some(at) = page {
            let slot = slot(address, depth);
            let listed = at.listed(slot).iter().skip_while(|listed| listed.rank <= after);
            let rank = first(listed, address, subject, found, filters);
            found = rank.unwrap_or(found);
            (page, depth) = (at.below(slot), depth + STRIDE);
        }
        Some(found).filter(|found| *found < before)
    }

    /// Notes in `found` which filters match those of `subjects` at `places`.
    pub(crate) fn find_all(
        &self,
        subjects: &[Option<Subject<'_>>],
        places: Places,
        filters: &Filters,
        found: &mut Finds,
    ) {
        let mut addresses = [0; AHEAD];
        let mut open = self.family.read().of_all(subjects, places, |at, word| {
            addresses[at] = self.family.narrow(word);
        });
        let mut pages: [&Page; AHEAD] = [&self.pages[0]; AHEAD];
        for at in open {
            pages[at] = &self.pages[self.family.page(addresses[at])];
            pages[at].prefetch(addresses[at], self.family.depth);
        }
        let (mut depth, mut lists) = (self.family.depth, [[].as_slice(); AHEAD]);
        while !open.is_empty() {
            for at in open {
                lists[at] = pages[at].listed(slot(addresses[at], depth));
                lists[at].first().into_iter().for_each(narrows_cpu::prefetch);
            }
            let mut deeper = Places::NONE;
            for at in open {
                let Some(subject) = &subjects[at] else { continue };
                let (listed, address) = (lists[at].iter(), addresses[at]);
                found.note(at, first(listed, address, subject, found.limit(at), filters));
                if let Some(below) = pages[at].below(slot(address, depth)) {
                    below.prefetch(address, depth + STRIDE);
                    pages[at] = below;
                    deeper.add(at);
                }
            }
            (open, depth) = (deeper, depth + STRIDE);
        }
    }
}

impl Page {
    /// The page of filters that are sorted by rank. A slot stands for `depth` bits.
    fn of(filters: &[Listed], depth: u32) -> Self {
        let mut page = Self::default();
        page.edit(depth, 0..SLOTS, |slot, list| {
            let overlap = |listed: &&Listed| slots(listed.prefix, depth).contains(&slot);
            list.extend(filters.iter().filter(overlap));
        });
        page
    }

    /// Makes the same `change` to all lists that `prefix` is in.
    fn change(&mut self, depth: u32, prefix: Prefix, change: impl Fn(&mut Vec<Listed>)) {
        let slots = slots(prefix, depth);
        let below = usize::from(self.deeper[slots.start]);
        match below.checked_sub(1).filter(|_| prefix.len() > depth) {
            Some(below) => {
                Arc::make_mut(&mut self.below[below]).change(depth + STRIDE, prefix, change);
            }
            None => self.edit(depth, slots, |_, list| change(list)),
        }
    }

    /// Edits the lists of some slots. One that gets too long gets a page.
    fn edit(&mut self, depth: u32, slots: Range<usize>, edit: impl Fn(usize, &mut Vec<Listed>)) {
        let mut all = Vec::with_capacity(self.listed.len() + slots.len());
        let mut starts = [0; SLOTS + 1];
        for slot in 0..SLOTS {
            if slots.contains(&slot) {
                let mut list = self.listed(slot).to_vec();
                edit(slot, &mut list);
                let is_longer = |listed: &Listed| listed.prefix.len() > depth;
                if list.iter().filter(|listed| is_longer(listed)).count() > CROWD {
                    let (longer, others): (Vec<_>, _) = list.into_iter().partition(is_longer);
                    self.below.push(Arc::new(Self::of(&longer, depth + STRIDE)));
                    self.deeper[slot] = self.below.len() as u8;
                    list = others;
                }
                all.append(&mut list);
            } else {
                all.extend_from_slice(self.listed(slot));
            }
            starts[slot + 1] = all.len() as u32;
        }
        (self.starts, self.listed) = (starts, all.into());
    }

    /// The prefixes that a slot lists.
    #[inline]
    fn listed(&self, slot: usize) -> &[Listed] {
        let [start, end] = [self.starts[slot], self.starts[slot + 1]].map(|at| at as usize);
        self.listed.get(start..end).unwrap_or_default()
    }

    /// The page with the others.
    #[inline]
    fn below(&self, slot: usize) -> Option<&Arc<Self>> {
        // Most pages have none, and then the slot need not be read.
        if self.below.is_empty() {
            return None;
        }
        self.below.get(usize::from(self.deeper[slot]).checked_sub(1)?)
    }

    #[inline]
    fn prefetch(&self, address: u32, depth: u32) {
        narrows_cpu::prefetch(&self.starts[slot(address, depth)]);
        narrows_cpu::prefetch(&self.listed);
    }

    fn bytes(self: &Arc<Self>) -> usize {
        let own = size_of::<Self>() + size_of::<Arc<Self>>() + size_of_val(&*self.listed);
        own + self.below.iter().map(Self::bytes).sum::<usize>()
    }
}

impl Default for Page {
    fn default() -> Self {
        let (starts, deeper) = ([0; SLOTS + 1], [0; SLOTS]);
        Self { starts, deeper, listed: Box::default(), below: Vec::new() }
    }
}

/// The slot for an address in a page where a slot stands for `depth` bits; beyond the last bit are
/// zeros.
#[inline]
fn slot(address: u32, depth: u32) -> usize {
    (u64::from(address) << BITS >> (2 * BITS - depth)) as usize % SLOTS
}

/// The slots of that page that `prefix` overlaps.
fn slots(prefix: Prefix, depth: u32) -> Range<usize> {
    let first = slot(prefix.bits, depth);
    first..first + (1 << depth.saturating_sub(prefix.len()))
}

/// The first of `listed` before `before` that matches `subject`, which has this address.
#[inline]
fn first<'a>(
    listed: impl Iterator<Item = &'a Listed>,
    address: u32,
    subject: &Subject<'_>,
    before: Rank,
    filters: &Filters,
) -> Option<Rank> {
    let mut listed = listed.take_while(|listed| listed.rank < before);
    let found = listed.find(|Listed { prefix, rank }| {
        prefix.contains(address) && is_match(*rank, subject, filters)
    });
    found.map(|listed| listed.rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn family(depth: u32) -> Family {
        Family { guard: Guard { mask: 0, value: 0 }, from: From::Field(1), shift: BITS, depth }
    }

    /// Addresses that have many bits in common.
    fn prefix() -> impl Strategy<Value = Prefix> {
        (0..2_u32, 0..0x400_u32, 16..=BITS).prop_map(|(high, low, len)| {
            let mask = u32::MAX << (BITS - len);
            Prefix { bits: (0x0a00_0000 | high << 21 | low << 3) & mask, mask }
        })
    }

    fn lists(page: &Page, address: u32, depth: u32) -> Vec<Rank> {
        let at = slot(address, depth);
        let listed = page.listed(at).iter().filter(|listed| listed.prefix.contains(address));
        let mut ranks: Vec<Rank> = listed.map(|listed| listed.rank).collect();
        ranks.extend(
            page.below(at).map(|page| lists(page, address, depth + STRIDE)).into_iter().flatten(),
        );
        ranks
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_trie_lists_for_each_address_the_prefixes_that_contain_it(
            depth in proptest::sample::select(&FIRST[..]),
            initial in proptest::collection::vec(prefix(), 0..300),
            edits in proptest::collection::vec((prefix(), any::<bool>()), 0..300),
        ) {
            let mut model: Vec<(Prefix, Rank)> =
                initial.into_iter().zip(1..).map(|(prefix, order)| (prefix, Rank::new(order, None))).collect();
            let mut trie = Trie::of(family(depth), model.iter().copied());
            let before = (trie.clone(), model.clone());
            for ((prefix, puts), order) in edits.into_iter().zip(1000..) {
                if puts {
                    let rank = Rank::new(order, None);
                    trie.insert(prefix, rank);
                    model.push((prefix, rank));
                } else if !model.is_empty() {
                    let (prefix, rank) = model.swap_remove(order as usize * 7919 % model.len());
                    trie.remove(prefix, rank);
                }
            }
            for (trie, model) in [(trie, model), before] {
                prop_assert_eq!(trie.is_empty(), model.is_empty());
                for address in (0..0x800_u32).map(|at| 0x0a00_0000 | (at & 1) << 21 | at >> 1 << 3) {
                    let mut found = lists(&trie.pages[trie.family.page(address)], address, depth);
                    found.sort();
                    let containing = model.iter().filter(|(prefix, _)| prefix.contains(address));
                    let mut expected: Vec<Rank> = containing.map(|(_, rank)| *rank).collect();
                    expected.sort();
                    prop_assert_eq!(found, expected);
                    prop_assert!(model.iter().all(|(_, rank)| trie.best <= *rank));
                }
            }
        }
    }
}
