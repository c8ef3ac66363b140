//! Lists of prefixes, 64 of them to a page.

use super::Prefix;
use crate::table::Rank;
use std::fmt::Debug;
use std::ops::{BitAnd, Range};
use std::sync::Arc;

/// The bits by which a page's slots are found.
pub(super) const STRIDE: u32 = 6;
pub(super) const SLOTS: usize = 1 << STRIDE;
/// A slot lists at most this many prefixes that are longer than its bits.
const CROWD: usize = 12;
/// With fewer bits left, a page for them would be of no use: there are few such prefixes.
const FEW: u32 = 3;

/// An address or a mask, as short as the trie's prefixes allow.
pub(super) trait Bits: Copy + Eq + Default + Debug + BitAnd<Output = Self> {
    /// How many bits.
    const LEN: u32;

    /// The first bits of `word`.
    fn of(word: u64) -> Self;

    /// A word that begins with them, the others cleared.
    fn word(self) -> u64;
}

impl Bits for u32 {
    const LEN: u32 = Self::BITS;

    #[inline]
    fn of(word: u64) -> Self {
        (word >> Self::BITS) as Self
    }

    #[inline]
    fn word(self) -> u64 {
        u64::from(self) << Self::BITS
    }
}

impl Bits for u64 {
    const LEN: u32 = Self::BITS;

    #[inline]
    fn of(word: u64) -> Self {
        word
    }

    #[inline]
    fn word(self) -> u64 {
        self
    }
}

/// A prefix and the rank of its filter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed<B> {
    bits: B,
    mask: B,
    pub(super) rank: Rank,
}

impl<B: Bits> Listed<B> {
    /// Fills a list up. No look-up goes as far.
    const NONE: Rank = Rank::LAST;

    pub(super) fn new(prefix: Prefix, rank: Rank) -> Self {
        Self { bits: B::of(prefix.bits), mask: B::of(prefix.mask), rank }
    }

    pub(super) fn prefix(&self) -> Prefix {
        Prefix { bits: self.bits.word(), mask: self.mask.word() }
    }

    #[inline]
    pub(super) fn contains(&self, address: B) -> bool {
        address & self.mask == self.bits
    }
}

/// Where the lists of a page start: one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Head {
    /// In units of two to the power of the first one, which stands for 0: the first list starts
    /// there.
    starts: [u8; SLOTS],
}

/// The lists of a page.
#[derive(Clone)]
pub(super) struct Body<B> {
    /// For each slot the prefixes that overlap it, by rank.
    listed: Arc<[Listed<B>]>,
    /// The pages with the prefixes that are longer than a slot's bits, unless they are in its list.
    below: Option<Arc<Below<B>>>,
}

/// A page for each slot.
pub(super) type Below<B> = [Option<Arc<Page<B>>>; SLOTS];

/// The prefix lists of 64 adjacent slots.
#[derive(Clone)]
pub(super) struct Page<B> {
    pub(super) head: Head,
    pub(super) body: Body<B>,
}

impl<B: Bits> Page<B> {
    /// The page of filters that are sorted by rank. A slot stands for `depth` bits.
    fn of(filters: &[Listed<B>], depth: u32) -> Self {
        let mut lists = vec![Vec::new(); SLOTS];
        for listed in filters {
            slots(listed.prefix(), depth).for_each(|slot| lists[slot].push(*listed));
        }
        Self::with(lists, depth)
    }

    /// The page of these lists.
    pub(super) fn with(lists: Vec<Vec<Listed<B>>>, depth: u32) -> Self {
        let mut page = Self::default();
        page.replace(depth, 0, lists);
        page
    }

    /// Makes the same `change` to all lists that `prefix` is in: in `slots`, or below.
    pub(super) fn change(
        &mut self,
        depth: u32,
        at: Range<usize>,
        prefix: Prefix,
        change: impl Fn(&mut Vec<Listed<B>>),
    ) {
        let below = self.body.below.as_mut().filter(|_| prefix.len() > depth);
        if let Some(below) = below.filter(|below| below[at.start].is_some())
            && let Some(page) = &mut Arc::make_mut(below)[at.start]
        {
            let slots = slots(prefix, depth + STRIDE);
            return Arc::make_mut(page).change(depth + STRIDE, slots, prefix, change);
        }
        self.edit(depth, at, |_, list| change(list));
    }

    /// Edits the lists of some slots.
    pub(super) fn edit(
        &mut self,
        depth: u32,
        slots: Range<usize>,
        edit: impl Fn(usize, &mut Vec<Listed<B>>),
    ) {
        let first = slots.start;
        let lists = slots.map(|slot| {
            let mut list = self.own(slot).to_vec();
            edit(slot, &mut list);
            list
        });
        let lists = lists.collect();
        self.replace(depth, first, lists);
    }

    /// Replaces the lists from slot `first` on. One that gets too long gets a page.
    fn replace(&mut self, depth: u32, first: usize, mut lists: Vec<Vec<Listed<B>>>) {
        if depth + FEW <= B::LEN {
            for (slot, list) in (first..).zip(&mut lists) {
                let is_longer = |listed: &Listed<B>| listed.prefix().len() > depth;
                if list.iter().filter(|listed| is_longer(listed)).count() > CROWD {
                    let (longer, others): (Vec<_>, _) = list.iter().partition(|it| is_longer(it));
                    let below =
                        self.body.below.get_or_insert_with(|| Arc::new([const { None }; SLOTS]));
                    Arc::make_mut(below)[slot] = Some(Arc::new(Self::of(&longer, depth + STRIDE)));
                    *list = others;
                }
            }
        }
        let all: [&[Listed<B>]; SLOTS] = std::array::from_fn(|slot| {
            let replaced = slot.checked_sub(first).and_then(|at| lists.get(at));
            replaced.map_or_else(|| self.own(slot), Vec::as_slice)
        });
        (self.head, self.body.listed) = laid_out(all);
    }

    /// The prefixes that a slot lists, without what fills the list up.
    fn own(&self, slot: usize) -> &[Listed<B>] {
        let listed = self.body.listed(&self.head, slot);
        &listed[..listed.partition_point(|listed| listed.rank != Listed::<B>::NONE)]
    }

    /// Prefetches what a look-up in the page begins with.
    #[inline]
    pub(super) fn prefetch(&self) {
        narrows_cpu::prefetch(&self.head);
        narrows_cpu::prefetch(&self.body);
    }
}

/// Puts lists one after the other, each filled up to the unit in which starts are counted.
fn laid_out<B: Bits>(lists: [&[Listed<B>]; SLOTS]) -> (Head, Arc<[Listed<B>]>) {
    let units = |shift: u32, list: &[Listed<B>]| list.len().div_ceil(1 << shift);
    let fits = |shift: &u32| {
        let sum: usize = lists.iter().map(|list| units(*shift, list)).sum();
        sum <= usize::from(u8::MAX)
    };
    let shift = (0..).find(fits).unwrap_or(u32::MAX);
    let filler = Listed { bits: B::default(), mask: B::default(), rank: Listed::<B>::NONE };
    let mut starts = [shift as u8; SLOTS];
    let mut all = Vec::with_capacity(lists.iter().map(|list| units(shift, list) << shift).sum());
    for (slot, list) in lists.into_iter().enumerate() {
        if slot > 0 {
            starts[slot] = (all.len() >> shift) as u8;
        }
        all.extend_from_slice(list);
        all.resize(all.len().next_multiple_of(1 << shift), filler);
    }
    (Head { starts }, all.into())
}

impl Head {
    /// Where the list of `slot` starts.
    #[inline]
    fn start(&self, slot: usize) -> usize {
        let start = usize::from(self.starts[slot]) << self.starts[0];
        if slot == 0 { 0 } else { start }
    }
}

impl<B: Bits> Body<B> {
    /// The prefixes that a slot lists. `head` is that of the same page.
    #[inline]
    pub(super) fn listed(&self, head: &Head, slot: usize) -> &[Listed<B>] {
        let end = if slot + 1 < SLOTS { head.start(slot + 1) } else { self.listed.len() };
        self.listed.get(head.start(slot)..end).unwrap_or_default()
    }

    /// The pages with longer prefixes.
    #[inline]
    pub(super) fn below(&self) -> Option<&Below<B>> {
        self.below.as_deref()
    }

    /// The memory it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let below = self.below.iter().map(|below| {
            let pages = below.iter().flatten().map(|page| size_of::<Page<B>>() + page.body.bytes());
            size_of::<Below<B>>() + pages.sum::<usize>()
        });
        size_of::<Self>() + size_of_val(&*self.listed) + below.sum::<usize>()
    }
}

impl Default for Head {
    fn default() -> Self {
        Self { starts: [0; SLOTS] }
    }
}

impl<B> Default for Body<B> {
    fn default() -> Self {
        Self { listed: Arc::new([]), below: None }
    }
}

impl<B> Default for Page<B> {
    fn default() -> Self {
        Self { head: Head::default(), body: Body::default() }
    }
}

/// The slot for an address in a page where a slot stands for `depth` bits; beyond the last bit are
/// zeros.
#[inline]
pub(super) fn slot(word: u64, depth: u32) -> usize {
    word.rotate_left(depth) as usize % SLOTS
}

/// The slots of that page that `prefix` overlaps.
pub(super) fn slots(prefix: Prefix, depth: u32) -> Range<usize> {
    let first = slot(prefix.bits, depth);
    first..first + (1 << depth.saturating_sub(prefix.len()).min(STRIDE))
}
