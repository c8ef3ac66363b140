//! The fast path for the most common frame: plain Ethernet, IPv4 without options, TCP or UDP,
//! complete.
//!
//! All relevant fields are in the first [`LEN`] bytes, at fixed offsets, so the length is checked
//! once. The result equals that of parsing header by header.

use super::layer::IPV4;
use super::link::ETHERNET_LEN;
use super::protocol::{TCP, UDP};
use super::tunnel::VXLAN_PORT;

/// The offset of IPv4, and of its payload.
const IP: usize = ETHERNET_LEN;
const PORTS: usize = IP + 20;
/// The end of the ports.
const LEN: usize = PORTS + 4;

/// The first bytes of a plain frame.
#[derive(Clone, Copy)]
pub(super) struct Plain<'a>(&'a [u8; LEN]);

/// `frame`, if it is plain; with `inner`, only if it cannot contain a tunnel.
#[inline(always)]
pub(super) fn plain(frame: &[u8], inner: bool) -> Option<Plain<'_>> {
    let plain = Plain(frame.first_chunk()?);
    // Version 4, and five words of header.
    let is_ipv4 = plain.half(IP - 2) == IPV4 && plain.0[IP] == 0x45;
    // No more fragments and no offset.
    let is_whole = plain.half(IP + 6) & 0x3fff == 0;
    let is_tcp_or_udp = matches!(plain.protocol(), TCP | UDP);
    let has_ports = usize::from(plain.half(IP + 2)) >= LEN - IP;
    let may_be_tunnel = inner && plain.half(PORTS + 2) == VXLAN_PORT;
    (is_ipv4 && is_whole && is_tcp_or_udp && has_ports && !may_be_tunnel).then_some(plain)
}

impl Plain<'_> {
    /// Both addresses.
    #[inline(always)]
    pub(super) fn hosts(self) -> [u8; 8] {
        std::array::from_fn(|byte| self.0[IP + 12 + byte])
    }

    #[inline(always)]
    pub(super) fn protocol(self) -> u8 {
        self.0[IP + 9]
    }

    /// Both ports, the source's in the upper half.
    #[inline(always)]
    pub(super) fn ports(self) -> u32 {
        self.word(PORTS)
    }

    #[inline(always)]
    pub(super) fn traffic_class(self) -> u8 {
        self.0[IP + 1]
    }

    /// Both addresses, the source's first.
    #[inline(always)]
    pub(super) fn addresses(self) -> [u32; 2] {
        [self.word(IP + 12), self.word(IP + 16)]
    }

    #[inline(always)]
    pub(super) fn ttl(self) -> u8 {
        self.0[IP + 8]
    }

    /// The MAC addresses in the low 48 bits, the destination first.
    #[inline(always)]
    pub(super) fn stations(self) -> [u64; 2] {
        let upper = |at| u64::from(self.half(at)) << 32;
        [upper(0) | u64::from(self.word(2)), upper(6) | u64::from(self.word(8))]
    }

    /// The TCP flags in `frame`, which begins with this, if they are within the packet.
    #[inline(always)]
    pub(super) fn tcp_flags(self, frame: &[u8]) -> Option<u16> {
        let end = IP + usize::from(self.half(IP + 2));
        let flags = frame.get(PORTS + 12..PORTS + 14).filter(|_| end >= PORTS + 14)?;
        Some(u16::from_be_bytes([flags[0], flags[1]]) & 0x0fff)
    }

    #[inline(always)]
    fn half(self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    #[inline(always)]
    fn word(self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }
}
