//! Filters that differ only in a prefix, whatever its length.
//!
//! Prefixes of 17 lengths would make 17 tables. Here they make one trie over the 32 bits that they
//! test. Each slot of a page lists the prefixes that overlap it by rank, so the first one that
//! contains an address is the first filter that matches. A slot of the first pages stands for 16
//! bits. In a routing table it has one or two prefixes, in one cache line. If a slot has many that
//! are longer, they get a page of their own, for six more bits.
//!
//! *A change* copies one page. All versions share the rest.
//!
//! Prefixes shorter than 16 bits would be in too many slots. They have tables, as other filters do.
//!
//! Source: the idea of buckets at the leaves is that of LC-tries and HiCuts (Nilsson, Karlsson
//! 1999; Gupta, McKeown 1999).

use crate::ahead::{AHEAD, Finds, Places};
use crate::shape::{From, Read, Shape};
use crate::table::Rank;
use crate::{Filters, Subject};
use std::ops::Range;
use std::sync::Arc;

/// The bits by which the first pages are found,
const ROOT: u32 = 10;
/// and those by which a page's slots are.
const STRIDE: u32 = 6;
const SLOTS: usize = 1 << STRIDE;
/// Prefixes must have the bits of a slot of the first pages.
const SHORTEST: u32 = ROOT + STRIDE;
/// All bits.
const BITS: u32 = u32::BITS;
/// A slot lists at most this many prefixes that are longer than its bits.
const CROWD: usize = 12;

/// The filters that can share a trie: they have the same guard and test the same 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Family {
    guard_mask: u64,
    guard: u64,
    from: From,
    /// How far above the lowest of their word the bits are.
    shift: u32,
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
        let &Shape { guard_mask, guard, .. } = shape;
        let family = Self { guard_mask, guard, from, shift };
        let bits = family.narrow(mask);
        let is_prefix = bits.leading_ones() == bits.count_ones() && bits.count_ones() >= SHORTEST;
        (is_prefix && mask == u64::from(bits) << shift).then_some(family)
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

    /// Whether its filters are for packets of this kind.
    #[inline]
    pub(crate) fn may_hold(self, kind: u64) -> bool {
        kind & self.guard_mask == self.guard
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
    slots: [Slot; SLOTS],
    listed: Box<[Listed]>,
    below: Vec<Arc<Self>>,
}

/// The prefixes that overlap the addresses of a slot.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// Where its list is in that of the page.
    start: u32,
    len: u32,
    /// The page with those that are longer than its bits, counted from 1; 0 if they are listed.
    below: u32,
}

#[derive(Clone, Copy)]
struct Listed {
    prefix: Prefix,
    rank: Rank,
}

impl Trie {
    /// The trie of these filters of a family.
    pub(crate) fn of(family: Family, filters: impl Iterator<Item = (Prefix, Rank)>) -> Self {
        let mut lists = vec![Vec::new(); 1 << ROOT];
        for (prefix, rank) in filters {
            lists[page(prefix.bits)].push(Listed { prefix, rank });
        }
        let len = lists.iter().map(Vec::len).sum();
        let best = lists.iter().flatten().map(|listed| listed.rank).min().unwrap_or(Rank::LAST);
        let pages = lists.into_iter().map(|mut list| {
            list.sort_by_key(|listed| listed.rank);
            Arc::new(Page::of(&list, SHORTEST))
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
        let page = Arc::make_mut(&mut self.pages[page(prefix.bits)]);
        page.change(SHORTEST, prefix, |list| {
            let at = list.partition_point(|other| other.rank < rank);
            list.insert(at, Listed { prefix, rank });
        });
    }

    /// Removes a filter, which must be present.
    pub(crate) fn remove(&mut self, prefix: Prefix, rank: Rank) {
        self.len -= 1;
        let page = Arc::make_mut(&mut self.pages[page(prefix.bits)]);
        page.change(SHORTEST, prefix, |list| list.retain(|other| other.rank != rank));
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
        let (mut page, mut depth) = (self.pages.get(page(address)), SHORTEST);
        let mut found = before;
        while let Some(at) = page {
            let slot = at.slots[slot(address, depth)];
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
            pages[at] = &self.pages[page(addresses[at])];
            pages[at].prefetch(addresses[at], SHORTEST);
        }
        let mut depth = SHORTEST;
        while !open.is_empty() {
            let mut slots = [Slot::default(); AHEAD];
            for at in open {
                slots[at] = pages[at].slots[slot(addresses[at], depth)];
                if let Some(first) = pages[at].listed(slots[at]).first() {
                    narrows_cpu::prefetch(first);
                }
            }
            depth += STRIDE;
            let mut deeper = Places::NONE;
            for at in open {
                let Some(subject) = &subjects[at] else { continue };
                let listed = pages[at].listed(slots[at]).iter();
                let rank = first(listed, addresses[at], subject, found.limit(at), filters);
                rank.into_iter().for_each(|rank| found.note(at, rank));
                if let Some(below) = pages[at].below(slots[at]) {
                    below.prefetch(addresses[at], depth);
                    pages[at] = below;
                    deeper.add(at);
                }
            }
            open = deeper;
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
        let below = self.slots[slots.start].below as usize;
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
        for index in 0..SLOTS {
            let start = all.len();
            all.extend_from_slice(self.listed(self.slots[index]));
            if slots.contains(&index) {
                let mut list = all.split_off(start);
                edit(index, &mut list);
                let is_longer = |listed: &Listed| listed.prefix.len() > depth;
                if list.iter().filter(|listed| is_longer(listed)).count() > CROWD {
                    let (longer, others): (Vec<_>, _) = list.into_iter().partition(is_longer);
                    self.below.push(Arc::new(Self::of(&longer, depth + STRIDE)));
                    self.slots[index].below = self.below.len() as u32;
                    list = others;
                }
                all.append(&mut list);
            }
            let slot = &mut self.slots[index];
            (slot.start, slot.len) = (start as u32, (all.len() - start) as u32);
        }
        self.listed = all.into();
    }

    #[inline]
    fn listed(&self, Slot { start, len, .. }: Slot) -> &[Listed] {
        let start = start as usize;
        self.listed.get(start..start + len as usize).unwrap_or_default()
    }

    #[inline]
    fn below(&self, slot: Slot) -> Option<&Arc<Self>> {
        self.below.get((slot.below as usize).checked_sub(1)?)
    }

    #[inline]
    fn prefetch(&self, address: u32, depth: u32) {
        narrows_cpu::prefetch(&self.slots[slot(address, depth)]);
        narrows_cpu::prefetch(&self.listed);
    }

    fn bytes(self: &Arc<Self>) -> usize {
        let own = size_of::<Self>() + size_of::<Arc<Self>>() + size_of_val(&*self.listed);
        own + self.below.iter().map(Self::bytes).sum::<usize>()
    }
}

impl Default for Page {
    fn default() -> Self {
        let slots = [Slot::default(); SLOTS];
        Self { slots, listed: Box::default(), below: Vec::new() }
    }
}

/// The page for the prefixes with these first bits.
#[inline]
fn page(bits: u32) -> usize {
    (bits >> (BITS - ROOT)) as usize
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
    let matches =
        |rank: Rank| filters.get(rank.order()).is_some_and(|filter| filter.matches(subject));
    // For most ranks, the key alone decides.
    let found = listed.find(|Listed { prefix, rank }| {
        prefix.contains(address) && (rank.is_plain() || matches(*rank))
    });
    found.map(|listed| listed.rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FAMILY: Family = Family { guard_mask: 0, guard: 0, from: From::Field(1), shift: BITS };

    /// Addresses that have many bits in common.
    fn prefix() -> impl Strategy<Value = Prefix> {
        (0..2_u32, 0..0x400_u32, SHORTEST..=BITS).prop_map(|(high, low, len)| {
            let mask = u32::MAX << (BITS - len);
            Prefix { bits: (0x0a00_0000 | high << 21 | low << 3) & mask, mask }
        })
    }

    fn lists(page: &Page, address: u32, depth: u32) -> Vec<Rank> {
        let at = page.slots[slot(address, depth)];
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
            initial in proptest::collection::vec(prefix(), 0..300),
            edits in proptest::collection::vec((prefix(), any::<bool>()), 0..300),
        ) {
            let mut model: Vec<(Prefix, Rank)> =
                initial.into_iter().zip(1..).map(|(prefix, order)| (prefix, Rank::new(order, None))).collect();
            let mut trie = Trie::of(FAMILY, model.iter().copied());
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
                    let mut found = lists(&trie.pages[page(address)], address, SHORTEST);
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
