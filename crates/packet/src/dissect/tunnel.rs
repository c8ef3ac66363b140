//! From the IP header of a tunnel to the one inside.

use super::TUNNELS_MAX;
use super::bytes::{be16, chunk};
use super::layer::{Layer, layer};
use super::link::Link;
use super::network::Packet;
use super::protocol::{Protocol, UDP, protocol};

/// The UDP port of VXLAN (RFC 7348).
pub(super) const VXLAN_PORT: u16 = 4789;

/// The innermost packet of `outer` that can be read: itself, where it is no tunnel.
pub(super) fn innermost(frame: &[u8], outer: Packet) -> Packet {
    let mut packet = outer;
    for _ in 0..TUNNELS_MAX {
        match inside(frame, &packet) {
            Some(next) => packet = next,
            None => break,
        }
    }
    packet
}

/// The packet that `packet` carries.
fn inside(frame: &[u8], packet: &Packet) -> Option<Packet> {
    if packet.is_fragment {
        return None;
    }
    let bytes = frame.get(..packet.end)?;
    match protocol(packet.protocol) {
        Protocol::Ipv4 => Packet::ipv4(bytes, packet.payload),
        Protocol::Ipv6 => Packet::ipv6(bytes, packet.payload),
        Protocol::Gre => behind_gre(bytes, packet.payload),
        Protocol::Ports if packet.protocol == UDP => behind_vxlan(bytes, packet.payload),
        _ => None,
    }
}

/// The packet in GRE (RFC 2784, 2890), with or without an Ethernet header.
fn behind_gre(bytes: &[u8], at: usize) -> Option<Packet> {
    const CHECKSUM: u16 = 0x8000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    /// Source routes, which nobody uses any more, and the version, of which 1 is PPTP's.
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

/// The packet in VXLAN, whose UDP header begins at `at`.
fn behind_vxlan(bytes: &[u8], at: usize) -> Option<Packet> {
    let header: &[u8; 16] = chunk(bytes, at)?;
    let has_network = header[8] & 0x08 != 0;
    if u16::from_be_bytes([header[2], header[3]]) != VXLAN_PORT || !has_network {
        return None;
    }
    Packet::behind(bytes, &Link::walk_from(bytes, at + 16)?)
}
