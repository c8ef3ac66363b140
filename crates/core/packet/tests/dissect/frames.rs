//! Builders of frames: each function puts one header in front of its payload.

use etherparse::{
    IpDscp, IpEcn, IpFragOffset, IpNumber, Ipv4Header, Ipv6Header, TcpHeader, UdpHeader,
};

pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

pub const CLIENT: [u8; 4] = [10, 0, 0, 1];
pub const SERVER: [u8; 4] = [192, 0, 2, 7];
pub const CLIENT6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
pub const SERVER6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7];

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// An Ethernet header in front of a payload of type `ether_type`.
pub fn ethernet(ether_type: u16, carried: &[u8]) -> Vec<u8> {
    joined(&[&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &ether_type.to_be_bytes(), carried])
}

/// The two bytes of a tag and the EtherType after them.
pub fn tagged(vlan: u16, ether_type: u16, carried: &[u8]) -> Vec<u8> {
    joined(&[&vlan.to_be_bytes(), &ether_type.to_be_bytes(), carried])
}

/// A stack of two MPLS labels.
pub fn labelled(carried: &[u8]) -> Vec<u8> {
    joined(&[&[0, 0x01, 0x00, 64], &[0, 0x02, 0x01, 64], carried])
}

/// A PPPoE session; `ppp` is 0x21 for IPv4 and 0x57 for IPv6.
pub fn pppoe(ppp: u16, carried: &[u8]) -> Vec<u8> {
    let len = (carried.len() as u16 + 2).to_be_bytes();
    joined(&[&[0x11, 0, 0, 9], &len, &ppp.to_be_bytes(), carried])
}

/// The variable parts of an IPv4 header.
#[derive(Clone)]
pub struct V4 {
    pub source: [u8; 4],
    pub destination: [u8; 4],
    pub traffic_class: u8,
    pub more_fragments: bool,
    pub offset: u16,
    pub id: u16,
    pub options: Vec<u8>,
}

impl Default for V4 {
    fn default() -> Self {
        Self {
            source: CLIENT,
            destination: SERVER,
            traffic_class: 0,
            more_fragments: false,
            offset: 0,
            id: 0,
            options: Vec::new(),
        }
    }
}

impl V4 {
    /// The packet with this header and a correct checksum.
    pub fn packet(&self, protocol: u8, carried: &[u8]) -> Vec<u8> {
        let len = carried.len() as u16;
        let mut header =
            Ipv4Header::new(len, 64, IpNumber(protocol), self.source, self.destination).unwrap();
        header.options = self.options.as_slice().try_into().unwrap();
        header.set_payload_len(carried.len()).unwrap();
        header.dscp = IpDscp::try_new(self.traffic_class >> 2).unwrap();
        header.ecn = IpEcn::try_new(self.traffic_class & 3).unwrap();
        header.more_fragments = self.more_fragments;
        header.fragment_offset = IpFragOffset::try_new(self.offset).unwrap();
        header.identification = self.id;
        header.header_checksum = header.calc_header_checksum();
        joined(&[&header.to_bytes(), carried])
    }
}

/// An IPv4 packet between [`CLIENT`] and [`SERVER`].
pub fn v4(protocol: u8, carried: &[u8]) -> Vec<u8> {
    V4::default().packet(protocol, carried)
}

/// An IPv6 packet.
pub fn v6_between(
    source: [u8; 16],
    destination: [u8; 16],
    traffic_class: u8,
    next: u8,
    carried: &[u8],
) -> Vec<u8> {
    let header = Ipv6Header {
        traffic_class,
        payload_length: carried.len() as u16,
        next_header: IpNumber(next),
        hop_limit: 64,
        source,
        destination,
        ..Ipv6Header::default()
    };
    joined(&[&header.to_bytes(), carried])
}

/// An IPv6 packet between [`CLIENT6`] and [`SERVER6`].
pub fn v6(next: u8, carried: &[u8]) -> Vec<u8> {
    v6_between(CLIENT6, SERVER6, 0, next, carried)
}

/// An IPv6 extension header of `units` times eight bytes.
pub fn extension(next: u8, units: u8, carried: &[u8]) -> Vec<u8> {
    let mut header = vec![0; usize::from(units) * 8];
    header[0] = next;
    header[1] = units - 1;
    joined(&[&header, carried])
}

/// The IPv6 fragment header. `offset` counts units of eight bytes.
pub fn fragment6(next: u8, offset: u16, more: bool, carried: &[u8]) -> Vec<u8> {
    let place = offset << 3 | u16::from(more);
    joined(&[&[next, 0], &place.to_be_bytes(), &[0, 0, 0, 77], carried])
}

/// An authentication header with a value of twelve bytes.
pub fn authenticated(next: u8, spi: u32, carried: &[u8]) -> Vec<u8> {
    joined(&[&[next, 4, 0, 0], &spi.to_be_bytes(), &[0; 16], carried])
}

/// A UDP datagram.
pub fn udp(source: u16, destination: u16, carried: &[u8]) -> Vec<u8> {
    let header = UdpHeader {
        source_port: source,
        destination_port: destination,
        length: carried.len() as u16 + 8,
        checksum: 0,
    };
    joined(&[&header.to_bytes(), carried])
}

/// A TCP segment with the ACK flag.
pub fn tcp(source: u16, destination: u16, carried: &[u8]) -> Vec<u8> {
    let mut header = TcpHeader::new(source, destination, 1000, 500);
    header.ack = true;
    header.acknowledgment_number = 7_000_000;
    joined(&[&header.to_bytes(), carried])
}

/// GRE with the optional words that `flags` declares.
pub fn gre(flags: u16, ether_type: u16, carried: &[u8]) -> Vec<u8> {
    let words = vec![0xab; 4 * (flags & 0xb000).count_ones() as usize];
    joined(&[&flags.to_be_bytes(), &ether_type.to_be_bytes(), &words, carried])
}

/// VXLAN in UDP; a tunnel endpoint derives the source port from the inner flow.
pub fn vxlan(source_port: u16, carried: &[u8]) -> Vec<u8> {
    udp(source_port, 4789, &joined(&[&[8, 0, 0, 0, 0, 0, 42, 0], carried]))
}
