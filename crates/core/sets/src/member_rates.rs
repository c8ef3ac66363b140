//! The rates of a set's members, looked up by workers while the set changes.
//!
//! A filter's action gives a packet the rate of the member that covers its address. So workers look
//! up a million addresses that one thread changes, without a lock: the writer stores words that
//! readers load. A [`RateTable`] is a hash table of words; one that is full is replaced, and
//! workers learn of the new one through a [`RateBoard`], which they ask once a batch.
//!
//! *Which member:* the one with the longest prefix that covers the address. If it has no rate, or
//! excludes the address (`nomatch`), there is none.
//!
//! *Memory.* IPv4: a word of 8 bytes has address, length and rate. IPv6: three words. At most three
//! quarters of the places are used, at least three eighths behind a growth: 11 to 21 bytes a
//! member.
//!
//! *Memory ordering.* A place gets its key once. IPv4: key and rate are one word, so a look-up sees
//! all of it or nothing. IPv6: the word with the rate is stored last (release) and loaded first
//! (acquire), so a reader that sees it sees the key. A look-up that runs beside a change sees the
//! state before or after it. What a change leaves behind does not matter otherwise: relaxed.
//!
//! Cost: a look-up for each length that the set has, the longest first: one line each, most often.
//!
//! Non-goals: what a rate is for (filters, qdiscs).

use crate::key::Key;
use crate::kind::Family;
use crate::sets::Sets;
use narrows_classify::MemberRates as Rates;
use narrows_packet::PaceId;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};

/// The places of a new table.
const LEAST: usize = 64;
/// The number of a rate has three bytes,
const NUMBER: u64 = (1 << 24) - 1;
/// and this one means that the member is gone. It is no rate's.
const GONE: u64 = NUMBER;
/// The length of a prefix is above it, and never 0: an empty place is 0.
const LEN: u32 = 24;
const LENGTHS: usize = 129;

/// Rates by prefix.
pub struct RateTable {
    family: Family,
    /// By place: one word, or the two of an address and then the third.
    words: Box<[AtomicU64]>,
    /// Bits of a hash that are not used.
    shift: u32,
    /// So that nobody knows which addresses meet.
    seed: u64,
    /// The lengths of prefixes, as bits.
    lengths: [AtomicU64; LENGTHS.div_ceil(64)],
}

/// What a place says.
enum Place {
    Empty,
    /// Another key.
    Other,
    /// This key, with this number.
    This(u64),
}

impl RateTable {
    /// A table of `places`, a power of two.
    fn new(family: Family, places: usize) -> Self {
        let words = (0..places * words_of(family)).map(|_| AtomicU64::new(0)).collect();
        let seed = RandomState::new().hash_one(places);
        let shift = u64::BITS - places.ilog2();
        Self { family, words, shift, seed, lengths: Default::default() }
    }

    /// The rate of packets with `address`, whose first bit is the highest, as of IPv4.
    #[inline]
    pub fn find(&self, address: u128) -> Option<PaceId> {
        for (index, word) in self.lengths.iter().enumerate().rev() {
            let mut left = word.load(Relaxed);
            while left != 0 {
                let bit = 63 - left.leading_zeros();
                left &= !(1 << bit);
                let len = index as u32 * 64 + bit;
                match self.number(masked(address, len), len) {
                    None | Some(GONE) => {}
                    Some(number) => return PaceId::from_number(number as u32),
                }
            }
        }
        None
    }

    /// The number at the prefix of `len` bits of `address`, all others being 0.
    #[inline]
    fn number(&self, address: u128, len: u32) -> Option<u64> {
        self.place_of(address, len).1
    }

    /// The place of a prefix, or the empty one for it, and what number is there.
    #[inline]
    fn place_of(&self, address: u128, len: u32) -> (usize, Option<u64>) {
        let places = self.words.len() / words_of(self.family);
        let mut at = self.home(address, len);
        loop {
            match self.look(at, address, len) {
                Place::Empty => return (at, None),
                Place::This(number) => return (at, Some(number)),
                Place::Other => at = (at + 1) & (places - 1),
            }
        }
    }

    #[inline]
    fn look(&self, at: usize, address: u128, len: u32) -> Place {
        let (key, length) = ((address >> 96) as u64, u64::from(len) << LEN);
        let (word, is_it) = match self.family {
            Family::Inet => {
                let word = self.words[at].load(Relaxed);
                (word, word & !NUMBER == key << 32 | length)
            }
            Family::Inet6 => {
                let word = self.words[3 * at + 2].load(Acquire);
                let [high, low] = [0, 1].map(|part| self.words[3 * at + part].load(Relaxed));
                let key = u128::from(high) << 64 | u128::from(low);
                (word, word & !NUMBER == length && key == address)
            }
        };
        match word {
            0 => Place::Empty,
            _ if is_it => Place::This(word & NUMBER),
            _ => Place::Other,
        }
    }

    /// Stores `number` at `at`, which is the prefix's place, or is empty.
    fn store(&self, at: usize, address: u128, len: u32, number: u64) {
        let rest = u64::from(len) << LEN | number;
        match self.family {
            Family::Inet => {
                let key = (address >> 96) as u64;
                self.words[at].store(key << 32 | rest, Relaxed);
            }
            Family::Inet6 => {
                self.words[3 * at].store((address >> 64) as u64, Relaxed);
                self.words[3 * at + 1].store(address as u64, Relaxed);
                self.words[3 * at + 2].store(rest, Release);
            }
        }
        let bit = 1 << (len % 64);
        let lengths = &self.lengths[len as usize / 64];
        lengths.store(lengths.load(Relaxed) | bit, Relaxed);
    }

    /// Where a look-up begins: both halves of products with a seed nobody knows, folded.
    #[inline]
    fn home(&self, address: u128, len: u32) -> usize {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let fold = |one: u64, other: u64| {
            let product = u128::from(one) * u128::from(other);
            product as u64 ^ (product >> 64) as u64
        };
        let first = fold((address >> 64) as u64 ^ self.seed, ODD ^ u64::from(len));
        let both = match self.family {
            Family::Inet => first,
            Family::Inet6 => fold(first ^ address as u64, self.seed | 1),
        };
        (both.wrapping_mul(ODD) >> self.shift) as usize
    }

    /// All members: address, length and number.
    fn iter(&self) -> impl Iterator<Item = (u128, u32, u64)> {
        let of_v4 = self.family == Family::Inet;
        self.words.chunks(words_of(self.family)).filter_map(move |place| {
            let word = place.last()?.load(Relaxed);
            let address = match place {
                [high, low, _] => {
                    u128::from(high.load(Relaxed)) << 64 | u128::from(low.load(Relaxed))
                }
                _ => u128::from(word >> 32) << 96,
            };
            let len = (word >> LEN) as u32 & 0xff;
            debug_assert!(of_v4 || word >> 32 == 0);
            let number = word & NUMBER;
            (word != 0 && number != GONE).then_some((address, len, number))
        })
    }
}

fn words_of(family: Family) -> usize {
    match family {
        Family::Inet => 1,
        Family::Inet6 => 3,
    }
}

/// The first `len` bits of `address`.
#[inline]
fn masked(address: u128, len: u32) -> u128 {
    address & u128::MAX.checked_shl(128 - len).unwrap_or(0)
}

/// The table of a set, and what its writer needs to know.
pub(crate) struct MemberRates {
    table: Arc<RateTable>,
    /// Places that are not empty,
    used: usize,
    /// and those of members.
    live: usize,
    /// How many members have each length.
    lengths: Vec<usize>,
}

impl MemberRates {
    pub(crate) fn new(family: Family) -> Self {
        let table = Arc::new(RateTable::new(family, LEAST));
        Self { table, used: 0, live: 0, lengths: vec![0; LENGTHS] }
    }

    pub(crate) fn table(&self) -> &Arc<RateTable> {
        &self.table
    }

    /// The member `key` has the rate `pace` from now on.
    pub(crate) fn put(&mut self, key: &Key, pace: PaceId) {
        let (address, len) = (u128::from_be_bytes(*key.bytes()), u32::from(key.len()));
        let places = self.table.words.len() / words_of(self.table.family);
        if (self.used + 1) * 4 > places * 3 {
            self.renew();
        }
        let (at, before) = self.table.place_of(address, len);
        self.used += usize::from(before.is_none());
        if before.is_none_or(|number| number == GONE) {
            self.live += 1;
            self.lengths[len as usize] += 1;
        }
        self.table.store(at, address, len, u64::from(pace.number()));
    }

    /// The member `key`, which was put in, is gone.
    pub(crate) fn remove(&mut self, key: &Key) {
        let (address, len) = (u128::from_be_bytes(*key.bytes()), u32::from(key.len()));
        if let (at, Some(number)) = self.table.place_of(address, len)
            && number != GONE
        {
            self.table.store(at, address, len, GONE);
            self.live -= 1;
            self.lengths[len as usize] -= 1;
            if self.lengths[len as usize] == 0 {
                let word = &self.table.lengths[len as usize / 64];
                word.store(word.load(Relaxed) & !(1 << (len % 64)), Relaxed);
            }
        }
    }

    /// Replaces the table by one of members only, with room for as many again.
    fn renew(&mut self) {
        let places = ((self.live + 1) * 2).next_power_of_two().max(LEAST);
        let next = RateTable::new(self.table.family, places);
        for (address, len, number) in self.table.iter() {
            let (at, _) = next.place_of(address, len);
            next.store(at, address, len, number);
        }
        self.used = self.live;
        self.table = Arc::new(next);
    }
}

/// A copy has a table of its own.
impl Clone for MemberRates {
    fn clone(&self) -> Self {
        let mut copy = Self {
            table: Arc::clone(&self.table),
            used: self.used,
            live: self.live,
            lengths: self.lengths.clone(),
        };
        copy.renew();
        copy
    }
}

impl std::fmt::Debug for MemberRates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rates of {} members", self.live)
    }
}

/// Tables by the names of their sets.
type Tables = Arc<[(Box<str>, Arc<RateTable>)]>;

/// Where the owner of sets shows the tables of those with rates.
#[derive(Default)]
pub struct RateBoard {
    /// Another number after each change.
    version: AtomicU64,
    tables: Mutex<Tables>,
}

impl RateBoard {
    /// Shows the tables of `sets`.
    pub fn show(&self, sets: &Sets) {
        let tables = |(name, named): (&str, &crate::Named)| {
            Some((Box::from(name), Arc::clone(named.set.rates()?.table())))
        };
        let next: Tables = sets.iter().filter_map(tables).collect();
        let mut shown = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = shown.len() == next.len()
            && shown.iter().zip(next.iter()).all(|((name, table), (other, present))| {
                name == other && Arc::ptr_eq(table, present)
            });
        if !is_same {
            *shown = next;
            // Release: a reader that sees the number finds these tables behind the lock, or later
            // ones.
            self.version.fetch_add(1, Release);
        }
    }
}

/// A worker's view of a [`RateBoard`].
pub struct RateReader {
    board: Arc<RateBoard>,
    seen: u64,
    tables: Tables,
}

impl RateReader {
    /// A view of `board`.
    pub fn new(board: Arc<RateBoard>) -> Self {
        let mut reader = Self { board, seen: u64::MAX, tables: Tables::default() };
        reader.follow();
        reader
    }
}

impl Rates for RateReader {
    /// Takes a lock only after a change of tables.
    #[inline]
    fn follow(&mut self) {
        let version = self.board.version.load(Acquire);
        if version != self.seen {
            let tables = self.board.tables.lock().unwrap_or_else(PoisonError::into_inner);
            self.tables = Arc::clone(&tables);
            self.seen = version;
        }
    }

    #[inline]
    fn rate_of(&self, name: &str, address: u128, is_v6: bool) -> Option<PaceId> {
        let (_, table) = self.tables.iter().find(|(of, _)| **of == *name)?;
        let is_one = (table.family == Family::Inet6) == is_v6;
        if is_one { table.find(address) } else { None }
    }
}

#[cfg(test)]
mod tests;
