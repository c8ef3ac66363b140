//! The frames of a chaos run: plain UDP with the number of its stream and a sequence number.
//!
//! They go to an unused address, so that no host answers. Their UDP checksum is 0, which IPv4
//! allows, so that the sequence number of a frame can be rewritten and the frame sent again.

use crate::bed::{CLIENT_IP, CLIENT_MAC, SERVER_IP, SERVER_MAC, SINK_MAC};
use crate::frames::{self, HEADERS, port};
use anyhow::{Result, ensure};
use std::net::Ipv4Addr;

/// The direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From the client to the server.
    Forth,
    /// From the server to the client.
    Back,
}

impl Way {
    /// Both, in the order in which arrays by way are kept.
    pub const BOTH: [Self; 2] = [Self::Forth, Self::Back];

    /// 0 or 1.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The mark in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The sender.
    pub(super) stream: u8,
    /// Its flow within the stream.
    pub(super) flow: u16,
    /// Its sequence number within the stream, over all flows.
    pub(super) seq: u64,
}

/// How a mark begins.
const MAGIC: [u8; 4] = *b"nrwC";
/// Bytes of a mark.
const LENGTH: usize = 16;
/// The shortest frame that holds one.
pub(super) const SHORTEST: usize = HEADERS + LENGTH;
/// The offset of the source address in a frame.
const SOURCE: usize = 26;

impl Mark {
    /// Writes it into a frame made by [`template`].
    pub(super) fn write(self, frame: &mut [u8]) {
        let mark = &mut frame[HEADERS..SHORTEST];
        mark[..4].copy_from_slice(&MAGIC);
        mark[4..6].copy_from_slice(&u16::from(self.stream).to_le_bytes());
        mark[6..8].copy_from_slice(&self.flow.to_le_bytes());
        mark[8..].copy_from_slice(&self.seq.to_le_bytes());
    }

    /// Parses it from the beginning of a received frame; `None` if it is not one of these frames.
    pub(super) fn read(frame: &[u8]) -> Option<Self> {
        let mark = frame.get(HEADERS..SHORTEST)?;
        let (magic, rest) = mark.split_at(4);
        if magic != MAGIC {
            return None;
        }
        Some(Self {
            stream: u8::try_from(u16::from_le_bytes(rest[..2].try_into().ok()?)).ok()?,
            flow: u16::from_le_bytes(rest[2..4].try_into().ok()?),
            seq: u64::from_le_bytes(rest[4..].try_into().ok()?),
        })
    }
}

/// The addresses between which frames go, of sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) macs: [[u8; 6]; 2],
    pub(super) ips: [Ipv4Addr; 2],
}

impl Path {
    /// Through a wire.
    pub(super) const fn direct(way: Way) -> Self {
        match way {
            Way::Forth => Self { macs: [CLIENT_MAC, SINK_MAC], ips: [CLIENT_IP, SERVER_IP] },
            Way::Back => Self { macs: [SERVER_MAC, SINK_MAC], ips: [SERVER_IP, CLIENT_IP] },
        }
    }
}

/// A frame of `length` bytes of the flow with number `flow`. It has no UDP checksum, because the
/// mark is written later.
pub(super) fn template(path: Path, flow: u16, length: usize) -> Result<Vec<u8>> {
    ensure!(length >= SHORTEST, "a frame has at least {SHORTEST} bytes, not {length}");
    frames::udp4(port(flow), path.macs, path.ips, length)
}

/// Gives a frame another source address, 10.0.0.0 and the lowest 24 bits of `number`.
pub(super) fn set_source(frame: &mut [u8], number: u32) -> Result<()> {
    let [_, a, b, c] = number.to_be_bytes();
    frame[SOURCE..SOURCE + 4].copy_from_slice(&[10, a, b, c]);
    frames::sum_up(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket};

    #[test]
    fn a_mark_comes_out_as_it_went_in() {
        let mark = Mark { stream: 3, flow: 65_535, seq: u64::MAX - 1 };
        let mut frame = template(Path::direct(Way::Back), 7, SHORTEST).unwrap();
        assert_eq!(Mark::read(&frame), None, "nothing is written yet");
        mark.write(&mut frame);
        assert_eq!(Mark::read(&frame), Some(mark));
        assert_eq!(Mark::read(&frame[..SHORTEST - 1]), None);
    }

    #[test]
    fn a_frame_has_the_flow_and_the_length_asked_for() {
        let frame = template(Path::direct(Way::Forth), 5, 300).unwrap();
        assert_eq!(frame.len(), 300);
        assert!(SlicedPacket::from_ethernet(&frame).is_ok());
        assert!(template(Path::direct(Way::Forth), 5, SHORTEST - 1).is_err());
    }

    #[test]
    fn another_source_leaves_the_header_right() {
        let mut frame = template(Path::direct(Way::Forth), 5, 100).unwrap();
        set_source(&mut frame, 0x0102_0304).unwrap();
        let parsed = SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(NetSlice::Ipv4(ip)) = parsed.net else { panic!("not IPv4") };
        assert_eq!(ip.header().source(), [10, 2, 3, 4]);
        let header = ip.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
    }
}
