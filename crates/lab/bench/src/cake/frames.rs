//! The frames that all structures get: UDP over IPv4, right in every checksum.
//!
//! They lie 2048 bytes apart, as in a data plane: the smaller frame of AF_XDP. Their length field
//! says [`LEN`] bytes, but only the first [`HELD`] exist; nothing reads further.
//!
//! Packet `p` is of flow `p` modulo the number of flows, always. 16 flows share a source
//! and as many a destination, crosswise; code points take turns, so that each source sends best
//! effort, bulk, video and voice.

use anyhow::Result;
use etherparse::{IpDscp, IpHeaders, Ipv4Header, PacketBuilder, ip_number};
use narrows_packet::PacketId;

/// The claimed length of a frame, Ethernet header included.
pub(crate) const LEN: u16 = 1500;
/// How much of it is there.
const HELD: usize = 128;
/// The distance of frames: as small as that of `rte_sched`'s packets, so that the comparison is not
/// about the cache. (In a UMEM it is 2048, and frames share few cache sets.)
const STRIDE: usize = 128;
/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;
/// Flows of one source, and to one destination.
const FLOWS_A_HOST: u32 = 16;
/// Best effort (CS0), bulk (CS1), video (AF41) and voice (EF): one for each tin of `diffserv4`.
const CODE_POINTS: [IpDscp; 4] = [IpDscp::CS0, IpDscp::CS1, IpDscp::AF41, IpDscp::EF];
const SOURCES: u32 = u32::from_be_bytes([10, 0, 0, 0]);
const DESTINATIONS: u32 = u32::from_be_bytes([172, 16, 0, 0]);
const FIRST_PORT: u16 = 20_000;
const DISCARD: u16 = 9;

/// The frames of all packets.
pub(crate) struct Frames {
    memory: Box<[u8]>,
}

impl Frames {
    /// The frames of `packets` packets of `flows` flows.
    pub(crate) fn new(packets: u32, flows: u32) -> Result<Self> {
        let mut memory = vec![0; packets as usize * STRIDE].into_boxed_slice();
        let payload = vec![0; usize::from(LEN) - HEADERS];
        let mut whole = Vec::with_capacity(usize::from(LEN));
        for (packet, frame) in (0..packets).zip(memory.chunks_exact_mut(STRIDE)) {
            whole.clear();
            write(packet % flows, flows, &payload, &mut whole)?;
            frame[..HELD].copy_from_slice(&whole[..HELD]);
        }
        Ok(Self { memory })
    }

    /// The existing bytes of the frame of `id`.
    #[inline]
    pub(crate) fn of(&self, id: PacketId) -> &[u8] {
        let start = id.0 as usize * STRIDE;
        &self.memory[start..start + HELD]
    }
}

/// Writes a frame of flow `flow` of `flows`.
fn write(flow: u32, flows: u32, payload: &[u8], frame: &mut Vec<u8>) -> Result<()> {
    let hosts = flows.div_ceil(FLOWS_A_HOST);
    let (source, destination) = (SOURCES + flow / FLOWS_A_HOST, DESTINATIONS + flow % hosts);
    let header = Ipv4Header {
        dscp: CODE_POINTS[flow as usize % CODE_POINTS.len()],
        time_to_live: 64,
        protocol: ip_number::UDP,
        source: source.to_be_bytes(),
        destination: destination.to_be_bytes(),
        ..Ipv4Header::default()
    };
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ip(IpHeaders::Ipv4(header, Default::default()))
        .udp(FIRST_PORT + (flow % FLOWS_A_HOST) as u16, DISCARD)
        .write(frame, payload)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_packet::dissect::Dissector;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn the_work_has_the_configured_number_of_flows() {
        const FLOWS: u32 = 4096;
        let frames = Frames::new(2 * FLOWS, FLOWS).unwrap();
        let dissector = Dissector::new(1);
        let read = |packet| dissector.headers(frames.of(PacketId(packet)), false);
        let flows: HashSet<u32> = (0..FLOWS).map(|packet| read(packet).flow).collect();
        assert_eq!(flows.len(), FLOWS as usize);
        assert!((0..FLOWS).all(|packet| read(packet) == read(packet + FLOWS)));
    }

    #[test]
    fn every_host_has_sixteen_flows_at_either_end() {
        const FLOWS: u32 = 1024;
        let frames = Frames::new(FLOWS, FLOWS).unwrap();
        let dissector = Dissector::new(1);
        let (mut sources, mut destinations) = (HashMap::new(), HashMap::new());
        for packet in 0..FLOWS {
            let headers = dissector.headers(frames.of(PacketId(packet)), false);
            *sources.entry(headers.source).or_insert(0) += 1;
            *destinations.entry(headers.destination).or_insert(0) += 1;
        }
        assert!(sources.values().chain(destinations.values()).all(|flows| *flows == 16));
        assert_eq!((sources.len(), destinations.len()), (64, 64));
    }

    #[test]
    fn each_code_point_has_a_quarter_of_the_flows_and_a_single_flow_is_best_effort() {
        let frames = Frames::new(32, 32).unwrap();
        let dissector = Dissector::new(1);
        let read = |packet| dissector.headers(frames.of(PacketId(packet)), false).dscp;
        assert_eq!((0..4).map(read).collect::<Vec<_>>(), [0, 8, 34, 46]);
        for dscp in [0, 8, 34, 46] {
            assert_eq!((0..32).filter(|packet| read(*packet) == dscp).count(), 8);
        }
    }
}
