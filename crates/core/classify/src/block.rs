//! The filters of one qdisc or class, compiled into tables.
//!
//! There is one table per shape. A look-up visits the tables in the order of their best filters and
//! ends when no remaining table can hold a filter that precedes the one found. Shapes that differ
//! only in the length of a prefix share a [trie](crate::trie), which is visited first. If there are
//! many others, [sieves](crate::sieve) exclude tables that cannot contain the packet's addresses.
//!
//! *A change* copies only what it touches: one piece of one table and one page of a sieve, or one
//! page of a trie. All versions share the rest.

use crate::ahead::{AHEAD, Finds, Found, Places};
use crate::fields::{HAS_ROUTE, KIND};
use crate::group::Group;
use crate::shape::{Compiled, Guard, Shape};
use crate::sieve::{Sieve, TABLES};
use crate::table::Rank;
use crate::trie::{Family, Trie};
use crate::{Filter, Filters, Subject};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The tables of this many filters stay in the near caches.
const NEAR: usize = 64;

/// From this number of prefix lengths on, a trie is worth its cost.
const WORTH: usize = 5;

/// The filters of one qdisc or class, compiled into tables, tries and sieves.
#[derive(Clone, Default)]
pub(crate) struct Block {
    filters: Filters,
    tries: Vec<Arc<Trie>>,
    groups: Vec<Entry>,
    sieves: Vec<Sieve>,
    asks_route: bool,
}

/// A group, with the ranks that decide whether a look-up visits it.
#[derive(Clone)]
struct Entry {
    guard: Guard,
    /// The first rank in this group,
    best: Rank,
    /// and the first rank in this group and all later ones.
    rest: Rank,
    group: Arc<Group>,
}

impl Block {
    /// Compiles `filters`.
    pub(crate) fn new(filters: Filters) -> Self {
        let mut shapes: BTreeMap<Shape, Vec<(Vec<u64>, Rank)>> = BTreeMap::new();
        for (_, filter) in filters.iter() {
            let compiled = Compiled::of(filter);
            let rank = rank(filter, compiled.is_partial);
            shapes.entry(compiled.shape).or_default().push((compiled.key, rank));
        }
        let tries = families(shapes.keys()).into_iter().map(|family| {
            let own = shapes.extract_if(.., |shape, _| Family::of(shape) == Some(family));
            let filters = own.flat_map(|(shape, keys)| {
                keys.into_iter().map(move |(key, rank)| (family.prefix(&shape, &key), rank))
            });
            Arc::new(Trie::of(family, filters))
        });
        let tries = tries.collect();
        let groups = shapes.into_iter().map(|(shape, keys)| {
            let mut group = Group::new(shape, keys.len());
            keys.iter().for_each(|(key, rank)| group.insert(key, *rank));
            group
        });
        let groups = groups.map(Entry::new).collect();
        let mut block = Self { filters, tries, groups, sieves: vec![], asks_route: false };
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
        next.tries.retain(|trie| !trie.is_empty());
        if is_new || next.groups.len() < count {
            next.arrange();
        } else {
            next.sum_up();
        }
        next
    }

    /// Adds a filter. Returns whether it makes a new table.
    fn insert(&mut self, filter: &Filter) -> bool {
        let Compiled { shape, key, is_partial } = Compiled::of(filter);
        let rank = rank(filter, is_partial);
        if let Some(trie) = self.trie_of(&shape) {
            trie.insert(trie.family.prefix(&shape, &key), rank);
            return false;
        }
        let place = self.groups.iter().position(|entry| entry.group.shape == shape);
        let at = place.unwrap_or(self.groups.len());
        if place.is_none() {
            self.groups.push(Entry::new(Group::new(shape, 1)));
        }
        let group = Arc::make_mut(&mut self.groups[at].group);
        group.insert(&key, rank);
        self.sieves.iter_mut().for_each(|sieve| sieve.note(at, &key));
        place.is_none()
    }

    fn remove(&mut self, filter: &Filter) {
        let Compiled { shape, key, is_partial } = Compiled::of(filter);
        let rank = rank(filter, is_partial);
        if let Some(trie) = self.trie_of(&shape) {
            trie.remove(trie.family.prefix(&shape, &key), rank);
            return;
        }
        let found = self.groups.iter_mut().find(|entry| entry.group.shape == shape);
        if let Some(entry) = found {
            Arc::make_mut(&mut entry.group).remove(&key, rank);
        }
    }

    /// The trie for filters of `shape`, if there is one.
    fn trie_of(&mut self, shape: &Shape) -> Option<&mut Trie> {
        let family = Family::of(shape)?;
        let trie = self.tries.iter_mut().find(|trie| trie.family == family)?;
        Some(Arc::make_mut(trie))
    }

    /// Replaces groups by tries where these pay off, sorts both and rebuilds the sieves.
    fn arrange(&mut self) {
        for family in families(self.groups.iter().map(|entry| &entry.group.shape)) {
            let mut filters = Vec::new();
            self.groups.retain(|Entry { group, .. }| {
                let is_other = Family::of(&group.shape) != Some(family);
                if !is_other {
                    let prefix = |key: &[u64]| family.prefix(&group.shape, key);
                    group.filters(|key, rank| filters.push((prefix(key), rank)));
                }
                is_other
            });
            self.tries.push(Arc::new(Trie::of(family, filters.into_iter())));
        }
        self.tries.sort_by_key(|trie| trie.best);
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
        let mut guards = self.groups.iter().map(|entry| entry.guard);
        self.asks_route = guards.any(|guard| guard.mask & HAS_ROUTE != 0);
    }

    /// Whether a filter asks for the route. It is in a table of its own kind, and in no trie.
    #[inline]
    pub(crate) fn asks_route(&self) -> bool {
        self.asks_route
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
        for trie in &self.tries {
            let visiting = rest.and(kinds.places(|kind| trie.family.guard.admits(kind)));
            let visiting = found.open(visiting, trie.best);
            if !visiting.is_empty() {
                trie.find_all(subjects, visiting, &self.filters, &mut found);
            }
        }
        rest = found.open(rest, self.groups.first().map_or(Rank::LAST, |entry| entry.rest));
        if rest.is_empty() {
            return found.all();
        }
        let visitors = self.visitors(subjects, rest);
        for (table, entry) in self.groups.iter().enumerate() {
            let visiting = visitors.get(table).map_or(rest, |visitors| visitors.and(rest));
            let visiting = visiting.and(kinds.places(|kind| entry.guard.admits(kind)));
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
        let present = || places.filter_map(|at| Some((at, subjects[at].as_ref()?)));
        for sieve in &self.sieves {
            present().for_each(|(_, subject)| sieve.prefetch(subject));
        }
        let covered = self.sieves.iter().fold(0, |covered, sieve| covered | sieve.covered());
        for (table, visitors) in visitors.iter_mut().enumerate() {
            if covered >> table & 1 == 1 {
                *visitors = Places::NONE;
            }
        }
        for (at, subject) in present() {
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
        if !self.tries.is_empty() {
            found = self.find_in_tries(subject, kind, after);
        }
        let mut open = self.open(subject);
        for groups in self.groups.chunks(TABLES) {
            while open != 0 {
                let Some(entry) = groups.get(open.trailing_zeros() as usize) else { break };
                open &= open - 1;
                if entry.rest >= found {
                    break;
                }
                if entry.guard.admits(kind)
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

    /// The first filter after `after` in a trie that matches `subject`, which is of this kind.
    #[inline(never)]
    fn find_in_tries(&self, subject: &Subject<'_>, kind: u64, after: Rank) -> Rank {
        self.tries.iter().fold(Rank::LAST, |found, trie| {
            if trie.best < found && trie.family.guard.admits(kind) {
                trie.find(subject, after, found, &self.filters).unwrap_or(found)
            } else {
                found
            }
        })
    }

    /// The memory it takes in bytes, without the filters themselves.
    pub(crate) fn bytes(&self) -> usize {
        let groups: usize = self.groups.iter().map(|entry| entry.group.bytes()).sum();
        let tries: usize = self.tries.iter().map(|trie| trie.bytes()).sum();
        groups + tries + self.sieves.iter().map(Sieve::bytes).sum::<usize>()
    }
}

impl Entry {
    fn new(group: Group) -> Self {
        let (guard, best) = (group.shape.guard, group.best);
        Self { guard, best, rest: best, group: Arc::new(group) }
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

/// The families of which there are so many `shapes` that a trie is worth its cost.
fn families<'a>(shapes: impl Iterator<Item = &'a Shape>) -> Vec<Family> {
    let mut counts: BTreeMap<Family, usize> = BTreeMap::new();
    shapes.filter_map(Family::of).for_each(|family| *counts.entry(family).or_default() += 1);
    counts.into_iter().filter(|(_, count)| *count >= WORTH).map(|(family, _)| family).collect()
}

/// The rank of `filter`. It says so if the key alone decides the match, and which class it is if
/// there are no actions to run first.
fn rank(filter: &Filter, is_partial: bool) -> Rank {
    let class = if filter.actions.is_empty() { filter.class } else { Rank::UNSAID };
    Rank::new(filter.order(), (!is_partial).then_some(class))
}
