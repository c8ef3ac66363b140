//! IP headers, with options and extension headers.

use super::bytes::{be16, byte, chunk};
use super::layer::Layer;
use super::link::Link;
use super::protocol::{Protocol, protocol};

/// The most extension headers that are looked through.
const EXTENSIONS_MAX: usize = 8;

/// Who sends or receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Address {
    V4(u32),
    /// The upper and the lower half.
    V6(u64, u64),
    Mac([u8; 6]),
}

/// What an IP header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    /// The code point and the two bits of ECN.
    pub(super) traffic_class: u8,
    pub(super) source: Address,
    pub(super) destination: Address,
    /// What begins at `payload`.
    pub(super) protocol: u8,
    pub(super) payload: usize,
    /// Where the packet ends by its own account, as far as it lies within the frame.
    pub(super) end: usize,
    /// Where it ends by its own account.
    pub(super) declared_end: usize,
    pub(super) is_fragment: bool,
    /// The security parameter index of an authentication header that was looked through, else 0.
    pub(super) security: u32,
}

impl Packet {
    /// The packet that `link` leads to.
    #[inline]
    pub(super) fn behind(frame: &[u8], link: &Link) -> Option<Self> {
        match link.ip? {
            (Layer::Ipv4, at) => Self::ipv4(frame, at),
            (Layer::Ipv6, at) => Self::ipv6(frame, at),
            _ => None,
        }
    }

    /// The IPv4 packet whose header begins at `at`.
    pub(super) fn ipv4(frame: &[u8], at: usize) -> Option<Self> {
        let header: &[u8; 20] = chunk(frame, at)?;
        let header_len = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || header_len < 20 {
            return None;
        }
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        // The last three flags and the offset: "more fragments", or one that is not the first.
        let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        let (payload, declared_end) = (at + header_len, at + len);
        let packet = Self {
            traffic_class: header[1],
            source: Address::V4(u32::from_be_bytes([
                header[12], header[13], header[14], header[15],
            ])),
            destination: Address::V4(u32::from_be_bytes([
                header[16], header[17], header[18], header[19],
            ])),
            protocol: header[9],
            payload,
            end: believable(declared_end, payload, frame),
            declared_end,
            is_fragment,
            security: 0,
        };
        Some(packet.behind_extensions(frame, false))
    }

    /// The IPv6 packet whose header begins at `at`.
    pub(super) fn ipv6(frame: &[u8], at: usize) -> Option<Self> {
        let header: &[u8; 40] = chunk(frame, at)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let half = |from: usize| chunk(header, from).copied().map(u64::from_be_bytes);
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let (payload, declared_end) = (at + 40, at + 40 + len);
        let packet = Self {
            traffic_class: header[0] << 4 | header[1] >> 4,
            source: Address::V6(half(8)?, half(16)?),
            destination: Address::V6(half(24)?, half(32)?),
            protocol: header[6],
            payload,
            // No length at all is that of a jumbogram.
            end: believable(declared_end, payload + 1, frame),
            declared_end,
            is_fragment: false,
            security: 0,
        };
        Some(packet.behind_extensions(frame, true))
    }

    /// Goes on behind headers that stand between IP and the transport. A fragment ends the way:
    /// what follows is in one of them only.
    #[inline]
    fn behind_extensions(mut self, frame: &[u8], is_v6: bool) -> Self {
        for _ in 0..EXTENSIONS_MAX {
            let sort = protocol(self.protocol);
            let is_passed = match sort {
                Protocol::Authentication => true,
                Protocol::Extension | Protocol::Fragment => is_v6,
                _ => false,
            };
            if !is_passed || self.is_fragment || self.pass(frame, sort).is_none() {
                break;
            }
        }
        self
    }

    /// Passes one such header. `None`, and nothing changed, where it is cut off.
    fn pass(&mut self, frame: &[u8], sort: Protocol) -> Option<()> {
        let bytes = frame.get(..self.end)?;
        let next = byte(bytes, self.payload)?;
        let count = usize::from(byte(bytes, self.payload + 1)?);
        let len = match sort {
            Protocol::Authentication => {
                self.security = super::bytes::be32(bytes, self.payload + 4)?;
                (count + 2) * 4
            }
            Protocol::Fragment => {
                // With neither an offset nor more to come it is a whole packet (RFC 6946).
                self.is_fragment = be16(bytes, self.payload + 2)? & 0xfff9 != 0;
                8
            }
            _ => (count + 1) * 8,
        };
        self.protocol = next;
        self.payload += len;
        Some(())
    }
}

/// Where a packet ends that says `declared`, and that cannot end before `least`: lengths that are
/// left to others to fill in, or wrong, count as "up to the frame's end".
#[inline]
fn believable(declared: usize, least: usize, frame: &[u8]) -> usize {
    if declared < least { frame.len() } else { declared.min(frame.len()) }
}
