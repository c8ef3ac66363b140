//! The members of a set in memory, by address.
//!
//! A million members take as much memory as their keys and options do, so both are packed: a member
//! takes 20 bytes with IPv4 and 32 with IPv6 or Ethernet, in a B-tree. Members that come in order
//! leave its nodes half full, so it is [packed](Members::pack) after many have come. An IPv4 key,
//! its length, protocol and port are one number, in the order of [`Key`].

use crate::key::Key;
use crate::kind::{Family, Kind, Shape};
use crate::set::Element;
use narrows_packet::PaceId;
use narrows_units::Nanos;
use std::collections::BTreeMap;

/// Options of a member, in 12 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    /// When it goes, in two halves so that it needs no padding; the maximum for never.
    expires: [u32; 2],
    /// The number of its rate, and above it whether it is an exception.
    rest: u32,
}

const EXCEPTION: u32 = 1 << 31;

impl Packed {
    fn of(element: &Element) -> Self {
        let end = element.expires.unwrap_or(Nanos::MAX).0;
        let exception = if element.is_exception { EXCEPTION } else { 0 };
        let rest = element.pace.number() | exception;
        Self { expires: [(end >> 32) as u32, end as u32], rest }
    }

    fn element(self) -> Element {
        let [high, low] = self.expires.map(u64::from);
        let end = Nanos(high << 32 | low);
        Element {
            expires: Some(end).filter(|end| *end != Nanos::MAX),
            is_exception: self.rest & EXCEPTION != 0,
            pace: PaceId::from_number(self.rest & !EXCEPTION).unwrap_or_default(),
        }
    }
}

/// Members by key.
#[derive(Clone, Debug)]
pub(crate) enum Members {
    /// Of IPv4: by the number of the key.
    Short(BTreeMap<u64, Packed>),
    /// All others.
    Long(BTreeMap<Key, Packed>),
}

impl Members {
    /// None, for a set of `kind`.
    pub(crate) fn new(kind: &Kind) -> Self {
        match (kind.shape, kind.family) {
            (Shape::Mac, _) | (_, Family::Inet6) => Self::Long(BTreeMap::new()),
            (_, Family::Inet) => Self::Short(BTreeMap::new()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Short(members) => members.len(),
            Self::Long(members) => members.len(),
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Element> {
        let packed = match self {
            Self::Short(members) => members.get(&key.number()),
            Self::Long(members) => members.get(key),
        };
        packed.map(|packed| packed.element())
    }

    pub(crate) fn insert(&mut self, key: Key, element: &Element) {
        let packed = Packed::of(element);
        match self {
            Self::Short(members) => members.insert(key.number(), packed),
            Self::Long(members) => members.insert(key, packed),
        };
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<Element> {
        let packed = match self {
            Self::Short(members) => members.remove(&key.number()),
            Self::Long(members) => members.remove(key),
        };
        packed.map(Packed::element)
    }

    /// Builds the tree again with full nodes. Cost: one step for each member.
    pub(crate) fn pack(&mut self) {
        match self {
            Self::Short(members) => *members = std::mem::take(members).into_iter().collect(),
            Self::Long(members) => *members = std::mem::take(members).into_iter().collect(),
        }
    }

    /// Those from `from` on, in order.
    pub(crate) fn from(&self, from: Key) -> impl Iterator<Item = (Key, Element)> {
        let (short, long) = match self {
            Self::Short(members) => (Some(members.range(from.number()..)), None),
            Self::Long(members) => (None, Some(members.range(from..))),
        };
        let short = short.into_iter().flatten().map(|(key, of)| (Key::of_number(*key), of));
        let long = long.into_iter().flatten().map(|(key, of)| (*key, of));
        short.chain(long).map(|(key, packed)| (key, packed.element()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_member_of_ipv4_takes_20_bytes_and_any_other_32() {
        assert_eq!((size_of::<u64>() + size_of::<Packed>(), size_of::<Packed>()), (20, 12));
        assert_eq!(size_of::<Key>() + size_of::<Packed>(), 32);
    }

    /// Addresses and lengths that often meet.
    fn key() -> impl Strategy<Value = Key> {
        (0u32..64, 24u8..=32, 0u8..3, 0u16..3).prop_map(|(low, len, protocol, port)| {
            let address = std::net::Ipv4Addr::from(0xc0a8_ff00 | low << 2);
            Key::prefix(address.into(), len).with_port(protocol, port)
        })
    }

    fn element() -> impl Strategy<Value = Element> {
        let end = prop::option::of(0u64..u64::MAX).prop_map(|end| end.map(Nanos));
        (end, any::<bool>(), 0u32..1 << 24).prop_map(|(expires, is_exception, number)| Element {
            expires,
            is_exception,
            pace: PaceId::from_number(number).unwrap_or_default(),
        })
    }

    proptest! {
        /// The oracle is a map of plain keys and elements.
        #[test]
        fn packed_members_are_those_that_were_put_in_and_in_their_order(
            steps in prop::collection::vec((key(), prop::option::of(element())), 0..200),
            from in key(),
        ) {
            let kind = Kind::new(Shape::NetPort);
            let v6 = Kind { family: Family::Inet6, ..kind };
            for kind in [kind, v6] {
                let (mut members, mut model) = (Members::new(&kind), BTreeMap::new());
                for (key, element) in &steps {
                    match element {
                        Some(element) => {
                            members.insert(*key, element);
                            model.insert(*key, *element);
                        }
                        None => prop_assert_eq!(members.remove(key), model.remove(key)),
                    }
                    if model.len() % 8 == 7 {
                        members.pack();
                    }
                    prop_assert_eq!(members.get(key), model.get(key).copied());
                    prop_assert_eq!(members.len(), model.len());
                }
                let rest: Vec<_> = members.from(from).collect();
                let expected: Vec<_> = model.range(from..).map(|(key, of)| (*key, *of)).collect();
                prop_assert_eq!(rest, expected);
            }
        }
    }
}
