//! Parses the parts of a frame that queueing depends on.
//!
//! *Idea.* Walk from header to header. Each layer says where the next one begins and what it is;
//! tables map numbers to layers ([`layer`], [`protocol`]). A truncated frame, or one with a wrong
//! length field, ends the walk, and what was parsed up to there counts. No byte is trusted: every
//! access is checked, every loop is bounded, nothing panics.
//!
//! *What is parsed:* VLAN tags (also stacked), MPLS labels and PPPoE up to the first IP header;
//! IPv4 options and IPv6 extension headers up to the transport; on request GRE, IP in IP and VXLAN
//! up to the inner IP header, at most [`TUNNELS_MAX`] deep. Frames without IP are distinguished by
//! their MAC addresses and EtherType.
//!
//! *Fragments* are hashed without ports, including the first one, which has them. So all fragments
//! of a packet are in one flow.
//!
//! *Hosts are whole addresses,* also with IPv6, as in Linux: a host with several addresses from its
//! prefix counts as several hosts.
//!
//! Source: IEEE 802.1Q, RFC 791, 8200, 4302, 3032, 2516, 2784, 2890, 7348, 9293, 2018, 7323.
//!
//! Cost: for plain Ethernet with IPv4 and TCP or UDP a few loads, half a dozen comparisons and six
//! multiplications; `examples/dissect_cost.rs` measures it (14 ns at 2 GHz, frames in cache; about
//! twice that behind a VLAN tag or with IPv6, four times through VXLAN). Nothing is allocated.
//!
//! Non-goals: verifying checksums, reassembling fragments, decrypting, the addresses in ARP,
//! pseudo-wires, anything above the transport.

use crate::PaceId;
use crate::headers::{Acknowledgement, Ecn, Headers};
use hash::Key;
use link::{ETHERNET_LEN, Link};
use network::{Carried, Packet};
use plain::plain;

mod acknowledgement;
mod bytes;
mod conversation;
mod hash;
mod keys;
mod layer;
mod link;
mod network;
mod plain;
mod protocol;
mod rewrite;
mod translation;
mod transport;
mod tunnel;

pub use conversation::{Conversation, Segment, Spin};
pub use keys::{Fragment, IpKeys, Keys, Tag};
pub use rewrite::rewrite;
pub use translation::Translation;

/// How many nested tunnels are parsed.
pub const TUNNELS_MAX: usize = 2;

/// Parses frames, with one key for all hashes. Components that must agree on hosts and flows need
/// the same key. An attacker who does not know it cannot choose addresses that collide.
#[derive(Clone, Copy)]
pub struct Dissector {
    key: Key,
}

impl Dissector {
    /// A dissector that hashes with `key`, which should be random.
    pub fn new(key: u64) -> Self {
        Self { key: Key::new(key) }
    }

    /// The headers of `frame`, which begins with an Ethernet header. With `inner`, hosts and flow
    /// are those inside a tunnel, if there is one and it can be parsed; everything else is always
    /// from the outermost header.
    #[inline]
    pub fn headers(&self, frame: &[u8], inner: bool) -> Headers {
        let mut headers = Headers::default();
        self.read(frame, inner, &mut headers);
        headers
    }

    /// Writes the headers of `frame` directly to their final place, as [`Self::headers`] reads
    /// them. A copy through another place would be read back in different pieces than it was
    /// written, which stalls the processor (no store forwarding).
    #[inline]
    pub fn read(&self, frame: &[u8], inner: bool, into: &mut Headers) {
        match plain(frame, inner) {
            Some(plain) => {
                let hosts = self.key.hosts_v4(&plain.hosts());
                let traffic_class = plain.traffic_class();
                let (protocol, ports) = (plain.protocol(), plain.ports());
                *into = self.assemble(hosts, protocol, ports, traffic_class, ETHERNET_LEN);
            }
            None => self.walk_into(frame, inner, into),
        }
    }

    #[inline(never)]
    fn walk_into(&self, frame: &[u8], inner: bool, into: &mut Headers) {
        *into = self.walk(frame, inner);
    }

    /// The fields of `frame` that decide whether it is a redundant acknowledgement: always those of
    /// the outermost IP header.
    pub fn acknowledgement(&self, frame: &[u8]) -> Acknowledgement {
        Link::walk(frame)
            .and_then(|link| Packet::behind(frame, &link))
            .and_then(|packet| acknowledgement::read(&self.key, frame, &packet))
            .unwrap_or_default()
    }

    /// Parses any frame.
    fn walk(&self, frame: &[u8], inner: bool) -> Headers {
        let Some(link) = Link::walk(frame) else { return self.without_ip(frame, 0, frame.len()) };
        let Some(outer) = Packet::behind(frame, &link) else {
            return self.without_ip(frame, link.ether_type, link.network);
        };
        let Carried { protocol, at, is_fragment, .. } = outer.carried;
        if inner
            && !is_fragment
            && let Some(innermost) = tunnel::innermost(outer.bytes(frame), protocol, at)
        {
            return self.describe(frame, &innermost, &outer, link.network);
        }
        self.describe(frame, &outer, &outer, link.network)
    }

    /// The headers of a frame with the hosts and flow of `packet`; everything else is from `outer`.
    #[inline(always)]
    fn describe(&self, frame: &[u8], packet: &Packet, outer: &Packet, network: usize) -> Headers {
        let hosts = self.key.hosts(frame, packet);
        let ports = packet.ports(frame);
        self.assemble(hosts, packet.carried.protocol, ports, outer.traffic_class, network)
    }

    /// The headers of a frame between `hosts`, given by their hashes.
    #[inline(always)]
    fn assemble(
        &self,
        [source, destination]: [u64; 2],
        protocol: u8,
        ports: u32,
        traffic_class: u8,
        network: usize,
    ) -> Headers {
        Headers {
            flow: self.key.flow(source, destination, protocol, ports) as u32,
            source: self.key.short(source),
            destination: self.key.short(destination),
            mark: 0,
            network_offset: offset(network),
            dscp: traffic_class >> 2,
            ecn: Ecn::of(traffic_class),
            is_arp: false,
            pace: PaceId::NONE,
        }
    }

    /// The headers of a frame without a readable IP header.
    fn without_ip(&self, frame: &[u8], ether_type: u16, network: usize) -> Headers {
        // A frame that is too short for its addresses counts as a station like any other.
        let station = |at: usize| {
            let mac: [u8; 6] = bytes::chunk(frame, at).copied().unwrap_or_default();
            self.key.station(mac)
        };
        let (destination, source) = (station(0), station(6));
        Headers {
            flow: self.key.flow(source, destination, 0, u32::from(ether_type)) as u32,
            source: self.key.short(source),
            destination: self.key.short(destination),
            mark: 0,
            network_offset: offset(network),
            dscp: 0,
            ecn: Ecn::NotCapable,
            is_arp: ether_type == layer::ARP,
            pace: PaceId::NONE,
        }
    }
}

/// `at` as it is stored; it is never beyond a few headers.
fn offset(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Frames, most of them close to plain ones.
    pub(super) fn frames() -> impl Strategy<Value = Vec<u8>> {
        let bytes = proptest::collection::vec(any::<u8>(), 0..80);
        let lens = prop_oneof![Just(20_u16), Just(23), Just(24), Just(60), any::<u16>()];
        let protocols = prop_oneof![Just(6_u8), Just(17), Just(1), any::<u8>()];
        let fragments = prop_oneof![4 => Just(0x4000_u16), 1 => any::<u16>()];
        let ports = prop_oneof![Just(4789_u16), Just(80)];
        (bytes, lens, protocols, fragments, ports).prop_map(
            |(mut bytes, len, protocol, f, port)| {
                let mut put = |at: usize, value: &[u8]| {
                    if let Some(place) = bytes.get_mut(at..at + value.len()) {
                        place.copy_from_slice(value);
                    }
                };
                put(12, &[8, 0, 0x45]);
                put(16, &len.to_be_bytes());
                put(20, &f.to_be_bytes());
                put(23, &[protocol]);
                put(36, &port.to_be_bytes());
                bytes
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn the_fast_path_agrees_with_the_slow_one(frame in frames(), inner: bool) {
            let dissector = Dissector::new(7);
            prop_assert_eq!(dissector.headers(&frame, inner), dissector.walk(&frame, inner));
        }
    }

    #[test]
    fn a_plain_frame_goes_the_short_way() {
        let mut frame = [0; 54];
        frame[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 40]);
        frame[23] = protocol::TCP;
        assert!(plain(&frame, true).is_some());
    }

    /// What a worker would save if it found the headers already read, in the bytes before the
    /// frame: for `what_metadata_costs` in crates/kernel/bpf.
    ///
    /// `cargo test --release -p narrows-packet --lib what_metadata_saves -- --ignored --nocapture`
    #[test]
    #[ignore = "measures; nothing can fail"]
    fn what_metadata_saves() {
        use std::hint::black_box;
        use std::time::Instant;
        // As in a UMEM: a frame begins behind its headroom.
        const STRIDE: usize = 2048;
        const HEADROOM: usize = 256;
        const ROOM: usize = 32;
        const FRAME: usize = 64;
        const KNOWN: u32 = 0x4e41_5252;
        let dissector = Dissector::new(7);
        // A batch that was just received, and more than the caches near a core hold.
        for frames in [64, 16_384] {
            let mut memory = vec![0; frames * STRIDE];
            for (number, frame) in memory.chunks_exact_mut(STRIDE).enumerate() {
                frame[HEADROOM - ROOM..][..4].copy_from_slice(&KNOWN.to_ne_bytes());
                let frame = &mut frame[HEADROOM..];
                frame[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 50]);
                frame[23] = protocol::TCP;
                frame[26..30].copy_from_slice(&(number as u32).to_be_bytes());
            }
            let mut into = vec![Headers::default(); frames];
            let mut best = [f64::MAX; 2];
            for _ in 0..1 + (1 << 20) / frames {
                let began = Instant::now();
                for (frame, into) in memory.chunks_exact(STRIDE).zip(&mut into) {
                    dissector.read(&frame[HEADROOM..][..FRAME], true, into);
                }
                let read = began.elapsed().as_nanos() as f64 / frames as f64;
                black_box(&mut into);
                let began = Instant::now();
                for (frame, into) in memory.chunks_exact(STRIDE).zip(&mut into) {
                    let room = &frame[HEADROOM - ROOM..HEADROOM];
                    let word =
                        |at: usize| room[4 * at..][..4].try_into().map_or(0, u32::from_ne_bytes);
                    if word(0) == KNOWN {
                        let other = word(6);
                        *into = Headers {
                            flow: word(3),
                            source: word(1),
                            destination: word(2),
                            mark: word(4),
                            network_offset: other as u16,
                            dscp: (other >> 18) as u8 & 63,
                            ecn: Ecn::of((other >> 16) as u8),
                            is_arp: false,
                            pace: PaceId::NONE,
                        };
                    }
                }
                let found = began.elapsed().as_nanos() as f64 / frames as f64;
                black_box(&mut into);
                best = [best[0].min(read), best[1].min(found)];
            }
            let [read, found] = best;
            println!("{frames} frames: {read:.1} ns to read headers, {found:.1} ns to find them");
        }
    }
}
