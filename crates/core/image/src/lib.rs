//! Memory that programs in the driver read while user space changes it.
//!
//! An *image* is what user space knows, laid out for look-ups: a set's prefixes
//! (`crates/core/sets`), or a router's routes (`crates/core/routes`). It consists of 64-bit words,
//! in chunks of [`CHUNK_WORDS`]. What is read at once never crosses the border of two chunks, and
//! crosses that of two cache lines only if it is longer than one.
//!
//! *Changes.* Words that can be reached are immutable, except those of the image's top. A change
//! writes new words behind all others, then publishes the word of the top that leads to them. So a
//! concurrent look-up reads the old words or the new ones. Unreachable words stay until the space
//! is used up; then the owner lays everything out anew elsewhere.
//!
//! Non-goals: what the words mean; where they are.

/// The words of a chunk: 512 KiB.
pub const CHUNK_WORDS: usize = 1 << 16;
/// The words of a cache line.
const LINE_WORDS: usize = 8;

/// Where words are written, while others may read them.
pub trait Memory {
    /// How many there are: a number of whole chunks. All begin as zeros.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Word `at`.
    fn read(&self, at: usize) -> u64;

    /// Writes word `at`, which nothing leads to yet.
    fn write(&mut self, at: usize, word: u64);

    /// Writes word `at`, which may be read, after everything that was written before.
    fn publish(&mut self, at: usize, word: u64);
}

/// There is no room for a change: lay everything out again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// A part of an address space: all that begins with the first `len` of `bits`; the rest are 0.
/// Addresses of IPv4 are the first 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Prefix {
    /// The bits.
    pub bits: u128,
    /// How many of them count.
    pub len: u8,
}

impl Prefix {
    /// All addresses.
    pub const ALL: Self = Self { bits: 0, len: 0 };

    /// The first `len` of `bits`, at most 128.
    pub fn new(bits: u128, len: u8) -> Self {
        Self { bits: bits & !Self::behind(len), len }
    }

    /// The last address that it has.
    pub fn last(self) -> u128 {
        self.bits | Self::behind(self.len)
    }

    /// The bits behind the first `len`.
    fn behind(len: u8) -> u128 {
        u128::MAX.checked_shr(len.into()).unwrap_or(0)
    }

    /// Whether it has the address `bits`.
    pub fn covers(self, bits: u128) -> bool {
        self.len == 0 || (self.bits ^ bits) >> (128 - self.len) == 0
    }
}

/// Writes words behind all others.
pub struct Writer<'a, M> {
    /// The first word behind all that was ever written.
    pub next: usize,
    /// Where they are written.
    pub memory: &'a mut M,
}

impl<M: Memory> Writer<'_, M> {
    /// Writes `words` one behind the other; the number of the first.
    ///
    /// # Errors
    /// There is no room for them.
    pub fn put(&mut self, words: &[u64]) -> Result<u32, Full> {
        let first = self.place(words.len())?;
        self.fill(first, words);
        Ok(first)
    }

    /// A place for `len` words, which are to be [filled](Self::fill) in: the number of the first.
    ///
    /// # Errors
    /// There is no room for them.
    pub fn place(&mut self, len: usize) -> Result<u32, Full> {
        let first = placed(self.next, len);
        if first + len > self.memory.len() {
            return Err(Full);
        }
        self.next = first + len;
        Ok(first as u32)
    }

    /// A place for `len` words of which no two are read at once: the number of the first.
    ///
    /// # Errors
    /// There is no room for them.
    pub fn span(&mut self, len: usize) -> Result<u32, Full> {
        let first = self.next;
        if first + len > self.memory.len() {
            return Err(Full);
        }
        self.next = first + len;
        Ok(first as u32)
    }

    /// Writes `words` from `first` on, into a place for them.
    pub fn fill(&mut self, first: u32, words: &[u64]) {
        for (at, word) in (first as usize..).zip(words) {
            self.memory.write(at, *word);
        }
    }

    /// Word `at`.
    pub fn read(&self, at: u32) -> u64 {
        self.memory.read(at as usize)
    }

    /// The `LEN` words from `first` on.
    pub fn read_all<const LEN: usize>(&self, first: u32) -> [u64; LEN] {
        std::array::from_fn(|at| self.memory.read(first as usize + at))
    }

    /// Sets word `number` of the top.
    pub fn point(&mut self, number: u32, word: u64) {
        self.memory.publish(number as usize, word);
    }
}

/// Where `len` words are placed of which the first could be word `next`.
fn placed(next: usize, len: usize) -> usize {
    let crosses = |next: usize, unit: usize| next % unit + len > unit;
    let next = match next {
        // The first two of a long one are read together.
        _ if len > LINE_WORDS => next.next_multiple_of(2),
        _ if crosses(next, LINE_WORDS) => next.next_multiple_of(LINE_WORDS),
        _ => next,
    };
    if crosses(next, CHUNK_WORDS) { next.next_multiple_of(CHUNK_WORDS) } else { next }
}

/// Memory of this process, to look something up in without a program. It panics if what may be read
/// is written again.
#[derive(Default)]
pub struct Words(pub Vec<u64>);

impl Memory for Words {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn read(&self, at: usize) -> u64 {
        self.0[at]
    }

    fn write(&mut self, at: usize, word: u64) {
        assert_eq!(self.0[at], 0, "what may be read is never written again");
        self.0[at] = word;
    }

    fn publish(&mut self, at: usize, word: u64) {
        self.0[at] = word;
    }
}

/// Memory that only counts what is written, to find out how much an image takes.
#[derive(Default)]
pub struct Counted;

impl Memory for Counted {
    fn len(&self) -> usize {
        usize::MAX
    }

    fn read(&self, _: usize) -> u64 {
        0
    }

    fn write(&mut self, _: usize, _: u64) {}

    fn publish(&mut self, _: usize, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_prefix_is_all_that_begins_with_its_bits() {
        assert_eq!(Prefix::new(u128::MAX, 0), Prefix::ALL);
        assert_eq!(Prefix::new(u128::MAX, 8), Prefix { bits: 0xff << 120, len: 8 });
        assert_eq!(Prefix::new(7, 128), Prefix { bits: 7, len: 128 });
        assert_eq!(Prefix::ALL.last(), u128::MAX);
        assert_eq!(Prefix::new(0x0a << 120, 8).last(), 0x0a << 120 | u128::MAX >> 8);
        assert_eq!(Prefix::new(7, 128).last(), 7);
    }

    proptest! {
        #[test]
        fn what_is_read_at_once_is_in_one_chunk_and_in_one_line_if_it_fits(
            next in prop_oneof![0..100_usize, CHUNK_WORDS - 100..CHUNK_WORDS + 100],
            len in 1..300_usize,
        ) {
            let first = placed(next, len);
            let units = |unit: usize| (first / unit, (first + len - 1) / unit);
            prop_assert!(first >= next && first < next + len + LINE_WORDS);
            prop_assert_eq!(units(CHUNK_WORDS).0, units(CHUNK_WORDS).1);
            if len <= LINE_WORDS {
                prop_assert_eq!(units(LINE_WORDS).0, units(LINE_WORDS).1);
            } else {
                prop_assert_eq!(first % 2, 0, "the first two words are in one line");
            }
        }
    }
}
