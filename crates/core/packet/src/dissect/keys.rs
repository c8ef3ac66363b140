//! The header fields that filters match on.

use super::bytes::{be16, be32, byte, chunk};
use super::layer::{IPV4, IPV6, Layer, layer};
use super::link::{ETHERNET_LEN, Link};
use super::network::{Carried, Packet};
use super::plain::plain;
use super::protocol::{Protocol, TCP, protocol};

/// The header fields of a frame that filters can test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    /// The destination MAC address, in the low 48 bits.
    pub destination_mac: u64,
    /// The source MAC address, in the low 48 bits.
    pub source_mac: u64,
    /// The EtherType after all tags. Of a frame that has a length there it is 1 if the payload
    /// begins with `ffff`, and 4 if not: `802_3` and `802_2` in Linux.
    pub ether_type: u16,
    /// The EtherType of what is carried: that of IP, where IP is in PPPoE or MPLS; else as above.
    pub carried: u16,
    /// The outer tag, if there is one.
    pub tag: Option<Tag>,
    /// The tag behind it, if there is one.
    pub inner_tag: Option<Tag>,
    /// The offset of the network layer, after all tags.
    pub network: usize,
    /// The IP header, if there is one.
    pub ip: Option<IpKeys>,
}

/// A tag of IEEE 802.1Q or 802.1ad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// Its own EtherType: 0x8100, or 0x88a8 of a service provider; 0x9100 and 0x9200 came before
    /// the standard.
    pub ether_type: u16,
    /// The identifier of the VLAN, 0 to 4095.
    pub id: u16,
    /// The priority, 0 to 7.
    pub priority: u8,
}

/// The fields of an IP header and of the header after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IpKeys {
    /// The offset of the header.
    pub at: usize,
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

    /// The fields of a frame of the most common kind; `None` for others.
    #[inline(always)]
    pub fn plain(frame: &[u8]) -> Option<Self> {
        let plain = plain(frame, false)?;
        let transport = ETHERNET_LEN + 20;
        let ([source, destination], ports) = (plain.addresses(), plain.ports());
        let tcp_flags = if plain.protocol() == TCP { plain.tcp_flags(frame) } else { None };
        let ip = IpKeys {
            at: ETHERNET_LEN,
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
            carried: IPV4,
            tag: None,
            inner_tag: None,
            network: ETHERNET_LEN,
            ip: Some(ip),
        })
    }

    /// The fields of any frame. `None` if its Ethernet header is incomplete.
    #[inline(never)]
    pub fn walk(frame: &[u8]) -> Option<Self> {
        let link = Link::walk(frame)?;
        // The link layer was parsed, so both addresses and the EtherType are there.
        let station = |at: usize| chunk::<8>(frame, at).map_or(0, |b| u64::from_be_bytes(*b) >> 16);
        let tag = Tag::at(frame, ETHERNET_LEN);
        let inner_tag = tag.and_then(|_| Tag::at(frame, ETHERNET_LEN + 4));
        let ip = Packet::behind(frame, &link).and_then(|packet| IpKeys::of(frame, &packet));
        let carried = match &ip {
            Some(ip) if ip.is_v6 => IPV6,
            Some(_) => IPV4,
            None => link.ether_type,
        };
        Some(Self {
            destination_mac: station(0),
            source_mac: station(6),
            ether_type: link.ether_type,
            carried,
            tag,
            inner_tag,
            network: link.network,
            ip,
        })
    }
}

impl Tag {
    /// The tag whose two bytes are at `at`, if the EtherType before it says so and another one
    /// follows.
    fn at(frame: &[u8], at: usize) -> Option<Self> {
        let [first, second, control, id, ..] = *chunk::<6>(frame, at - 2)?;
        let ether_type = u16::from_be_bytes([first, second]);
        let control = u16::from_be_bytes([control, id]);
        let tag = Self { ether_type, id: control & 0xfff, priority: (control >> 13) as u8 };
        (layer(ether_type) == Some(Layer::Tag)).then_some(tag)
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
            at,
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
        assert_eq!((keys.ether_type, keys.tag.unwrap().id, keys.network), (0x0800, 7, 18));
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
    fn two_tags_are_read_of_any_kind_and_ip_is_found_behind_pppoe_and_mpls() {
        let mut ip = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        ip.extend([0, 7, 0, 53, 0, 8, 0, 0]);
        let frame = |link: &[u8]| [&[4; 12], link, &ip].concat();
        let tag = |tag: Option<Tag>| tag.map(|tag| (tag.ether_type, tag.priority, tag.id));
        let tags = [0x88, 0xa8, 0x20, 7, 0x81, 0, 0x60, 9, 0x91, 0, 0, 1, 8, 0];
        let keys = Keys::of(&frame(&tags)).unwrap();
        assert_eq!(tag(keys.tag), Some((0x88a8, 1, 7)));
        assert_eq!(tag(keys.inner_tag), Some((0x8100, 3, 9)));
        assert_eq!((keys.ether_type, keys.carried, keys.network), (0x0800, 0x0800, 26));
        let pppoe = [0x81, 0, 0, 5, 0x88, 0x64, 0x11, 0, 0, 1, 0, 30, 0, 0x21];
        let labels = [0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64];
        for (link, ether_type, network, at) in
            [(&pppoe[..], 0x8864, 18, 26), (&labels, 0x8847, 14, 22)]
        {
            let keys = Keys::of(&frame(link)).unwrap();
            assert_eq!((keys.ether_type, keys.carried), (ether_type, 0x0800));
            assert_eq!((keys.network, keys.ip.unwrap().at), (network, at));
            assert_eq!(keys.ip.unwrap().ports, Some((7, 53)));
            // What does not carry IP is what it is.
            let keys = Keys::of(&[&[4; 12], link].concat()).unwrap();
            assert_eq!((keys.ether_type, keys.carried, keys.ip), (ether_type, ether_type, None));
        }
    }

    #[test]
    fn a_length_is_802_2_or_802_3_by_what_comes_behind_it() {
        let of = |link: &[u8], payload: &[u8]| {
            let keys = Keys::of(&[&[4; 12], link, payload].concat()).unwrap();
            (keys.ether_type, keys.carried)
        };
        let (spanning_tree, ipx) = ([0x42, 0x42, 3], [0xff, 0xff, 0]);
        for link in [&[0, 38][..], &[5, 0xff], &[0x81, 0, 0, 5, 0, 38]] {
            assert_eq!(of(link, &spanning_tree), (4, 4));
            assert_eq!(of(link, &ipx), (1, 1));
            assert_eq!([of(link, &[]), of(link, &[0xff])], [(4, 4); 2]);
        }
        assert_eq!(of(&[6, 0], &ipx), (0x600, 0x600));
        // These are the numbers of no frame, although a length can be the same.
        assert_eq!(of(&[0, 0x60], &spanning_tree), (4, 4));
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
