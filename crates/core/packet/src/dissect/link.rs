//! From the Ethernet header to the IP header.

use super::bytes::{be16, be32, byte};
use super::layer::{ETHER_TYPE_MIN, LLC, Layer, RAW, RAW_BEGINS, layer};

/// The length of an Ethernet header without tags.
pub(super) const ETHERNET_LEN: usize = 14;

/// The most tags, and the most labels, that are parsed.
const LAYERS_MAX: usize = 8;

/// Where the stack of tags or labels ends and IP begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link {
    /// The EtherType after all tags; of a frame with a length, the number that Linux has for it.
    pub(super) ether_type: u16,
    /// The offset of the network layer: after all tags, before PPPoE and MPLS.
    pub(super) network: usize,
    /// The kind and offset of the IP header, if there is one.
    pub(super) ip: Option<(Layer, usize)>,
}

impl Link {
    /// Parses from the Ethernet header at the start of `frame`. `None` if it is truncated.
    #[inline(always)]
    pub(super) fn walk(frame: &[u8]) -> Option<Self> {
        Self::walk_from(frame, 0)
    }

    /// Parses from an Ethernet header at `at`.
    #[inline(always)]
    pub(super) fn walk_from(frame: &[u8], at: usize) -> Option<Self> {
        Some(Self::behind(frame, be16(frame, at + 12)?, at + ETHERNET_LEN))
    }

    /// Parses from the layer of `ether_type`, which begins at `at`.
    #[inline(always)]
    pub(super) fn behind(frame: &[u8], mut ether_type: u16, at: usize) -> Self {
        let mut network = at;
        let mut sort = layer(ether_type);
        let mut tags = 0;
        while sort == Some(Layer::Tag) && tags < LAYERS_MAX {
            let Some(next) = be16(frame, network + 2) else { break };
            ether_type = next;
            sort = layer(ether_type);
            network += 4;
            tags += 1;
        }
        let ip = match sort {
            Some(sort @ (Layer::Ipv4 | Layer::Ipv6)) => Some((sort, network)),
            Some(Layer::Mpls) => behind_labels(frame, network),
            Some(Layer::Pppoe) => behind_pppoe(frame, network),
            Some(Layer::Tag | Layer::Ethernet) | None => None,
        };
        // The rule of eth_type_trans() in the kernel.
        let ether_type = match ether_type {
            ETHER_TYPE_MIN.. => ether_type,
            _ if be16(frame, network) == Some(RAW_BEGINS) => RAW,
            _ => LLC,
        };
        Self { ether_type, network, ip }
    }
}

/// The IP header after a stack of MPLS labels. Nothing declares its version; the first half byte
/// shows it, which is also how routers guess it.
#[inline(never)]
fn behind_labels(frame: &[u8], at: usize) -> Option<(Layer, usize)> {
    const BOTTOM_OF_STACK: u32 = 1 << 8;
    let labels = (0..LAYERS_MAX).map(|index| at + 4 * index);
    for label in labels {
        if be32(frame, label)? & BOTTOM_OF_STACK != 0 {
            return match byte(frame, label + 4)? >> 4 {
                4 => Some((Layer::Ipv4, label + 4)),
                6 => Some((Layer::Ipv6, label + 4)),
                _ => None,
            };
        }
    }
    None
}

/// The IP header after PPPoE's six bytes and PPP's protocol of two.
#[inline(never)]
fn behind_pppoe(frame: &[u8], at: usize) -> Option<(Layer, usize)> {
    // Version 1, type 1, and code 0, which is data.
    if be16(frame, at)? != 0x1100 {
        return None;
    }
    match be16(frame, at + 6)? {
        0x0021 => Some((Layer::Ipv4, at + 8)),
        0x0057 => Some((Layer::Ipv6, at + 8)),
        _ => None,
    }
}
