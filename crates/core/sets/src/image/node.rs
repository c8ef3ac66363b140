//! A node passes over bits that all flips below it have in common, and then branches on 6.
//!
//! Each of its 64 slots is entirely in the set, not at all, or has its own cell; the cells are
//! adjacent and found by counting. If the skipped bits differ from the node's, there is no flip.
//!
//! ```text
//!  words   0      1         2         3, low   3, high
//!          full   partial   skipped   first    IS_NODE, is_in, skip
//! ```

use super::flip::Flip;
use super::trie::{CELL_WORDS, Cell, Place};
use narrows_image::{Full, Memory, Prefix, Writer};

/// Bits that a node branches on.
const STRIDE: u8 = 6;
/// The most bits that a node may skip: together with those that it branches on they are one word.
pub(super) const SKIP_MAX: u8 = 64 - STRIDE;
/// The last bit at which a node may branch.
pub(super) const BRANCH_MAX: u8 = 128 - STRIDE;

/// The word with the kind of cell, in its upper half.
pub(super) const KIND: usize = 3;
pub(super) const IS_IN: u32 = 1 << 29;
const IS_NODE: u32 = 1 << 31;

/// A node of the IPv6 trie: bits to pass over, then 64 slots.
#[derive(Clone, Copy)]
pub(super) struct Node {
    /// The slots that are in the set unless a cell below differs,
    full: u64,
    /// and those that have a cell of their own.
    partial: u64,
    /// The bits that it passes over, from the highest on,
    skipped: u64,
    /// and how many.
    skip: u8,
    /// The first cell of its slots.
    first: u32,
    /// Whether addresses with other leading bits are in the set.
    is_in: bool,
}

/// A node's answer for an address.
pub(super) enum Step {
    /// It is in, or not.
    Is(bool),
    /// The cell to which it leads says it.
    To(u32),
}

/// A node after the first `position` bits, with the flips there. It branches at `branch`. `below`
/// makes the contents of a slot, whose flips begin after that many bits.
pub(super) fn build<M: Memory>(
    flips: &[Flip],
    [position, branch]: [u8; 2],
    is_in: bool,
    writer: &mut Writer<'_, M>,
    below: impl Fn(&[Flip], u8, bool, &mut Writer<'_, M>) -> Result<Place, Full>,
) -> Result<Place, Full> {
    let skip = branch - position;
    let common = flips.first().map_or(0, |flip| flip.bits << position);
    let mut node = Node {
        full: if is_in { u64::MAX } else { 0 },
        partial: 0,
        skipped: (common >> 64) as u64 & !(u64::MAX >> skip),
        skip,
        first: 0,
        is_in,
    };
    let (here, within): (Vec<Flip>, Vec<Flip>) =
        flips.iter().partition(|flip| flip.len <= branch + STRIDE);
    for Flip { bits, len } in here {
        let slots = u64::MAX >> (64 - (1_u32 << (branch + STRIDE - len)));
        node.full ^= slots << slot(bits, branch);
    }
    let mut children = Vec::new();
    for flips in within.chunk_by(|one, other| slot(one.bits, branch) == slot(other.bits, branch)) {
        let number = slot(flips[0].bits, branch);
        let is_in = node.full >> number & 1 == 1;
        node.set(number, below(flips, branch + STRIDE, is_in, writer)?, &mut children);
    }
    node.placed(&children, writer)
}

impl Node {
    /// The node that `cell` is, if it is one.
    pub(super) fn read(cell: &Cell) -> Option<Self> {
        let [full, partial, skipped, last] = *cell;
        let kind = (last >> 32) as u32;
        (kind & IS_NODE != 0).then_some(Self {
            full,
            partial,
            skipped,
            skip: (kind & 63) as u8,
            first: last as u32,
            is_in: kind & IS_IN != 0,
        })
    }

    /// The node of `place` in `before`, if `keys`, which are in `place`, change only what is below
    /// it.
    pub(super) fn kept(
        before: Option<Cell>,
        place: Prefix,
        is_in: bool,
        keys: &[Flip],
    ) -> Option<Self> {
        let node = Self::read(&before?)?;
        node.has_below(place, is_in, keys).then_some(node)
    }

    /// Whether `keys`, all within `place`, change only cells below the node of `place`.
    fn has_below(&self, place: Prefix, is_in: bool, keys: &[Flip]) -> bool {
        let branch = place.len + self.skip;
        let whole = Prefix { bits: self.begin(place), len: branch };
        let is_below = |key: &Flip| key.len > branch + STRIDE && whole.covers(key.bits);
        self.is_in == is_in && keys.iter().all(is_below)
    }

    /// The new node of `place` after changes of `keys` below it. `below` gives the contents of a
    /// slot with some of them; cells of others are kept.
    pub(super) fn update<M: Memory>(
        self,
        place: Prefix,
        keys: &[Flip],
        writer: &mut Writer<'_, M>,
        below: impl Fn(Prefix, Option<Cell>, bool, &[Flip], &mut Writer<'_, M>) -> Result<Place, Full>,
    ) -> Result<Place, Full> {
        let branch = place.len + self.skip;
        let mut node = Self { partial: 0, ..self };
        let mut children = Vec::new();
        let mut next = self.first;
        for number in 0..1 << STRIDE {
            let had = (self.partial >> number & 1 == 1).then(|| {
                next += CELL_WORDS;
                writer.read_all(next - CELL_WORDS)
            });
            let begin = keys.partition_point(|key| slot(key.bits, branch) < number);
            let end = keys.partition_point(|key| slot(key.bits, branch) <= number);
            let is_in = self.full >> number & 1 == 1;
            let found = match (&keys[begin..end], had) {
                ([], Some(cell)) => Place::Cell(cell),
                ([], None) => Place::Whole(is_in),
                (keys, had) => {
                    let bits = self.begin(place) | u128::from(number) << (BRANCH_MAX - branch);
                    let within = Prefix { bits, len: branch + STRIDE };
                    below(within, had, is_in, keys, writer)?
                }
            };
            node.set(number, found, &mut children);
        }
        node.placed(&children, writer)
    }

    /// Its answer for the address whose remaining bits are `rest`; the bits that it reads are
    /// shifted out.
    pub(super) fn step(&self, rest: &mut u128) -> Step {
        let others = (*rest >> 64) as u64 ^ self.skipped;
        if others >> 1 >> (63 - self.skip) != 0 {
            return Step::Is(self.is_in);
        }
        *rest <<= self.skip;
        let slot = (*rest >> BRANCH_MAX) as u32;
        *rest <<= STRIDE;
        match self.partial >> slot & 1 {
            0 => Step::Is(self.full >> slot & 1 == 1),
            _ => {
                let before = (self.partial & ((1 << slot) - 1)).count_ones();
                Step::To(self.first + before * CELL_WORDS)
            }
        }
    }

    /// The bits up to where it branches, where it is the node of `place`.
    fn begin(&self, place: Prefix) -> u128 {
        place.bits | u128::from(self.skipped) << 64 >> place.len
    }

    /// Sets slot `number`; slots are set in order.
    fn set(&mut self, number: u32, found: Place, children: &mut Vec<Cell>) {
        match found {
            Place::Whole(false) => self.full &= !(1 << number),
            Place::Whole(true) => self.full |= 1 << number,
            Place::Cell(cell) => {
                self.partial |= 1 << number;
                children.push(cell);
            }
        }
    }

    /// The finished node with the cells of its slots.
    fn placed<M: Memory>(
        self,
        children: &[Cell],
        writer: &mut Writer<'_, M>,
    ) -> Result<Place, Full> {
        let around = if self.is_in { u64::MAX } else { 0 };
        if children.is_empty() && self.full == around {
            return Ok(Place::Whole(self.is_in));
        }
        let first = writer.put(&children.concat())?;
        let kind = IS_NODE | if self.is_in { IS_IN } else { 0 } | u32::from(self.skip);
        let last = u64::from(kind) << 32 | u64::from(first);
        Ok(Place::Cell([self.full, self.partial, self.skipped, last]))
    }
}

/// The slot of `bits` in a node that branches there.
fn slot(bits: u128, branch: u8) -> u32 {
    (bits >> (BRANCH_MAX - branch)) as u32 & 63
}
