//! Numbers of next hops by prefix, laid out for a look-up of the longest match in a few reads.
//!
//! ```text
//!  18 or 24 bits; of IPv6 16, 24   the rest
//!  part's number                │  address in the part
//!        │                      │        │
//!  top ──┘                               │   half a word for each part: a number, or a node
//!  nodes, numbers ───────────────────────┘   `node`
//! ```
//!
//! *What is not laid out.* A prefix within another of the same number, and the default route: what
//! nothing else covers has number 0, so that the default route changes without a change here.
//!
//! *Speed.* A look-up takes as long as its reads that miss caches: a word of the top, and a node
//! for each branch on the way, with its numbers most often in the same line. A node passes over
//! what all below it have in common. With many prefixes the top is larger ([`part_bits`]): 64 MiB,
//! in which an address of most IPv4 routes takes one read, and one of IPv6 two or three.
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

    /// The bits of an address.
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

/// The bits that say which part an address is in, with so many prefixes.
fn part_bits(family: Family, prefixes: usize) -> u8 {
    match (family, prefixes) {
        (Family::V4, 100_000..) | (Family::V6, 30_000..) => 24,
        (Family::V4, _) => 18,
        (Family::V6, _) => 16,
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
    family: Family,
    part_bits: u8,
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
        let part_bits = part_bits(family, source.prefixes());
        let mut writer = Writer { next: (1 << part_bits) / PARTS, memory };
        paint(source, Prefix::ALL, part_bits, &mut writer)?;
        Ok(Self { family, part_bits, next: writer.next })
    }

    /// The family of its addresses.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The bits that say which part an address is in.
    pub fn part_bits(&self) -> u8 {
        self.part_bits
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
        let part_bits = self.part_bits;
        let mut writer = Writer { next: self.next, memory };
        let updated = update(source, prefixes, part_bits, &mut writer);
        self.next = writer.next;
        updated
    }
}

/// Updates what `prefixes` of `source` cover.
fn update<M: Memory>(
    source: &impl Source,
    prefixes: &[Prefix],
    part_bits: u8,
    writer: &mut Writer<'_, M>,
) -> Result<(), Full> {
    let mut changed: BTreeMap<usize, Vec<Prefix>> = BTreeMap::new();
    let (mut short, long): (Vec<Prefix>, Vec<Prefix>) =
        prefixes.iter().filter(|it| it.len > 0).partition(|it| it.len < part_bits);
    // The outermost first.
    short.sort_unstable();
    let mut last = None;
    for prefix in short {
        if last.is_none_or(|last: Prefix| !last.covers(prefix.bits)) {
            paint(source, prefix, part_bits, writer)?;
            last = Some(prefix);
        }
    }
    for prefix in long {
        changed.entry(part(prefix.bits, part_bits)).or_default().push(prefix);
    }
    for (number, mut keys) in changed {
        keys.sort_unstable();
        keys.dedup();
        let place = Prefix { bits: (number as u128) << (128 - part_bits), len: part_bits };
        let half = part_of(writer.read((number / PARTS) as u32), number);
        let before = (half & IS_NODE != 0).then(|| writer.read_all(half & !IS_NODE));
        let around = source.number_of(place);
        let place = node::update(source, place, before, around, &keys, writer)?;
        let half = placed(place, writer)?;
        point(number, half, writer);
    }
    Ok(())
}

/// Lays out `whole`, which has several parts.
fn paint<M: Memory>(
    source: &impl Source,
    whole: Prefix,
    part_bits: u8,
    writer: &mut Writer<'_, M>,
) -> Result<(), Full> {
    let around = source.number_of(whole);
    let first = part(whole.bits, part_bits);
    let mut numbers = vec![around; 1 << (part_bits - whole.len)];
    let mut within: Vec<(Prefix, Number)> = Vec::new();
    for (prefix, number) in entries(source, whole, around) {
        if prefix.len > part_bits {
            within.push((prefix, number));
            continue;
        }
        let from = part(prefix.bits, part_bits) - first;
        numbers[from..from + (1 << (part_bits - prefix.len))].fill(number);
    }
    let part_of = |entry: &(Prefix, Number)| part(entry.0.bits, part_bits) - first;
    let mut halves: Vec<u32> = numbers.iter().map(|number| number.0.into()).collect();
    for entries in within.chunk_by(|one, other| part_of(one) == part_of(other)) {
        let at = part_of(&entries[0]);
        halves[at] = placed(node::build(entries, part_bits, numbers[at], writer)?, writer)?;
    }
    for (at, halves) in ((first / PARTS) as u32..).zip(halves.chunks(PARTS)) {
        let halves = halves.iter().rev();
        let word = halves.fold(0, |word, half| word << PART_BITS | u64::from(*half));
        if writer.read(at) != word {
            writer.point(at, word);
        }
    }
    Ok(())
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
pub fn find(memory: &impl Memory, part_bits: u8, address: u128) -> Number {
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
