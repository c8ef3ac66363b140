//! The prefixes of a set as a compressed bitmap, in which a look-up reads at most four words.
//!
//! A filter needs to know whether an address is in the set, not which prefix covers it. So the
//! prefixes are written into a bitmap of the address space, longer prefixes over shorter ones, and
//! look-ups read the bitmap:
//!
//! ```text
//!  32 bits    18 bits       6 bits      8 bits
//!  address = block number │ /24 in it │ address in that
//!                │              │           │
//!  top ──────────┘              │           │   a word for each /18: none, all, or which cell
//!  block: two words of 64 bits ─┘           │   which /24s are in as a whole, and which in part
//!  leaves: 256 bits for each /24 in part ───┘   found by counting the latter before it
//! ```
//!
//! A [`Cell`] is 32 bytes: a block's two words, or a leaf. A look-up touches at most three cells,
//! however many prefixes there are, and one cell in a /18 without prefixes. The top takes 1 MiB,
//! and a list of single addresses at most 64 bytes for each.
//!
//! *Changes.* Blocks are immutable. A change writes a new block behind all others, then updates the
//! word of the top that points to it. A concurrent look-up reads the old block or the new one.
//! Unreachable blocks stay until the space is used up; then everything is laid out anew elsewhere
//! ([`Layout::update`]).
//!
//! *IPv6* has two layers. The first has the prefixes of up to 32 bits. The second says under which
//! /32 there are longer prefixes; only there they are looked up, one length after the other. For
//! `hash:net,port`, too, the layers say where there is anything to look up.
//!
//! Source: the layout is that of Degermark et al., "Small forwarding tables for fast routing
//! look-ups" (SIGCOMM 1997), with the counts of poptrie (Asai and Ohara, SIGCOMM 2015) and bits in
//! the place of next hops.

use crate::key::{Key, PrefixLen};
use crate::kind::{Family, Shape};
use crate::set::Set;
use std::collections::BTreeSet;
use std::ops::Range;

/// What everything is measured in: 8 words.
pub type Cell = [u32; 8];

/// Bits of an address that say which block it is in.
const BLOCK_BITS: u32 = 18;
/// How many blocks there are.
const BLOCKS: u32 = 1 << BLOCK_BITS;
/// How many cells the top of a layer takes.
const TOP_CELLS: u32 = BLOCKS / 8;
/// The most cells of a block: itself, and a leaf for each /24.
const BLOCK_CELLS_MAX: usize = 65;

/// In the top: nothing of the block.
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

    /// Writes cell `index`, which nothing leads to yet.
    fn write(&mut self, index: usize, cell: &Cell);

    /// Writes a word of cell `index`, after everything that was written before.
    fn publish(&mut self, index: usize, word: usize, value: u32);
}

/// There is no room for a change: lay the set out anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// What is written where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    layers: u32,
    /// The first cell behind all that was ever written.
    next: usize,
}

/// How many layers `set` has; 0 where it is not laid out at all.
pub fn layers(set: &Set) -> u32 {
    match (set.kind().shape, set.kind().family) {
        (Shape::Mac, _) => 0,
        (_, Family::Inet) => 1,
        (_, Family::Inet6) => 2,
    }
}

impl Layout {
    /// How many cells `set` takes as it is.
    pub fn size(set: &Set) -> usize {
        let mut size = (layers(set) * TOP_CELLS) as usize;
        for layer in 0..layers(set) {
            each_block(set, layer, |_, block| size += block.cells().len());
        }
        size
    }

    /// Lays `set` out in `cells`, which are at least [`Layout::size`].
    ///
    /// # Errors
    /// They are not.
    pub fn new(set: &Set, cells: &mut impl Cells) -> Result<Self, Full> {
        let layers = layers(set);
        let mut layout = Self { layers, next: (layers * TOP_CELLS) as usize };
        let mut is_full = false;
        for layer in 0..layers {
            each_block(set, layer, |number, block| {
                is_full |= layout.put(layer, number, block, cells).is_err();
            });
        }
        if is_full { Err(Full) } else { Ok(layout) }
    }

    /// Has the layout follow `set`, in which `keys` have changed.
    ///
    /// # Errors
    /// There is no room; some of the changes may have been made.
    pub fn update(&mut self, set: &Set, keys: &[Key], cells: &mut impl Cells) -> Result<(), Full> {
        let mut changed = BTreeSet::new();
        for key in keys {
            let layer = u32::from(key.len() > 32);
            changed.extend(blocks_of(key).map(|number| (layer, number)));
        }
        let layers = self.layers;
        for (layer, number) in changed.into_iter().filter(|(layer, _)| *layer < layers) {
            self.put(layer, number, block(set, layer, number), cells)?;
        }
        Ok(())
    }

    fn put(
        &mut self,
        layer: u32,
        number: u32,
        block: Block,
        cells: &mut impl Cells,
    ) -> Result<(), Full> {
        let entry = match block.whole() {
            Some(false) => NONE,
            Some(true) => ALL,
            None => {
                let written = block.cells();
                if self.next + written.len() > cells.len() {
                    return Err(Full);
                }
                let first = self.next;
                for (index, cell) in written.iter().enumerate() {
                    cells.write(first + index, cell);
                }
                self.next += written.len();
                first as u32
            }
        };
        let top = (layer * TOP_CELLS + number / 8) as usize;
        cells.publish(top, (number % 8) as usize, entry);
        Ok(())
    }
}

/// Whether `address` is in `layer` of what is laid out in `cells`: what the program in the driver
/// does.
pub fn find(cells: &[Cell], layer: u32, address: u32) -> bool {
    let number = address >> (32 - BLOCK_BITS);
    let entry = cells[(layer * TOP_CELLS + number / 8) as usize][(number % 8) as usize];
    if entry <= ALL {
        return entry == ALL;
    }
    let [full, partial] = masks(&cells[entry as usize]);
    let bit = 1_u64 << (address >> 8 & 63);
    if (full | partial) & bit == 0 || full & bit != 0 {
        return full & bit != 0;
    }
    let before = (partial & (bit - 1)).count_ones();
    let leaf = cells[(entry + 1 + before) as usize];
    leaf[(address >> 5 & 7) as usize] >> (address & 31) & 1 == 1
}

fn masks(cell: &Cell) -> [u64; 2] {
    let wide = |at: usize| u64::from(cell[at]) | u64::from(cell[at + 1]) << 32;
    [wide(0), wide(2)]
}

/// A stroke of paint: the first 32 bits of a prefix, its length up to 32, and whether what it
/// covers is in.
type Stroke = (u32, PrefixLen, bool);

/// What `key` paints on `layer`.
fn stroke(set: &Set, layer: u32, key: &Key, is_exception: bool) -> Option<Stroke> {
    let is_in = set.kind().shape == Shape::NetPort || !is_exception;
    match (layer, key.len()) {
        (0, len @ 0..=32) => Some((key.top(), len, is_in)),
        (1, 33..) => Some((key.top(), 32, true)),
        _ => None,
    }
}

/// The blocks on which `key` has a say.
fn blocks_of(key: &Key) -> Range<u32> {
    let first = key.top() >> (32 - BLOCK_BITS);
    let spare = BLOCK_BITS.saturating_sub(u32::from(key.len()));
    first..first + (1 << spare)
}

/// Each block of `layer` of which there is anything, as `set` paints it.
fn each_block(set: &Set, layer: u32, mut each: impl FnMut(u32, Block)) {
    let strokes =
        || set.iter().filter_map(|(key, element)| stroke(set, layer, key, element.is_exception));
    let is_long = |(_, len, _): &Stroke| u32::from(*len) > BLOCK_BITS;
    // Those of whole blocks first.
    let mut is_in = vec![false; BLOCKS as usize];
    let mut short: Vec<Stroke> = strokes().filter(|stroke| !is_long(stroke)).collect();
    short.sort_by_key(|(_, len, _)| *len);
    for (top, len, is) in short {
        let blocks = blocks_of(&Key::top_prefix(top, len));
        is_in[blocks.start as usize..blocks.end as usize].fill(is);
    }
    let mut open: Option<u32> = None;
    let mut within: Vec<Stroke> = Vec::new();
    let mut next = 0;
    for stroke in strokes().filter(is_long) {
        let number = stroke.0 >> (32 - BLOCK_BITS);
        if open != Some(number) {
            if let Some(open) = open {
                each(open, Block::painted(is_in[open as usize], &mut within));
                next = open + 1;
            }
            whole(&is_in, next..number, &mut each);
            open = Some(number);
        }
        // Longer prefixes paint a /32 once, however many there are.
        if within.last() != Some(&stroke) {
            within.push(stroke);
        }
    }
    if let Some(open) = open {
        each(open, Block::painted(is_in[open as usize], &mut within));
        next = open + 1;
    }
    whole(&is_in, next..BLOCKS, &mut each);
}

fn whole(is_in: &[bool], blocks: Range<u32>, each: &mut impl FnMut(u32, Block)) {
    for number in blocks.filter(|number| is_in[*number as usize]) {
        each(number, Block::painted(true, &mut Vec::new()));
    }
}

/// One block, as `set` paints it.
fn block(set: &Set, layer: u32, number: u32) -> Block {
    let top = number << (32 - BLOCK_BITS);
    // The longest prefix that covers all of it.
    let covering = (1..=BLOCK_BITS as PrefixLen).rev().find_map(|len| {
        let key = Key::top_prefix(top, len);
        let (found, element) = set.from(&key).next()?;
        // Of several with ports the first will do.
        let is_it = found.bytes() == key.bytes() && found.len() == len;
        stroke(set, layer, found, element.is_exception).filter(|_| is_it)
    });
    let mut within: Vec<Stroke> = set
        .from(&Key::least(top))
        .take_while(|(key, _)| key.top() >> (32 - BLOCK_BITS) == number)
        .filter_map(|(key, element)| stroke(set, layer, key, element.is_exception))
        .filter(|(_, len, _)| u32::from(*len) > BLOCK_BITS)
        .collect();
    within.dedup();
    Block::painted(covering.is_some_and(|(_, _, is_in)| is_in), &mut within)
}

/// 16,384 addresses.
struct Block {
    /// The /24s that are in as a whole,
    full: u64,
    /// and those that are in part.
    partial: u64,
    /// Of the latter, in order, which addresses.
    leaves: Vec<Cell>,
}

impl Block {
    /// That which is in or not as a whole, but for what `strokes` paint over it; they are used up.
    fn painted(is_in: bool, strokes: &mut Vec<Stroke>) -> Self {
        strokes.sort_by_key(|(_, len, _)| *len);
        let mut full = if is_in { u64::MAX } else { 0 };
        let mut partial = 0_u64;
        let mut leaves = [[0_u32; 8]; 64];
        for (top, len, is_in) in strokes.drain(..) {
            let slot = (top >> 8 & 63) as usize;
            if len <= 24 {
                // Half of the block at most: what is longer than it is not painted here.
                let bits = (u64::MAX >> (64 - (1 << (24 - len)))) << slot;
                full = if is_in { full | bits } else { full & !bits };
                partial &= !bits;
            } else {
                let bit = 1 << slot;
                if partial & bit == 0 {
                    leaves[slot] = [if full & bit == 0 { 0 } else { u32::MAX }; 8];
                    partial |= bit;
                    full &= !bit;
                }
                let first = top & 255;
                for address in first..first + (1 << (32 - len)) {
                    let word = &mut leaves[slot][(address >> 5) as usize];
                    let bit = 1 << (address & 31);
                    *word = if is_in { *word | bit } else { *word & !bit };
                }
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
                full |= if leaf[0] == 0 { 0 } else { bit };
            } else {
                kept.push(leaf);
            }
        }
        Self { full, partial, leaves: kept }
    }

    /// Whether all of it is in, or nothing; `None` where it is neither.
    fn whole(&self) -> Option<bool> {
        match (self.full, self.partial) {
            (0, 0) => Some(false),
            (u64::MAX, _) => Some(true),
            _ => None,
        }
    }

    /// As it is written.
    fn cells(&self) -> Vec<Cell> {
        if self.whole().is_some() {
            return Vec::new();
        }
        let mut cells = Vec::with_capacity(BLOCK_CELLS_MAX);
        let [full, partial] = [self.full, self.partial];
        let word = |wide: u64, shift: u32| (wide >> shift) as u32;
        cells.push([
            word(full, 0),
            word(full, 32),
            word(partial, 0),
            word(partial, 32),
            0,
            0,
            0,
            0,
        ]);
        cells.extend(&self.leaves);
        cells
    }
}
