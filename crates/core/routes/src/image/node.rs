//! A node passes over bits that all prefixes below it have in common, and then branches on 6.
//!
//! Each of its 64 slots has one number, or a node of its own; these nodes are adjacent and found by
//! counting. Numbers are listed where they begin: one for each run of slots that have the same, and
//! in front of them the number of what differs in the bits that the node passes over.
//!
//! ```text
//!  word 0   the slots with a node
//!       1   the slots where a run of equal numbers begins; the first does
//!       2   63…7 the bits that it passes over, 6 LISTED_HERE, 5…0 how many these are
//!       3   63…32 where the numbers are, 31…0 the first node of a slot
//! ```
//!
//! With [`LISTED_HERE`], word 3 has the numbers themselves, from its highest bits on: two, or four
//! if no slot has a node. Elsewhere, four numbers are in a word in the same order. Behind a node
//! that the top leads to are the nodes of its slots, and its numbers: a few are in the same cache
//! line.

use super::{Source, entries};
use crate::number::Number;
use narrows_image::{Full, Memory, Prefix, Writer};

/// A node as words.
pub(super) type Cell = [u64; 4];
const CELL_WORDS: u32 = 4;

/// Bits that a node branches on.
const STRIDE: u8 = 6;
const SLOTS: usize = 1 << STRIDE;
/// The most bits that a node passes over.
const SKIP_MAX: u8 = 57;
/// The last bit at which a node branches, unless it begins behind it.
const BRANCH_MAX: u8 = 128 - STRIDE;

/// In the third word.
const LISTED_HERE: u64 = 1 << STRIDE;
const SKIP_MASK: u64 = LISTED_HERE - 1;
/// The numbers in a word, and the bits of each.
const NUMBERS: usize = 4;
const NUMBER_BITS: usize = 16;

/// What a part of the address space becomes.
pub(super) enum Place {
    /// It has one number.
    Whole(Number),
    /// It has this node.
    Node(Made),
}

/// A node that has no place yet.
pub(super) struct Made {
    cell: Cell,
    /// The nodes of its slots, if they have no place yet.
    children: Vec<Cell>,
    /// Its numbers, if they are elsewhere and have no place yet.
    numbers: Vec<u64>,
}

/// A node's answer for an address.
pub(super) enum Step {
    /// The number of that index in its list.
    Number(usize),
    /// The node that begins at that word says it.
    To(u32),
}

/// A node as a look-up reads it.
pub(super) struct Node {
    partial: u64,
    starts: u64,
    skipped: u64,
    skip: u8,
    first: u32,
}

/// A node that is being made.
struct New {
    /// The number of what begins otherwise than all below it.
    around: Number,
    numbers: [Number; SLOTS],
    partial: u64,
    children: Vec<Made>,
    skipped: u64,
    skip: u8,
}

/// The place behind the first `position` bits in which `entries` are, in order; the rest of it has
/// the number `around`.
pub(super) fn build<M: Memory>(
    entries: &[(Prefix, Number)],
    position: u8,
    around: Number,
    writer: &mut Writer<'_, M>,
) -> Result<Place, Full> {
    let (Some((first, _)), Some((last, _))) = (entries.first(), entries.last()) else {
        return Ok(Place::Whole(around));
    };
    let common = (first.bits ^ last.bits).leading_zeros() as u8;
    let farthest = (position + SKIP_MAX).min(BRANCH_MAX.max(position));
    let branch = common.min(first.len).min(farthest);
    let mut node = New::at(first.bits, [position, branch], around);
    let (here, within): (Vec<_>, Vec<_>) =
        entries.iter().partition(|(prefix, _)| prefix.len <= branch + STRIDE);
    for (prefix, number) in here {
        let first = slot(prefix.bits, branch);
        node.numbers[first..first + (1 << (branch + STRIDE - prefix.len))].fill(number);
    }
    let slot_of = |entry: &(Prefix, Number)| slot(entry.0.bits, branch);
    for entries in within.chunk_by(|one, other| slot_of(one) == slot_of(other)) {
        let number = slot_of(&entries[0]);
        let place = build(entries, branch + STRIDE, node.numbers[number], writer)?;
        node.set(number, place);
    }
    node.placed(writer)
}

/// What `place` becomes, which was `before`, after changes of `keys` of `source`, which are within
/// it and longer, or cover it. It rewrites the nodes on their way and keeps the rest.
pub(super) fn update<M: Memory>(
    source: &impl Source,
    place: Prefix,
    before: Option<Cell>,
    around: Number,
    keys: &[Prefix],
    writer: &mut Writer<'_, M>,
) -> Result<Place, Full> {
    let kept = before.filter(|cell| is_kept(cell, place, around, keys, writer));
    let Some(cell) = kept else {
        return build(&entries(source, place, around), place.len, around, writer);
    };
    let old = Node::read(&cell);
    let branch = place.len + old.skip;
    let begin = place.bits | u128::from(old.skipped) << 64 >> place.len;
    let mut node = New::at(begin, [place.len, branch], around);
    let mut next = old.first;
    for number in 0..SLOTS {
        let had = (old.partial >> number & 1 == 1).then(|| {
            next += CELL_WORDS;
            writer.read_all(next - CELL_WORDS)
        });
        let from = keys.partition_point(|key| slot(key.bits, branch) < number);
        let to = keys.partition_point(|key| slot(key.bits, branch) <= number);
        let found = match (&keys[from..to], had) {
            ([], Some(cell)) => Place::Node(Made::kept(cell)),
            ([], None) => {
                Place::Whole(self::number(&cell, old.index(number), |at| writer.read(at)))
            }
            (keys, had) => {
                let bits = begin | (number as u128) << (BRANCH_MAX - branch);
                let within = Prefix { bits, len: branch + STRIDE };
                let around = source.number_of(within);
                update(source, within, had, around, keys, writer)?
            }
        };
        node.set(number, found);
    }
    node.placed(writer)
}

/// Whether the node `cell` of `place` stays, with other nodes below it, after changes of `keys`.
fn is_kept<M: Memory>(
    cell: &Cell,
    place: Prefix,
    around: Number,
    keys: &[Prefix],
    writer: &Writer<'_, M>,
) -> bool {
    let node = Node::read(cell);
    let branch = place.len + node.skip;
    // Beyond that a slot is no prefix.
    if branch > BRANCH_MAX || number(cell, 0, |at| writer.read(at)) != around {
        return false;
    }
    let whole =
        Prefix { bits: place.bits | u128::from(node.skipped) << 64 >> place.len, len: branch };
    keys.iter().all(|key| key.len > branch + STRIDE && whole.covers(key.bits))
}

/// The number that the node at word `at` has for an address whose remaining bits are `rest`.
pub(super) fn find(memory: &impl Memory, mut at: usize, mut rest: u128) -> Number {
    loop {
        let cell: Cell = std::array::from_fn(|word| memory.read(at + word));
        match Node::read(&cell).step(&mut rest) {
            Step::Number(index) => return number(&cell, index, |at| memory.read(at as usize)),
            Step::To(next) => at = next as usize,
        }
    }
}

/// The slot of `bits` in a node that branches there.
fn slot(bits: u128, branch: u8) -> usize {
    (bits << branch >> BRANCH_MAX) as usize
}

/// The number with that index in the list of the node `cell`; `read` reads words.
pub(super) fn number(cell: &Cell, index: usize, read: impl Fn(u32) -> u64) -> Number {
    let (word, at) = match cell[2] & LISTED_HERE != 0 {
        true => (cell[3], index),
        false => (read((cell[3] >> 32) as u32 + (index / NUMBERS) as u32), index % NUMBERS),
    };
    Number((word << (at * NUMBER_BITS) >> (64 - NUMBER_BITS)) as u16)
}

/// Numbers in words, four in each, from the highest bits on.
fn listed(numbers: &[Number]) -> impl Iterator<Item = u64> {
    numbers.chunks(NUMBERS).map(|few| {
        let word = few.iter().fold(0, |word, number| word << NUMBER_BITS | u64::from(number.0));
        word << ((NUMBERS - few.len()) * NUMBER_BITS)
    })
}

impl Node {
    pub(super) fn read(cell: &Cell) -> Self {
        let [partial, starts, rest, last] = *cell;
        let skip = (rest & SKIP_MASK) as u8;
        Self { partial, starts, skipped: leading(rest, skip), skip, first: last as u32 }
    }

    /// Its answer for the address whose remaining bits are `rest`; the bits that it reads are
    /// shifted out.
    pub(super) fn step(&self, rest: &mut u128) -> Step {
        let others = (*rest >> 64) as u64 ^ self.skipped;
        if others >> 1 >> (63 - self.skip) != 0 {
            return Step::Number(0);
        }
        *rest <<= self.skip;
        let slot = (*rest >> BRANCH_MAX) as usize;
        *rest <<= STRIDE;
        if self.partial >> slot & 1 == 0 {
            return Step::Number(self.index(slot));
        }
        let before = (self.partial & ((1 << slot) - 1)).count_ones();
        Step::To(self.first + before * CELL_WORDS)
    }

    /// Which number in its list the slot `slot` has.
    fn index(&self, slot: usize) -> usize {
        (self.starts & u64::MAX >> (63 - slot)).count_ones() as usize
    }
}

/// The first `len` bits of `bits`.
fn leading(bits: u64, len: u8) -> u64 {
    bits & !(u64::MAX >> len)
}

impl New {
    /// One behind the first `position` of `bits`, which branches at `branch`.
    fn at(bits: u128, [position, branch]: [u8; 2], around: Number) -> Self {
        let skip = branch - position;
        Self {
            around,
            numbers: [around; SLOTS],
            partial: 0,
            children: Vec::new(),
            skipped: leading((bits << position >> 64) as u64, skip),
            skip,
        }
    }

    /// Sets slot `number`; slots are set in order.
    fn set(&mut self, number: usize, place: Place) {
        match place {
            Place::Whole(of_it) => self.numbers[number] = of_it,
            Place::Node(made) => {
                self.partial |= 1 << number;
                self.children.push(made);
            }
        }
    }

    /// The finished node, with the nodes of its slots and its numbers.
    fn placed<M: Memory>(self, writer: &mut Writer<'_, M>) -> Result<Place, Full> {
        let (mut listed_here, mut starts) = (vec![self.around], 0_u64);
        for (slot, number) in self.numbers.into_iter().enumerate() {
            // A slot with a node needs none; the first has one, so that the bitmap has a beginning.
            let is_needed = self.partial >> slot & 1 == 0 && listed_here.last() != Some(&number);
            if slot == 0 || is_needed {
                starts |= 1 << slot;
                listed_here.push(number);
            }
        }
        if self.children.is_empty() && listed_here.iter().all(|number| *number == self.around) {
            return Ok(Place::Whole(self.around));
        }
        let mut kind = self.skipped | u64::from(self.skip);
        let mut children = Vec::with_capacity(self.children.len());
        for child in self.children {
            children.push(child.placed_apart(writer)?);
        }
        let room = if children.is_empty() { NUMBERS } else { NUMBERS / 2 };
        let mut numbers: Vec<u64> = listed(&listed_here).collect();
        let mut last = 0;
        if listed_here.len() <= room {
            kind |= LISTED_HERE;
            last = numbers.pop().unwrap_or_default();
        }
        Ok(Place::Node(Made { cell: [self.partial, starts, kind, last], children, numbers }))
    }
}

impl Made {
    /// A node whose slots' nodes and numbers stay where they are.
    fn kept(cell: Cell) -> Self {
        Self { cell, children: Vec::new(), numbers: Vec::new() }
    }

    /// Writes the node, with all that has no place right behind it. Returns the number of its first
    /// word.
    pub(super) fn put<M: Memory>(mut self, writer: &mut Writer<'_, M>) -> Result<u32, Full> {
        let behind = self.children.len() * self.cell.len();
        let first = writer.place(self.cell.len() + behind + self.numbers.len())?;
        let children = first + CELL_WORDS;
        self.lead_to(children, children + behind as u32);
        writer.fill(first, &self.cell);
        writer.fill(children, &self.children.concat());
        writer.fill(children + behind as u32, &self.numbers);
        Ok(first)
    }

    /// The node, after all that has no place was written elsewhere.
    fn placed_apart<M: Memory>(mut self, writer: &mut Writer<'_, M>) -> Result<Cell, Full> {
        let children =
            if self.children.is_empty() { 0 } else { writer.put(&self.children.concat())? };
        let numbers = if self.numbers.is_empty() { 0 } else { writer.put(&self.numbers)? };
        self.lead_to(children, numbers);
        Ok(self.cell)
    }

    /// Sets where the nodes of its slots and its numbers are, if they had no place.
    fn lead_to(&mut self, children: u32, numbers: u32) {
        if !self.children.is_empty() {
            self.cell[3] |= u64::from(children);
        }
        if !self.numbers.is_empty() {
            self.cell[3] |= u64::from(numbers) << 32;
        }
    }
}
