//! Filters that no key under a mask can say: `programs/terms.h`. Plain data.

use crate::Headers;

/// The most terms of a plan.
pub const TERMS_MAX: usize = 64;
/// The most tests of a term.
pub const TESTS_MAX: usize = 16;
/// The most actions of a term.
pub const ACTIONS_MAX: usize = 3;
/// The most actions that are counted, number 0 included, which is none: as many as there are.
pub const COUNTED_MAX: u32 = (TERMS_MAX * ACTIONS_MAX + 1) as u32;

/// `MATCHES` and `FAILS` of `programs/terms.h`.
const MATCHES: u8 = 0xff;
const FAILS: u8 = 0xfe;
/// The size of `struct term`, and of `struct test`.
const TERM_BYTES: usize = 152 + TESTS_MAX * TEST_BYTES + 16;
const TEST_BYTES: usize = 20;
/// The size of `struct acted`.
pub(super) const ACTED_BYTES: usize = 16;

/// A layer of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// The Ethernet header.
    Link = 0,
    /// Behind all tags.
    Network = 1,
    /// Behind the IP header.
    Transport = 2,
}

/// The number that a test compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    /// In the frame.
    At {
        /// Where its offset begins.
        layer: Layer,
        /// Its offset in bytes.
        offset: i16,
        /// Its size in bytes: 1, 2 or 4.
        size: u8,
        /// Whether its least significant byte comes first.
        is_little_endian: bool,
    },
    /// The mark that a filter in front has set.
    Mark,
    /// The length of the frame in bytes.
    Length,
    /// The EtherType behind all tags.
    EtherType,
    /// The outer tag's priority and VLAN.
    Tag,
    /// The priority that a filter in front has set.
    Priority,
}

/// A comparison with a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// The same.
    Equal = 0,
    /// Less than the value.
    Less = 1,
    /// More than the value.
    Greater = 2,
}

/// What comes after a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The term matches.
    Matches,
    /// It does not.
    Fails,
    /// The test with this index. No test comes twice.
    Test(u8),
}

/// A comparison, and what comes after it. A packet without such a number fails it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Test {
    /// The number.
    pub number: Number,
    /// By how many bits it is shifted right.
    pub shift: u8,
    /// The bits of it that count after that.
    pub mask: u32,
    /// How they compare
    pub relation: Relation,
    /// with this.
    pub value: u32,
    /// What comes next if it holds,
    pub then: Next,
    /// and if it does not.
    pub otherwise: Next,
}

/// What a term does with a packet that matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    /// Assigns this class, or [`NOWHERE`](super::layout::NOWHERE).
    Assigns(u32),
    /// Leaves it to the packet's priority, and ends the search.
    Defaults,
    /// Drops it.
    Drops,
    /// Nothing: other filters decide.
    Continues,
}

/// A filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Term {
    /// The least of all terms and rules that match decides.
    pub order: u64,
    /// What the packet's headers must be.
    pub headers: Headers,
    /// Where its tests begin.
    pub first: Next,
    /// At most [`TESTS_MAX`].
    pub tests: Vec<Test>,
    /// What happens then.
    pub does: Does,
    /// The numbers of the actions that count the packet, at most [`ACTIONS_MAX`]; below
    /// [`COUNTED_MAX`] and not 0.
    pub actions: Vec<u32>,
}

impl Term {
    /// `struct term`, with its rank.
    pub(super) fn bytes(&self, rank: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(TERM_BYTES);
        let words = self.headers.words();
        bytes.extend(words.as_flattened().iter().flat_map(|word| word.to_ne_bytes()));
        let ports = self.headers.ports();
        bytes.extend(ports.as_flattened().iter().flat_map(|port| port.to_ne_bytes()));
        let none = [0; TEST_BYTES];
        let tests = self.tests.iter().map(Test::bytes).chain(std::iter::repeat(none));
        bytes.extend(tests.take(TESTS_MAX).flatten());
        let (does, class) = match self.does {
            Does::Assigns(class) => (0, class),
            Does::Defaults => (1, 0),
            Does::Drops => (2, 0),
            Does::Continues => (3, 0),
        };
        bytes.extend([rank, class].into_iter().flat_map(u32::to_ne_bytes));
        let actions = self.actions.iter().copied().chain(std::iter::repeat(0)).take(ACTIONS_MAX);
        bytes.extend(actions.flat_map(|action| (action as u16).to_ne_bytes()));
        bytes.extend([self.first.index(), does]);
        bytes
    }
}

impl Next {
    fn index(self) -> u8 {
        match self {
            Self::Matches => MATCHES,
            Self::Fails => FAILS,
            Self::Test(index) => index,
        }
    }
}

impl Test {
    fn bytes(&self) -> [u8; TEST_BYTES] {
        let (number, offset, size, is_little_endian) = match self.number {
            Number::At { layer, offset, size, is_little_endian } => {
                (layer as u8, offset, size, is_little_endian)
            }
            Number::Mark => (3, 0, 0, false),
            Number::Length => (4, 0, 0, false),
            Number::EtherType => (5, 0, 0, false),
            Number::Tag => (6, 0, 0, false),
            Number::Priority => (7, 0, 0, false),
        };
        let mut bytes = [0; TEST_BYTES];
        bytes[..4].copy_from_slice(&self.value.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.mask.to_ne_bytes());
        bytes[8..10].copy_from_slice(&offset.to_ne_bytes());
        bytes[10..17].copy_from_slice(&[
            number,
            size,
            is_little_endian.into(),
            // More shifts everything out.
            self.shift.min(32),
            self.relation as u8,
            self.then.index(),
            self.otherwise.index(),
        ]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_as_large_as_in_c() {
        let test = Test {
            number: Number::Tag,
            shift: 40,
            mask: 1,
            relation: Relation::Greater,
            value: 2,
            then: Next::Matches,
            otherwise: Next::Test(5),
        };
        let term = Term {
            order: 0,
            headers: Headers::default(),
            first: Next::Test(0),
            tests: vec![test],
            does: Does::Drops,
            actions: vec![7],
        };
        let bytes = term.bytes(9);
        assert_eq!(bytes.len(), TERM_BYTES);
        assert_eq!(bytes[152..172], [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 6, 0, 0, 32, 2, 255, 5, 0, 0, 0]);
        assert_eq!(bytes[TERM_BYTES - 16..][..12], [9, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(bytes[TERM_BYTES - 2..], [0, 2]);
        let always = Term { first: Next::Matches, ..term };
        assert_eq!(always.bytes(9)[TERM_BYTES - 2], 255);
    }
}
