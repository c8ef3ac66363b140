//! IPv6: 4,096 parts, each a trie of [nodes](super::node), which pass over what all have in common.
//!
//! Where few flips are left, they are listed: a *short* cell has up to three of at most 63 further
//! bits, a *long* one has one of any length.
//!
//! ```text
//!  words   0      1      2      3, low   3, high
//!  short   bits   bits   bits   shifts   is_in
//!  long    bits   more          shifts   IS_LONG, is_in
//! ```
//!
//! Bits are relative: the first one is the first behind those that led to the cell. The 63 highest
//! of each two words count; `more` holds the bits of a long flip after its first 63. An unused flip
//! covers everything, and `is_in` compensates for it.
//!
//! A look-up reads a cell for each node on its way, which takes up at least 6 bits; of n random
//! prefixes there are log64(n) nodes. A change copies the cells beside those on its way (path
//! copying): 64 for each node at most, however large the set is.

use super::flip::{Flip, flips};
use super::node::{self, BRANCH_MAX, IS_IN, KIND, Node, SKIP_MAX, Step};
use crate::set::Set;
use narrows_image::{Full, Memory, Prefix, Writer};

/// The bits that say which part it is.
pub(super) const PART_BITS: u8 = 12;

/// The unit of memory: four words.
pub(super) type Cell = [u64; 4];
pub(super) const CELL_WORDS: u32 = 4;

/// As a word of the top: nothing of the part.
const NONE: u64 = 0;
/// All of it. No cell has these numbers.
const ALL: u64 = 1;

/// The number of flips in a short cell, and their greatest length.
const SHORT_MAX: usize = 3;
const SHORT_LEN_MAX: u8 = 63;

/// A flag of the upper half of the last word, besides [`IS_IN`]. The lower half says in a byte for
/// each flip how far bits are shifted, by one less.
const IS_LONG: u32 = 1 << 30;

/// The new state of a part of the address space.
pub(super) enum Place {
    /// It is in as a whole, or not.
    Whole(bool),
    /// The contents of the cell.
    Cell(Cell),
}

impl Place {
    /// The word of a part that is in this state.
    fn word<M: Memory>(self, writer: &mut Writer<'_, M>) -> Result<u64, Full> {
        match self {
            Self::Whole(is_in) => Ok(whole(is_in)),
            Self::Cell(cell) => writer.put(&cell).map(u64::from),
        }
    }
}

/// The word of a part that is in as a whole, or not.
pub(super) fn whole(is_in: bool) -> u64 {
    if is_in { ALL } else { NONE }
}

/// The word of the part in which `flips` are, in order; the rest of it is in, or not.
pub(super) fn build_part<M: Memory>(
    flips: &[Flip],
    is_in: bool,
    writer: &mut Writer<'_, M>,
) -> Result<u64, Full> {
    build(flips, PART_BITS, is_in, writer)?.word(writer)
}

/// The new word of `place`, instead of `before`; see [`update`].
pub(super) fn update_part<M: Memory>(
    set: &Set,
    place: Prefix,
    before: u64,
    is_in: bool,
    keys: &[Flip],
    writer: &mut Writer<'_, M>,
) -> Result<u64, Full> {
    let before = (before > ALL).then(|| writer.read_all(before as u32));
    update(set, place, before, is_in, keys, writer)?.word(writer)
}

/// The place behind the first `position` bits in which `flips` are, in order.
fn build<M: Memory>(
    flips: &[Flip],
    position: u8,
    is_in: bool,
    writer: &mut Writer<'_, M>,
) -> Result<Place, Full> {
    let (Some(first), Some(last)) = (flips.first(), flips.last()) else {
        return Ok(Place::Whole(is_in));
    };
    let is_short = |flip: &Flip| flip.len - position <= SHORT_LEN_MAX;
    if flips.len() <= SHORT_MAX && flips.iter().all(is_short) {
        return Ok(Place::Cell(short(flips, position, is_in)));
    }
    if flips.len() == 1 {
        return Ok(Place::Cell(long(first, position, is_in)));
    }
    let common = (first.bits ^ last.bits).leading_zeros() as u8;
    let branch = common.min(first.len).min(position + SKIP_MAX).min(BRANCH_MAX);
    node::build(flips, [position, branch], is_in, writer, build)
}

/// The new cell of `place`, instead of `before`, after changes of `keys` of `set`, which are within
/// `place` and longer than it. It rewrites cells on their path and keeps the rest.
fn update<M: Memory>(
    set: &Set,
    place: Prefix,
    before: Option<Cell>,
    is_in: bool,
    keys: &[Flip],
    writer: &mut Writer<'_, M>,
) -> Result<Place, Full> {
    match Node::kept(before, place, is_in, keys) {
        None => build(&flips(set, place, is_in), place.len, is_in, writer),
        Some(node) => node.update(place, keys, writer, |place, before, is_in, keys, writer| {
            update(set, place, before, is_in, keys, writer)
        }),
    }
}

/// Whether `address` is in.
pub(super) fn find(words: &[u64], address: u128) -> bool {
    let mut at = match words[(address >> (128 - PART_BITS)) as usize] {
        NONE => return false,
        ALL => return true,
        first => first as u32,
    };
    let mut rest = address << PART_BITS;
    loop {
        let cell = std::array::from_fn(|word| words[at as usize + word]);
        let Some(node) = Node::read(&cell) else { return lists(&cell, rest) };
        match node.step(&mut rest) {
            Step::Is(is_in) => return is_in,
            Step::To(next) => at = next,
        }
    }
}

/// Whether `rest` is in, as a short cell or a long one has it.
fn lists(cell: &Cell, rest: u128) -> bool {
    let (shifts, kind) = (cell[KIND] as u32, (cell[KIND] >> 32) as u32);
    let covers = |at: usize, rest: u128| {
        let others = cell[at] ^ (rest >> 64) as u64;
        others >> 1 >> (shifts >> (8 * at) & 63) == 0
    };
    let covering = match kind & IS_LONG != 0 {
        true => [covers(0, rest) && covers(1, rest << SHORT_LEN_MAX), false, covers(2, rest)],
        false => [0, 1, 2].map(|at| covers(at, rest)),
    };
    (kind & IS_IN != 0) ^ covering[0] ^ covering[1] ^ covering[2]
}

fn short(flips: &[Flip], position: u8, is_in: bool) -> Cell {
    let parts = flips.iter().map(|flip| (flip.bits << position, flip.len - position));
    listed(0, parts, is_in)
}

fn long(flip: &Flip, position: u8, is_in: bool) -> Cell {
    let (bits, len) = (flip.bits << position, flip.len - position);
    let more = (bits << SHORT_LEN_MAX, len - SHORT_LEN_MAX);
    listed(IS_LONG, [(bits, SHORT_LEN_MAX), more].into_iter(), is_in)
}

/// A cell with these first bits and how many of them count.
fn listed(kind: u32, parts: impl ExactSizeIterator<Item = (u128, u8)>, is_in: bool) -> Cell {
    let mut cell = Cell::default();
    let unused = SHORT_MAX - parts.len();
    for (at, (bits, len)) in parts.chain([(0, 0); SHORT_MAX]).take(SHORT_MAX).enumerate() {
        cell[at] = (bits >> 64) as u64;
        cell[KIND] |= u64::from(SHORT_LEN_MAX - len) << (8 * at);
    }
    let kind = kind | if is_in ^ (unused % 2 == 1) { IS_IN } else { 0 };
    cell[KIND] |= u64::from(kind) << 32;
    cell
}
