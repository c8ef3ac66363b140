//! IP addresses on an interface.

use crate::LinkError;
use crate::netlink;
use crate::status::{each, u32_at};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// `struct ifaddrmsg`: family, prefix length, flags, scope, index.
const HEADER: usize = 8;

/// An IP address with the length of its prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let answers = netlink::dump("listing IP addresses", request)?;
    Ok(answers
        .iter()
        .filter_map(|answer| Address::parse(answer))
        .filter(|(index, _)| *index == ifindex)
        .map(|(_, address)| address)
        .collect())
}

fn ip(value: &[u8]) -> Option<IpAddr> {
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

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Address::parse(&bytes);
        }
    }
}
