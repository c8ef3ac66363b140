//! A part of IPv6: a trie of [nodes](super::node), which pass over what all have in common.
//!
//! Where few flips are left, they are listed: a *short* cell has up to three of at most 63 further
//! bits, a *long* one has one of any length.
//!
//! ```text
//!  words   0 1    2 3    4 5    6        7
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
use super::node::{self, BRANCH_MAX, IS_IN, KIND, Node, SKIP_MAX, Step, wide, write_wide};
use super::{Cell, Cells, Full, Place, Prefix, Writer};
use crate::set::Set;

/// The number of flips in a short cell, and their greatest length.
const SHORT_MAX: usize = 3;
const SHORT_LEN_MAX: u8 = 63;

/// The word that says in a byte for each how far bits are shifted, by one less.
const SHIFTS: usize = 6;
/// The flags of the word [`KIND`], besides [`IS_IN`].
const IS_LONG: u32 = 1 << 30;

/// The place behind the first `position` bits in which `flips` are, in order.
pub(super) fn build<C: Cells>(
    flips: &[Flip],
    position: u8,
    is_in: bool,
    writer: &mut Writer<'_, C>,
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
pub(super) fn update<C: Cells>(
    set: &Set,
    place: Prefix,
    before: Option<Cell>,
    is_in: bool,
    keys: &[Flip],
    writer: &mut Writer<'_, C>,
) -> Result<Place, Full> {
    match Node::kept(before, place, is_in, keys) {
        None => build(&flips(set, place, is_in), place.len, is_in, writer),
        Some(node) => node.update(place, keys, writer, |place, before, is_in, keys, writer| {
            update(set, place, before, is_in, keys, writer)
        }),
    }
}

/// Whether the address whose first bits led to the cell `entry`, and whose others are `rest`, is
/// in.
pub(super) fn find(cells: &[Cell], mut entry: u32, mut rest: u128) -> bool {
    loop {
        let cell = &cells[entry as usize];
        let Some(node) = Node::read(cell) else { return lists(cell, rest) };
        match node.step(&mut rest) {
            Step::Is(is_in) => return is_in,
            Step::To(next) => entry = next,
        }
    }
}

/// Whether `rest` is in, as a short cell or a long one has it.
fn lists(cell: &Cell, rest: u128) -> bool {
    let covers = |at: usize, rest: u128| {
        let others = wide(cell, 2 * at) ^ (rest >> 64) as u64;
        others >> 1 >> (cell[SHIFTS] >> (8 * at) & 63) == 0
    };
    let covering = match cell[KIND] & IS_LONG != 0 {
        true => [covers(0, rest) && covers(1, rest << SHORT_LEN_MAX), false, covers(2, rest)],
        false => [0, 1, 2].map(|at| covers(at, rest)),
    };
    (cell[KIND] & IS_IN != 0) ^ covering[0] ^ covering[1] ^ covering[2]
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
        write_wide(&mut cell, 2 * at, (bits >> 64) as u64);
        cell[SHIFTS] |= u32::from(SHORT_LEN_MAX - len) << (8 * at);
    }
    cell[KIND] = kind | if is_in ^ (unused % 2 == 1) { IS_IN } else { 0 };
    cell
}
