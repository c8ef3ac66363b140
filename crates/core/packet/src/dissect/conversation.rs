//! What an observer in the middle can learn about a connection's round trips.
//!
//! A [`Conversation`] identifies a connection, the same for both directions. The fields that
//! measure a round trip are read only on demand: a TCP segment's numbers and time stamps, or the
//! spin bit of a QUIC packet.
//!
//! *QUIC* means UDP from or to port 443, and packets with short headers. The end with that port is
//! the server.
//!
//! Source: RFC 9293, RFC 7323 (time stamps), RFC 9000, section 17.3.1 and 17.4 (spin bit).
//!
//! Cost: for plain Ethernet with IPv4 and TCP or UDP two multiplications, a comparison of both ends
//! and a few loads; other frames are parsed header by header.
//!
//! *Non-goals.* QUIC on other ports; the contents of tunnels; checksums.

use super::bytes::{be16, be32, byte, chunk};
use super::link::{ETHERNET_LEN, Link};
use super::network::{Carried, Packet};
use super::plain::plain;
use super::protocol::{TCP, UDP};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The port of QUIC servers.
const QUIC_PORT: u16 = 443;
/// The length of an IPv4 header without options.
const IPV4_LEN: usize = 20;
/// The lengths of a TCP header without options, and of a UDP header.
const TCP_LEN: usize = 20;
const UDP_LEN: usize = 8;

/// TCP flags.
const FIN: u16 = 0x01;
const SYN: u16 = 0x02;
const ACK: u16 = 0x10;

/// The connection of a packet, and where its fields begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conversation {
    /// A hash of both ends, the same for both directions.
    pub connection: u64,
    is_tcp: bool,
    is_v6: bool,
    /// The offset of the IP header.
    network: usize,
    /// The offset of the transport header,
    transport: usize,
    /// and of the end of the packet by its declared length.
    end: usize,
}

/// The fields of a TCP segment that measure a round trip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The sequence number of its first byte,
    pub first: u32,
    /// and that after its last byte. Equal if it carries no data.
    pub end: u32,
    /// The acknowledgement number, if there is one.
    pub acknowledged: Option<u32>,
    /// The time stamp's value and echo, if it has the option.
    pub time_stamp: Option<(u32, u32)>,
    /// Whether it is the first segment of its direction.
    pub is_opening: bool,
}

/// The spin bit of a QUIC packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spin {
    /// The spin bit.
    pub is_set: bool,
    /// Whether the client sent the packet.
    pub is_clients: bool,
}

impl Conversation {
    /// Parses `frame` and hashes it with `key`. `None` unless it is TCP, or UDP that may be QUIC.
    #[inline]
    pub fn of(frame: &[u8], key: u64) -> Option<Self> {
        let Some(plain) = plain(frame, false) else { return Self::walk(frame, key) };
        let is_tcp = plain.protocol() == TCP;
        let ports = plain.ports();
        if !is_tcp && !is_quics(ports) {
            return None;
        }
        let [source, destination] = plain.addresses().map(u64::from);
        Some(Self {
            connection: connection([source, destination], ports, is_tcp, key),
            is_tcp,
            is_v6: false,
            network: ETHERNET_LEN,
            transport: ETHERNET_LEN + IPV4_LEN,
            end: ETHERNET_LEN + usize::from(be16(frame, ETHERNET_LEN + 2)?),
        })
    }

    #[inline(never)]
    fn walk(frame: &[u8], key: u64) -> Option<Self> {
        let packet = Packet::behind(frame, &Link::walk(frame)?)?;
        let Carried { protocol, at, is_fragment, .. } = packet.carried;
        let is_tcp = protocol == TCP;
        if is_fragment || !is_tcp && protocol != UDP {
            return None;
        }
        let ports = be32(packet.bytes(frame), at)?;
        if !is_tcp && !is_quics(ports) {
            return None;
        }
        let hosts = if packet.is_v6 {
            let address = |at| chunk::<16>(frame, at).copied().map(u128::from_be_bytes);
            [address(packet.at + 8)?, address(packet.at + 24)?].map(|address| {
                let (upper, lower) = ((address >> 64) as u64, address as u64);
                upper.wrapping_mul(key | 1).rotate_left(32) ^ lower
            })
        } else {
            [be32(frame, packet.at + 12)?, be32(frame, packet.at + 16)?].map(u64::from)
        };
        Some(Self {
            connection: connection(hosts, ports, is_tcp, key),
            is_tcp,
            is_v6: packet.is_v6,
            network: packet.at,
            transport: at,
            end: packet.declared_end.max(packet.end),
        })
    }

    /// Whether it is TCP; otherwise it is QUIC.
    pub fn is_tcp(&self) -> bool {
        self.is_tcp
    }

    /// The source and destination address of `frame`.
    pub fn hosts(&self, frame: &[u8]) -> Option<[IpAddr; 2]> {
        let at = self.network;
        Some(if self.is_v6 {
            let address = |at| chunk::<16>(frame, at).map(|bytes| Ipv6Addr::from(*bytes).into());
            [address(at + 8)?, address(at + 24)?]
        } else {
            let address = |at| chunk::<4>(frame, at).map(|bytes| Ipv4Addr::from(*bytes).into());
            [address(at + 12)?, address(at + 16)?]
        })
    }

    /// The segment in `frame`, if it is TCP and its header is complete.
    #[inline]
    pub fn segment(&self, frame: &[u8]) -> Option<Segment> {
        if !self.is_tcp {
            return None;
        }
        let header: &[u8; TCP_LEN] = chunk(frame, self.transport)?;
        let options = self.transport + TCP_LEN;
        let data = self.transport + usize::from(header[12] >> 4) * 4;
        let flags = u16::from_be_bytes([header[12], header[13]]);
        let first = be32(header, 4)?;
        // SYN and FIN count as one byte each.
        let len = self.end.checked_sub(data)? as u32
            + u32::from(flags & SYN != 0)
            + u32::from(flags & FIN != 0);
        Some(Segment {
            first,
            end: first.wrapping_add(len),
            acknowledged: be32(header, 8).filter(|_| flags & ACK != 0),
            time_stamp: time_stamp(frame.get(options..data)?),
            is_opening: flags & SYN != 0,
        })
    }

    /// The spin bit of `frame`, if it is QUIC with a short header.
    #[inline]
    pub fn spin(&self, frame: &[u8]) -> Option<Spin> {
        if self.is_tcp {
            return None;
        }
        let first = byte(frame, self.transport + UDP_LEN)
            .filter(|_| self.end > self.transport + UDP_LEN)?;
        // Not a long header, and the fixed bit is set.
        if first & 0xc0 != 0x40 {
            return None;
        }
        let is_clients = be16(frame, self.transport + 2)? == QUIC_PORT;
        Some(Spin { is_set: first & 0x20 != 0, is_clients })
    }
}

/// Whether exactly one of these ports is the QUIC port.
#[inline]
fn is_quics(ports: u32) -> bool {
    ((ports >> 16) as u16 == QUIC_PORT) != (ports as u16 == QUIC_PORT)
}

/// The hash of a connection between `hosts` with `ports`: a sum, which is the same in both
/// directions.
#[inline(always)]
fn connection(hosts: [u64; 2], ports: u32, is_tcp: bool, key: u64) -> u64 {
    let end = |host: u64, port: u32| {
        let end = (host ^ key).wrapping_add(u64::from(port) << 40 | u64::from(is_tcp));
        let mixed = end.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    let [source, destination] = hosts;
    let sum = end(source, ports >> 16).wrapping_add(end(destination, ports & 0xffff));
    sum ^ sum >> 32
}

/// The value and echo of the time stamp among `options`.
#[inline]
fn time_stamp(options: &[u8]) -> Option<(u32, u32)> {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const TIME_STAMP: u8 = 8;
    const TIME_STAMP_LEN: u8 = 10;
    let value_and_echo = |option: &[u8]| Some((be32(option, 2)?, be32(option, 6)?));
    // The layout in nearly all segments.
    if let [NO_OPERATION, NO_OPERATION, TIME_STAMP, TIME_STAMP_LEN, ..] = options {
        return value_and_echo(&options[2..]);
    }
    let mut left = options;
    loop {
        match *left.first()? {
            END => return None,
            NO_OPERATION => left = &left[1..],
            TIME_STAMP if byte(left, 1)? == TIME_STAMP_LEN => return value_and_echo(left),
            // No option is shorter than its own two bytes.
            _ => left = left.get(usize::from(byte(left, 1)?.max(2))..)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, TcpOptionElement};
    use proptest::prelude::*;

    const KEY: u64 = 0x1234_5678_9abc_def0;

    fn frame(builder: etherparse::PacketBuilderStep<etherparse::TcpHeader>, len: usize) -> Vec<u8> {
        let mut frame = Vec::new();
        builder.write(&mut frame, &vec![0; len]).unwrap();
        frame
    }

    fn v4() -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
        PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 9, 0, 2], 64)
    }

    fn v6() -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
        PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64)
    }

    #[test]
    fn a_segment_says_its_numbers_and_its_time_stamps() {
        for to in [v4, v6] {
            for options in [
                vec![
                    TcpOptionElement::Noop,
                    TcpOptionElement::Noop,
                    TcpOptionElement::Timestamp(7, 9),
                ],
                vec![TcpOptionElement::MaximumSegmentSize(1460), TcpOptionElement::Timestamp(7, 9)],
            ] {
                let tcp = to().tcp(5000, 80, 100, 2000).ack(55).options(&options).unwrap();
                let frame = frame(tcp, 30);
                let segment = Conversation::of(&frame, KEY).unwrap().segment(&frame).unwrap();
                assert_eq!((segment.first, segment.end), (100, 130));
                assert_eq!((segment.acknowledged, segment.time_stamp), (Some(55), Some((7, 9))));
            }
        }
    }

    #[test]
    fn padding_is_not_data_and_both_ends_of_a_connection_are() {
        let mut padded = frame(v4().tcp(5000, 80, 100, 2000).ack(55), 0);
        padded.resize(60, 0);
        let segment = Conversation::of(&padded, KEY).unwrap().segment(&padded).unwrap();
        assert_eq!((segment.first, segment.end, segment.time_stamp), (100, 100, None));
        let opening = frame(v4().tcp(5000, 80, 100, 2000).syn(), 0);
        let segment = Conversation::of(&opening, KEY).unwrap().segment(&opening).unwrap();
        assert_eq!((segment.end, segment.acknowledged), (101, None));
        assert!(segment.is_opening);
    }

    #[test]
    fn both_directions_are_one_connection_and_others_are_not() {
        let of = |from: [u8; 4], to: [u8; 4], source, destination| {
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from, to, 64);
            let frame = frame(builder.tcp(source, destination, 1, 2), 0);
            Conversation::of(&frame, KEY).unwrap().connection
        };
        let one = of([10, 0, 0, 1], [10, 9, 0, 2], 5000, 80);
        assert_eq!(one, of([10, 9, 0, 2], [10, 0, 0, 1], 80, 5000));
        assert_ne!(one, of([10, 0, 0, 1], [10, 9, 0, 2], 80, 5000), "ports at the other ends");
        assert_ne!(one, of([10, 0, 0, 1], [10, 9, 0, 2], 5001, 80));
    }

    #[test]
    fn the_spin_bit_is_that_of_short_headers_and_the_server_has_its_port() {
        let of = |ports: (u16, u16), first: u8| {
            let mut frame = Vec::new();
            v4().udp(ports.0, ports.1).write(&mut frame, &[first, 1, 2]).unwrap();
            let conversation = Conversation::of(&frame, KEY)?;
            assert_eq!(conversation.segment(&frame), None);
            conversation.spin(&frame)
        };
        assert_eq!(of((5000, 443), 0x60), Some(Spin { is_set: true, is_clients: true }));
        assert_eq!(of((443, 5000), 0x40), Some(Spin { is_set: false, is_clients: false }));
        assert_eq!(of((5000, 443), 0xc3), None, "a long header");
        assert_eq!(of((5000, 53), 0x60), None, "something else");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn the_fast_path_agrees_with_the_walk(frame in crate::dissect::tests::frames()) {
            let conversation = Conversation::of(&frame, KEY);
            if plain(&frame, false).is_some() && conversation.is_some() {
                prop_assert_eq!(conversation, Conversation::walk(&frame, KEY));
            }
            if let Some(conversation) = conversation {
                let _ = (conversation.segment(&frame), conversation.spin(&frame));
                let _ = conversation.hosts(&frame);
            }
        }

        #[test]
        fn options_of_any_bytes_are_read_or_not(options in prop::collection::vec(any::<u8>(), 0..41)) {
            let _ = time_stamp(&options);
        }
    }
}
