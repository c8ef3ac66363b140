//! IPv4: 65,536 parts of four *blocks* of 16,384 addresses.
//!
//! ```text
//!   16 bits    2 bits      6 bits      8 bits
//!   part     │ block     │ /24 in it │ address in that
//!     │          │             │           │
//!  top: a word for each part: where its blocks are
//!  block: two words: which /24s are in as a whole, and which in part
//!         half a word for each /24 in part, found by counting the latter before it
//! ```
//!
//! A part's word says where its blocks begin, which are one behind the other, and how far behind
//! that each is:
//!
//! ```text
//!  bits   56…63   48…55   40…47   32…39       0…31
//!         offset of each block, 0 for none   begin
//! ```
//!
//! A block is at [`NOTHING`] + begin + offset; one that is not there is at [`NOTHING`], which holds
//! one for all of these. So a look-up takes the same steps for each address, unless there is a
//! bitmap.
//!
//! Half a word says in 12 bits each which flips there are in a /24, or, if there are more than two,
//! where a bitmap of the /24 is:
//!
//! ```text
//!  bits 31     30      20…23   12…19     8…11    0…7
//!  IS_LEAF=0 │ is_in │ shift │ address │ shift │ address     a flip at (address >> shift)
//!  IS_LEAF=1 │ the number of the first of four words
//! ```
//!
//! An unused flip covers everything, and `is_in` compensates for it.
//!
//! A change writes the blocks of the part in which something changes, but no bitmap of another
//! block.

use super::flip::{Flip, flips, is_covered};
use crate::set::Set;
use narrows_image::{Full, Memory, Prefix, Writer};

/// The bits that say which part it is, and those that say which block.
pub(super) const PART_BITS: u8 = 16;
const BLOCK_BITS: u8 = 18;
/// The blocks of a part.
const BLOCKS: usize = 1 << (BLOCK_BITS - PART_BITS);
/// Where a part's word has the offsets of its blocks, and how many bits one takes.
const OFFSETS: u32 = 32;
const OFFSET_BITS: usize = 8;

/// Behind the top: a block with nothing in it, and one with everything.
const NOTHING: u32 = 1 << PART_BITS;
const EVERYTHING: u32 = NOTHING + 2;

/// In half a word of a block.
const IS_LEAF: u32 = 1 << 31;
const IS_IN: u32 = 1 << 30;
/// The flips in half a word, and how many bits one takes.
const FLIPS_MAX: usize = 2;
const FLIP_BITS: usize = 12;
/// How far a flip shifts that covers all of a /24.
const COVERS_ALL: u32 = 8;

/// The addresses of a /24, as bits.
type Leaf = [u64; 4];

/// The contents of a block.
#[derive(Clone, PartialEq, Eq)]
enum Block {
    /// It is in as a whole, or not.
    Whole(bool),
    /// These words.
    Words(Vec<u64>),
}

/// The word of a part that is in as a whole, or not.
pub(super) fn whole(is_in: bool) -> u64 {
    if is_in { part_word(EVERYTHING, [1; BLOCKS]) } else { 0 }
}

/// The word of a part whose blocks begin at `first`, and are so far behind the word before it.
fn part_word(first: u32, offsets: [u64; BLOCKS]) -> u64 {
    let begin = u64::from(first - 1 - NOTHING);
    offsets.into_iter().rev().fold(0, |word, offset| word << OFFSET_BITS | offset) << OFFSETS
        | begin
}

/// Writes the blocks behind the top.
pub(super) fn begin<M: Memory>(writer: &mut Writer<'_, M>) -> Result<(), Full> {
    for full in [0, u64::MAX] {
        writer.put(&[full, 0])?;
    }
    Ok(())
}

/// The first one or two of `halves` in a word.
fn pair(halves: &[u32]) -> u64 {
    halves.iter().take(2).rev().fold(0, |word, half| word << 32 | u64::from(*half))
}

/// The word of the part in which `flips` are, in order; the rest of it is in, or not.
pub(super) fn build<M: Memory>(
    flips: &[Flip],
    is_in: bool,
    writer: &mut Writer<'_, M>,
) -> Result<u64, Full> {
    let mut is_in = [is_in; BLOCKS];
    let (here, within): (Vec<Flip>, Vec<Flip>) =
        flips.iter().partition(|flip| flip.len <= BLOCK_BITS);
    for Flip { bits, len } in here {
        let first = number(bits);
        let blocks = &mut is_in[first..first + (1 << (BLOCK_BITS - len))];
        blocks.fill(!blocks[0]);
    }
    let mut blocks = is_in.map(Block::Whole);
    for flips in within.chunk_by(|one, other| number(one.bits) == number(other.bits)) {
        let number = number(flips[0].bits);
        blocks[number] = block(flips, is_in[number], writer)?;
    }
    part(&blocks, writer)
}

/// The number of a block in its part.
fn number(bits: u128) -> usize {
    (bits >> (128 - BLOCK_BITS)) as usize % BLOCKS
}

/// The new word of `place`, instead of `before`, after changes of `keys` of `set`, which are within
/// `place` and longer than it. Blocks without changed keys are copied.
pub(super) fn update<M: Memory>(
    set: &Set,
    place: Prefix,
    before: u64,
    keys: &[Flip],
    writer: &mut Writer<'_, M>,
) -> Result<u64, Full> {
    let mut is_changed = [false; BLOCKS];
    for Flip { bits, len } in keys {
        let first = number(*bits);
        is_changed[first..first + (1 << BLOCK_BITS.saturating_sub(*len))].fill(true);
    }
    let mut blocks = [const { Block::Whole(false) }; BLOCKS];
    for (number, (found, is_changed)) in blocks.iter_mut().zip(is_changed).enumerate() {
        *found = if is_changed {
            let bits = place.bits | (number as u128) << (128 - BLOCK_BITS);
            let within = Prefix { bits, len: BLOCK_BITS };
            let is_in = is_covered(set, within);
            block(&flips(set, within, is_in), is_in, writer)?
        } else {
            let at = block_at(before, number);
            match [0, 1].map(|word| writer.read(at + word)) {
                [0, 0] => Block::Whole(false),
                [u64::MAX, 0] => Block::Whole(true),
                [_, partial] => {
                    let len = 2 + partial.count_ones().div_ceil(2);
                    Block::Words((0..len).map(|word| writer.read(at + word)).collect())
                }
            }
        };
    }
    part(&blocks, writer)
}

/// Where block `number` of the part with `word` is.
fn block_at(word: u64, number: usize) -> u32 {
    match word >> OFFSETS >> (number * OFFSET_BITS) & 255 {
        0 => NOTHING,
        offset => NOTHING + word as u32 + offset as u32,
    }
}

/// The word of a part with these blocks.
fn part<M: Memory>(blocks: &[Block; BLOCKS], writer: &mut Writer<'_, M>) -> Result<u64, Full> {
    if let [Block::Whole(is_in), rest @ ..] = blocks
        && rest.iter().all(|block| *block == blocks[0])
    {
        return Ok(whole(*is_in));
    }
    let mut words = Vec::new();
    let mut offsets = [0; BLOCKS];
    for (offset, block) in offsets.iter_mut().zip(blocks) {
        let block: &[u64] = match block {
            Block::Whole(false) => continue,
            Block::Whole(true) => &[u64::MAX, 0],
            Block::Words(words) => words,
        };
        // The first two words in one line.
        words.resize(words.len().next_multiple_of(2), 0);
        *offset = words.len() as u64 + 1;
        words.extend(block);
    }
    Ok(part_word(writer.put(&words)?, offsets))
}

/// A block with `flips`; the rest of it is in, or not.
fn block<M: Memory>(
    flips: &[Flip],
    is_in: bool,
    writer: &mut Writer<'_, M>,
) -> Result<Block, Full> {
    let mut full = if is_in { u64::MAX } else { 0 };
    // Those of whole /24s first: the others are within.
    let (whole, within): (Vec<Flip>, Vec<Flip>) = flips.iter().partition(|flip| flip.len <= 24);
    for Flip { bits, len } in whole {
        // Half of the block at most: a flip is longer than the block's prefix.
        full ^= u64::MAX >> (64 - (1 << (24 - len))) << slot(bits);
    }
    let mut partial = 0;
    let mut halves = Vec::new();
    for flips in within.chunk_by(|one, other| slot(one.bits) == slot(other.bits)) {
        let slot = slot(flips[0].bits);
        let is_in = full >> slot & 1 == 1;
        let leaf = leaf(flips, is_in);
        match leaf {
            // Flips that complete each other.
            [0, 0, 0, 0] => full &= !(1 << slot),
            [u64::MAX, u64::MAX, u64::MAX, u64::MAX] => full |= 1 << slot,
            _ => {
                partial |= 1 << slot;
                halves.push(match listed(flips, is_in) {
                    Some(half) => half,
                    None => IS_LEAF | writer.put(&leaf)?,
                });
            }
        }
    }
    Ok(match (full, partial) {
        (0, 0) => Block::Whole(false),
        (u64::MAX, 0) => Block::Whole(true),
        _ => Block::Words([full, partial].into_iter().chain(halves.chunks(2).map(pair)).collect()),
    })
}

/// The number of a /24 in its block.
fn slot(bits: u128) -> u32 {
    (bits >> 104) as u32 & 63
}

/// The /24 in which `flips` are; the rest of it is in, or not.
fn leaf(flips: &[Flip], is_in: bool) -> Leaf {
    let mut leaf = [if is_in { u64::MAX } else { 0 }; 4];
    for Flip { bits, len } in flips {
        let first = (bits >> 96) as usize & 255;
        for address in first..first + (1 << (32 - len)) {
            leaf[address / 64] ^= 1 << (address % 64);
        }
    }
    leaf
}

/// The /24 in which `flips` are, in half a word, if there are few.
fn listed(flips: &[Flip], is_in: bool) -> Option<u32> {
    let unused = FLIPS_MAX.checked_sub(flips.len())?;
    let is_in = if is_in ^ (unused % 2 == 1) { IS_IN } else { 0 };
    let used = flips.iter().map(|flip| {
        let address = (flip.bits >> 96) as u32 & 255;
        u32::from(32 - flip.len) << 8 | address
    });
    let all = used.chain([COVERS_ALL << 8; FLIPS_MAX]).take(FLIPS_MAX);
    Some(all.enumerate().fold(is_in, |half, (at, flip)| half | flip << (at * FLIP_BITS)))
}

/// Whether `address` is in.
pub(super) fn find(words: &[u64], address: u32) -> bool {
    let word = words[(address >> (32 - PART_BITS)) as usize];
    let block = block_at(word, number(u128::from(address) << 96)) as usize;
    let (full, partial) = (words[block], words[block + 1]);
    let bit = 1_u64 << (address >> 8 & 63);
    if partial & bit == 0 {
        return full & bit != 0;
    }
    let before = (partial & (bit - 1)).count_ones();
    let half = (words[block + 2 + before as usize / 2] >> (before % 2 * 32)) as u32;
    if half & IS_LEAF != 0 {
        let leaf = &words[(half & !IS_LEAF) as usize..][..4];
        return leaf[(address >> 6 & 3) as usize] >> (address & 63) & 1 == 1;
    }
    let covers = |flip: u32| ((address ^ flip) & 255) >> (flip >> 8 & 15) == 0;
    (half & IS_IN != 0) ^ covers(half) ^ covers(half >> FLIP_BITS)
}
