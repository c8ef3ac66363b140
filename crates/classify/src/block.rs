//! The filters of one qdisc or class, compiled into tables.
//!
//! There is one table per shape. A look-up visits the tables in the order of their best filters and
//! ends when no remaining table can hold a filter that precedes the one found. If there are many
//! shapes, [sieves](crate::sieve) exclude tables that cannot contain the packet's addresses.
//!
//! *A change* copies only what it touches: one piece of one table, and one page of a sieve. All
//! versions share the rest.

use crate::ahead::{AHEAD, Finds, Found, Places};
use crate::fields::KIND;
use crate::group::Group;
use crate::shape::{Compiled, Shape};
use crate::sieve::{Sieve, TABLES};
use crate::table::Rank;
use crate::{Filter, Filters, Subject};
use std::collections::HashMap;
use std::sync::Arc;

/// The tables of this many filters stay in the near caches.
const NEAR: usize = 1024;

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

    /// The first filter that matches each of `subjects`, for all of them at the same time.
    pub(crate) fn find_all(&self, subjects: &[Option<Subject<'_>>]) -> [Found; AHEAD] {
        let mut found = Finds::NONE;
        let kinds = Kinds::of(subjects);
        let mut rest = kinds.places(|_| true);
        let visitors = self.visitors(subjects, rest);
        for (table, entry) in self.groups.iter().enumerate() {
            let visiting = visitors.get(table).map_or(rest, |visitors| visitors.and(rest));
            let visiting = visiting.and(kinds.places(|kind| entry.may_hold(kind)));
            if !visiting.is_empty() {
                entry.group.find_all(subjects, visiting, &self.filters, &mut found);
                let behind = self.groups.get(table + 1).map_or(Rank::LAST, |next| next.rest);
                rest = found.open(rest, behind);
                if rest.is_empty() {
                    break;
                }
            }
        }
        found.all()
    }

    /// For each table that a sieve can cover, which of `subjects` at `places` it may contain.
    #[inline]
    fn visitors(&self, subjects: &[Option<Subject<'_>>], places: Places) -> [Places; TABLES] {
        let mut visitors = [places; TABLES];
        if self.sieves.is_empty() {
            return visitors;
        }
        for sieve in &self.sieves {
            subjects.iter().flatten().for_each(|subject| sieve.prefetch(subject));
        }
        let covered = self.sieves.iter().fold(0, |covered, sieve| covered | sieve.covered());
        for (table, visitors) in visitors.iter_mut().enumerate() {
            if covered >> table & 1 == 1 {
                *visitors = Places::NONE;
            }
        }
        for (at, subject) in subjects.iter().enumerate() {
            let Some(subject) = subject else { continue };
            let mut open = self.open(subject) & covered;
            while open != 0 {
                visitors[open.trailing_zeros() as usize].add(at);
                open &= open - 1;
            }
        }
        visitors
    }

    /// The tables that may contain `subject`, of those that sieves cover.
    #[inline]
    fn open(&self, subject: &Subject<'_>) -> u64 {
        self.sieves.iter().fold(u64::MAX, |open, sieve| open & sieve.tables(subject))
    }

    /// The first filter after `after` that matches `subject`.
    #[inline]
    pub(crate) fn find(&self, subject: &Subject<'_>, after: Rank) -> Option<Rank> {
        let kind = subject.field(KIND);
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

/// The kinds of some packets. Few packets that arrive together differ in it.
struct Kinds {
    all: [(u64, Places); AHEAD],
    len: usize,
}

impl Kinds {
    #[inline]
    fn of(subjects: &[Option<Subject<'_>>]) -> Self {
        let mut kinds = Self { all: [(0, Places::NONE); AHEAD], len: 0 };
        for (at, subject) in subjects.iter().enumerate().take(AHEAD) {
            let Some(subject) = subject else { continue };
            let kind = subject.field(KIND);
            let known = kinds.all[..kinds.len].iter().position(|(known, _)| *known == kind);
            let place = known.unwrap_or(kinds.len);
            kinds.len = kinds.len.max(place + 1);
            kinds.all[place].0 = kind;
            kinds.all[place].1.add(at);
        }
        kinds
    }

    /// The places of the packets for whose kind `is` holds.
    #[inline]
    fn places(&self, is: impl Fn(u64) -> bool) -> Places {
        let those = self.all[..self.len].iter().filter(|(kind, _)| is(*kind));
        those.fold(Places::NONE, |those, (_, places)| those.or(*places))
    }
}

/// The rank of `filter`. It includes the class if the key alone decides the match.
fn rank(filter: &Filter, is_partial: bool) -> Rank {
    let is_plain = !is_partial && filter.actions.is_empty();
    Rank::new(filter.order(), is_plain.then_some(filter.class))
}
