//! What is in front of a client's packet on the way to a server: as the balancer's program writes
//! it (`encapsulate.h`).

use etherparse::{IpHeaders, IpNumber, Ipv6Header, PacketBuilder, PacketBuilderStep};
use narrows_balance::ListedTunnel;
use std::net::IpAddr;

/// UDP and the header of GUE (variant 0, no further words), in bytes.
pub(crate) const GUE_BYTES: usize = 8 + 4;
/// The time to live, or hop limit, of packets that this host sends.
const TTL: u8 = 64;
/// Source ports of GUE are from here on.
const GUE_PORTS_FROM: u16 = 49152;

/// The packet that carries `inner` from `source` to `server`. A connection has one `flow`.
pub(crate) fn encapsulated(
    tunnel: ListedTunnel,
    (source, server): (IpAddr, IpAddr),
    flow: u16,
    inner: &[u8],
) -> Option<Vec<u8>> {
    let carried = match inner.first()? >> 4 {
        4 => IpNumber::IPV4,
        _ => IpNumber::IPV6,
    };
    match tunnel {
        ListedTunnel::Ipip => packet((source, server), carried, inner),
        ListedTunnel::Gue { port } => {
            let bytes = u16::try_from(GUE_BYTES + inner.len()).ok()?;
            let mut payload = Vec::with_capacity(GUE_BYTES + inner.len());
            for field in [GUE_PORTS_FROM | flow, port, bytes, 0] {
                payload.extend(field.to_be_bytes());
            }
            payload.extend([0, carried.0, 0, 0]);
            payload.extend(inner);
            packet((source, server), IpNumber::UDP, &payload)
        }
    }
}

/// A packet of IP. None if the addresses are of two families, or it is too long for one.
pub(crate) fn packet(
    between: (IpAddr, IpAddr),
    carried: IpNumber,
    payload: &[u8],
) -> Option<Vec<u8>> {
    let mut packet = Vec::with_capacity(Ipv6Header::LEN + payload.len());
    header(between)?.write_to_vec(&mut packet, carried, payload).ok()?;
    Some(packet)
}

/// What a packet between two addresses begins with: it may not be fragmented. None if they are of
/// two families.
pub(crate) fn header(between: (IpAddr, IpAddr)) -> Option<PacketBuilderStep<IpHeaders>> {
    match between {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            Some(PacketBuilder::ipv4(from.octets(), to.octets(), TTL))
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            Some(PacketBuilder::ipv6(from.octets(), to.octets(), TTL))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{LaxSlicedPacket, SlicedPacket, TransportSlice};

    fn addresses(family: u8) -> (IpAddr, IpAddr) {
        let read = |text: &str| text.parse().unwrap();
        match family {
            4 => (read("10.0.0.1"), read("10.0.0.2")),
            _ => (read("2001:db8::1"), read("2001:db8::2")),
        }
    }

    #[test]
    fn a_packet_of_either_family_travels_in_one_of_either_family() {
        for (inner, outer) in [(4, 4), (4, 6), (6, 4), (6, 6)] {
            let carried = packet(addresses(inner), IpNumber::UDP, &[7; 64]).unwrap();
            let number = if inner == 4 { IpNumber::IPV4 } else { IpNumber::IPV6 };
            let ipip = encapsulated(ListedTunnel::Ipip, addresses(outer), 0, &carried).unwrap();
            let seen = LaxSlicedPacket::from_ip(&ipip).unwrap();
            let payload = seen.net.as_ref().unwrap().ip_payload_ref().unwrap();
            assert_eq!((payload.ip_number, payload.payload), (number, &carried[..]));

            let tunnel = ListedTunnel::Gue { port: 6080 };
            let gue = encapsulated(tunnel, addresses(outer), 5, &carried).unwrap();
            let seen = SlicedPacket::from_ip(&gue).unwrap();
            let Some(TransportSlice::Udp(udp)) = seen.transport else { panic!("{seen:?}") };
            assert_eq!((udp.source_port(), udp.destination_port()), (GUE_PORTS_FROM + 5, 6080));
            assert_eq!(udp.checksum(), 0);
            let (header, rest) = udp.payload().split_at(4);
            assert_eq!((header, rest), (&[0, number.0, 0, 0][..], &carried[..]));
        }
    }

    #[test]
    fn what_is_no_packet_is_not_made() {
        let mixed = (addresses(4).0, addresses(6).1);
        assert_eq!(packet(mixed, IpNumber::UDP, &[]), None);
        assert_eq!(packet(addresses(4), IpNumber::UDP, &[0; 1 << 16]), None);
        assert_eq!(encapsulated(ListedTunnel::Ipip, addresses(4), 0, &[]), None);
    }
}
