//! The prefixes of a set as a compressed bitmap of the address space, in which a look-up reads a
//! few words.
//!
//! A filter needs to know whether an address is in the set, not which prefix covers it. So only
//! *flips* are laid out: prefixes whose membership is the opposite of their surroundings. A prefix
//! within another of the same membership disappears, and an address is in the set if an odd number
//! of flips cover it.
//!
//! ```text
//!  12 bits       the rest
//!  part's number │ address in the part
//!        │                  │
//!  top ──┘                  │   a word for each part: none, all, or which cell
//!  cells ───────────────────┘   of IPv4: `block`; of IPv6: `trie`
//! ```
//!
//! A [`Cell`] is 32 bytes; the top takes 16 KiB. Most look-ups end in one of two places: a [`node`]
//! says that there is nothing near the address, or a cell lists the few flips near it.
//!
//! *Changes.* Cells that can be reached are immutable. A change writes new cells behind all others,
//! then updates the word of the top that leads to them. A concurrent look-up reads the old cells or
//! the new ones. Unreachable cells stay until the space is used up; then everything is laid out
//! anew elsewhere ([`Layout::update`]).
//!
//! Sources: the layout of IPv4 is that of Degermark et al., "Small forwarding tables for fast
//! routing look-ups" (SIGCOMM 1997); counts in bitmaps are those of poptrie (Asai and Ohara,
//! SIGCOMM 2015), with bits instead of next hops.

mod block;
mod flip;
mod node;
mod trie;

use crate::key::Key;
use crate::kind::Family;
use crate::set::Set;
use flip::{Flip, flips, is_covered};
use std::collections::BTreeMap;
use std::ops::Range;

/// The unit of memory: 8 words.
pub type Cell = [u32; 8];

/// Bits of an address that say which part it is in.
const PART_BITS: u8 = 12;
/// How many parts there are.
const PARTS: u32 = 1 << PART_BITS;
/// How many cells the top takes.
const TOP_CELLS: usize = PARTS as usize / 8;

/// In the top: nothing of the part.
const NONE: u32 = 0;
/// In the top: all of it.
const ALL: u32 = 1;

/// Where cells are written, while others may read them.
pub trait Cells {
    /// How many there are. All begin as zeros.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cell `index`.
    fn read(&self, index: usize) -> Cell;

    /// Writes cell `index`, which nothing leads to yet.
    fn write(&mut self, index: usize, cell: &Cell);

    /// Writes a word of cell `index`, after everything that was written before.
    fn publish(&mut self, index: usize, word: usize, value: u32);
}

/// There is no room for a change: lay out the whole set again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// The writes that change an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The first cell behind all that was ever written.
    next: usize,
}

impl Layout {
    /// How many cells `set` takes.
    pub fn size(set: &Set) -> usize {
        // Counting alone never runs out of room.
        Self::new(set, &mut Counted).map_or(usize::MAX, |layout| layout.next)
    }

    /// Lays `set` out in `cells`, which are at least [`Layout::size`].
    ///
    /// # Errors
    /// They are not.
    pub fn new(set: &Set, cells: &mut impl Cells) -> Result<Self, Full> {
        let mut writer = Writer { next: TOP_CELLS, cells };
        let all = flips(set, Prefix::ALL, false);
        let mut is_in = vec![false; PARTS as usize];
        for flip in all.iter().filter(|flip| flip.len <= PART_BITS) {
            let parts = parts_of(flip);
            let is = !is_in[parts.start as usize];
            is_in[parts.start as usize..parts.end as usize].fill(is);
        }
        for (number, is_in) in (0..PARTS).zip(&is_in).filter(|(_, is_in)| **is_in) {
            writer.point(number, Place::Whole(*is_in))?;
        }
        let within: Vec<Flip> = all.into_iter().filter(|flip| flip.len > PART_BITS).collect();
        for flips in within.chunk_by(|one, other| number(one.bits) == number(other.bits)) {
            let number = number(flips[0].bits);
            let found = build(set, flips, is_in[number as usize], &mut writer)?;
            writer.point(number, found)?;
        }
        Ok(Self { next: writer.next })
    }

    /// Updates the layout after changes of `keys` in `set`.
    ///
    /// # Errors
    /// There is no room; some of the changes may have been made.
    pub fn update(&mut self, set: &Set, keys: &[Key], cells: &mut impl Cells) -> Result<(), Full> {
        let mut changed: BTreeMap<u32, Vec<Flip>> = BTreeMap::new();
        for key in keys.iter().map(Flip::of) {
            for number in parts_of(&key) {
                changed.entry(number).or_default().push(key);
            }
        }
        let mut writer = Writer { next: self.next, cells };
        let updated = changed.into_iter().try_for_each(|(number, mut keys)| {
            keys.sort_unstable();
            keys.dedup();
            let place = Prefix { bits: u128::from(number) << (128 - PART_BITS), len: PART_BITS };
            let is_in = is_covered(set, place);
            let found = if keys.iter().any(|key| key.len <= PART_BITS) {
                build(set, &flips(set, place, is_in), is_in, &mut writer)?
            } else {
                let before = writer.part(number);
                let update = match set.kind().family {
                    Family::Inet => block::update,
                    Family::Inet6 => trie::update,
                };
                update(set, place, before, is_in, &keys, &mut writer)?
            };
            writer.point(number, found)
        });
        self.next = writer.next;
        updated
    }
}

/// The part in which `flips` are, in order; the rest of it is in, or not.
fn build(
    set: &Set,
    flips: &[Flip],
    is_in: bool,
    writer: &mut Writer<'_, impl Cells>,
) -> Result<Place, Full> {
    match set.kind().family {
        Family::Inet => block::build(flips, is_in, writer),
        Family::Inet6 => trie::build(flips, PART_BITS, is_in, writer),
    }
}

/// Whether the image in `cells` contains `address`: the look-up of the program in the driver.
pub fn find(cells: &[Cell], family: Family, address: u128) -> bool {
    let number = number(address);
    match cells[number as usize / 8][(number % 8) as usize] {
        NONE => false,
        ALL => true,
        entry => match family {
            Family::Inet => block::find(cells, entry, (address >> 96) as u32),
            Family::Inet6 => trie::find(cells, entry, address << PART_BITS),
        },
    }
}

/// The number of the part of the address `bits`.
fn number(bits: u128) -> u32 {
    (bits >> (128 - PART_BITS)) as u32
}

/// The parts on which `flip` has a say.
fn parts_of(flip: &Flip) -> Range<u32> {
    let first = number(flip.bits);
    first..first + (1 << PART_BITS.saturating_sub(flip.len))
}

/// A part of the address space: all that begins with the first `len` of `bits`; the rest are 0.
/// Addresses of IPv4 are the first 32 bits.
#[derive(Clone, Copy)]
struct Prefix {
    bits: u128,
    len: u8,
}

impl Prefix {
    const ALL: Self = Self { bits: 0, len: 0 };

    fn covers(self, bits: u128) -> bool {
        self.len == 0 || (self.bits ^ bits) >> (128 - self.len) == 0
    }
}

/// The new state of a part of the address space.
enum Place {
    /// It is in as a whole, or not.
    Whole(bool),
    /// The contents of the cell.
    Cell(Cell),
}

/// Writes cells behind all others.
struct Writer<'a, C> {
    next: usize,
    cells: &'a mut C,
}

impl<C: Cells> Writer<'_, C> {
    /// Writes `written` one behind the other; the number of the first.
    fn put(&mut self, written: &[Cell]) -> Result<u32, Full> {
        let first = self.next;
        if first + written.len() > self.cells.len() {
            return Err(Full);
        }
        for (index, cell) in written.iter().enumerate() {
            self.cells.write(first + index, cell);
        }
        self.next += written.len();
        Ok(first as u32)
    }

    fn read(&self, index: u32) -> Cell {
        self.cells.read(index as usize)
    }

    /// The cell of part `number`, if it has one.
    fn part(&self, number: u32) -> Option<Cell> {
        let entry = self.read(number / 8)[(number % 8) as usize];
        (entry > ALL).then(|| self.read(entry))
    }

    /// Sets the top's entry of part `number` to `found`.
    fn point(&mut self, number: u32, found: Place) -> Result<(), Full> {
        let entry = match found {
            Place::Whole(false) => NONE,
            Place::Whole(true) => ALL,
            Place::Cell(cell) => self.put(&[cell])?,
        };
        self.cells.publish(number as usize / 8, (number % 8) as usize, entry);
        Ok(())
    }
}

/// Unused cells.
struct Counted;

impl Cells for Counted {
    fn len(&self) -> usize {
        usize::MAX
    }

    fn read(&self, _: usize) -> Cell {
        Cell::default()
    }

    fn write(&mut self, _: usize, _: &Cell) {}

    fn publish(&mut self, _: usize, _: usize, _: u32) {}
}
