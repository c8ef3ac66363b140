//! Numbers of next hops by prefix, laid out for a look-up of the longest match in a few reads.
//!
//! ```text
//!  IPv4: 18 or 24 bits; IPv6: 12, then as many as prefixes need   the rest
//!  part's number                                               │  address in the part
//!        │                                                     │        │
//!  top ──┘   an `entry` for each part: a number, or a node              │
//!  nodes, numbers ──────────────────────────────────────────────────────┘   `node`
//! ```
//!
//! *What is not laid out.* A prefix within another of the same number, and the default route: what
//! nothing else covers has number 0, so that the default route changes without a change here.
//!
//! *Speed.* A look-up takes as long as its reads that miss caches: an entry of the top, and a node
//! for each branch on the way, with its numbers most often in the same line. A node passes over
//! what all below it have in common. With many prefixes of IPv4 the top has an entry for each /24,
//! 64 MiB, and most addresses take one read. Most of IPv6 take one, too, besides one in 32 KiB
//! that stay in the caches.
//!
//! *Size of IPv6.* The top has 4 to 8 words for each prefix: 10 MiB for 220,000. At worst all
//! prefixes are in three fields on the way, and in nodes.
//!
//! *Memory, and how it changes while it is read:* `crates/core/image`.
//!
//! Sources: bitmaps of children and of runs of equal leaves are those of poptrie (Asai and Ohara,
//! SIGCOMM 2015); the bits that a node passes over are those of a Patricia trie (Morrison 1968).

mod entry;
mod node;
mod top;

use crate::number::Number;
use narrows_image::{Counted, Full, Memory, Prefix, Writer};
use top::Field;

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4. Addresses are the upper 32 bits of 128.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The bits of an address.
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

/// Numbers by prefix, as they are to be laid out. It has no prefix of length 0.
pub trait Source {
    /// How many prefixes there are.
    fn prefixes(&self) -> usize;

    /// The number of the longest prefix that covers all of `place`; 0 if there is none.
    fn number_of(&self, place: Prefix) -> Number;

    /// The prefixes within `place` that are longer than it, in order, and their numbers.
    fn within(&self, place: Prefix) -> impl Iterator<Item = (Prefix, Number)>;
}

/// The writes that change an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Where look-ups begin.
    first: Field,
    /// The first word behind all that was ever written.
    next: usize,
}

impl Layout {
    /// How many words `source` takes.
    pub fn size(source: &impl Source, family: Family) -> usize {
        // Counting alone never runs out of room.
        Self::new(source, family, &mut Counted).map_or(usize::MAX, |layout| layout.next)
    }

    /// Lays `source` out in `memory`, which is at least [`Layout::size`].
    ///
    /// # Errors
    /// It is not.
    pub fn new(
        source: &impl Source,
        family: Family,
        memory: &mut impl Memory,
    ) -> Result<Self, Full> {
        let first = Field::first(family, source.prefixes());
        let mut writer = Writer { next: 0, memory };
        writer.span(first.words())?;
        top::paint(source, first, Prefix::ALL, &mut writer)?;
        Ok(Self { first, next: writer.next })
    }

    /// The family of its addresses.
    pub fn family(&self) -> Family {
        self.first.family()
    }

    /// The bits of an address that the first read of a look-up takes.
    pub fn first_bits(&self) -> u8 {
        self.first.part_bits()
    }

    /// The number that the image in `memory` has for `address`: the look-up of the program in the
    /// driver.
    pub fn find(&self, memory: &impl Memory, address: u128) -> Number {
        top::find(memory, self.first, address)
    }

    /// Updates the layout after changes of `prefixes` in `source`.
    ///
    /// # Errors
    /// There is no room; some of the changes may have been made.
    pub fn update(
        &mut self,
        source: &impl Source,
        prefixes: &[Prefix],
        memory: &mut impl Memory,
    ) -> Result<(), Full> {
        let mut keys: Vec<Prefix> = prefixes.iter().copied().filter(|it| it.len > 0).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut writer = Writer { next: self.next, memory };
        let updated = top::update(source, self.first, &keys, &mut writer);
        self.next = writer.next;
        updated
    }
}

/// What has to be laid out of `source` within `place`, whose surroundings have the number
/// `around`: without prefixes that have the number of their surroundings.
fn entries(source: &impl Source, place: Prefix, around: Number) -> Vec<(Prefix, Number)> {
    let mut found = Vec::new();
    // Those around the present position, the outermost first.
    let mut covering: Vec<(Prefix, Number)> = Vec::new();
    for (prefix, number) in source.within(place) {
        while covering.pop_if(|(outer, _)| !outer.covers(prefix.bits)).is_some() {}
        if number != covering.last().map_or(around, |(_, number)| *number) {
            found.push((prefix, number));
            covering.push((prefix, number));
        }
    }
    found
}
