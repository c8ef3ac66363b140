//! Parsed headers as words that tables can mask and hash.
//!
//! A flower filter of exact values and prefixes is a value under a mask over these words.
//! Properties with few values (the protocol, whether there are ports) have a word of their own. It
//! decides which tables a look-up visits, and is not part of any key.

use crate::{SERVICE_VLAN, VLAN};
use narrows_packet::RouteTaken;
use narrows_packet::dissect::{Fragment, Keys, Tag};

/// The number of words.
pub(crate) const WORDS: usize = 10;

/// Flags and EtherTypes: those of the outer tag, of what is behind all tags, and of what is
/// carried.
pub(crate) const KIND: usize = 0;
/// IPv4: source in the upper half, destination in the lower. IPv6: lower half of the destination.
pub(crate) const ADDRESSES: usize = 1;
/// IPv6: upper half of the destination.
pub(crate) const DESTINATION_HIGH: usize = 2;
pub(crate) const SOURCE_LOW: usize = 3;
pub(crate) const SOURCE_HIGH: usize = 4;
/// Source port, destination port, protocol, traffic class, time to live.
pub(crate) const TRANSPORT: usize = 5;
/// The outer VLAN tag and the second one without their reserved bits, TCP flags, ICMP type and
/// code.
pub(crate) const DETAILS: usize = 6;
/// The destination's MAC address; above it the realm of the route to the destination.
pub(crate) const DESTINATION_MAC: usize = 7;
/// The source's, and its realm.
pub(crate) const SOURCE_MAC: usize = 8;
/// The mark; above it the metric of the route.
pub(crate) const MARK: usize = 9;

/// Where they are.
pub(crate) const REALM: u32 = 48;
pub(crate) const METRIC: u32 = 32;

/// Bits of the word [`KIND`].
pub(crate) const HAS_TAG: u64 = 1;
pub(crate) const HAS_IP: u64 = 1 << 1;
pub(crate) const IS_V6: u64 = 1 << 2;
pub(crate) const HAS_PORTS: u64 = 1 << 3;
pub(crate) const HAS_FLAGS: u64 = 1 << 4;
pub(crate) const HAS_ICMP: u64 = 1 << 5;
pub(crate) const IS_FRAGMENT: u64 = 1 << 6;
pub(crate) const IS_FIRST: u64 = 1 << 7;
/// There is a second tag; which is in three bits from [`INNER_TAG_TYPE`] on.
pub(crate) const HAS_INNER_TAG: u64 = 1 << 11;
pub(crate) const INNER_TAG_TYPE: u32 = 8;
/// The route is known.
pub(crate) const HAS_ROUTE: u64 = 1 << 12;
pub(crate) const ETHER_TYPE: u32 = 16;
pub(crate) const CARRIED: u32 = 32;
pub(crate) const TAG_TYPE: u32 = 48;

/// Bit positions in the word [`TRANSPORT`].
pub(crate) const SOURCE_PORT: u32 = 48;
pub(crate) const DESTINATION_PORT: u32 = 32;
pub(crate) const PROTOCOL: u32 = 24;
pub(crate) const TRAFFIC_CLASS: u32 = 16;
pub(crate) const TTL: u32 = 8;

/// Bit positions in the word [`DETAILS`].
pub(crate) const VLAN_PRIORITY: u32 = 60;
pub(crate) const VLAN_ID: u32 = 48;
pub(crate) const TCP_FLAGS: u32 = 32;
pub(crate) const INNER_VLAN_PRIORITY: u32 = 28;
pub(crate) const INNER_VLAN_ID: u32 = 16;
pub(crate) const ICMP_TYPE: u32 = 8;
pub(crate) const ICMP_CODE: u32 = 0;

/// The types of tags, by number from 1 on.
const TAG_TYPES: [u16; 4] = [VLAN, SERVICE_VLAN, 0x9100, 0x9200];

/// The number of a type of tags; 0 if there are no such tags.
pub(crate) fn tag_number(ether_type: u16) -> u64 {
    let place = TAG_TYPES.iter().position(|of| *of == ether_type);
    place.map_or(0, |place| place as u64 + 1)
}

/// The words of one packet.
#[derive(Clone, Copy)]
pub(crate) struct Fields([u64; WORDS]);

impl Fields {
    #[inline(always)]
    pub(crate) fn of(keys: &Keys) -> Self {
        let mut words = [0; WORDS];
        let mut kind =
            u64::from(keys.ether_type) << ETHER_TYPE | u64::from(keys.carried) << CARRIED;
        words[DESTINATION_MAC] = keys.destination_mac;
        words[SOURCE_MAC] = keys.source_mac;
        if let Some(Tag { ether_type, id, priority }) = keys.tag {
            kind |= HAS_TAG | u64::from(ether_type) << TAG_TYPE;
            words[DETAILS] = u64::from(priority) << VLAN_PRIORITY | u64::from(id) << VLAN_ID;
        }
        if let Some(Tag { ether_type, id, priority }) = keys.inner_tag {
            kind |= HAS_INNER_TAG | tag_number(ether_type) << INNER_TAG_TYPE;
            words[DETAILS] |=
                u64::from(priority) << INNER_VLAN_PRIORITY | u64::from(id) << INNER_VLAN_ID;
        }
        if let Some(ip) = &keys.ip {
            kind |= HAS_IP;
            if ip.is_v6 {
                kind |= IS_V6;
                words[ADDRESSES] = ip.destination as u64;
                words[DESTINATION_HIGH] = (ip.destination >> 64) as u64;
                words[SOURCE_LOW] = ip.source as u64;
                words[SOURCE_HIGH] = (ip.source >> 64) as u64;
            } else {
                words[ADDRESSES] = (ip.source as u64) << 32 | ip.destination as u64;
            }
            words[TRANSPORT] = u64::from(ip.protocol) << PROTOCOL
                | u64::from(ip.traffic_class) << TRAFFIC_CLASS
                | u64::from(ip.ttl) << TTL;
            if let Some((source, destination)) = ip.ports {
                kind |= HAS_PORTS;
                words[TRANSPORT] |=
                    u64::from(source) << SOURCE_PORT | u64::from(destination) << DESTINATION_PORT;
            }
            if let Some(flags) = ip.tcp_flags {
                kind |= HAS_FLAGS;
                words[DETAILS] |= u64::from(flags) << TCP_FLAGS;
            }
            if let Some((sort, code)) = ip.icmp {
                kind |= HAS_ICMP;
                words[DETAILS] |= u64::from(sort) << ICMP_TYPE | u64::from(code) << ICMP_CODE;
            }
            match ip.fragment {
                Some(Fragment::First) => kind |= IS_FRAGMENT | IS_FIRST,
                Some(Fragment::Later) => kind |= IS_FRAGMENT,
                None => {}
            }
        }
        words[KIND] = kind;
        Self(words)
    }

    #[inline]
    pub(crate) fn set_mark(&mut self, mark: u32) {
        self.0[MARK] = self.0[MARK] & !u64::from(u32::MAX) | u64::from(mark);
    }

    /// Sets the route, once.
    #[inline]
    pub(crate) fn set_route(&mut self, route: RouteTaken) {
        self.0[KIND] |= HAS_ROUTE;
        self.0[DESTINATION_MAC] |= u64::from(route.to()) << REALM;
        self.0[SOURCE_MAC] |= u64::from(route.from()) << REALM;
        self.0[MARK] |= u64::from(route.metric) << METRIC;
    }

    pub(crate) fn route(&self) -> Option<RouteTaken> {
        let [from, to] = [SOURCE_MAC, DESTINATION_MAC].map(|place| (self.0[place] >> REALM) as u32);
        let route = RouteTaken { realms: from << 16 | to, metric: (self.0[MARK] >> METRIC) as u32 };
        (self.0[KIND] & HAS_ROUTE != 0).then_some(route)
    }

    /// The source's address or the destination's, one of IPv4 in the first 32 bits, and whether it
    /// is one of IPv6. `None` without IP.
    pub(crate) fn address(&self, is_source: bool) -> Option<(u128, bool)> {
        if self.0[KIND] & HAS_IP == 0 {
            return None;
        }
        if self.0[KIND] & IS_V6 == 0 {
            let both = self.0[ADDRESSES];
            let v4 = if is_source { both >> 32 } else { both & u64::from(u32::MAX) };
            return Some((u128::from(v4) << 96, false));
        }
        let [high, low] = match is_source {
            true => [SOURCE_HIGH, SOURCE_LOW],
            false => [DESTINATION_HIGH, ADDRESSES],
        };
        Some((u128::from(self.0[high]) << 64 | u128::from(self.0[low]), true))
    }

    #[inline(always)]
    pub(crate) fn word(&self, place: usize) -> u64 {
        self.0[place]
    }
}
