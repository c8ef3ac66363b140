//! The router, said once more in Rust.

use super::{HOP, HOST, LAN, LAN_MAC, SECOND_HOP, WAN, WAN_MAC};
use crate::outcome::Outcome;
use crate::router::SourceCheck;
use narrows_forwarding::PortId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The routes that the model knows, besides those of every bed.
pub(super) const ROUTES: &str = "
    route add default via 10.0.1.2
    route add blackhole 203.0.113.0/24
    route add unreachable 203.0.114.0/24
    route add default via 2001:db8:b::2
    route add blackhole 2001:db8:113::/64
    route add unreachable 2001:db8:114::/64
";

/// This box's addresses.
pub(super) const OWN: [&str; 6] =
    ["10.0.0.1", "10.0.1.1", "10.0.2.1", "2001:db8:a::1", "2001:db8:b::1", "2001:db8:c::1"];

/// The port through which a frame leaves, from where, and to where.
pub(super) type Way = (PortId, [u8; 6], [u8; 6]);

/// What becomes of a frame that arrives at `lan`; the addresses and lengths in it are those of one
/// that every device takes.
pub(super) fn way_of(frame: &[u8], check: SourceCheck) -> Result<Way, Outcome> {
    if frame[..6] != LAN_MAC {
        return Err(Outcome::NotForUs);
    }
    if [[0x81, 0], [0x88, 0xa8]].contains(&[frame[12], frame[13]]) {
        return Err(if frame.len() < 18 { Outcome::NotIp } else { Outcome::OtherTag });
    }
    let ip = &frame[14..];
    let word = |at: usize| usize::from(u16::from_be_bytes([ip[at], ip[at + 1]]));
    let (source, destination, left) = match [frame[12], frame[13]] {
        [8, 0] if ip.len() < 20 => return Err(Outcome::Short),
        [8, 0] if ip[0] >> 4 != 4 => return Err(Outcome::NotIp),
        [8, 0] if ip[0] & 15 != 5 => return Err(Outcome::Options),
        [8, 0] if word(2) < 20 || word(2) > ip.len() => return Err(Outcome::Short),
        [8, 0] => {
            let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
            (address(12).into(), address(16).into(), ip[8])
        }
        [0x86, 0xdd] if ip.len() < 40 => return Err(Outcome::Short),
        [0x86, 0xdd] if ip[0] >> 4 != 6 => return Err(Outcome::NotIp),
        [0x86, 0xdd] if ip[6] == 0 => return Err(Outcome::Options),
        [0x86, 0xdd] if word(4) + 40 > ip.len() => return Err(Outcome::Short),
        [0x86, 0xdd] => {
            let address = |at: usize| Ipv6Addr::from(*ip[at..].first_chunk::<16>().unwrap());
            (address(8).into(), address(24).into(), ip[7])
        }
        _ => return Err(Outcome::NotIp),
    };
    if is_martian(source) || is_martian(destination) {
        return Err(Outcome::Martian);
    }
    let is_own = |address: IpAddr| OWN.iter().any(|own| own.parse() == Ok(address));
    if left < 2 {
        return Err(if is_own(destination) { Outcome::NotForwarded } else { Outcome::Ttl });
    }
    if is_own(source) {
        return Err(Outcome::OwnSource);
    }
    let way = route_of(destination)?;
    let Some(to) = way.1 else { return Err(Outcome::NoNeighbour) };
    let (port, from) = match way.0 {
        "lan" => (LAN, LAN_MAC),
        "wan" => (WAN, WAN_MAC),
        _ => return Err(Outcome::OtherPort),
    };
    let back = route_of(source).map(|(device, _)| device);
    let is_plausible = match check {
        SourceCheck::Strict => back == Ok("lan"),
        SourceCheck::Loose => back.is_ok(),
        SourceCheck::Off => true,
    };
    if source.is_ipv4() && !is_plausible {
        return Err(Outcome::BadSource);
    }
    Ok((port, from, to))
}

fn is_martian(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => {
            it.octets()[0] == 0 || it.is_loopback() || it.is_multicast() || it.octets()[0] >= 240
        }
        IpAddr::V6(it) => {
            let is_ipv4 = it.to_ipv4().is_some();
            is_ipv4 || it.is_multicast() || it.is_unicast_link_local()
        }
    }
}

/// The device through which a packet to `address` leaves, and its next hop, if that is known.
fn route_of(address: IpAddr) -> Result<(&'static str, Option<[u8; 6]>), Outcome> {
    let (network, host, is_broadcast): (&str, u64, bool) = match address {
        IpAddr::V4(it) => match it.octets() {
            [10, 0, network @ 0..=2, host] => {
                (["lan", "wan", "aside"][usize::from(network)], host.into(), host == 255)
            }
            [203, 0, 113, _] => return Err(Outcome::Blackhole),
            [203, 0, 114, _] => return Err(Outcome::Unreachable),
            _ => return Ok(("wan", Some(HOP))),
        },
        IpAddr::V6(it) => {
            let host = it.to_bits() as u64;
            match it.segments() {
                // The address of all routers of a network is this box's, too.
                [0x2001, 0xdb8, 0xa, 0, ..] => ("lan", host, host == 0),
                [0x2001, 0xdb8, 0xb, 0, ..] => ("wan", host, host == 0),
                [0x2001, 0xdb8, 0xc, 0, ..] => ("aside", host, host == 0),
                [0x2001, 0xdb8, 0x113, 0, ..] => return Err(Outcome::Blackhole),
                [0x2001, 0xdb8, 0x114, 0, ..] => return Err(Outcome::Unreachable),
                _ => return Ok(("wan", Some(HOP))),
            }
        }
    };
    let hop = match (network, host) {
        (_, 1) => return Err(Outcome::NotForwarded),
        _ if is_broadcast => return Err(Outcome::NotForwarded),
        ("lan", 5) => Some(HOST),
        ("wan", 2) => Some(HOP),
        ("wan", 3) => Some(SECOND_HOP),
        ("aside", 2) => Some([2, 0, 0, 0, 2, 2]),
        _ => None,
    };
    Ok((network, hop))
}

/// The frame as it leaves from `from` to `to`: it is of IP, and has more than one hop to live.
pub(super) fn leaving(frame: &[u8], from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    if frame[12..14] == [0x86, 0xdd] {
        frame[21] -= 1;
        return frame;
    }
    // RFC 1624, equation 3: an error of the checksum stays.
    let word = |at: usize, frame: &[u8]| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (check, was) = (word(24, &frame), word(22, &frame));
    frame[22] -= 1;
    let sum = u32::from(!check) + u32::from(!was) + u32::from(word(22, &frame));
    let sum = (sum & 0xffff) + (sum >> 16);
    let check = !(((sum & 0xffff) + (sum >> 16)) as u16);
    frame[24..26].copy_from_slice(&check.to_be_bytes());
    frame
}
