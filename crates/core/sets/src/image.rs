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
//! *Memory, and how it changes while it is read:* `crates/core/image`. Only the top's words change;
//! once the space is used up, [`Layout::update`] asks for all to be laid out anew.
//!
//! *Speed.* A look-up takes as long as its reads that miss the cache, and its wrong guesses at
//! branches. So IPv4 has a read of the top and two, most often of one line, near the address, and
//! they are not behind branches that depend on the address. IPv6 has a read for each level of its
//! trie.
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
use narrows_image::{Counted, Full, Memory, Prefix, Writer};
use std::collections::BTreeMap;
use std::ops::Range;

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
