//! From the IP header of a tunnel to the one inside.

use super::TUNNELS_MAX;
use super::bytes::{be16, chunk};
use super::layer::{Layer, layer};
use super::link::Link;
use super::network::{Carried, Packet};
use super::protocol::{Protocol, UDP, protocol};

/// The UDP port of VXLAN (RFC 7348).
pub(super) const VXLAN_PORT: u16 = 4789;

/// The innermost readable packet in what begins at `at` with protocol `number`; `None` if that is
/// not a tunnel.
#[inline(never)]
pub(super) fn innermost(bytes: &[u8], number: u8, at: usize) -> Option<Packet> {
    let mut innermost = inside(bytes, number, at)?;
    for _ in 1..TUNNELS_MAX {
        let Carried { protocol, at, is_fragment, .. } = innermost.carried;
        if is_fragment {
            break;
        }
        match inside(innermost.bytes(bytes), protocol, at) {
            Some(next) => innermost = next,
            None => break,
        }
    }
    Some(innermost)
}

/// The packet inside the tunnel that begins at `at` with protocol `number`.
fn inside(bytes: &[u8], number: u8, at: usize) -> Option<Packet> {
    match protocol(number) {
        Protocol::Ipv4 => Packet::ipv4(bytes, at),
        Protocol::Ipv6 => Packet::ipv6(bytes, at),
        Protocol::Gre => behind_gre(bytes, at),
        Protocol::Ports if number == UDP => behind_vxlan(bytes, at),
        _ => None,
    }
}

/// The packet in GRE (RFC 2784, 2890), with or without an Ethernet header.
fn behind_gre(bytes: &[u8], at: usize) -> Option<Packet> {
    const CHECKSUM: u16 = 0x8000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    /// Flags for source routes, which are obsolete, and the version; version 1 is PPTP's.
    const NOT_UNDERSTOOD: u16 = 0x4007;
    let flags = be16(bytes, at)?;
    if flags & NOT_UNDERSTOOD != 0 {
        return None;
    }
    let ether_type = be16(bytes, at + 2)?;
    let options = (flags & (CHECKSUM | KEY | SEQUENCE)).count_ones() as usize;
    let payload = at + 4 + 4 * options;
    let link = if layer(ether_type) == Some(Layer::Ethernet) {
        Link::walk_from(bytes, payload)?
    } else {
        Link::behind(bytes, ether_type, payload)
    };
    Packet::behind(bytes, &link)
}

/// The packet in VXLAN, whose UDP header is at `at`.
fn behind_vxlan(bytes: &[u8], at: usize) -> Option<Packet> {
    let header: &[u8; 16] = chunk(bytes, at)?;
    let has_network = header[8] & 0x08 != 0;
    if u16::from_be_bytes([header[2], header[3]]) != VXLAN_PORT || !has_network {
        return None;
    }
    Packet::behind(bytes, &Link::walk_from(bytes, at + 16)?)
}
