//! Filters that no key under a mask can say: `programs/terms.h`. Plain data.

use crate::Headers;

/// The most terms of a plan.
pub const TERMS_MAX: usize = 64;
/// The most tests of a term.
pub const TESTS_MAX: usize = 32;
/// The most actions of a term.
pub const ACTIONS_MAX: usize = 3;
/// The most actions that are counted, number 0 included, which is none: as many as there are.
pub const COUNTED_MAX: u32 = (TERMS_MAX * ACTIONS_MAX + 1) as u32;

/// `MATCHES` and `FAILS` of `programs/terms.h`.
const MATCHES: u8 = 0xff;
const FAILS: u8 = 0xfe;
/// The size of `struct term`, and of `struct test`.
const TERM_BYTES: usize = 16 + TESTS_MAX * TEST_BYTES;
const TEST_BYTES: usize = 32;
/// The size of `struct acted`.
pub(super) const ACTED_BYTES: usize = 16;

/// A layer of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// The Ethernet header.
    Link = 0,
    /// At the IP header, or behind all tags.
    Network = 1,
    /// Behind the IP header.
    Transport = 2,
    /// Behind all tags, also where IP is in what is there.
    Carrier = 3,
}

/// The number that a test compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    /// A word of the packet's headers, as the program has it; only whether it is equal.
    Word(u8),
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
    /// The source's port; 0 if there is none.
    SourcePort,
    /// The destination's port, likewise.
    DestinationPort,
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
    /// The realms of the route that it takes: that of the source in the upper half.
    Realms,
    /// The metric of that route.
    Metric,
}

/// A comparison with a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// Equal to the value.
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

/// A comparison of a number. A packet without such a number fails it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Comparison {
    /// The number.
    pub number: Number,
    /// By how many bits it is shifted right.
    pub shift: u8,
    /// The bits of it that count after that.
    pub mask: u64,
    /// How they compare
    pub relation: Relation,
    /// with this.
    pub value: u64,
}

impl Comparison {
    /// Whether all bits of `number` together are in this relation to `value`.
    pub fn of(number: Number, relation: Relation, value: u64) -> Self {
        Self { number, shift: 0, mask: u64::MAX, relation, value }
    }
}

impl Headers {
    /// All that they ask for.
    pub fn comparisons(&self) -> Vec<Comparison> {
        let [values, masks] = self.words();
        let words = (0..).zip(values.into_iter().zip(masks)).filter(|(_, (_, mask))| *mask != 0);
        let words = words.map(|(index, (value, mask))| Comparison {
            mask,
            ..Comparison::of(Number::Word(index), Relation::Equal, value)
        });
        let within = |number: Number, range: Option<(u16, u16)>| {
            range.into_iter().flat_map(move |(first, last)| {
                let above = first.checked_sub(1).map(|port| (Relation::Greater, port.into()));
                let bounds = above.into_iter().chain([(Relation::Less, u64::from(last) + 1)]);
                bounds.map(move |(relation, value)| Comparison::of(number, relation, value))
            })
        };
        words
            .chain(within(Number::SourcePort, self.source_ports))
            .chain(within(Number::DestinationPort, self.destination_ports))
            .collect()
    }
}

/// A comparison, and what comes after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Test {
    /// The comparison.
    pub comparison: Comparison,
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
    /// The number of the scope that asks it.
    pub scope: u16,
    /// The least of all terms and rules that match decides.
    pub order: u64,
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
        let (does, class) = match self.does {
            Does::Assigns(class) => (0, class),
            Does::Defaults => (1, 0),
            Does::Drops => (2, 0),
            Does::Continues => (3, 0),
        };
        let mut bytes = Vec::with_capacity(TERM_BYTES);
        bytes.extend([rank, class].into_iter().flat_map(u32::to_ne_bytes));
        let actions = self.actions.iter().copied().chain(std::iter::repeat(0)).take(ACTIONS_MAX);
        bytes.extend(actions.flat_map(|action| (action as u16).to_ne_bytes()));
        bytes.extend([self.first.index(), does]);
        bytes.extend(self.tests.iter().flat_map(Test::bytes));
        bytes.resize(TERM_BYTES, 0);
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
        let Comparison { number, shift, mask, relation, value } = self.comparison;
        let (number, offset, size, is_little_endian) = match number {
            Number::Word(index) => (0, index.into(), 0, false),
            Number::At { layer: Layer::Carrier, offset, size, is_little_endian } => {
                (11, offset, size, is_little_endian)
            }
            Number::At { layer, offset, size, is_little_endian } => {
                (1 + layer as u8, offset, size, is_little_endian)
            }
            Number::SourcePort => (4, 0, 0, false),
            Number::DestinationPort => (5, 0, 0, false),
            Number::Mark => (6, 0, 0, false),
            Number::Length => (7, 0, 0, false),
            Number::EtherType => (8, 0, 0, false),
            Number::Tag => (9, 0, 0, false),
            Number::Priority => (10, 0, 0, false),
            Number::Realms => (12, 0, 0, false),
            Number::Metric => (13, 0, 0, false),
        };
        let mut bytes = [0; TEST_BYTES];
        bytes[..8].copy_from_slice(&value.to_ne_bytes());
        bytes[8..16].copy_from_slice(&mask.to_ne_bytes());
        bytes[16..18].copy_from_slice(&offset.to_ne_bytes());
        bytes[18..25].copy_from_slice(&[
            number,
            size,
            is_little_endian.into(),
            // More shifts everything out.
            shift.min(32),
            relation as u8,
            self.then.index(),
            self.otherwise.index(),
        ]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Field, has};

    #[test]
    fn a_term_is_as_large_as_in_c() {
        let comparison =
            Comparison { shift: 40, mask: 1, ..Comparison::of(Number::Tag, Relation::Greater, 2) };
        let test = Test { comparison, then: Next::Matches, otherwise: Next::Test(5) };
        let (first, does, actions) = (Next::Test(0), Does::Drops, vec![7]);
        let bytes = Term { scope: 0, order: 0, first, tests: vec![test], does, actions }.bytes(9);
        assert_eq!(bytes.len(), TERM_BYTES);
        assert_eq!(bytes[..16], [9, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!((bytes[16], bytes[24]), (2, 1));
        assert_eq!(bytes[32..48], [0, 0, 9, 0, 0, 32, 2, 255, 5, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn headers_are_compared_word_by_word_and_ports_from_below_and_above() {
        let mut headers = Headers::default();
        headers.ask(Field::Ttl, &[3], &[0xff]);
        headers.ask_for(has::PORTS);
        headers.source_ports = Some((0, 7));
        headers.destination_ports = Some((1, u16::MAX));
        let all = headers.comparisons();
        let all = all.iter().map(|one| (one.number, one.relation, one.value.to_ne_bytes()));
        let port = |port: u64| port.to_ne_bytes();
        assert_eq!(
            all.collect::<Vec<_>>(),
            [
                (Number::Word(7), Relation::Equal, [0, 3, 0, 0, 0, 0, 0, 0]),
                (Number::Word(8), Relation::Equal, [1, 0, 0, 0, 0, 0, 0, 0]),
                (Number::SourcePort, Relation::Less, port(8)),
                (Number::DestinationPort, Relation::Greater, port(0)),
                (Number::DestinationPort, Relation::Less, port(65536)),
            ]
        );
    }
}
