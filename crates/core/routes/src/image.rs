//! Numbers of next hops by prefix, laid out for a look-up of the longest match in a few reads.
//!
//! ```text
//!  of IPv4 18 bits, of IPv6 16     the rest
//!  part's number                │  address in the part
//!        │                      │        │
//!  top ──┘                               │   half a word for each part: a number, or a node
//!  nodes, numbers ───────────────────────┘   `node`
//! ```
//!
//! *What is not laid out.* A prefix within another of the same number, and the default route: what
//! nothing else covers has number 0, so that the default route changes without a change here.
//!
//! *Speed.* A look-up reads a word of the top, a node for each branch on the way, and most often
//! no more, since few numbers are within the node. A node passes over what all below it have in
//! common. With 1,000,000 routes of IPv4 that is a node for a /24, and two for what is longer.
//!
//! *Memory, and how it changes while it is read:* `crates/core/image`.
//!
//! Sources: bitmaps of children and of runs of equal leaves are those of poptrie (Asai and Ohara,
//! SIGCOMM 2015); the bits that a node passes over are those of a Patricia trie (Morrison 1968).

mod node;

use crate::number::Number;
use narrows_image::{Counted, Full, Memory, Prefix, Writer};
use node::{Cell, Node, Place, Step};
use std::collections::BTreeMap;

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

    /// The bits that say which part it is.
    const fn part_bits(self) -> u8 {
        match self {
            Self::V4 => 18,
            Self::V6 => 16,
        }
    }

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
    /// The number of the longest prefix that covers all of `place`; 0 if there is none.
    fn number_of(&self, place: Prefix) -> Number;

    /// The prefixes within `place` that are longer than it, in order, and their numbers.
    fn within(&self, place: Prefix) -> impl Iterator<Item = (Prefix, Number)>;
}

/// The writes that change an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    family: Family,
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
        let part_bits = family.part_bits();
        let mut writer = Writer { next: (1 << part_bits) / PARTS, memory };
        let mut within: Vec<(Prefix, Number)> = Vec::new();
        let mut numbers = vec![Number::DEFAULT; 1 << part_bits];
        for (prefix, number) in entries(source, Prefix::ALL, Number::DEFAULT) {
            if prefix.len > part_bits {
                within.push((prefix, number));
                continue;
            }
            let first = part(prefix.bits, part_bits);
            numbers[first..first + (1 << (part_bits - prefix.len))].fill(number);
        }
        for (at, numbers) in (0..).zip(numbers.chunks(PARTS)) {
            if numbers.iter().any(|number| *number != Number::DEFAULT) {
                let halves = numbers.iter().rev().map(|number| u64::from(number.0));
                writer.point(at, halves.fold(0, |word, half| word << PART_BITS | half));
            }
        }
        let part_of = |entry: &(Prefix, Number)| part(entry.0.bits, part_bits);
        for entries in within.chunk_by(|one, other| part_of(one) == part_of(other)) {
            let number = part_of(&entries[0]);
            let place = node::build(entries, part_bits, numbers[number], &mut writer)?;
            let half = placed(place, &mut writer)?;
            point(number, half, &mut writer);
        }
        Ok(Self { family, next: writer.next })
    }

    /// The family of its addresses.
    pub fn family(&self) -> Family {
        self.family
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
        let part_bits = self.family.part_bits();
        let mut changed: BTreeMap<usize, Vec<Prefix>> = BTreeMap::new();
        for prefix in prefixes.iter().filter(|prefix| prefix.len > 0) {
            let first = part(prefix.bits, part_bits);
            for number in first..first + (1 << part_bits.saturating_sub(prefix.len)) {
                changed.entry(number).or_default().push(*prefix);
            }
        }
        let mut writer = Writer { next: self.next, memory };
        let updated = changed.into_iter().try_for_each(|(number, mut keys)| {
            keys.sort_unstable();
            keys.dedup();
            let bits = (number as u128) << (128 - part_bits);
            let place = Prefix { bits, len: part_bits };
            let half = part_of(writer.read((number / PARTS) as u32), number);
            let before = (half & IS_NODE != 0).then(|| writer.read_all(half & !IS_NODE));
            let around = source.number_of(place);
            let place = node::update(source, place, before, around, &keys, &mut writer)?;
            let half = placed(place, &mut writer)?;
            point(number, half, &mut writer);
            Ok(())
        });
        self.next = writer.next;
        updated
    }
}

/// The parts in a word of the top, and the bits of each.
const PARTS: usize = 2;
const PART_BITS: usize = 32;
/// In the half word of a part: the rest is the number of a node's first word. Else it is a number.
const IS_NODE: u32 = 1 << 31;

/// The half word of part `number` in the word of the top in which it is.
fn part_of(word: u64, number: usize) -> u32 {
    (word >> (number % PARTS * PART_BITS)) as u32
}

/// Sets the half word of part `number`.
fn point<M: Memory>(number: usize, half: u32, writer: &mut Writer<'_, M>) {
    let at = (number / PARTS) as u32;
    let shift = number % PARTS * PART_BITS;
    let others = writer.read(at) & !(u64::from(u32::MAX) << shift);
    writer.point(at, others | u64::from(half) << shift);
}

/// The half word that leads to `place`.
fn placed<M: Memory>(place: Place, writer: &mut Writer<'_, M>) -> Result<u32, Full> {
    match place {
        Place::Whole(number) => Ok(number.0.into()),
        Place::Node(made) => made.put(writer).map(|first| first | IS_NODE),
    }
}

/// The number of the part of the address `bits`.
fn part(bits: u128, part_bits: u8) -> usize {
    (bits >> (128 - part_bits)) as usize
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

/// The number that the image in `memory` has for `address`: the look-up of the program in the
/// driver.
pub fn find(memory: &impl Memory, family: Family, address: u128) -> Number {
    let part_bits = family.part_bits();
    let number = part(address, part_bits);
    let half = part_of(memory.read(number / PARTS), number);
    if half & IS_NODE == 0 {
        return Number(half as u16);
    }
    let mut at = (half & !IS_NODE) as usize;
    let mut rest = address << part_bits;
    loop {
        let cell: Cell = std::array::from_fn(|word| memory.read(at + word));
        match Node::read(&cell).step(&mut rest) {
            Step::Number(index) => {
                return node::number(&cell, index, |at| memory.read(at as usize));
            }
            Step::To(next) => at = next as usize,
        }
    }
}
