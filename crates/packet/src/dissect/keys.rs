//! The header fields that filters match on.

use super::bytes::{be16, be32, byte, chunk};
use super::layer::IPV4;
use super::link::{ETHERNET_LEN, Link};
use super::network::{Carried, Packet};
use super::plain::plain;
use super::protocol::{Protocol, TCP, protocol};

/// A tag of IEEE 802.1Q.
const TAG: u16 = 0x8100;

/// The header fields of a frame that filters can test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    /// The destination MAC address, in the low 48 bits.
    pub destination_mac: u64,
    /// The source MAC address, in the low 48 bits.
    pub source_mac: u64,
    /// The EtherType after all tags; 0 if there is none.
    pub ether_type: u16,
    /// The identifier of the outer VLAN, if there is a tag.
    pub vlan_id: Option<u16>,
    /// The outer tag's priority, 0 to 7; 0 without a tag.
    pub vlan_priority: u8,
    /// The offset of the network layer, after all tags.
    pub network: usize,
    /// The IP header, if there is one.
    pub ip: Option<IpKeys>,
}

/// The fields of an IP header and of the header after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IpKeys {
    /// Whether it is IPv6.
    pub is_v6: bool,
    /// The source address; an IPv4 address is in the last four bytes.
    pub source: u128,
    /// The destination address.
    pub destination: u128,
    /// The protocol after all extension headers.
    pub protocol: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// The time to live, or hop limit.
    pub ttl: u8,
    /// Which fragment it is, if it is one.
    pub fragment: Option<Fragment>,
    /// The offset of the transport layer.
    pub transport: usize,
    /// Source and destination port, if the protocol has ports and the packet is not a later
    /// fragment.
    pub ports: Option<(u16, u16)>,
    /// The twelve TCP flags, if the packet is not a fragment.
    pub tcp_flags: Option<u16>,
    /// Type and code of ICMP or ICMPv6, if the packet is not a fragment.
    pub icmp: Option<(u8, u8)>,
}

/// Which fragment of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragment {
    /// The first, with the headers.
    First,
    /// A later one.
    Later,
}

impl Keys {
    /// The fields of `frame`. `None` if its Ethernet header is incomplete.
    pub fn of(frame: &[u8]) -> Option<Self> {
        Self::plain(frame).or_else(|| Self::walk(frame))
    }

    /// The same for the most common kind of frame; `None` for others.
    #[inline(always)]
    pub fn plain(frame: &[u8]) -> Option<Self> {
        let plain = plain(frame, false)?;
        let transport = ETHERNET_LEN + 20;
        let ([source, destination], ports) = (plain.addresses(), plain.ports());
        let tcp_flags = if plain.protocol() == TCP { plain.tcp_flags(frame) } else { None };
        let ip = IpKeys {
            is_v6: false,
            source: u128::from(source),
            destination: u128::from(destination),
            protocol: plain.protocol(),
            traffic_class: plain.traffic_class(),
            ttl: plain.ttl(),
            fragment: None,
            transport,
            ports: Some(((ports >> 16) as u16, ports as u16)),
            tcp_flags,
            icmp: None,
        };
        let [destination_mac, source_mac] = plain.stations();
        Some(Self {
            destination_mac,
            source_mac,
            ether_type: IPV4,
            vlan_id: None,
            vlan_priority: 0,
            network: ETHERNET_LEN,
            ip: Some(ip),
        })
    }

    /// The same for any frame.
    #[inline(never)]
    pub fn walk(frame: &[u8]) -> Option<Self> {
        let link = Link::walk(frame)?;
        // The link layer was parsed, so both addresses and the EtherType are there.
        let station = |at: usize| chunk::<8>(frame, at).map_or(0, |b| u64::from_be_bytes(*b) >> 16);
        let is_tagged = be16(frame, 12)? == TAG;
        let tag = is_tagged.then(|| be16(frame, ETHERNET_LEN)).flatten();
        let ip = Packet::behind(frame, &link).and_then(|packet| IpKeys::of(frame, &packet));
        Some(Self {
            destination_mac: station(0),
            source_mac: station(6),
            ether_type: link.ether_type,
            vlan_id: tag.map(|tag| tag & 0xfff),
            vlan_priority: tag.map_or(0, |tag| (tag >> 13) as u8),
            network: link.network,
            ip,
        })
    }
}

impl IpKeys {
    #[inline(always)]
    fn of(frame: &[u8], packet: &Packet) -> Option<Self> {
        let at = packet.at;
        let (source, destination) = if packet.is_v6 {
            let address = |at| chunk::<16>(frame, at).copied().map(u128::from_be_bytes);
            (address(at + 8)?, address(at + 24)?)
        } else {
            let address = |at| be32(frame, at).map(u128::from);
            (address(at + 12)?, address(at + 16)?)
        };
        let ttl = byte(frame, at + if packet.is_v6 { 7 } else { 8 })?;
        let Carried { protocol: number, at: transport, is_fragment, .. } = packet.carried;
        let mut keys = Self {
            is_v6: packet.is_v6,
            source,
            destination,
            protocol: number,
            traffic_class: packet.traffic_class,
            ttl,
            transport,
            ..Self::default()
        };
        if is_fragment {
            // IPv4 has this in its own header; IPv6 in a header of eight bytes, the last one
            // parsed.
            let (offset, bits) =
                if packet.is_v6 { (transport - 6, 0xfff8) } else { (at + 6, 0x1fff) };
            let is_later = be16(frame, offset)? & bits != 0;
            keys.fragment = Some(if is_later { Fragment::Later } else { Fragment::First });
            return Some(keys);
        }
        let bytes = packet.bytes(frame);
        match protocol(number) {
            Protocol::Ports => {
                keys.ports =
                    be32(bytes, transport).map(|ports| ((ports >> 16) as u16, ports as u16));
                if number == TCP {
                    keys.tcp_flags = be16(bytes, transport + 12).map(|flags| flags & 0x0fff);
                }
            }
            Protocol::Echo(..) => {
                keys.icmp = be16(bytes, transport).map(|both| ((both >> 8) as u8, both as u8));
            }
            _ => {}
        }
        Some(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    #[test]
    fn keys_agree_with_the_headers() {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .single_vlan(etherparse::VlanId::try_new(7).unwrap())
            .ipv4([10, 0, 0, 1], [10, 9, 0, 2], 64)
            .udp(1234, 53);
        let mut frame = Vec::new();
        builder.write(&mut frame, &[0; 20]).unwrap();
        let keys = Keys::of(&frame).unwrap();
        assert_eq!((keys.ether_type, keys.vlan_id, keys.network), (0x0800, Some(7), 18));
        assert_eq!((keys.source_mac, keys.destination_mac), (0x0202_0202_0202, 0x0404_0404_0404));
        let ip = keys.ip.unwrap();
        assert_eq!((ip.source, ip.destination, ip.ttl), (0x0a00_0001, 0x0a09_0002, 64));
        assert_eq!((ip.protocol, ip.transport, ip.ports), (17, 38, Some((1234, 53))));
        for len in 0..frame.len() {
            let _ = Keys::of(&frame[..len]);
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(20_000))]

        #[test]
        fn the_fast_path_agrees_with_the_walk(frame in crate::dissect::tests::frames()) {
            if let Some(keys) = Keys::plain(&frame) {
                proptest::prop_assert_eq!(Some(keys), Keys::walk(&frame));
            }
        }
    }

    #[test]
    fn flags_of_tcp_and_types_of_icmp_are_read_where_they_are() {
        let frame = |builder: etherparse::PacketBuilderStep<etherparse::TcpHeader>| {
            let mut frame = Vec::new();
            builder.write(&mut frame, &[]).unwrap();
            frame
        };
        let to = || PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([1; 4], [2; 4], 3);
        let keys = |frame: &[u8]| Keys::of(frame).unwrap().ip.unwrap();
        let tcp = frame(to().tcp(1, 2, 3, 4).syn().ack(5));
        assert_eq!((keys(&tcp).tcp_flags, keys(&tcp).icmp), (Some(0x12), None));
        let mut ping = Vec::new();
        to().icmpv4_echo_request(1, 1).write(&mut ping, &[]).unwrap();
        assert_eq!((keys(&ping).tcp_flags, keys(&ping).icmp), (None, Some((8, 0))));
    }

    #[test]
    fn a_fragment_is_the_first_or_a_later_one() {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([1; 4], [2; 4], 3).udp(1, 2);
        builder.write(&mut frame, &[0; 20]).unwrap();
        let mut with = |flags: u16| {
            frame[20..22].copy_from_slice(&flags.to_be_bytes());
            let ip = Keys::of(&frame).unwrap().ip.unwrap();
            (ip.fragment, ip.ports.is_some())
        };
        assert_eq!(with(0x4000), (None, true));
        assert_eq!(with(0x2000), (Some(Fragment::First), false));
        assert_eq!(with(0x0001), (Some(Fragment::Later), false));
        // IPv6 with a fragment header.
        let mut six = vec![0; 14 + 40 + 8 + 20];
        six[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        six[19] = 28;
        six[20] = 44;
        let mut with = |offset: u16| {
            six[56..58].copy_from_slice(&offset.to_be_bytes());
            Keys::of(&six).unwrap().ip.unwrap().fragment
        };
        assert_eq!([with(0), with(1)], [None, Some(Fragment::First)]);
        assert_eq!(with(8), Some(Fragment::Later));
    }
}
