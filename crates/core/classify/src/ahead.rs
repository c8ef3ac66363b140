//! Packets that are looked up together.
//!
//! A look-up of one packet waits for a hash, then for memory, then for a branch that no processor
//! foresees. Here some packets take each of these steps together: table by table, all keys and
//! hashes first, then all slots. So the packets wait for memory at the same time, and what a table
//! says about its keys is read once.
//!
//! A look-up changes nothing. Only actions do, and they run later, packet by packet. One that
//! changes what filters may test makes the packet's result invalid; it is then looked up again.

use crate::table::Rank;

/// The packets that are looked up together at most: as many as a worker takes at once.
pub const AHEAD: usize = 64;

/// The first filter that matches a packet, or none, before any action. By default the packet has
/// not been looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found(Rank);

impl Default for Found {
    fn default() -> Self {
        Self(Rank::FIRST)
    }
}

impl Found {
    /// The rank of the filter. If the packet has not been looked up, `look_up` does it.
    #[inline]
    pub(crate) fn rank_or(self, look_up: impl FnOnce() -> Option<Rank>) -> Option<Rank> {
        match self.0 {
            Rank::FIRST => look_up(),
            Rank::LAST => None,
            rank => Some(rank),
        }
    }
}

/// What has been found for all packets so far.
pub(crate) struct Finds {
    first: [Found; AHEAD],
    /// The packets for which anything was found.
    some: Places,
}

impl Finds {
    /// Nothing yet.
    pub(crate) const NONE: Self = Self { first: [Found(Rank::LAST); AHEAD], some: Places::NONE };

    /// The results.
    #[inline]
    pub(crate) fn all(self) -> [Found; AHEAD] {
        self.first
    }

    /// The rank before which another filter for the packet at `at` would be of use.
    #[inline]
    pub(crate) fn limit(&self, at: usize) -> Rank {
        self.first[at].0
    }

    /// The filter at `rank`, if any, matches the packet at `at`.
    #[inline]
    pub(crate) fn note(&mut self, at: usize, rank: Option<Rank>) {
        if let Some(rank) = rank {
            self.first[at].0 = self.limit(at).min(rank);
            self.some.add(at);
        }
    }

    /// Those of `places` for which a filter at `rank` would be of use.
    #[inline]
    pub(crate) fn open(&self, places: Places, rank: Rank) -> Places {
        let found = places.and(self.some);
        Places(places.0 & !found.0 | found.that(|at| rank < self.limit(at)).0)
    }
}

/// Some of the packets, by their places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Places(u64);

impl Places {
    pub(crate) const NONE: Self = Self(0);

    #[inline]
    pub(crate) fn add(&mut self, at: usize) {
        self.0 |= 1 << at;
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that are also among `others`.
    #[inline]
    pub(crate) fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Those, and `others`.
    #[inline]
    pub(crate) fn or(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Those for which `is` holds.
    #[inline]
    pub(crate) fn that(self, is: impl Fn(usize) -> bool) -> Self {
        let mut those = Self::NONE;
        for at in self {
            those.0 |= u64::from(is(at)) << at;
        }
        those
    }
}

impl Iterator for Places {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let at = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        // The remainder only tells the compiler that no index needs a check.
        (at < u64::BITS).then_some(at as usize % AHEAD)
    }
}
