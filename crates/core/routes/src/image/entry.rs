//! What the top of an image says about a part.
//!
//! ```text
//!  IPv4, half a word   31 IS_NODE_V4, 30…0 the first word of a node
//!                      or a number
//!  IPv6, a word        one prefix   63…39 its bits behind those of the part, 36…32 how many,
//!                                   31…16 its number, 15…0 the number around it
//!                      a node       38 IS_NODE_V6, 31…0 its first word
//!                      a field      37 IS_FIELD, 36…32 the bits that say which part of it,
//!                                   31…0 the word of the first
//! ```

use super::Family;
use crate::number::Number;
use narrows_image::{Memory, Prefix, Writer};

/// Of half a word.
const IS_NODE_V4: u32 = 1 << 31;
/// The parts in a word, and the bits of each.
pub(super) const HALVES: usize = 2;
const HALF_BITS: usize = 32;

/// Of a word.
const IS_NODE_V6: u64 = 1 << 38;
const IS_FIELD: u64 = 1 << 37;
/// The most bits of a prefix.
const INSIDE_MAX: u8 = 25;
const BITS_SHIFT: u32 = 32;
const BITS_MASK: u64 = 31;
const NUMBER_BITS: u32 = 16;

/// What is in a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    /// One prefix at most.
    One(One),
    /// The node that begins at that word.
    Node(u32),
    /// A field, of which so many bits say the part, and the word of its first part.
    Field(u8, u32),
}

/// A prefix that is alone in a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct One {
    /// Its bits behind those of the part, from the highest on, and how many.
    inside: u64,
    len: u8,
    number: Number,
    around: Number,
}

impl Entry {
    /// That of a part with one number.
    pub(super) fn whole(number: Number) -> Self {
        // A prefix that is as long as the part's.
        Self::One(One { inside: 0, len: 0, number, around: Number::DEFAULT })
    }

    /// That of a part behind the first `part_bits` with one prefix and the number `around` it, if
    /// there is one.
    pub(super) fn one(
        family: Family,
        part_bits: u8,
        (prefix, number): (Prefix, Number),
        around: Number,
    ) -> Option<Self> {
        let len = prefix.len - part_bits;
        let inside = (prefix.bits << part_bits >> 64) as u64;
        (family == Family::V6 && len <= INSIDE_MAX).then_some(Self::One(One {
            inside,
            len,
            number,
            around,
        }))
    }

    /// As a word, or as half a one.
    pub(super) fn word(self, family: Family) -> u64 {
        match (self, family) {
            (Self::One(one), Family::V4) => one.number.0.into(),
            (Self::One(One { inside, len, number, around }), Family::V6) => {
                let numbers = u64::from(number.0) << NUMBER_BITS | u64::from(around.0);
                inside | u64::from(len) << BITS_SHIFT | numbers
            }
            (Self::Node(at), Family::V4) => u64::from(at | IS_NODE_V4),
            (Self::Node(at), Family::V6) => IS_NODE_V6 | u64::from(at),
            (Self::Field(bits, first), _) => {
                IS_FIELD | u64::from(bits) << BITS_SHIFT | u64::from(first)
            }
        }
    }

    /// The one of `word`.
    fn of(word: u64, family: Family) -> Self {
        let bits = (word >> BITS_SHIFT & BITS_MASK) as u8;
        match family {
            Family::V4 if word as u32 & IS_NODE_V4 != 0 => Self::Node(word as u32 & !IS_NODE_V4),
            Family::V4 => Self::whole(Number(word as u16)),
            Family::V6 if word & IS_FIELD != 0 => Self::Field(bits, word as u32),
            Family::V6 if word & IS_NODE_V6 != 0 => Self::Node(word as u32),
            Family::V6 => Self::One(One {
                inside: word,
                len: bits,
                number: Number((word >> NUMBER_BITS) as u16),
                around: Number(word as u16),
            }),
        }
    }

    /// The one of part `number`.
    pub(super) fn read(family: Family, number: usize, memory: &impl Memory) -> Self {
        match family {
            Family::V4 => {
                let word = memory.read(number / HALVES);
                Self::of(word >> (number % HALVES * HALF_BITS) & u64::from(u32::MAX), family)
            }
            Family::V6 => Self::of(memory.read(number), family),
        }
    }

    /// Becomes that of part `number`.
    pub(super) fn set<M: Memory>(self, family: Family, number: usize, writer: &mut Writer<'_, M>) {
        let word = self.word(family);
        match family {
            Family::V4 => {
                let at = (number / HALVES) as u32;
                let shift = number % HALVES * HALF_BITS;
                let others = writer.read(at) & !(u64::from(u32::MAX) << shift);
                writer.point(at, others | word << shift);
            }
            Family::V6 => writer.point(number as u32, word),
        }
    }
}

impl One {
    /// The number of the address whose bits behind those of the part are `rest`.
    pub(super) fn find(self, rest: u128) -> Number {
        let others = (rest >> 64) as u64 ^ self.inside;
        if others >> 1 >> (63 - self.len) == 0 { self.number } else { self.around }
    }
}

/// Words of the entries of parts one behind the other.
pub(super) fn words(entries: &[Entry], family: Family) -> Vec<u64> {
    let parts = entries.iter().map(|entry| entry.word(family));
    match family {
        Family::V4 => {
            let parts: Vec<u64> = parts.collect();
            let word = |pair: &[u64]| pair.iter().rev().fold(0, |word, it| word << HALF_BITS | it);
            parts.chunks(HALVES).map(word).collect()
        }
        Family::V6 => parts.collect(),
    }
}
