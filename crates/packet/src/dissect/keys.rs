//! What filters match on, read out of a frame.

use super::bytes::{be16, be32, chunk};
use super::link::{ETHERNET_LEN, Link};
use super::network::{Carried, Packet};
use super::protocol::{Protocol, protocol};

/// A tag of IEEE 802.1Q.
const TAG: u16 = 0x8100;

/// What the headers of a frame say, as far as filters ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    /// The EtherType behind all tags; 0 where there is none.
    pub ether_type: u16,
    /// The identifier of the outer VLAN, where there is a tag.
    pub vlan_id: Option<u16>,
    /// Where the network layer begins: behind all tags.
    pub network: usize,
    /// The IP header, where there is one.
    pub ip: Option<IpKeys>,
}

/// What an IP header and the one behind it say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IpKeys {
    /// Whether it is IPv6.
    pub is_v6: bool,
    /// Where from; an IPv4 address in the last four bytes.
    pub source: u128,
    /// Where to.
    pub destination: u128,
    /// What it carries, behind all extension headers.
    pub protocol: u8,
    /// The code point and the two bits of ECN.
    pub traffic_class: u8,
    /// Where the transport layer begins.
    pub transport: usize,
    /// The source's and the destination's port, where there are any and the packet is no fragment
    /// but a first one.
    pub ports: Option<(u16, u16)>,
}

impl Keys {
    /// Those of `frame`. `None` where not even the Ethernet header is whole.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let link = Link::walk(frame)?;
        let is_tagged = be16(frame, 12)? == TAG;
        let vlan_id = is_tagged.then(|| be16(frame, ETHERNET_LEN)).flatten().map(|tag| tag & 0xfff);
        let ip = Packet::behind(frame, &link).and_then(|packet| IpKeys::of(frame, &packet));
        Some(Self { ether_type: link.ether_type, vlan_id, network: link.network, ip })
    }
}

impl IpKeys {
    fn of(frame: &[u8], packet: &Packet) -> Option<Self> {
        let at = packet.at;
        let (source, destination) = if packet.is_v6 {
            let address = |at| chunk::<16>(frame, at).copied().map(u128::from_be_bytes);
            (address(at + 8)?, address(at + 24)?)
        } else {
            let address = |at| be32(frame, at).map(u128::from);
            (address(at + 12)?, address(at + 16)?)
        };
        let Carried { protocol: number, at: transport, is_fragment, .. } = packet.carried;
        let ports = match protocol(number) {
            Protocol::Ports if !is_fragment => be32(packet.bytes(frame), transport)
                .map(|ports| ((ports >> 16) as u16, ports as u16)),
            _ => None,
        };
        Some(Self {
            is_v6: packet.is_v6,
            source,
            destination,
            protocol: number,
            traffic_class: packet.traffic_class,
            transport,
            ports,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    #[test]
    fn keys_are_what_the_headers_say() {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .single_vlan(etherparse::VlanId::try_new(7).unwrap())
            .ipv4([10, 0, 0, 1], [10, 9, 0, 2], 64)
            .udp(1234, 53);
        let mut frame = Vec::new();
        builder.write(&mut frame, &[0; 20]).unwrap();
        let keys = Keys::of(&frame).unwrap();
        assert_eq!((keys.ether_type, keys.vlan_id, keys.network), (0x0800, Some(7), 18));
        let ip = keys.ip.unwrap();
        assert_eq!((ip.source, ip.destination), (0x0a00_0001, 0x0a09_0002));
        assert_eq!((ip.protocol, ip.transport, ip.ports), (17, 38, Some((1234, 53))));
        for len in 0..frame.len() {
            let _ = Keys::of(&frame[..len]);
        }
    }
}
