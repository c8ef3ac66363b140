//! Headers as they are on the inside of network address translation.
//!
//! The translator knows the original addresses and ports; here they replace those in the frame.
//! Hashes are as if the frame had been seen on the inside, so a host has the same hash on both
//! sides.
//!
//! Non-goals: finding out what was translated.

use super::link::{ETHERNET_LEN, Link};
use super::network::Packet;
use super::plain::plain;
use super::protocol::{TCP, UDP};
use super::{Dissector, tunnel};
use crate::headers::Headers;

/// The addresses and ports of a frame on the inside, in the order and notation of its headers:
/// source before destination, the source's port in the upper half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Translation {
    /// For IPv4.
    V4 {
        /// Both addresses.
        hosts: [u8; 8],
        /// Both ports.
        ports: u32,
    },
    /// For IPv6.
    V6 {
        /// Both addresses.
        hosts: [u8; 32],
        /// Both ports.
        ports: u32,
    },
}

impl Dissector {
    /// The result of [`Self::headers`], with hosts and flow from `translation`. This applies to
    /// frames of its IP version with complete TCP or UDP packets. If `inner` finds a tunnel, the
    /// hosts inside the tunnel count. Any other frame is parsed unchanged.
    pub fn translated(&self, frame: &[u8], inner: bool, translation: &Translation) -> Headers {
        self.replaced(frame, inner, translation).unwrap_or_else(|| self.headers(frame, inner))
    }

    fn replaced(&self, frame: &[u8], inner: bool, translation: &Translation) -> Option<Headers> {
        if let (Some(plain), Translation::V4 { hosts, ports }) = (plain(frame, inner), translation)
        {
            let (protocol, traffic_class) = (plain.protocol(), plain.traffic_class());
            let hosts = self.key.hosts_v4(hosts);
            return Some(self.assemble(hosts, protocol, *ports, traffic_class, ETHERNET_LEN));
        }
        let link = Link::walk(frame)?;
        let outer = Packet::behind(frame, &link)?;
        let carried = outer.carried;
        let is_translated = matches!(carried.protocol, TCP | UDP) && !carried.is_fragment;
        let bytes = outer.bytes(frame);
        let is_looked_into = || tunnel::innermost(bytes, carried.protocol, carried.at).is_some();
        if !is_translated || (inner && is_looked_into()) {
            return None;
        }
        let (hosts, ports) = match translation {
            Translation::V4 { hosts, ports } if !outer.is_v6 => (self.key.hosts_v4(hosts), *ports),
            Translation::V6 { hosts, ports } if outer.is_v6 => (self.key.hosts_v6(hosts), *ports),
            _ => return None,
        };
        Some(self.assemble(hosts, carried.protocol, ports, outer.traffic_class, link.network))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dissector() -> Dissector {
        Dissector::new(11)
    }

    /// An IPv4 frame of `protocol` from `source`, with a DSCP.
    fn frame(source: [u8; 4], port: u16, protocol: u8) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12..18].copy_from_slice(&[8, 0, 0x45, 0xb8, 0, 46]);
        frame[23] = protocol;
        frame[26..30].copy_from_slice(&source);
        frame[30..34].copy_from_slice(&[9, 9, 9, 9]);
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        frame[36..38].copy_from_slice(&443_u16.to_be_bytes());
        frame
    }

    /// The translation of a host inside.
    const INSIDE: Translation =
        Translation::V4 { hosts: [10, 0, 0, 7, 9, 9, 9, 9], ports: 5000 << 16 | 443 };

    #[test]
    fn a_translated_frame_reads_as_if_it_had_been_met_inside() {
        for protocol in [TCP, UDP] {
            let outside = frame([192, 0, 2, 1], 61000, protocol);
            let inside = frame([10, 0, 0, 7], 5000, protocol);
            let dissector = dissector();
            assert_eq!(
                dissector.translated(&outside, false, &INSIDE),
                dissector.headers(&inside, false)
            );
            assert_ne!(dissector.headers(&outside, false), dissector.headers(&inside, false));
        }
    }

    #[test]
    fn a_translated_frame_behind_a_tag_keeps_all_else() {
        let tagged = |mut frame: Vec<u8>| {
            frame.splice(12..12, [0x81, 0, 0, 5]);
            frame
        };
        let [outside, inside] = [([192, 0, 2, 1], 61000), ([10, 0, 0, 7], 5000)]
            .map(|(host, port)| tagged(frame(host, port, UDP)));
        let headers = dissector().translated(&outside, false, &INSIDE);
        assert_eq!(headers, dissector().headers(&inside, false));
        assert_eq!((headers.network_offset, headers.dscp), (18, 46));
    }

    #[test]
    fn an_ipv6_frame_takes_an_ipv6_translation_and_no_other() {
        let v6 = |source: [u8; 16], port: u16| {
            let mut frame = vec![0; 14 + 40 + 8];
            frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
            frame[18..22].copy_from_slice(&[0, 8, UDP, 64]);
            frame[22..38].copy_from_slice(&source);
            frame[38..54].fill(9);
            frame[54..58].copy_from_slice(&[(port >> 8) as u8, port as u8, 1, 187]);
            frame
        };
        let mut hosts = [9; 32];
        hosts[..16].fill(7);
        let inside = Translation::V6 { hosts, ports: 5000 << 16 | 443 };
        let (outer, inner) = (v6([1; 16], 61000), v6([7; 16], 5000));
        let dissector = dissector();
        assert_eq!(dissector.translated(&outer, false, &inside), dissector.headers(&inner, false));
        assert_eq!(dissector.translated(&outer, false, &INSIDE), dissector.headers(&outer, false));
        let v4 = frame([192, 0, 2, 1], 61000, UDP);
        assert_eq!(dissector.translated(&v4, false, &inside), dissector.headers(&v4, false));
    }

    #[test]
    fn what_cannot_have_been_looked_up_reads_as_it_is() {
        let mut fragment = frame([192, 0, 2, 1], 61000, UDP);
        fragment[20] = 0x20;
        let icmp = frame([192, 0, 2, 1], 61000, 1);
        let arp = [[0; 12].as_slice(), &[8, 6], &[0; 28]].concat();
        for frame in [fragment, icmp, arp, Vec::new()] {
            let read = dissector().headers(&frame, false);
            assert_eq!(dissector().translated(&frame, false, &INSIDE), read, "{frame:?}");
        }
    }

    #[test]
    fn the_hosts_inside_of_a_tunnel_count_where_it_is_looked_into() {
        let mut vxlan = frame([192, 0, 2, 1], 61000, UDP);
        vxlan[16..18].copy_from_slice(&96_u16.to_be_bytes());
        vxlan[36..38].copy_from_slice(&tunnel::VXLAN_PORT.to_be_bytes());
        vxlan.truncate(42);
        vxlan.extend([8, 0, 0, 0, 0, 0, 1, 0]);
        vxlan.extend(frame([10, 1, 1, 1], 80, TCP));
        let dissector = dissector();
        assert_eq!(dissector.translated(&vxlan, true, &INSIDE), dissector.headers(&vxlan, true));
        assert_ne!(dissector.headers(&vxlan, true).source, dissector.headers(&vxlan, false).source);
        let outer = dissector.translated(&vxlan, false, &INSIDE);
        assert_ne!(outer.source, dissector.headers(&vxlan, false).source);
    }
}
