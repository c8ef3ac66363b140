//! The prefixes of a set as a compressed bitmap of the address space, in which a look-up reads a
//! few words.
//!
//! A filter needs to know whether an address is in the set, not which prefix covers it. So only
//! *flips* are laid out: prefixes whose membership is the opposite of their surroundings. A prefix
//! within another of the same membership disappears, and an address is in the set if an odd number
//! of flips cover it.
//!
//! ```text
//!  of IPv4 16 bits, of IPv6 12       the rest
//!  part's number                  │  address in the part
//!        │                        │        │
//!  top ──┘                                 │   a word for each part: where it continues
//!  blocks, cells ──────────────────────────┘   of IPv4: `block`; of IPv6: `trie`
//! ```
//!
//! *Memory* is 64-bit [words](Memory), in chunks of [`CHUNK_WORDS`]. What is read at once never
//! crosses the border of two chunks, and crosses that of two cache lines only if it is longer than
//! one.
//!
//! *Speed.* A look-up takes as long as its reads that miss the cache, and its wrong guesses at
//! branches. So IPv4 has a read of the top and two, most often of one line, near the address, and
//! they are not behind branches that depend on the address. IPv6 has a read for each level of its
//! trie.
//!
//! *Changes.* Words that can be reached are immutable, except the top. A change writes new words
//! behind all others, then the word of the top that leads to them. A concurrent look-up reads the
//! old words or the new ones. Unreachable words stay until the space is used up; then everything is
//! laid out anew elsewhere ([`Layout::update`]).
//!
//! Sources: the layout of IPv4 is that of Degermark et al., "Small forwarding tables for fast
//! routing look-ups" (SIGCOMM 1997), with its first two levels in one; counts in bitmaps are those
//! of poptrie (Asai and Ohara, SIGCOMM 2015), with bits instead of next hops.

mod block;
mod flip;
mod node;
mod trie;

use crate::key::Key;
use crate::kind::Family;
use crate::set::Set;
use flip::{Flip, flips, is_covered};
use std::collections::BTreeMap;
use std::ops::Range;

/// The words of a chunk: 512 KiB.
pub const CHUNK_WORDS: usize = 1 << 16;
/// The words of a cache line.
const LINE_WORDS: usize = 8;

/// Where words are written, while others may read them.
pub trait Memory {
    /// How many there are: a number of whole chunks. All begin as zeros.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Word `at`.
    fn read(&self, at: usize) -> u64;

    /// Writes word `at`, which nothing leads to yet.
    fn write(&mut self, at: usize, word: u64);

    /// Writes word `at`, which may be read, after everything that was written before.
    fn publish(&mut self, at: usize, word: u64);
}

/// There is no room for a change: lay out the whole set again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// The writes that change an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The first word behind all that was ever written.
    next: usize,
}

impl Layout {
    /// How many words `set` takes.
    pub fn size(set: &Set) -> usize {
        // Counting alone never runs out of room.
        Self::new(set, &mut Counted).map_or(usize::MAX, |layout| layout.next)
    }

    /// Lays `set` out in `memory`, which is at least [`Layout::size`].
    ///
    /// # Errors
    /// It is not.
    pub fn new(set: &Set, memory: &mut impl Memory) -> Result<Self, Full> {
        let family = set.kind().family;
        let part_bits = part_bits(family);
        let mut writer = Writer { next: 1 << part_bits, memory };
        if family == Family::Inet {
            block::begin(&mut writer)?;
        }
        let all = flips(set, Prefix::ALL, false);
        let mut is_in = vec![false; 1 << part_bits];
        for flip in all.iter().filter(|flip| flip.len <= part_bits) {
            let parts = parts_of(flip, part_bits);
            let is = !is_in[parts.start as usize];
            is_in[parts.start as usize..parts.end as usize].fill(is);
        }
        for (number, _) in (0..).zip(&is_in).filter(|(_, is_in)| **is_in) {
            writer.point(number, whole(family));
        }
        let within: Vec<Flip> = all.into_iter().filter(|flip| flip.len > part_bits).collect();
        let number = |flip: &Flip| number(flip.bits, part_bits);
        for flips in within.chunk_by(|one, other| number(one) == number(other)) {
            let number = number(&flips[0]);
            let word = build(family, flips, is_in[number as usize], &mut writer)?;
            writer.point(number, word);
        }
        Ok(Self { next: writer.next })
    }

    /// Updates the layout after changes of `keys` in `set`.
    ///
    /// # Errors
    /// There is no room; some of the changes may have been made.
    pub fn update(
        &mut self,
        set: &Set,
        keys: &[Key],
        memory: &mut impl Memory,
    ) -> Result<(), Full> {
        let family = set.kind().family;
        let part_bits = part_bits(family);
        let mut changed: BTreeMap<u32, Vec<Flip>> = BTreeMap::new();
        for key in keys.iter().map(Flip::of) {
            for number in parts_of(&key, part_bits) {
                changed.entry(number).or_default().push(key);
            }
        }
        let mut writer = Writer { next: self.next, memory };
        let updated = changed.into_iter().try_for_each(|(number, mut keys)| {
            keys.sort_unstable();
            keys.dedup();
            let place = Prefix { bits: u128::from(number) << (128 - part_bits), len: part_bits };
            let is_in = is_covered(set, place);
            let word = if keys.iter().any(|key| key.len <= part_bits) {
                build(family, &flips(set, place, is_in), is_in, &mut writer)?
            } else {
                let before = writer.read(number);
                match family {
                    Family::Inet => block::update(set, place, before, &keys, &mut writer)?,
                    Family::Inet6 => {
                        trie::update_part(set, place, before, is_in, &keys, &mut writer)?
                    }
                }
            };
            writer.point(number, word);
            Ok(())
        });
        self.next = writer.next;
        updated
    }
}

/// The bits of an address that say which part it is in.
fn part_bits(family: Family) -> u8 {
    match family {
        Family::Inet => block::PART_BITS,
        Family::Inet6 => trie::PART_BITS,
    }
}

/// The word of a part that is in as a whole. Of one that is not it is 0.
fn whole(family: Family) -> u64 {
    match family {
        Family::Inet => block::whole(true),
        Family::Inet6 => trie::whole(true),
    }
}

/// The word of the part in which `flips` are, in order; the rest of it is in, or not.
fn build(
    family: Family,
    flips: &[Flip],
    is_in: bool,
    writer: &mut Writer<'_, impl Memory>,
) -> Result<u64, Full> {
    match family {
        Family::Inet => block::build(flips, is_in, writer),
        Family::Inet6 => trie::build_part(flips, is_in, writer),
    }
}

/// Whether the image in `words` contains `address`: the look-up of the program in the driver.
pub fn find(words: &[u64], family: Family, address: u128) -> bool {
    match family {
        Family::Inet => block::find(words, (address >> 96) as u32),
        Family::Inet6 => trie::find(words, address),
    }
}

/// The number of the part of the address `bits`.
fn number(bits: u128, part_bits: u8) -> u32 {
    (bits >> (128 - part_bits)) as u32
}

/// The parts on which `flip` has a say.
fn parts_of(flip: &Flip, part_bits: u8) -> Range<u32> {
    let first = number(flip.bits, part_bits);
    first..first + (1 << part_bits.saturating_sub(flip.len))
}

/// A part of the address space: all that begins with the first `len` of `bits`; the rest are 0.
/// Addresses of IPv4 are the first 32 bits.
#[derive(Clone, Copy)]
struct Prefix {
    bits: u128,
    len: u8,
}

impl Prefix {
    const ALL: Self = Self { bits: 0, len: 0 };

    fn covers(self, bits: u128) -> bool {
        self.len == 0 || (self.bits ^ bits) >> (128 - self.len) == 0
    }
}

/// Writes words behind all others.
struct Writer<'a, M> {
    next: usize,
    memory: &'a mut M,
}

impl<M: Memory> Writer<'_, M> {
    /// Writes `words` one behind the other; the number of the first.
    fn put(&mut self, words: &[u64]) -> Result<u32, Full> {
        let first = placed(self.next, words.len());
        if first + words.len() > self.memory.len() {
            return Err(Full);
        }
        for (at, word) in (first..).zip(words) {
            self.memory.write(at, *word);
        }
        self.next = first + words.len();
        Ok(first as u32)
    }

    fn read(&self, at: u32) -> u64 {
        self.memory.read(at as usize)
    }

    fn read_cell(&self, first: u32) -> trie::Cell {
        std::array::from_fn(|at| self.memory.read(first as usize + at))
    }

    /// Sets the word of part `number`.
    fn point(&mut self, number: u32, word: u64) {
        self.memory.publish(number as usize, word);
    }
}

/// Where `len` words are placed of which the first could be word `next`.
fn placed(next: usize, len: usize) -> usize {
    let crosses = |next: usize, unit: usize| next % unit + len > unit;
    let next = match next {
        // The first two of a long one are read together.
        _ if len > LINE_WORDS => next.next_multiple_of(2),
        _ if crosses(next, LINE_WORDS) => next.next_multiple_of(LINE_WORDS),
        _ => next,
    };
    if crosses(next, CHUNK_WORDS) { next.next_multiple_of(CHUNK_WORDS) } else { next }
}

/// Unused memory.
struct Counted;

impl Memory for Counted {
    fn len(&self) -> usize {
        usize::MAX
    }

    fn read(&self, _: usize) -> u64 {
        0
    }

    fn write(&mut self, _: usize, _: u64) {}

    fn publish(&mut self, _: usize, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_read_at_once_is_in_one_chunk_and_in_one_line_if_it_fits(
            next in prop_oneof![0..100_usize, CHUNK_WORDS - 100..CHUNK_WORDS + 100],
            len in 1..300_usize,
        ) {
            let first = placed(next, len);
            let units = |unit: usize| (first / unit, (first + len - 1) / unit);
            prop_assert!(first >= next && first < next + len + LINE_WORDS);
            prop_assert_eq!(units(CHUNK_WORDS).0, units(CHUNK_WORDS).1);
            if len <= LINE_WORDS {
                prop_assert_eq!(units(LINE_WORDS).0, units(LINE_WORDS).1);
            } else {
                prop_assert_eq!(first % 2, 0, "the first two words are in one line");
            }
        }
    }
}
