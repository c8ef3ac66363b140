//! Which tables can have a packet's address at all.
//!
//! Prefixes of 25 lengths are 25 tables, of which hardly any has a given address. A sieve says
//! which: it has, for each value that the first 16 bits of the address may have, a bit for each
//! table. It costs one look at half a megabyte, and leaves of a routing table's prefixes one or
//! two. For IPv6 it is a hash of the first 32 bits.
//!
//! A bit too many costs a look-up and no more; so what is taken out of a table leaves its bit
//! behind until the sieve is made again.

use crate::Subject;
use crate::fields::{ADDRESSES, DESTINATION_HIGH, HAS_IP, IS_V6, KIND, SOURCE_HIGH};
use crate::shape::{From, Read, Shape};
use std::sync::Arc;

/// How many tables a sieve tells apart.
pub(crate) const TABLES: usize = 64;
/// From how many tables on a sieve is worth its look-up.
const WORTH: usize = 5;
/// Shorter prefixes would set more bits than there is use in.
const SHORTEST: u32 = 8;
const PAGE: usize = 512;

/// Which 16 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sight {
    /// The first of an IPv4 address, by how far above the lowest it stands in its word.
    V4 { shift: u32 },
    /// A hash of the first 32 of an IPv6 address, in this word.
    V6 { word: usize },
    /// The first of four bytes of the frame (`u32`).
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
    /// The bits of `subject`; `None` where it has none, and is in no table that asks for them.
    #[inline]
    fn of(self, subject: &Subject<'_>) -> Option<usize> {
        let kind = subject.field(KIND) & (HAS_IP | IS_V6);
        match self {
            Self::V4 { shift } => {
                (kind == HAS_IP).then(|| (subject.field(ADDRESSES) >> shift) as usize & 0xffff)
            }
            Self::V6 { word } => (kind == HAS_IP | IS_V6).then(|| hash(subject.field(word))),
            Self::Frame { offset } => subject.word(offset, false).map(|word| (word >> 16) as usize),
        }
    }

    /// Which of a shape's words has the bits, and how many of the first 16 count.
    fn read_of(self, shape: &Shape) -> Option<(usize, u32)> {
        let of = |read: &Read| match (self, read.from) {
            (Self::V4 { shift }, From::Field(place)) if usize::from(place) == ADDRESSES => {
                let is_v4 = shape.guard_mask & shape.guard & HAS_IP != 0
                    && shape.guard_mask & IS_V6 != 0
                    && shape.guard & IS_V6 == 0;
                leading(read.mask >> shift & 0xffff).filter(|_| is_v4)
            }
            (Self::V6 { word }, From::Field(place)) if usize::from(place) == word => {
                (read.mask >> 32 == 0xffff_ffff).then_some(16)
            }
            (Self::Frame { offset }, From::Frame { offset: at, is_behind_ip: false })
                if offset == at =>
            {
                leading(read.mask >> 16)
            }
            _ => None,
        };
        shape.reads.iter().enumerate().find_map(|(index, read)| Some((index, of(read)?)))
    }

    /// The bits of a word of a key.
    fn of_key(self, word: u64) -> usize {
        match self {
            Self::V4 { shift } => (word >> shift) as usize & 0xffff,
            Self::V6 { .. } => hash(word),
            Self::Frame { .. } => (word >> 16) as usize & 0xffff,
        }
    }
}

/// How many bits a mask of 16 begins with, where it has no others and enough of them.
fn leading(mask: u64) -> Option<u32> {
    let mask = mask as u16;
    let len = mask.leading_ones();
    (len >= SHORTEST && mask.count_ones() == len).then_some(len)
}

#[inline]
fn hash(word: u64) -> usize {
    ((word >> 32).wrapping_mul(0x9e37_79b1) >> 16) as usize & 0xffff
}

/// See the module's documentation.
#[derive(Clone)]
pub(crate) struct Sieve {
    sight: Sight,
    pages: Vec<Arc<[u64; PAGE]>>,
    /// The tables that ask for the bits.
    covered: u64,
    /// By table: which word of its key has them, and how many count.
    reads: Vec<Option<(usize, u32)>>,
}

impl Sieve {
    /// Those that are worth it for tables of these shapes, with nothing in them.
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

    /// The tables that `subject` may be in.
    #[inline]
    pub(crate) fn tables(&self, subject: &Subject<'_>) -> u64 {
        let has = self.sight.of(subject).map_or(0, |bits| self.pages[bits / PAGE][bits % PAGE]);
        has | !self.covered
    }

    /// Notes that `table` has `key`.
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

    /// What it takes of memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.len() * size_of::<[u64; PAGE]>()
    }
}
