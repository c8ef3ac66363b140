//! Which tables can contain a packet's address at all.
//!
//! Prefixes of 25 lengths make 25 tables, and hardly any of them contains a given address. A sieve
//! has one bit per table for each value of the first 16 bits of an address. One read in half a
//! megabyte leaves one or two tables for the prefixes of a routing table. For IPv6 the index is a
//! hash of the first 32 bits.
//!
//! A bit that is set without need costs a look-up and nothing else. So a key that is removed from a
//! table leaves its bit set until the sieve is rebuilt.

use crate::Network;
use crate::Subject;
use crate::fields::{ADDRESSES, DESTINATION_HIGH, HAS_IP, IS_V6, KIND, SOURCE_HIGH};
use crate::shape::{From, Guard, Read, Shape};
use std::sync::Arc;

/// How many tables a sieve covers.
pub(crate) const TABLES: usize = 64;
/// From this number of tables on, a sieve is worth its cost.
const WORTH: usize = 5;
/// Shorter prefixes would set too many bits to be of use.
const SHORTEST: u32 = 8;
const PAGE: usize = 512;

/// Which 16 bits a sieve indexes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sight {
    /// The first bits of an IPv4 address, `shift` bits above the lowest of their word.
    V4 { shift: u32 },
    /// A hash of the first 32 bits of an IPv6 address, in this word.
    V6 { word: usize },
    /// The first bits of four bytes of the frame (`u32`).
    Frame { offset: i16 },
}

const SIGHTS: [Sight; 6] = [
    Sight::V4 { shift: 16 },
    Sight::V4 { shift: 48 },
    Sight::V6 { word: DESTINATION_HIGH },
    Sight::V6 { word: SOURCE_HIGH },
    Sight::Frame { offset: 16 },
    Sight::Frame { offset: 12 },
];

impl Sight {
    /// The index for `subject`; `None` if it lacks these bits and so matches no table that tests
    /// them.
    #[inline]
    fn of(self, subject: &Subject<'_>) -> Option<usize> {
        let kind = subject.field(KIND) & (HAS_IP | IS_V6);
        match self {
            Self::V4 { shift } => {
                (kind == HAS_IP).then(|| (subject.field(ADDRESSES) >> shift) as usize & 0xffff)
            }
            Self::V6 { word } => (kind == HAS_IP | IS_V6).then(|| hash(subject.field(word))),
            Self::Frame { offset } => {
                subject.word(offset, false, Network::Ip).map(|word| (word >> 16) as usize)
            }
        }
    }

    /// The word of a shape that contains the bits, and how many of the first 16 the shape tests.
    fn read_of(self, shape: &Shape) -> Option<(usize, u32)> {
        let of = |read: &Read| match (self, read.from) {
            (Self::V4 { shift }, From::Field(place)) if usize::from(place) == ADDRESSES => {
                let Guard { mask, value } = shape.guard;
                let is_v4 = mask & value & HAS_IP != 0 && mask & IS_V6 != 0 && value & IS_V6 == 0;
                leading(read.mask >> shift & 0xffff).filter(|_| is_v4)
            }
            (Self::V6 { word }, From::Field(place)) if usize::from(place) == word => {
                (read.mask >> 32 == 0xffff_ffff).then_some(16)
            }
            (
                Self::Frame { offset },
                From::Frame { offset: at, is_behind_ip: false, network: Network::Ip },
            ) if offset == at => leading(read.mask >> 16),
            _ => None,
        };
        shape.reads.iter().enumerate().find_map(|(index, read)| Some((index, of(read)?)))
    }

    /// The index for a word of a key.
    fn of_key(self, word: u64) -> usize {
        match self {
            Self::V4 { shift } => (word >> shift) as usize & 0xffff,
            Self::V6 { .. } => hash(word),
            Self::Frame { .. } => (word >> 16) as usize & 0xffff,
        }
    }
}

/// The prefix length of a 16-bit mask, if it is a prefix and long enough.
fn leading(mask: u64) -> Option<u32> {
    let mask = mask as u16;
    let len = mask.leading_ones();
    (len >= SHORTEST && mask.count_ones() == len).then_some(len)
}

#[inline]
fn hash(word: u64) -> usize {
    ((word >> 32).wrapping_mul(0x9e37_79b1) >> 16) as usize & 0xffff
}

/// For each value of an address's first 16 bits, the tables that can contain it, as bits.
#[derive(Clone)]
pub(crate) struct Sieve {
    sight: Sight,
    pages: Vec<Arc<[u64; PAGE]>>,
    /// The tables that test these bits.
    covered: u64,
    /// For each table, the word of its key that has them, and how many it tests.
    reads: Vec<Option<(usize, u32)>>,
}

impl Sieve {
    /// The sieves that pay off for tables of these shapes, empty.
    pub(crate) fn worth<'a>(shapes: impl Iterator<Item = &'a Shape> + Clone) -> Vec<Self> {
        let made = |sight: Sight| {
            let reads: Vec<_> =
                shapes.clone().take(TABLES).map(|shape| sight.read_of(shape)).collect();
            let tables = reads.iter().enumerate().filter(|(_, read)| read.is_some());
            let covered = tables.fold(0, |covered, (index, _)| covered | 1 << index);
            let page = Arc::new([0; PAGE]);
            let pages = vec![page; (1 << 16) / PAGE];
            (u64::count_ones(covered) as usize >= WORTH).then_some(Self {
                sight,
                pages,
                covered,
                reads,
            })
        };
        SIGHTS.into_iter().filter_map(made).collect()
    }

    /// The tables about which it knows anything.
    #[inline]
    pub(crate) fn covered(&self) -> u64 {
        self.covered
    }

    /// The tables that may contain `subject`.
    #[inline]
    pub(crate) fn tables(&self, subject: &Subject<'_>) -> u64 {
        let has = self.sight.of(subject).map_or(0, |bits| self.pages[bits / PAGE][bits % PAGE]);
        has | !self.covered
    }

    /// Prefetches the data that [`Self::tables`] reads.
    #[inline]
    pub(crate) fn prefetch(&self, subject: &Subject<'_>) {
        if let Some(bits) = self.sight.of(subject) {
            narrows_cpu::prefetch(&self.pages[bits / PAGE][bits % PAGE]);
        }
    }

    /// Records that `table` contains `key`.
    pub(crate) fn note(&mut self, table: usize, key: &[u64]) {
        let Some(Some((word, len))) = self.reads.get(table).copied() else { return };
        let first = self.sight.of_key(key[word]);
        for bits in first..(first + (1 << (16 - len))).min(1 << 16) {
            let page = &mut self.pages[bits / PAGE];
            if page[bits % PAGE] & 1 << table == 0 {
                Arc::make_mut(page)[bits % PAGE] |= 1 << table;
            }
        }
    }

    /// The memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.len() * size_of::<[u64; PAGE]>()
    }
}
