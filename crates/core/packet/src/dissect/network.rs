//! IP headers, with options and extension headers.
//!
//! Parsed fields stay in registers: a packet is passed by value or to inlined functions, and only
//! the rare cases (extension headers, tunnels) are calls, with numbers as arguments. Writing fields
//! to memory one by one and reading them back at once as a whole would cost more than all of the
//! parsing.

use super::bytes::{be16, be32, byte, chunk};
use super::layer::Layer;
use super::link::Link;
use super::protocol::{Protocol, protocol};

/// The most extension headers that are parsed.
const EXTENSIONS_MAX: usize = 8;

/// The fields of an IP header. Addresses are not copied.
#[derive(Clone, Copy)]
pub(super) struct Packet {
    /// The offset of the header.
    pub(super) at: usize,
    pub(super) is_v6: bool,
    /// DSCP and ECN.
    pub(super) traffic_class: u8,
    /// The end of the packet by its declared length, limited to the frame.
    pub(super) end: usize,
    /// The end of the packet by its declared length.
    pub(super) declared_end: usize,
    /// The payload.
    pub(super) carried: Carried,
}

/// The payload of an IP header and its extensions.
#[derive(Clone, Copy)]
pub(super) struct Carried {
    /// The protocol of what begins at `at`.
    pub(super) protocol: u8,
    pub(super) at: usize,
    /// Whether the packet is a fragment.
    pub(super) is_fragment: bool,
    /// The security parameter index of a skipped authentication header, otherwise 0.
    pub(super) security: u32,
}

impl Packet {
    /// The packet at the end of `link`.
    #[inline(always)]
    pub(super) fn behind(frame: &[u8], link: &Link) -> Option<Self> {
        match link.ip? {
            (Layer::Ipv4, at) => Self::ipv4(frame, at),
            (Layer::Ipv6, at) => Self::ipv6(frame, at),
            _ => None,
        }
    }

    /// The IPv4 packet whose header is at `at`.
    #[inline(always)]
    pub(super) fn ipv4(frame: &[u8], at: usize) -> Option<Self> {
        let header: &[u8; 20] = chunk(frame, at)?;
        let header_len = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || header_len < 20 {
            return None;
        }
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        // "More fragments", or an offset that is not 0.
        let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        let (payload, declared_end) = (at + header_len, at + len);
        let end = believable(declared_end, payload, frame);
        Some(Self {
            at,
            is_v6: false,
            traffic_class: header[1],
            end,
            declared_end,
            carried: Carried::behind(frame, end, false, header[9], payload, is_fragment),
        })
    }

    /// The IPv6 packet whose header is at `at`.
    #[inline(always)]
    pub(super) fn ipv6(frame: &[u8], at: usize) -> Option<Self> {
        let header: &[u8; 40] = chunk(frame, at)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let (payload, declared_end) = (at + 40, at + 40 + len);
        // A length of 0 means a jumbogram.
        let end = believable(declared_end, payload + 1, frame);
        Some(Self {
            at,
            is_v6: true,
            traffic_class: header[0] << 4 | header[1] >> 4,
            end,
            declared_end,
            carried: Carried::behind(frame, end, true, header[6], payload, false),
        })
    }

    /// The bytes of `frame` up to where this packet ends.
    #[inline(always)]
    pub(super) fn bytes<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(..self.end).unwrap_or(frame)
    }
}

impl Carried {
    /// The payload after extension headers, which few packets have. A fragment ends the search:
    /// only one fragment contains the further headers.
    #[inline(always)]
    fn behind(
        frame: &[u8],
        end: usize,
        is_v6: bool,
        number: u8,
        at: usize,
        is_fragment: bool,
    ) -> Self {
        match protocol(number) {
            Protocol::Authentication | Protocol::Extension | Protocol::Fragment if !is_fragment => {
                Self::behind_extensions(frame.get(..end).unwrap_or(frame), is_v6, number, at)
            }
            _ => Self { protocol: number, at, is_fragment, security: 0 },
        }
    }

    #[inline(never)]
    fn behind_extensions(bytes: &[u8], is_v6: bool, number: u8, at: usize) -> Self {
        let mut carried = Self { protocol: number, at, is_fragment: false, security: 0 };
        for _ in 0..EXTENSIONS_MAX {
            let sort = protocol(carried.protocol);
            let is_passed = match sort {
                Protocol::Authentication => true,
                Protocol::Extension | Protocol::Fragment => is_v6,
                _ => false,
            };
            if !is_passed || carried.is_fragment || carried.pass(bytes, sort).is_none() {
                break;
            }
        }
        carried
    }

    /// Skips one such header. `None`, without a step, if it is truncated.
    fn pass(&mut self, bytes: &[u8], sort: Protocol) -> Option<()> {
        let next = byte(bytes, self.at)?;
        let count = usize::from(byte(bytes, self.at + 1)?);
        let len = match sort {
            Protocol::Authentication => {
                self.security = be32(bytes, self.at + 4)?;
                (count + 2) * 4
            }
            Protocol::Fragment => {
                // With neither an offset nor more fragments it is a complete packet (RFC 6946).
                self.is_fragment = be16(bytes, self.at + 2)? & 0xfff9 != 0;
                8
            }
            _ => (count + 1) * 8,
        };
        self.protocol = next;
        self.at += len;
        Some(())
    }
}

/// The end of a packet that declares `declared` and cannot end before `least`. A length that is
/// wrong, or left for others to fill in, counts as the end of the frame.
#[inline]
fn believable(declared: usize, least: usize, frame: &[u8]) -> usize {
    if declared < least { frame.len() } else { declared.min(frame.len()) }
}
