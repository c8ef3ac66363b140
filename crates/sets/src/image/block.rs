//! IPv4: 16,384 parts, each a *node* with 16 *blocks* of 16,384 addresses.
//!
//! ```text
//!   14 bits    4 bits      6 bits      8 bits
//!   part     │ block     │ /24 in it │ address in that
//!     │          │             │           │
//!  top: entries  │             │           │
//!  node: 16 entries            │           │
//!  block: two words: which /24s are in as a whole, and which in part
//!         half a word for each /24 in part, found by counting the latter before it
//! ```
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
//! Nothing and everything have nodes and blocks, too, the same for all places ([`begin`]). So a
//! look-up takes the same steps for each address, unless there is a bitmap.
//!
//! A change writes the blocks in which something changes, and their nodes' entries.

use super::flip::{Flip, flips, is_covered};
use super::{Full, Memory, Prefix, Writer, entry};
use crate::set::Set;

/// The bits that say which part it is, and those that say which block.
pub(super) const PART_BITS: u8 = 14;
const BLOCK_BITS: u8 = 18;
/// The blocks of a node.
const BLOCKS: u32 = 1 << (BLOCK_BITS - PART_BITS);
const NODE_WORDS: u32 = BLOCKS / 2;

/// Behind the top: the nodes with nothing and everything, and their blocks.
const WHOLE_NODES: u32 = 1 << (PART_BITS - 1);
const WHOLE_BLOCKS: u32 = WHOLE_NODES + 2 * NODE_WORDS;

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

/// The entry of a part that is in as a whole, or not.
pub(super) fn whole(is_in: bool) -> u32 {
    WHOLE_NODES + u32::from(is_in) * NODE_WORDS
}

/// The entry of a block that is.
fn whole_block(is_in: bool) -> u32 {
    WHOLE_BLOCKS + u32::from(is_in) * 2
}

/// Writes the nodes and blocks behind the top that are in as a whole, or not.
pub(super) fn begin<M: Memory>(writer: &mut Writer<'_, M>) -> Result<(), Full> {
    for is_in in [false, true] {
        writer.put(&node(&[whole_block(is_in); BLOCKS as usize]))?;
    }
    for full in [0, u64::MAX] {
        writer.put(&[full, 0])?;
    }
    Ok(())
}

/// A node with these entries.
fn node(entries: &[u32; BLOCKS as usize]) -> [u64; NODE_WORDS as usize] {
    std::array::from_fn(|at| pair(&entries[2 * at..]))
}

/// The first one or two of `halves` in a word.
fn pair(halves: &[u32]) -> u64 {
    halves.iter().take(2).rev().fold(0, |word, half| word << 32 | u64::from(*half))
}

/// The entry of the part in which `flips` are, in order; the rest of it is in, or not.
pub(super) fn build<M: Memory>(
    all: &[Flip],
    is_in: bool,
    writer: &mut Writer<'_, M>,
) -> Result<u32, Full> {
    if all.is_empty() {
        return Ok(whole(is_in));
    }
    let mut is_in = [is_in; BLOCKS as usize];
    let (here, within): (Vec<Flip>, Vec<Flip>) =
        all.iter().partition(|flip| flip.len <= BLOCK_BITS);
    for Flip { bits, len } in here {
        let first = number(bits);
        let blocks = &mut is_in[first..first + (1 << (BLOCK_BITS - len))];
        blocks.fill(!blocks[0]);
    }
    let mut entries = is_in.map(whole_block);
    for flips in within.chunk_by(|one, other| number(one.bits) == number(other.bits)) {
        let number = number(flips[0].bits);
        entries[number] = block(flips, is_in[number], writer)?;
    }
    writer.put(&node(&entries))
}

/// The number of a block in its node.
fn number(bits: u128) -> usize {
    (bits >> (128 - BLOCK_BITS)) as usize % BLOCKS as usize
}

/// The new entry of `place`, instead of `before`, after changes of `keys` of `set`, which are within
/// `place` and longer than it. Blocks without changed keys are kept.
pub(super) fn update<M: Memory>(
    set: &Set,
    place: Prefix,
    before: u32,
    is_in: bool,
    keys: &[Flip],
    writer: &mut Writer<'_, M>,
) -> Result<u32, Full> {
    if [false, true].map(whole).contains(&before) {
        return build(&flips(set, place, is_in), is_in, writer);
    }
    let mut is_changed = [false; BLOCKS as usize];
    for Flip { bits, len } in keys {
        let first = number(*bits);
        is_changed[first..first + (1 << BLOCK_BITS.saturating_sub(*len))].fill(true);
    }
    for (number, _) in (0..BLOCKS).zip(is_changed).filter(|(_, is_changed)| *is_changed) {
        let bits = place.bits | u128::from(number) << (128 - BLOCK_BITS);
        let within = Prefix { bits, len: BLOCK_BITS };
        let is_in = is_covered(set, within);
        let entry = block(&flips(set, within, is_in), is_in, writer)?;
        writer.point((2 * before + number) as usize, entry);
    }
    Ok(before)
}

/// The entry of a block with `flips`.
fn block<M: Memory>(flips: &[Flip], is_in: bool, writer: &mut Writer<'_, M>) -> Result<u32, Full> {
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
    match (full, partial) {
        (0, 0) => Ok(whole_block(false)),
        (u64::MAX, 0) => Ok(whole_block(true)),
        _ => {
            let halves = halves.chunks(2).map(pair);
            writer.put(&[full, partial].into_iter().chain(halves).collect::<Vec<u64>>())
        }
    }
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

/// The same in half a word, if there are few.
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
    let node = entry(words, (address >> (32 - PART_BITS)) as usize);
    let block = entry(words, (2 * node + (address >> (32 - BLOCK_BITS)) % BLOCKS) as usize);
    let (full, partial) = (words[block as usize], words[block as usize + 1]);
    let bit = 1_u64 << (address >> 8 & 63);
    if partial & bit == 0 {
        return full & bit != 0;
    }
    let before = (partial & (bit - 1)).count_ones();
    let half = entry(words, (2 * block + 4 + before) as usize);
    if half & IS_LEAF != 0 {
        let leaf = &words[(half & !IS_LEAF) as usize..][..4];
        return leaf[(address >> 6 & 3) as usize] >> (address & 63) & 1 == 1;
    }
    let covers = |flip: u32| ((address ^ flip) & 255) >> (flip >> 8 & 15) == 0;
    (half & IS_IN != 0) ^ covers(half) ^ covers(half >> FLIP_BITS)
}
