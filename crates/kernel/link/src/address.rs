//! IP addresses on an interface.

use crate::link::all;
use crate::netlink;
use crate::status::{each, u32_at};
use crate::{LinkError, LinkStatus};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The loopback device of each network namespace.
const LOOPBACK: u32 = 1;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// `struct ifaddrmsg`: family, prefix length, flags, scope, index.
const HEADER: usize = 8;

/// An IP address with the length of its prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// The length of its prefix, in bits.
    pub prefix: u8,
}

impl Address {
    /// Reads the body of an address message: the interface's index and the address. None if it is
    /// truncated or has no address.
    pub fn parse(body: &[u8]) -> Option<(u32, Self)> {
        let (header, attributes) = body.split_at_checked(HEADER)?;
        let (mut local, mut other) = (None, None);
        each(attributes, |kind, value| match kind {
            IFA_LOCAL => local = ip(value),
            IFA_ADDRESS => other = ip(value),
            _ => {}
        });
        // On a point-to-point link, IFA_ADDRESS is the address of the other side.
        let ip = local.or(other)?;
        Some((u32_at(header, 4)?, Self { ip, prefix: header[1] }))
    }

    /// Whether the kernel configured it by itself, as it does on every interface.
    pub fn is_automatic(&self) -> bool {
        matches!(self.ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

/// Reads the addresses on interface `ifindex`.
pub(crate) fn addresses(ifindex: u32) -> Result<Vec<Address>, LinkError> {
    let of_it = |(index, address)| (index == ifindex).then_some(address);
    Ok(all_addresses()?.into_iter().filter_map(of_it).collect())
}

/// Reads the addresses on all interfaces of the namespace, each with the interface's index.
pub(crate) fn all_addresses() -> Result<Vec<(u32, Address)>, LinkError> {
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let answers = netlink::dump("listing IP addresses", request)?;
    Ok(answers.iter().filter_map(|answer| Address::parse(answer)).collect())
}

/// The addresses of this host in the namespace, each once, in order.
///
/// # Errors
///
/// If the kernel does not list them.
pub fn local_addresses() -> Result<Vec<IpAddr>, LinkError> {
    let all: BTreeSet<IpAddr> =
        all_addresses()?.into_iter().map(|(_, address)| address.ip).collect();
    Ok(all.into_iter().collect())
}

/// Whether the operator gave this host an address behind the port `ifindex`, so that frames to the
/// port's MAC address are for it: on the port, on the bridge that it belongs to, or on a VLAN of
/// either. Addresses that the kernel configured by itself do not count.
///
/// # Errors
///
/// If the kernel does not list addresses or interfaces.
pub fn is_addressed(ifindex: u32) -> Result<bool, LinkError> {
    Ok(!WayIn::read(ifindex)?.addresses.is_empty())
}

/// Whether this host has an address that its operator gave it on an interface that receives
/// nothing of what arrives at `ports`, other than the loopback device.
///
/// # Errors
///
/// If the kernel does not list addresses or interfaces.
pub fn is_reached_elsewhere(ports: &[u32]) -> Result<bool, LinkError> {
    let all = all()?;
    let through: Vec<u32> = ports.iter().flat_map(|&port| above(port, &all)).collect();
    let is_other = |(index, address): (u32, Address)| {
        index != LOOPBACK && !through.contains(&index) && !address.is_automatic()
    };
    Ok(all_addresses()?.into_iter().any(is_other))
}

/// How frames that arrive at a port reach this host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WayIn {
    /// The addresses that the operator gave this host there: on the port, on the bridge that it
    /// belongs to, or on a VLAN of either. Each once, in order. Without those that the kernel
    /// configured by itself.
    pub addresses: Vec<IpAddr>,
    /// The MAC address of the bridge that the port belongs to, if it belongs to one.
    pub bridge: Option<[u8; 6]>,
}

impl WayIn {
    /// That of the port `ifindex`.
    ///
    /// # Errors
    ///
    /// If the kernel does not list addresses or interfaces.
    pub fn read(ifindex: u32) -> Result<Self, LinkError> {
        let all = all()?;
        let above = above(ifindex, &all);
        let given = all_addresses()?
            .into_iter()
            .filter(|(index, address)| above.contains(index) && !address.is_automatic());
        let addresses: BTreeSet<IpAddr> = given.map(|(_, address)| address.ip).collect();
        let with_index = |index| all.iter().find(|link| link.ifindex == index);
        let master = with_index(ifindex).and_then(|port| port.master).and_then(with_index);
        let bridge = master.filter(|master| master.bridge.is_some()).map(|master| master.mac);
        Ok(Self { addresses: addresses.into_iter().collect(), bridge })
    }
}

/// The interfaces of this host that receive what arrives at `port`, itself included.
fn above(port: u32, all: &[LinkStatus]) -> Vec<u32> {
    let mut found = vec![port];
    let mut next = 0;
    while let Some(&below) = found.get(next) {
        next += 1;
        let master = all.iter().find(|link| link.ifindex == below).and_then(|link| link.master);
        let is_upper = |link: &&LinkStatus| {
            let is_here = |peer: crate::PeerId| peer.ifindex == below && peer.namespace.is_none();
            !link.is_veth() && link.peer.is_some_and(is_here)
        };
        let uppers = all.iter().filter(is_upper).map(|link| link.ifindex);
        let new: Vec<u32> = uppers.chain(master).filter(|index| !found.contains(index)).collect();
        found.extend(new);
    }
    found
}

/// The address with these bytes.
pub(crate) fn ip(value: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(value) {
        return Some(Ipv4Addr::from(bytes).into());
    }
    <[u8; 16]>::try_from(value).ok().map(|bytes| Ipv6Addr::from(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn link_local_addresses_are_the_kernel_s_own() {
        let of = |ip: &str| Address { ip: ip.parse().unwrap(), prefix: 64 }.is_automatic();
        assert!(of("fe80::1"));
        assert!(!of("2001:db8::1"));
        assert!(!of("169.254.1.1"));
    }

    #[test]
    fn an_address_behind_a_port_is_on_it_or_on_its_bridge_or_on_a_vlan_of_either() {
        let link = |ifindex, kind: &str, lower: Option<u32>, master| LinkStatus {
            ifindex,
            kind: Some(kind.to_owned()),
            peer: lower.map(|ifindex| crate::PeerId { ifindex, namespace: None }),
            master,
            ..LinkStatus::default()
        };
        let all = [
            link(2, "veth", Some(3), Some(9)),
            link(3, "veth", Some(2), None),
            link(4, "vlan", Some(2), None),
            link(5, "vlan", Some(9), None),
            link(6, "vlan", Some(5), None),
            link(7, "dummy", None, None),
            link(9, "bridge", None, None),
        ];
        let sorted = |port| {
            let mut found = above(port, &all);
            found.sort_unstable();
            found
        };
        assert_eq!(sorted(2), [2, 4, 5, 6, 9]);
        assert_eq!(sorted(3), [3]);
        // Whatever the kernel says, the search ends.
        assert_eq!(above(1, &[link(1, "vlan", Some(1), Some(1))]), [1]);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Address::parse(&bytes);
        }
    }
}
