//! `flower`: named fields of a packet.

use crate::Prefix;
use crate::filter::{is_of, is_tag};
use narrows_packet::dissect::{Fragment, Keys, Tag};

/// A range of ports, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortRange {
    /// The lowest port.
    pub first: u16,
    /// The highest port.
    pub last: u16,
}

/// The conditions of a `flower` filter; `None` matches anything. A pair is a value and a mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flower {
    /// `vlan_id`, of the outer tag.
    pub vlan_id: Option<u16>,
    /// `vlan_prio`, 0 to 7.
    pub vlan_priority: Option<u8>,
    /// `vlan_ethtype`: the EtherType of the second tag, or the one after the tags.
    pub vlan_ether_type: Option<u16>,
    /// `cvlan_id`, of the second tag.
    pub inner_vlan_id: Option<u16>,
    /// `cvlan_prio`, 0 to 7.
    pub inner_vlan_priority: Option<u8>,
    /// `cvlan_ethtype`: the EtherType after the tags, of which there are two or more.
    pub inner_vlan_ether_type: Option<u16>,
    /// `dst_mac`, in the low 48 bits.
    pub destination_mac: Option<(u64, u64)>,
    /// `src_mac`
    pub source_mac: Option<(u64, u64)>,
    /// `ip_proto`, by its number.
    pub protocol: Option<u8>,
    /// `ip_tos`
    pub traffic_class: Option<(u8, u8)>,
    /// `ip_ttl`
    pub ttl: Option<(u8, u8)>,
    /// `dst_ip`
    pub destination: Option<Prefix>,
    /// `src_ip`
    pub source: Option<Prefix>,
    /// `dst_port`
    pub destination_port: Option<PortRange>,
    /// `src_port`
    pub source_port: Option<PortRange>,
    /// `tcp_flags`
    pub tcp_flags: Option<(u16, u16)>,
    /// `type`
    pub icmp_type: Option<(u8, u8)>,
    /// `code`
    pub icmp_code: Option<(u8, u8)>,
    /// `ip_flags frag` or `nofrag`.
    pub is_fragment: Option<bool>,
    /// `ip_flags firstfrag` or `nofirstfrag`.
    pub is_first_fragment: Option<bool>,
}

impl Flower {
    /// Whether it has a condition beyond the link layer.
    pub(crate) fn wants_ip(&self) -> bool {
        let link = Self {
            vlan_id: self.vlan_id,
            vlan_priority: self.vlan_priority,
            vlan_ether_type: self.vlan_ether_type,
            inner_vlan_id: self.inner_vlan_id,
            inner_vlan_priority: self.inner_vlan_priority,
            inner_vlan_ether_type: self.inner_vlan_ether_type,
            destination_mac: self.destination_mac,
            source_mac: self.source_mac,
            ..Self::default()
        };
        *self != link
    }

    pub(crate) fn matches(&self, keys: &Keys) -> bool {
        let link = has_tag(keys.tag, self.vlan_id, self.vlan_priority)
            && has_tag(keys.inner_tag, self.inner_vlan_id, self.inner_vlan_priority)
            && self.vlan_ether_type.is_none_or(|kind| {
                keys.tag.is_some()
                    && match is_tag(kind) {
                        true => keys.inner_tag.is_some_and(|tag| tag.ether_type == kind),
                        false => is_of(kind, keys),
                    }
            })
            && self
                .inner_vlan_ether_type
                .is_none_or(|kind| keys.inner_tag.is_some() && is_of(kind, keys))
            && agrees(self.destination_mac, keys.destination_mac)
            && agrees(self.source_mac, keys.source_mac);
        if !link || !self.wants_ip() {
            return link;
        }
        let Some(ip) = keys.ip else { return false };
        let begins = |prefix: Option<Prefix>, address| {
            prefix.is_none_or(|prefix| prefix.is_v6() == ip.is_v6 && prefix.contains(address))
        };
        let within = |range: Option<PortRange>, port: Option<u16>| {
            range.is_none_or(|range| {
                port.is_some_and(|port| (range.first..=range.last).contains(&port))
            })
        };
        let is_first = ip.fragment == Some(Fragment::First);
        self.protocol.is_none_or(|protocol| protocol == ip.protocol)
            && agrees(wide(self.traffic_class), u64::from(ip.traffic_class))
            && agrees(wide(self.ttl), u64::from(ip.ttl))
            && begins(self.destination, ip.destination)
            && begins(self.source, ip.source)
            && within(self.destination_port, ip.ports.map(|(_, port)| port))
            && within(self.source_port, ip.ports.map(|(port, _)| port))
            && has(wide(self.tcp_flags), ip.tcp_flags.map(u64::from))
            && has(wide(self.icmp_type), ip.icmp.map(|(sort, _)| u64::from(sort)))
            && has(wide(self.icmp_code), ip.icmp.map(|(_, code)| u64::from(code)))
            && self.is_fragment.is_none_or(|is| is == ip.fragment.is_some())
            && self.is_first_fragment.is_none_or(|is| is == is_first)
    }
}

/// Whether a tag has what is wanted of it; where nothing is, it may be none.
fn has_tag(tag: Option<Tag>, id: Option<u16>, priority: Option<u8>) -> bool {
    id.is_none_or(|id| tag.is_some_and(|tag| tag.id == id))
        && priority.is_none_or(|priority| tag.is_some_and(|tag| tag.priority == priority))
}

/// Widens a pair to words.
pub(crate) fn wide<T: Into<u64>>(pair: Option<(T, T)>) -> Option<(u64, u64)> {
    pair.map(|(value, mask)| (value.into(), mask.into()))
}

fn agrees(wanted: Option<(u64, u64)>, is: u64) -> bool {
    wanted.is_none_or(|(value, mask)| (is ^ value) & mask == 0)
}

/// Whether an optional field satisfies a condition.
fn has(wanted: Option<(u64, u64)>, is: Option<u64>) -> bool {
    wanted.is_none() || is.is_some_and(|is| agrees(wanted, is))
}
