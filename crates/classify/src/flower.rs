//! `flower`: named fields of a packet.

use crate::Prefix;
use narrows_packet::dissect::Keys;

/// Ports from the first to the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

/// What a packet has to be; what is `None` may be anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flower {
    /// `vlan_id`
    pub vlan_id: Option<u16>,
    /// `ip_proto`, by its number.
    pub protocol: Option<u8>,
    /// `ip_tos`, and the bits of it that count.
    pub traffic_class: Option<(u8, u8)>,
    /// `dst_ip`
    pub destination: Option<Prefix>,
    /// `src_ip`
    pub source: Option<Prefix>,
    /// `dst_port`
    pub destination_port: Option<PortRange>,
    /// `src_port`
    pub source_port: Option<PortRange>,
}

impl Flower {
    /// Whether anything but the link layer is asked for.
    fn wants_ip(&self) -> bool {
        *self != Self { vlan_id: self.vlan_id, ..Self::default() }
    }

    pub(crate) fn matches(&self, keys: &Keys) -> bool {
        if self.vlan_id.is_some() && self.vlan_id != keys.vlan_id {
            return false;
        }
        if !self.wants_ip() {
            return true;
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
        self.protocol.is_none_or(|protocol| protocol == ip.protocol)
            && self.traffic_class.is_none_or(|(value, mask)| (ip.traffic_class ^ value) & mask == 0)
            && begins(self.destination, ip.destination)
            && begins(self.source, ip.source)
            && within(self.destination_port, ip.ports.map(|(_, port)| port))
            && within(self.source_port, ip.ports.map(|(port, _)| port))
    }
}
