//! The filters of one qdisc or class, compiled into tables.
//!
//! There is one table per shape. A look-up visits the tables in the order of their best filters and
//! ends when no remaining table can hold a filter that precedes the one found. If there are many
//! shapes, [sieves](crate::sieve) exclude tables that cannot contain the packet's addresses.
//!
//! *A change* copies only what it touches: one piece of one table, and one page of a sieve. All
//! versions share the rest.

use crate::group::Group;
use crate::shape::{Compiled, Shape};
use crate::sieve::{Sieve, TABLES};
use crate::table::Rank;
use crate::{Filter, Filters, Subject};
use std::collections::HashMap;
use std::sync::Arc;

/// The tables of this many filters stay in the near caches.
const NEAR: usize = 1024;
/// The tables that are prefetched for a packet: it is often found in the first, and a sieve leaves
/// few.
const PREFETCHED: usize = 2;

/// See the module's documentation.
#[derive(Clone, Default)]
pub(crate) struct Block {
    filters: Filters,
    groups: Vec<Entry>,
    sieves: Vec<Sieve>,
}

/// A group, with the ranks that decide whether a look-up visits it.
#[derive(Clone)]
struct Entry {
    guard_mask: u64,
    guard: u64,
    /// The first rank in this group,
    best: Rank,
    /// and the first rank in this group and all later ones.
    rest: Rank,
    group: Arc<Group>,
}

impl Block {
    /// Compiles `filters`.
    pub(crate) fn new(filters: Filters) -> Self {
        let mut shapes: HashMap<Shape, Vec<(Vec<u64>, Rank)>> = HashMap::new();
        for (_, filter) in filters.iter() {
            let compiled = Compiled::of(filter);
            let rank = rank(filter, compiled.is_partial);
            shapes.entry(compiled.shape).or_default().push((compiled.key, rank));
        }
        let groups = shapes.into_iter().map(|(shape, keys)| {
            let mut group = Group::new(shape, keys.len());
            keys.iter().for_each(|(key, rank)| group.insert(key, *rank));
            group
        });
        let mut block = Self { groups: groups.map(Entry::new).collect(), filters, sieves: vec![] };
        block.arrange();
        block
    }

    /// The filters from which it was compiled.
    pub(crate) fn filters(&self) -> &Filters {
        &self.filters
    }

    /// Compiles `filters`, sharing with this block all that is unchanged.
    #[must_use]
    pub(crate) fn with(&self, filters: &Filters) -> Self {
        let mut next = self.clone();
        let (mut is_new, mut budget) = (false, self.filters.len() / 4 + 1024);
        self.filters.changes(filters, |_, old, new| {
            budget = budget.saturating_sub(1);
            if budget > 0 {
                old.into_iter().for_each(|filter| next.remove(filter));
                new.into_iter().for_each(|filter| is_new |= next.insert(filter));
            }
        });
        if budget == 0 {
            // Too little of this block would remain.
            return Self::new(filters.clone());
        }
        next.filters = filters.clone();
        let count = next.groups.len();
        next.groups.retain(|entry| !entry.group.is_empty());
        if is_new || next.groups.len() < count {
            next.arrange();
        } else {
            next.sum_up();
        }
        next
    }

    /// Adds a filter. Returns whether it is the first of its shape.
    fn insert(&mut self, filter: &Filter) -> bool {
        let Compiled { shape, key, is_partial } = Compiled::of(filter);
        let place = self.groups.iter().position(|entry| entry.group.shape == shape);
        let at = place.unwrap_or(self.groups.len());
        if place.is_none() {
            self.groups.push(Entry::new(Group::new(shape, 1)));
        }
        let group = Arc::make_mut(&mut self.groups[at].group);
        group.insert(&key, rank(filter, is_partial));
        self.sieves.iter_mut().for_each(|sieve| sieve.note(at, &key));
        place.is_none()
    }

    fn remove(&mut self, filter: &Filter) {
        let Compiled { shape, key, is_partial } = Compiled::of(filter);
        let found = self.groups.iter_mut().find(|entry| entry.group.shape == shape);
        if let Some(entry) = found {
            Arc::make_mut(&mut entry.group).remove(&key, rank(filter, is_partial));
        }
    }

    /// Sorts the groups and rebuilds the sieves.
    fn arrange(&mut self) {
        self.groups.sort_by_key(|entry| entry.group.best);
        self.sum_up();
        self.sieves = Sieve::worth(self.groups.iter().map(|entry| &entry.group.shape));
        for sieve in &mut self.sieves {
            for (table, entry) in self.groups.iter().enumerate().take(TABLES) {
                entry.group.keys(|key| sieve.note(table, key));
            }
        }
    }

    /// Recomputes the values derived from the groups.
    fn sum_up(&mut self) {
        let mut rest = Rank::LAST;
        for entry in self.groups.iter_mut().rev() {
            entry.best = entry.group.best;
            rest = rest.min(entry.best);
            entry.rest = rest;
        }
    }

    /// Whether there are so many filters that a look-up misses the near caches.
    #[inline]
    pub(crate) fn is_far(&self) -> bool {
        self.filters.len() > NEAR
    }

    /// Prefetches the data that look-ups of all `subjects` read, so that they wait for memory
    /// together and not one after the other.
    #[inline]
    pub(crate) fn prefetch<'a>(&self, subjects: impl Iterator<Item = &'a Subject<'a>> + Clone) {
        for subject in subjects.clone() {
            self.sieves.iter().for_each(|sieve| sieve.prefetch(subject));
        }
        for subject in subjects {
            let kind = subject.field(crate::fields::KIND);
            let (mut open, mut rest) = (self.open(subject), PREFETCHED);
            while open != 0
                && rest > 0
                && let Some(entry) = self.groups.get(open.trailing_zeros() as usize)
            {
                open &= open - 1;
                if entry.may_hold(kind) {
                    entry.group.prefetch(subject);
                    rest -= 1;
                }
            }
        }
    }

    /// The tables that may contain `subject`, of those that sieves cover.
    #[inline]
    fn open(&self, subject: &Subject<'_>) -> u64 {
        self.sieves.iter().fold(u64::MAX, |open, sieve| open & sieve.tables(subject))
    }

    /// The first filter after `after` that matches `subject`.
    #[inline]
    pub(crate) fn find(&self, subject: &Subject<'_>, after: Rank) -> Option<Rank> {
        let kind = subject.field(crate::fields::KIND);
        let mut found = Rank::LAST;
        let mut open = self.open(subject);
        for groups in self.groups.chunks(TABLES) {
            while open != 0 {
                let Some(entry) = groups.get(open.trailing_zeros() as usize) else { break };
                open &= open - 1;
                if entry.rest >= found {
                    break;
                }
                if entry.may_hold(kind)
                    && entry.best < found
                    && let Some(rank) = entry.group.find(subject, after, found, &self.filters)
                {
                    found = rank;
                }
            }
            // The sieves do not cover tables beyond their width.
            open = u64::MAX;
        }
        Some(found).filter(|found| *found != Rank::LAST)
    }

    /// The memory it takes in bytes, without the filters themselves.
    pub(crate) fn bytes(&self) -> usize {
        let groups: usize = self.groups.iter().map(|entry| entry.group.bytes()).sum();
        groups + self.sieves.iter().map(Sieve::bytes).sum::<usize>()
    }
}

impl Entry {
    fn new(group: Group) -> Self {
        let (guard_mask, guard) = (group.shape.guard_mask, group.shape.guard);
        let best = group.best;
        Self { guard_mask, guard, best, rest: best, group: Arc::new(group) }
    }

    /// Whether its filters are for packets of this kind.
    #[inline]
    fn may_hold(&self, kind: u64) -> bool {
        kind & self.guard_mask == self.guard
    }
}

/// The rank of `filter`. It includes the class if the key alone decides the match.
fn rank(filter: &Filter, is_partial: bool) -> Rank {
    let is_plain = !is_partial && filter.actions.is_empty();
    Rank::new(filter.order(), is_plain.then_some(filter.class))
}
