//! A part of IPv4: a [node](super::node) with 64 blocks of 16,384 addresses.
//!
//! A block with up to eight flips is one *sparse* cell, in which they are told one by one:
//!
//! ```text
//!  bits 31   30       8…21     0…3
//!  is_in │ is_used │ address │ shift     of each word: a flip at (address >> shift)
//! ```
//!
//! The first word says whether what no flip covers is in. With more flips it is *dense*:
//!
//! ```text
//!    6 bits      8 bits
//!  /24 in it │ address in that
//!      │              │
//!  two words of 64 bits: which /24s are in as a whole, and which in part
//!  leaves: 256 bits ──┘   for each /24 in part, found by counting the latter before it
//! ```
//!
//! The cells of the leaves are one behind the other. Word 4 of the block's cell says which is the
//! first, word 7 what kind of cell it is: in a sparse one its highest bit is never set.

use super::flip::{Flip, flips};
use super::node::{self, Node, Step, wide, write_wide};
use super::{Cell, Cells, Full, PART_BITS, Place, Prefix, Writer};
use crate::set::Set;

/// The number of flips in a sparse cell.
const SPARSE_MAX: usize = 8;
/// The size of a flip in a sparse cell.
const IS_USED: u32 = 1 << 30;
const IS_IN: u32 = 1 << 31;
/// In word 7 of a dense block.
const IS_DENSE: u32 = 1 << 31;
const FIRST: usize = 4;
const KIND: usize = 7;

/// The part in which `flips` are, in order; the rest of it is in, or not.
pub(super) fn build<C: Cells>(
    flips: &[Flip],
    is_in: bool,
    writer: &mut Writer<'_, C>,
) -> Result<Place, Full> {
    node::build(flips, [PART_BITS; 2], is_in, writer, |flips, _, is_in, writer| {
        block(flips, is_in, writer)
    })
}

/// The new cell of `place`, instead of `before`, after changes of `keys` of `set`, which are within
/// `place` and longer than it. Blocks without changed keys are kept.
pub(super) fn update<C: Cells>(
    set: &Set,
    place: Prefix,
    before: Option<Cell>,
    is_in: bool,
    keys: &[Flip],
    writer: &mut Writer<'_, C>,
) -> Result<Place, Full> {
    match Node::kept(before, place, is_in, keys) {
        None => build(&flips(set, place, is_in), is_in, writer),
        Some(node) => node.update(place, keys, writer, |place, _, is_in, _, writer| {
            block(&flips(set, place, is_in), is_in, writer)
        }),
    }
}

fn block<C: Cells>(flips: &[Flip], is_in: bool, writer: &mut Writer<'_, C>) -> Result<Place, Full> {
    if flips.is_empty() {
        return Ok(Place::Whole(is_in));
    }
    if flips.len() <= SPARSE_MAX {
        return Ok(Place::Cell(sparse(flips, is_in)));
    }
    let Painted { full, partial, leaves } = Painted::new(flips, is_in);
    match (full, partial) {
        (0, 0) => return Ok(Place::Whole(false)),
        (u64::MAX, 0) => return Ok(Place::Whole(true)),
        _ => {}
    }
    let mut cell = Cell::default();
    write_wide(&mut cell, 0, full);
    write_wide(&mut cell, 2, partial);
    cell[FIRST] = writer.put(&leaves)?;
    cell[KIND] = IS_DENSE;
    Ok(Place::Cell(cell))
}

fn sparse(flips: &[Flip], is_in: bool) -> Cell {
    let mut cell = Cell::default();
    for (word, flip) in cell.iter_mut().zip(flips) {
        let address = (flip.bits >> 96) as u32 & 0x3fff;
        *word = IS_USED | address << 8 | u32::from(32 - flip.len);
    }
    cell[0] |= if is_in { IS_IN } else { 0 };
    cell
}

/// Whether `address` is in, where its part has the cell `entry`.
pub(super) fn find(cells: &[Cell], entry: u32, address: u32) -> bool {
    let mut rest = u128::from(address) << (96 + PART_BITS);
    let cell = match Node::read(&cells[entry as usize]).map(|node| node.step(&mut rest)) {
        Some(Step::Is(is_in)) => return is_in,
        Some(Step::To(block)) => &cells[block as usize],
        // A part has nothing but nodes.
        None => return false,
    };
    if cell[KIND] & IS_DENSE == 0 {
        let flips = cell.iter().take_while(|word| **word & IS_USED != 0);
        let covers = |word: &&u32| ((address ^ (**word >> 8)) & 0x3fff) >> (**word & 15) == 0;
        let covering = flips.filter(covers).count();
        return (cell[0] & IS_IN != 0) ^ (covering % 2 == 1);
    }
    let (full, partial) = (wide(cell, 0), wide(cell, 2));
    let bit = 1_u64 << (address >> 8 & 63);
    if partial & bit == 0 {
        return full & bit != 0;
    }
    let before = (partial & (bit - 1)).count_ones();
    let leaf = cells[(cell[FIRST] + before) as usize];
    leaf[(address >> 5 & 7) as usize] >> (address & 31) & 1 == 1
}

/// Flips as bits.
struct Painted {
    /// The /24s that are in as a whole,
    full: u64,
    /// and those that are in part.
    partial: u64,
    /// The addresses of the latter, in order.
    leaves: Vec<Cell>,
}

impl Painted {
    fn new(flips: &[Flip], is_in: bool) -> Self {
        let mut full = if is_in { u64::MAX } else { 0 };
        let mut partial = 0_u64;
        let mut leaves = [[0_u32; 8]; 64];
        // Those of whole /24s first: the others are within.
        let (whole, within): (Vec<&Flip>, Vec<&Flip>) =
            flips.iter().partition(|flip| flip.len <= 24);
        for Flip { bits, len } in whole {
            // Half of the block at most: a flip is longer than the block's prefix.
            full ^= u64::MAX >> (64 - (1 << (24 - len))) << (bits >> 104 & 63);
        }
        for Flip { bits, len } in within {
            let slot = (bits >> 104 & 63) as usize;
            if partial & 1 << slot == 0 {
                partial |= 1 << slot;
                leaves[slot] = [if full & 1 << slot == 0 { 0 } else { u32::MAX }; 8];
            }
            let first = (bits >> 96 & 255) as u32;
            for address in first..first + (1 << (32 - len)) {
                leaves[slot][(address >> 5) as usize] ^= 1 << (address & 31);
            }
        }
        let mut kept = Vec::new();
        for (slot, leaf) in leaves.into_iter().enumerate() {
            let bit = 1_u64 << slot;
            if partial & bit == 0 {
                continue;
            }
            if leaf == [0; 8] || leaf == [u32::MAX; 8] {
                partial &= !bit;
                full = if leaf[0] == 0 { full & !bit } else { full | bit };
            } else {
                kept.push(leaf);
            }
        }
        Self { full, partial, leaves: kept }
    }
}
