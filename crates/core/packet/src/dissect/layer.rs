//! The meaning of EtherTypes.

/// IPv4 (RFC 894).
pub(super) const IPV4: u16 = 0x0800;

/// IPv6 (RFC 2464).
pub(super) const IPV6: u16 = 0x86dd;

/// ARP for IPv4 (RFC 826).
pub(super) const ARP: u16 = 0x0806;

/// Smaller numbers are not EtherTypes but the length of an IEEE 802.3 frame.
pub(super) const ETHER_TYPE_MIN: u16 = 0x0600;

/// What a frame with a length carries, as a protocol of Linux (`ETH_P_802_3`): a packet of IPX by
/// itself, which begins with this checksum.
pub(super) const RAW: u16 = 0x0001;
/// The first bytes of it.
pub(super) const RAW_BEGINS: u16 = 0xffff;

/// Likewise (`ETH_P_802_2`): a header of IEEE 802.2, as that of spanning trees.
pub(super) const LLC: u16 = 0x0004;

/// The layer after an EtherType.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layer {
    Ipv4,
    Ipv6,
    /// Two bytes of tag and another EtherType: IEEE 802.1Q, 802.1ad and its predecessors.
    Tag,
    /// A stack of labels.
    Mpls,
    /// The session stage of PPP over Ethernet.
    Pppoe,
    /// A complete frame, as tunnels carry it.
    Ethernet,
}

/// The layer for `ether_type`, if it is parsed.
#[inline]
pub(super) const fn layer(ether_type: u16) -> Option<Layer> {
    Some(match ether_type {
        IPV4 => Layer::Ipv4,
        IPV6 => Layer::Ipv6,
        0x8100 | 0x88a8 | 0x9100 | 0x9200 => Layer::Tag,
        0x8847 | 0x8848 => Layer::Mpls,
        0x8864 => Layer::Pppoe,
        0x6558 => Layer::Ethernet,
        _ => return None,
    })
}
