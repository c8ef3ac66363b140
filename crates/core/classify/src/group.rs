//! Filters of one shape.

use crate::ahead::{AHEAD, Finds, Places};
use crate::shape::{KEY_MAX, Read, Shape};
use crate::table::{Rank, Spot, Table};
use crate::{Filters, Subject};

/// The filters of one shape, in a table whose key length fits the shape.
#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) shape: Shape,
    keys: Keys,
    /// The first rank in the group.
    pub(crate) best: Rank,
}

#[derive(Clone)]
enum Keys {
    /// No key: filters with identical conditions, or conditions that no key can express, in order.
    None(Vec<Rank>),
    One(Table<1>),
    Two(Table<2>),
    Four(Table<4>),
    Many(Table<KEY_MAX>),
}

/// Runs the same code on the table, whatever its key length.
macro_rules! with {
    ($keys:expr, $ranks:ident => $none:expr, $table:ident => $some:expr) => {
        match $keys {
            Keys::None($ranks) => $none,
            Keys::One($table) => $some,
            Keys::Two($table) => $some,
            Keys::Four($table) => $some,
            Keys::Many($table) => $some,
        }
    };
}

impl Group {
    /// An empty group for about `len` filters.
    pub(crate) fn new(shape: Shape, len: usize) -> Self {
        let keys = match shape.reads.len() {
            0 => Keys::None(Vec::new()),
            1 => Keys::One(Table::with_capacity(len)),
            2 => Keys::Two(Table::with_capacity(len)),
            3 | 4 => Keys::Four(Table::with_capacity(len)),
            _ => Keys::Many(Table::with_capacity(len)),
        };
        Self { shape, keys, best: Rank::LAST }
    }

    pub(crate) fn is_empty(&self) -> bool {
        with!(&self.keys, ranks => ranks.is_empty(), table => table.len() == 0)
    }

    pub(crate) fn bytes(&self) -> usize {
        with!(&self.keys, ranks => size_of_val(ranks.as_slice()), table => table.bytes())
    }

    pub(crate) fn insert(&mut self, key: &[u64], rank: Rank) {
        self.best = self.best.min(rank);
        with!(&mut self.keys,
            ranks => ranks.insert(ranks.partition_point(|other| *other < rank), rank),
            table => table.insert(padded(key), rank));
    }

    pub(crate) fn remove(&mut self, key: &[u64], rank: Rank) {
        with!(&mut self.keys,
            ranks => ranks.retain(|other| *other != rank),
            table => table.remove(padded(key), rank));
        if rank == self.best {
            self.best = with!(&self.keys,
                ranks => ranks.first().copied(),
                table => table.iter().map(|(_, rank)| rank).min())
            .unwrap_or(Rank::LAST);
        }
    }

    /// Calls `each` with the key and the rank of every filter.
    pub(crate) fn filters(&self, mut each: impl FnMut(&[u64], Rank)) {
        with!(&self.keys, ranks => ranks.iter().for_each(|rank| each(&[], *rank)), table => {
            for (key, first) in table.iter() {
                table.ranks(key, &first).iter().for_each(|rank| each(key, *rank));
            }
        });
    }

    /// Calls `each` with every key.
    pub(crate) fn keys(&self, mut each: impl FnMut(&[u64])) {
        with!(&self.keys, _ranks => {}, table => table.iter().for_each(|(key, _)| each(key)));
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
        match &self.keys {
            Keys::None(ranks) => first(ranks, subject, after, before, filters),
            Keys::One(table) => self.look_up(table, subject, after, before, filters),
            Keys::Two(table) => self.look_up(table, subject, after, before, filters),
            Keys::Four(table) => self.look_up(table, subject, after, before, filters),
            Keys::Many(table) => self.look_up(table, subject, after, before, filters),
        }
    }

    /// Notes in `found` which filters match those of `subjects` at `places`, unless another that
    /// was found precedes them all.
    #[inline]
    pub(crate) fn find_all(
        &self,
        subjects: &[Option<Subject<'_>>],
        places: Places,
        filters: &Filters,
        found: &mut Finds,
    ) {
        match &self.keys {
            Keys::None(ranks) => {
                for at in places {
                    let Some(subject) = &subjects[at] else { continue };
                    let limit = found.limit(at);
                    found.note(at, first(ranks, subject, Rank::FIRST, limit, filters));
                }
            }
            Keys::One(table) => self.look_up_all(table, subjects, places, filters, found),
            Keys::Two(table) => self.look_up_all(table, subjects, places, filters, found),
            Keys::Four(table) => self.look_up_all(table, subjects, places, filters, found),
            Keys::Many(table) => self.look_up_all(table, subjects, places, filters, found),
        }
    }

    #[inline(never)]
    fn look_up_all<const N: usize>(
        &self,
        table: &Table<N>,
        subjects: &[Option<Subject<'_>>],
        places: Places,
        filters: &Filters,
        found: &mut Finds,
    ) {
        let (mut keys, mut spots) = ([[0; N]; AHEAD], [Spot::default(); AHEAD]);
        let mut open = found.open(places, self.best);
        for (word, read) in self.shape.reads.iter().enumerate().take(N) {
            open = read.of_all(subjects, open, |at, value| keys[at][word] = value);
        }
        for at in open {
            spots[at] = Table::spot(&keys[at]);
            table.prefetch(spots[at]);
        }
        for at in open {
            let Some(rank) = table.get_at(&keys[at], spots[at]) else { continue };
            // For most ranks, the key alone decides.
            if rank.is_plain() {
                found.note(at, Some(rank));
            } else if let Some(subject) = &subjects[at] {
                let (ranks, limit) = (table.ranks(&keys[at], &rank), found.limit(at));
                found.note(at, first(ranks, subject, Rank::FIRST, limit, filters));
            }
        }
    }

    #[inline]
    fn look_up<const N: usize>(
        &self,
        table: &Table<N>,
        subject: &Subject<'_>,
        after: Rank,
        before: Rank,
        filters: &Filters,
    ) -> Option<Rank> {
        let key = key::<N>(&self.shape.reads, subject)?;
        let rank = table.get(&key)?;
        // For most ranks, the key alone decides.
        if rank.is_plain() && rank > after {
            return Some(rank).filter(|rank| *rank < before);
        }
        first(table.ranks(&key, &rank), subject, after, before, filters)
    }
}

/// The key of `subject`.
#[inline]
fn key<const N: usize>(reads: &[Read], subject: &Subject<'_>) -> Option<[u64; N]> {
    let mut key = [0; N];
    for (word, read) in key.iter_mut().zip(reads) {
        *word = read.of(subject)?;
    }
    Some(key)
}

fn padded<const N: usize>(key: &[u64]) -> [u64; N] {
    std::array::from_fn(|index| key.get(index).copied().unwrap_or(0))
}

/// The first of `ranks` between `after` and `before` whose filter matches.
#[inline(never)]
fn first(
    ranks: &[Rank],
    subject: &Subject<'_>,
    after: Rank,
    before: Rank,
    filters: &Filters,
) -> Option<Rank> {
    let ranks = &ranks[ranks.partition_point(|rank| *rank <= after)..];
    let mut open = ranks.iter().copied().take_while(|rank| *rank < before);
    open.find(|rank| is_match(*rank, subject, filters))
}

/// Whether the filter at `rank` matches `subject`, which has its key. For most ranks, the key alone
/// decides.
#[inline]
pub(crate) fn is_match(rank: Rank, subject: &Subject<'_>, filters: &Filters) -> bool {
    rank.is_plain() || filters.get(rank.order()).is_some_and(|filter| filter.matches(subject))
}
