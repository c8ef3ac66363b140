//! The first pages of a trie, and its short prefixes.

use super::page::{Below, Bits, Body, Head, Listed, Page, SLOTS, STRIDE, slot};
use super::{FIRST, Family, PAGES, Place, Prefix, SHORTEST, first};
use crate::ahead::{AHEAD, Finds, Places};
use crate::group::is_match;
use crate::table::Rank;
use crate::{Filters, Subject};
use std::sync::Arc;

/// The first pages of a trie, and the prefixes that are shorter than a slot's bits.
#[derive(Clone)]
pub(super) struct Top<B> {
    /// The heads are apart, so that one and its body are fetched at the same time.
    heads: Vec<Head>,
    bodies: Vec<Body<B>>,
    /// The prefixes that are shorter than a slot's bits, by rank, for each value of the first bits.
    short: Vec<Arc<Vec<Listed<B>>>>,
    /// How many of these do not decide the match alone.
    partial: usize,
}

impl<B: Bits> Top<B> {
    /// Those of these filters.
    pub(super) fn of(family: Family, filters: &[(Prefix, Rank)]) -> Self {
        let mut short = vec![Vec::new(); 1 << SHORTEST];
        let mut lists = vec![Vec::new(); PAGES];
        for (prefix, rank) in filters {
            let listed = Listed::new(*prefix, *rank);
            if prefix.is_short() {
                short[prefix.first()].push(listed);
            } else {
                lists[family.place(prefix.bits).page].push(listed);
            }
        }
        short.iter_mut().for_each(|list| list.sort_by_key(|listed| listed.rank));
        let partial = short.iter().flatten().filter(|listed| !listed.rank.is_plain()).count();
        let short: Vec<_> = short.into_iter().map(Arc::new).collect();
        let pages = lists.into_iter().enumerate().map(|(page, mut list)| {
            list.sort_by_key(|listed| listed.rank);
            let mut slots = vec![Vec::new(); SLOTS];
            for listed in list {
                slots[family.place(listed.prefix().bits).slot].push(listed);
            }
            let short = &short[page * short.len() / PAGES];
            if !short.is_empty() {
                for (slot, list) in slots.iter_mut().enumerate() {
                    cover(list, short, Place { page, slot });
                }
            }
            Page::with(slots, family.depth)
        });
        let (heads, bodies) = pages.map(|Page { head, body }| (head, body)).unzip();
        Self { heads, bodies, short, partial }
    }

    /// The memory it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let short = self.short.iter().map(|list| size_of_val(&**list) + size_of_val(&list[..]));
        let bodies = self.bodies.iter().map(Body::bytes);
        size_of_val(&self.heads[..]) + bodies.sum::<usize>() + short.sum::<usize>()
    }

    pub(super) fn insert(&mut self, family: Family, prefix: Prefix, rank: Rank) {
        let listed = Listed::new(prefix, rank);
        let insert = |list: &mut Vec<Listed<B>>| {
            list.insert(list.partition_point(|other| other.rank < rank), listed);
        };
        if !prefix.is_short() {
            return self.change(family, prefix, insert);
        }
        insert(Arc::make_mut(&mut self.short[prefix.first()]));
        self.partial += usize::from(!rank.is_plain());
        self.cover(prefix, |present| rank < present);
    }

    pub(super) fn remove(&mut self, family: Family, prefix: Prefix, rank: Rank) {
        let remove = |list: &mut Vec<Listed<B>>| list.retain(|other| other.rank != rank);
        if !prefix.is_short() {
            return self.change(family, prefix, remove);
        }
        remove(Arc::make_mut(&mut self.short[prefix.first()]));
        self.partial -= usize::from(!rank.is_plain());
        self.cover(prefix, |present| rank == present);
    }

    /// Makes the same `change` to all lists that `prefix`, which is not short, is in.
    fn change(&mut self, family: Family, prefix: Prefix, change: impl Fn(&mut Vec<Listed<B>>)) {
        let Place { page, slot } = family.place(prefix.bits);
        self.page(page, |page| page.change(family.depth, slot..slot + 1, prefix, change));
    }

    /// Chooses again the short prefixes of those slots that `prefix` covers, where `is_due` for the
    /// rank of the present one.
    fn cover(&mut self, prefix: Prefix, is_due: impl Fn(Rank) -> bool) {
        let first = (prefix.bits >> (u64::BITS - FIRST)) as usize;
        let all = first..first + (1 << (FIRST - prefix.len()));
        for page in all.start / SLOTS..all.end.div_ceil(SLOTS) {
            let within =
                |index: usize| index.clamp(page * SLOTS, (page + 1) * SLOTS) - page * SLOTS;
            let slots = within(all.start)..within(all.end);
            let short = Arc::clone(&self.short[prefix.first()]);
            self.page(page, |own| {
                own.edit(FIRST, slots, |slot, list| {
                    let present = list.iter().find(|listed| listed.prefix().is_short());
                    if is_due(present.map_or(Rank::LAST, |listed| listed.rank)) {
                        cover(list, &short, Place { page, slot });
                    }
                });
            });
        }
    }

    fn page(&mut self, page: usize, edit: impl FnOnce(&mut Page<B>)) {
        let body = std::mem::take(&mut self.bodies[page]);
        let mut own = Page { head: self.heads[page], body };
        edit(&mut own);
        (self.heads[page], self.bodies[page]) = (own.head, own.body);
    }

    /// The first filter between `after` and `before` that matches the packet with this address.
    pub(super) fn find(
        &self,
        word: u64,
        at: Place,
        mut depth: u32,
        packet: (&Subject<'_>, &Filters),
        after: Rank,
        before: Rank,
    ) -> Option<Rank> {
        let address = B::of(word);
        let mut found = before;
        let mut look = |list: &[Listed<B>]| {
            let open = list.iter().skip_while(|listed| listed.rank <= after);
            found = first_of(open, address, packet, found).unwrap_or(found);
        };
        let (mut head, mut body) = (&self.heads[at.page], &self.bodies[at.page]);
        let mut slot = at.slot;
        loop {
            look(body.listed(head, slot));
            let Some(page) = body.below().and_then(|below| below[slot].as_deref()) else { break };
            depth += STRIDE;
            (head, body, slot) = (&page.head, &page.body, self::slot(word, depth));
        }
        if self.partial > 0 || after != Rank::FIRST {
            look(&self.short[first(word)]);
        }
        Some(found).filter(|found| *found < before)
    }

    /// Notes in `found` which filters match those of `subjects` at `places`.
    pub(super) fn find_all(
        &self,
        family: Family,
        subjects: &[Option<Subject<'_>>],
        places: Places,
        filters: &Filters,
        found: &mut Finds,
    ) {
        let mut words = [0; AHEAD];
        let all = family.read().of_all(subjects, places, |at, word| {
            words[at] = family.part.first(word);
        });
        let mut slots = [Place::default(); AHEAD];
        for at in all {
            let place = family.place(words[at]);
            narrows_cpu::prefetch(&self.heads[place.page]);
            narrows_cpu::prefetch(&self.bodies[place.page]);
            slots[at] = place;
        }
        let mut lists = [[].as_slice(); AHEAD];
        let mut below: [Option<&Below<B>>; AHEAD] = [None; AHEAD];
        for at in all {
            let Place { page, slot } = slots[at];
            (lists[at], below[at]) = announce(&self.heads[page], &self.bodies[page], slot);
        }
        let (mut open, mut depth) = (all, family.depth);
        while !open.is_empty() {
            let mut pages: [Option<&Page<B>>; AHEAD] = [None; AHEAD];
            let mut deeper = Places::NONE;
            for at in open {
                let Some(subject) = &subjects[at] else { continue };
                let address = B::of(words[at]);
                let packet = (subject, filters);
                found.note(at, first_of(lists[at].iter(), address, packet, found.limit(at)));
                if let Some(below) = below[at]
                    && let Some(page) = below[slots[at].slot].as_deref()
                {
                    page.prefetch();
                    pages[at] = Some(page);
                    deeper.add(at);
                }
            }
            depth += STRIDE;
            for at in deeper {
                let Some(page) = pages[at] else { continue };
                slots[at].slot = slot(words[at], depth);
                (lists[at], below[at]) = announce(&page.head, &page.body, slots[at].slot);
            }
            open = deeper;
        }
        if self.partial > 0 {
            for at in all {
                let Some(subject) = &subjects[at] else { continue };
                let list = self.short[first(words[at])].iter();
                let (address, packet) = (B::of(words[at]), (subject, filters));
                found.note(at, first_of(list, address, packet, found.limit(at)));
            }
        }
    }
}

/// What `slot` lists, and the pages with what it does not list; both are prefetched.
#[inline]
fn announce<'a, B: Bits>(
    head: &Head,
    body: &'a Body<B>,
    slot: usize,
) -> (&'a [Listed<B>], Option<&'a Below<B>>) {
    let (list, below) = (body.listed(head, slot), body.below());
    // A short list is often in two cache lines.
    list.first().into_iter().chain(list.last()).for_each(narrows_cpu::prefetch);
    below.into_iter().for_each(|below| narrows_cpu::prefetch(&below[slot]));
    (list, below)
}

/// Puts into the `list` of a slot the first of these `short` prefixes that covers it and decides
/// the match alone, in place of another one.
fn cover<B: Bits>(list: &mut Vec<Listed<B>>, short: &[Listed<B>], Place { page, slot }: Place) {
    list.retain(|listed| !listed.prefix().is_short());
    let word = ((page * SLOTS + slot) as u64) << (u64::BITS - FIRST);
    let mut short = short.iter().filter(|listed| listed.rank.is_plain());
    if let Some(first) = short.find(|listed| listed.contains(B::of(word))) {
        list.insert(list.partition_point(|other| other.rank < first.rank), *first);
    }
}

/// The first of `listed` before `before` that matches the packet, which has this address.
#[inline]
fn first_of<'a, B: Bits + 'a>(
    listed: impl Iterator<Item = &'a Listed<B>>,
    address: B,
    (subject, filters): (&Subject<'_>, &Filters),
    before: Rank,
) -> Option<Rank> {
    let mut listed = listed.take_while(|listed| listed.rank < before);
    let found = listed.find(|it| it.contains(address) && is_match(it.rank, subject, filters));
    found.map(|listed| listed.rank)
}
