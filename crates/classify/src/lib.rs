//! Filters: which class a packet belongs to.
//!
//! A [`Filter`] is data, in the terms of `tc filter`: a priority, a protocol, what it matches and
//! the class that it assigns. A [`Classifier`] is made of all filters of a qdisc and asked once for
//! each packet; the first filter that matches decides, in the order of their priorities, as in the
//! kernel.
//!
//! Cost: the headers are read once a packet, and the filters are tried one by one.
//!
//! *Non-goals.* Actions, chains, and filters that change a packet.
//!
//! Source: `tc-flower(8)`, `tc-u32(8)`, `tc-matchall(8)`.

mod flower;
mod prefix;
mod selector;

pub use flower::{Flower, PortRange};
pub use narrows_packet::dissect::Keys;
pub use prefix::Prefix;
pub use selector::Selector;

/// What a filter's protocol says of frames of any sort (`ETH_P_ALL`).
pub const ANY_PROTOCOL: u16 = 0x0003;

/// A tag of IEEE 802.1Q, as a filter's protocol.
pub const VLAN: u16 = 0x8100;

/// What a packet has to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Matches {
    /// Any (`matchall`).
    All,
    /// What `flower` lists.
    Flower(Flower),
    /// These words of it (`u32`).
    Words(Vec<Selector>),
}

/// A filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// When it is asked: the lowest first (`pref`).
    pub pref: u16,
    /// The EtherType of its packets, or [`ANY_PROTOCOL`].
    pub protocol: u16,
    /// Its number among those of its `pref`.
    pub handle: u32,
    /// What a packet has to be.
    pub matches: Matches,
    /// The class of such a packet, by its minor number.
    pub class: u16,
}

impl Filter {
    /// The kind, as `tc` calls it.
    pub fn kind(&self) -> &'static str {
        match self.matches {
            Matches::All => "matchall",
            Matches::Flower(_) => "flower",
            Matches::Words(_) => "u32",
        }
    }

    /// Whether it matches `frame`, which says `keys`.
    fn matches(&self, frame: &[u8], keys: &Keys) -> bool {
        let is_of_protocol = match self.protocol {
            ANY_PROTOCOL => true,
            VLAN => keys.vlan_id.is_some(),
            protocol => keys.ether_type == protocol,
        };
        is_of_protocol
            && match &self.matches {
                Matches::All => true,
                Matches::Flower(flower) => flower.matches(keys),
                Matches::Words(words) => words.iter().all(|word| word.matches(frame, keys)),
            }
    }
}

/// All filters of a qdisc, in the order in which they are asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Classifier {
    filters: Vec<Filter>,
}

impl Classifier {
    /// That of `filters`, in any order; of those with the same priority the first comes first.
    pub fn new(mut filters: Vec<Filter>) -> Self {
        filters.sort_by_key(|filter| filter.pref);
        Self { filters }
    }

    /// The class of `frame`; 0 where no filter matches.
    pub fn class(&self, frame: &[u8]) -> u32 {
        if self.filters.is_empty() {
            return 0;
        }
        let Some(keys) = Keys::of(frame) else { return 0 };
        let found = self.filters.iter().find(|filter| filter.matches(frame, &keys));
        found.map_or(0, |filter| u32::from(filter.class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn frame(to: [u8; 4], port: u16) -> Vec<u8> {
        let builder =
            PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], to, 64).udp(999, port);
        let mut frame = Vec::new();
        builder.write(&mut frame, &[0; 20]).unwrap();
        frame
    }

    fn filter(pref: u16, matches: Matches, class: u16) -> Filter {
        Filter { pref, protocol: ANY_PROTOCOL, handle: 1, matches, class }
    }

    #[test]
    fn the_first_by_priority_decides() {
        let to = Flower { destination: Some(Prefix::v4([10, 9, 0, 0], 16)), ..Flower::default() };
        let classifier = Classifier::new(vec![
            filter(9, Matches::All, 3),
            filter(1, Matches::Flower(to), 1),
            filter(2, Matches::Words(vec![Selector::network(16, 0x0a08_0000, 0xffff_0000)]), 2),
        ]);
        let class = |to| classifier.class(&frame(to, 53));
        assert_eq!([class([10, 9, 1, 2]), class([10, 8, 1, 2]), class([10, 7, 1, 2])], [1, 2, 3]);
        assert_eq!(classifier.class(&[0; 10]), 0, "not even an Ethernet header");
    }

    #[test]
    fn a_protocol_that_is_not_the_packets_does_not_match() {
        let six = Filter { protocol: 0x86dd, ..filter(1, Matches::All, 1) };
        let four = Filter { protocol: 0x0800, ..filter(2, Matches::All, 2) };
        assert_eq!(Classifier::new(vec![six, four]).class(&frame([1, 2, 3, 4], 5)), 2);
    }
}
