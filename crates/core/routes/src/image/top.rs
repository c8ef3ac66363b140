//! The top of an image: what leads from the first bits of an address to a number or a node.
//!
//! It consists of *fields*. A field is a piece of the address space; its parts are as long as each
//! other, and an [`Entry`] says what is in each. The entries of a field are one behind the other.
//!
//! *IPv4.* One field, of 2¹⁸ or 2²⁴ parts.
//!
//! *IPv6.* Prefixes are dense in a few pieces of the address space. So the first field has parts of
//! 12 bits. A part with several prefixes is a field itself, whose parts are so many that most of
//! these are alone, and so on. A prefix that is alone is in the entry. So most addresses of a full
//! table take one read that misses the caches. Where prefixes have many bits in common, there is a
//! node, which passes over them.
//!
//! *Changes.* An entry is published as one word. A field keeps its parts, however many prefixes
//! come or go, until what is around it is laid out again.
//!
//! Sources: fields that have the more parts the more prefixes they have are those of an LC-trie
//! (Nilsson and Karlsson, IEEE JSAC 1999).

use super::entry::{Entry, HALVES, words};
use super::node::{self, Place};
use super::{Family, Source};
use crate::number::Number;
use narrows_image::{Full, Memory, Prefix, Writer};

/// The bits of an address of IPv6 that say which part of the first field it is in.
const FIRST_BITS_V6: u8 = 12;
/// The most fields on the way of an address.
const FIELDS_MAX: u8 = 4;
/// The parts of a field for each of its prefixes, at least; up to twice as many.
const PARTS_PER_PREFIX: usize = 4;
/// The most parts of all prefixes together. Where there would be more, each prefix has fewer.
const PARTS_MAX: usize = 1 << 22;

/// A piece of the address space whose parts are as long as each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Field {
    family: Family,
    /// What it covers.
    place: Prefix,
    /// The bits that say which part an address is in, with those of the place.
    part_bits: u8,
    /// The number of its first part.
    first: usize,
    /// How many fields are around it.
    around: u8,
    /// The parts for each prefix, in the fields that are in it.
    per_prefix: usize,
}

impl Field {
    /// The first one, for so many prefixes.
    pub(super) fn first(family: Family, prefixes: usize) -> Self {
        let part_bits = match family {
            Family::V4 if prefixes < 100_000 => 18,
            Family::V4 => 24,
            Family::V6 => FIRST_BITS_V6,
        };
        let per_prefix = PARTS_PER_PREFIX.min(PARTS_MAX / prefixes.max(1));
        Self { family, place: Prefix::ALL, part_bits, first: 0, around: 0, per_prefix }
    }

    pub(super) fn family(self) -> Family {
        self.family
    }

    pub(super) fn part_bits(self) -> u8 {
        self.part_bits
    }

    /// How many words it takes.
    pub(super) fn words(self) -> usize {
        let parts = 1 << (self.part_bits - self.place.len);
        match self.family {
            Family::V4 => parts / HALVES,
            Family::V6 => parts,
        }
    }

    /// The number of the part that the address `bits` is in.
    fn part(self, bits: u128) -> usize {
        let inside = self.part_bits - self.place.len;
        self.first + (bits << self.place.len >> 1 >> (127 - inside)) as usize
    }

    /// What that part covers.
    fn place_of(self, bits: u128) -> Prefix {
        Prefix::new(bits, self.part_bits)
    }

    /// The field that `part` has, at the part `first` and with so many bits for its parts.
    fn inner(self, part: Prefix, bits: u8, first: u32) -> Self {
        let (part_bits, around) = (part.len + bits, self.around + 1);
        Self { place: part, part_bits, first: first as usize, around, ..self }
    }

    /// The bits for the parts of a field for these `entries` of `part`; none if it is to be a node,
    /// because the field would not tell them apart, or because there are enough on the way.
    fn inner_bits(self, part: Prefix, entries: &[(Prefix, Number)]) -> Option<u8> {
        let [(first, _), .., (last, _)] = entries else { return None };
        let parts = (entries.len() * self.per_prefix).next_power_of_two();
        let bits = (parts.ilog2() as u8).min(128 - part.len);
        let common = ((first.bits ^ last.bits).leading_zeros() as u8).min(first.len);
        let has_room = self.family == Family::V6 && self.around + 1 < FIELDS_MAX;
        (has_room && common < part.len + bits).then_some(bits)
    }
}

/// Lays out the parts of `field` that are in `whole`.
pub(super) fn paint<M: Memory>(
    source: &impl Source,
    field: Field,
    whole: Prefix,
    writer: &mut Writer<'_, M>,
) -> Result<(), Full> {
    let around = source.number_of(whole);
    let parts = parts(&super::entries(source, whole, around), field, whole, around, writer)?;
    let first = match field.family {
        Family::V4 => field.part(whole.bits) / HALVES,
        Family::V6 => field.part(whole.bits),
    };
    for (at, word) in (first as u32..).zip(words(&parts, field.family)) {
        if writer.read(at) != word {
            writer.point(at, word);
        }
    }
    Ok(())
}

/// The parts of `field` that are in `whole`, in which the prefixes are `entries`; the rest has the
/// number `around`.
fn parts<M: Memory>(
    entries: &[(Prefix, Number)],
    field: Field,
    whole: Prefix,
    around: Number,
    writer: &mut Writer<'_, M>,
) -> Result<Vec<Entry>, Full> {
    let first = field.part(whole.bits);
    let mut numbers = vec![around; 1 << (field.part_bits - whole.len)];
    let mut within: Vec<(Prefix, Number)> = Vec::new();
    for (prefix, number) in entries {
        if prefix.len > field.part_bits {
            within.push((*prefix, *number));
            continue;
        }
        let from = field.part(prefix.bits) - first;
        numbers[from..from + (1 << (field.part_bits - prefix.len))].fill(*number);
    }
    let mut parts: Vec<Entry> = numbers.iter().map(|number| Entry::whole(*number)).collect();
    let part_of = |entry: &(Prefix, Number)| field.part(entry.0.bits) - first;
    for entries in within.chunk_by(|one, other| part_of(one) == part_of(other)) {
        let at = part_of(&entries[0]);
        let place = field.place_of(entries[0].0.bits);
        parts[at] = part(entries, field, place, numbers[at], writer)?;
    }
    Ok(parts)
}

/// The part `place` of `field`, in which the prefixes are `entries`; the rest has the number
/// `around`.
fn part<M: Memory>(
    entries: &[(Prefix, Number)],
    field: Field,
    place: Prefix,
    around: Number,
    writer: &mut Writer<'_, M>,
) -> Result<Entry, Full> {
    if let [alone] = *entries
        && let Some(entry) = Entry::one(field.family, field.part_bits, alone, around)
    {
        return Ok(entry);
    }
    let Some(bits) = field.inner_bits(place, entries) else {
        return placed(node::build(entries, place.len, around, writer)?, writer);
    };
    let first = writer.span(1 << bits)?;
    let inner = parts(entries, field.inner(place, bits, first), place, around, writer)?;
    writer.fill(first, &words(&inner, field.family));
    Ok(Entry::Field(bits, first))
}

/// The entry of a part that is `place`.
fn placed<M: Memory>(place: Place, writer: &mut Writer<'_, M>) -> Result<Entry, Full> {
    match place {
        Place::Whole(number) => Ok(Entry::whole(number)),
        Place::Node(made) => made.put(writer).map(Entry::Node),
    }
}

/// Updates `field` after changes of `keys`, which are in it, longer than its place, and in order.
pub(super) fn update<M: Memory>(
    source: &impl Source,
    field: Field,
    keys: &[Prefix],
    writer: &mut Writer<'_, M>,
) -> Result<(), Full> {
    // The outermost first.
    let (short, long): (Vec<Prefix>, Vec<Prefix>) =
        keys.iter().partition(|key| key.len < field.part_bits);
    let mut last = None;
    for prefix in short {
        if last.is_none_or(|last: Prefix| !last.covers(prefix.bits)) {
            paint(source, field, prefix, writer)?;
            last = Some(prefix);
        }
    }
    let part_of = |key: &Prefix| field.part(key.bits);
    for keys in long.chunk_by(|one, other| part_of(one) == part_of(other)) {
        update_part(source, field, keys, writer)?;
    }
    Ok(())
}

/// Updates the part of `field` that `keys` cover, or are in.
fn update_part<M: Memory>(
    source: &impl Source,
    field: Field,
    keys: &[Prefix],
    writer: &mut Writer<'_, M>,
) -> Result<(), Full> {
    let (number, place) = (field.part(keys[0].bits), field.place_of(keys[0].bits));
    let around = source.number_of(place);
    let entry = match Entry::read(field.family, number, writer.memory) {
        Entry::Field(bits, first) if keys.iter().all(|key| key.len > place.len) => {
            return update(source, field.inner(place, bits, first), keys, writer);
        }
        // A prefix that is alone needs no node any more.
        Entry::Node(at) if source.within(place).nth(1).is_some() => {
            let before = Some(writer.read_all(at));
            placed(node::update(source, place, before, around, keys, writer)?, writer)?
        }
        _ => part(&super::entries(source, place, around), field, place, around, writer)?,
    };
    entry.set(field.family, number, writer);
    Ok(())
}

/// The number that an image whose first field is `field` has for `address`.
pub(super) fn find(memory: &impl Memory, mut field: Field, address: u128) -> Number {
    loop {
        match Entry::read(field.family, field.part(address), memory) {
            Entry::One(one) => return one.find(address << field.part_bits),
            Entry::Node(at) => return node::find(memory, at as usize, address << field.part_bits),
            Entry::Field(bits, first) => {
                field = field.inner(field.place_of(address), bits, first);
            }
        }
    }
}
