//! The link-local addresses that the kernel gives every interface: taken off a port, and put back.
//!
//! With such an address the host can be reached from the port's network, and sends there on its
//! own: router solicitations, multicast reports. A bump in the wire does neither.
//!
//! It is done over netlink, not in `/proc/sys`, which a confined process cannot write. The kernel
//! makes an address when the link comes up for the first time, and over netlink not again. So an
//! interface that had none yet, because it had just come, gets the address that it would have had.

use crate::link::{change, status_by_index};
use crate::{Address, Link, LinkError, LinkStatus, OperState, netlink};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use serde::{Deserialize, Serialize};
use std::net::Ipv6Addr;

/// The address is made of the MAC address (`IN6_ADDR_GEN_MODE_EUI64`; RFC 4291, appendix A).
const EUI64: u8 = 0;
/// No address is made (`IN6_ADDR_GEN_MODE_NONE`).
pub(crate) const NONE: u8 = 1;

/// The automatic addresses of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Automatic {
    /// The interface's index.
    pub ifindex: u32,
    /// How the kernel makes them (`IN6_ADDR_GEN_MODE_…`).
    mode: u8,
    /// The addresses.
    pub addresses: Vec<Address>,
    /// Whether its link was not up yet, so that the kernel would still have made one.
    #[serde(default)]
    is_due: bool,
}

impl Automatic {
    /// Those of `link`; none if it has none and gets none.
    pub fn of(link: &Link) -> Option<Self> {
        let mode = link.status.address_generation?;
        let addresses = link.addresses.iter().copied().filter(Address::is_automatic);
        let addresses: Vec<Address> = addresses.collect();
        let ifindex = link.status.ifindex;
        let is_due = mode != NONE && addresses.is_empty() && !is_up(&link.status);
        (mode != NONE || !addresses.is_empty()).then_some(Self { ifindex, mode, addresses, is_due })
    }

    /// Adds what was `found` later on the same interface.
    pub fn extend(&mut self, found: &Self) {
        if found.mode != NONE {
            self.mode = found.mode;
        }
        self.is_due |= found.is_due;
        let new = found.addresses.iter().filter(|address| !self.addresses.contains(address));
        let new: Vec<Address> = new.copied().collect();
        self.addresses.extend(new);
    }

    /// Takes them off, and lets the kernel make no others.
    ///
    /// # Errors
    ///
    /// If the interface is gone, or without CAP_NET_ADMIN. Calling it again completes it.
    pub fn take_off(&self) -> Result<(), LinkError> {
        generate(self.ifindex, NONE)?;
        for address in &self.addresses {
            let doing = format!("removing {address} from interface {}", self.ifindex);
            let message = RouteNetlinkMessage::DelAddress(self.message(address));
            match netlink::ask(&doing, message, 0) {
                // It went by itself, as it does when the interface goes down.
                Err(error) if error.errno() == Some(libc::EADDRNOTAVAIL) => {}
                result => drop(result?),
            }
        }
        Ok(())
    }

    /// Puts them back. An interface whose link came up meanwhile gets the one that the kernel
    /// would have made of its MAC address; made in another way, it comes when the interface is set
    /// up the next time.
    ///
    /// # Errors
    ///
    /// If the interface is gone, or without CAP_NET_ADMIN.
    pub fn put_back(&self) -> Result<(), LinkError> {
        generate(self.ifindex, self.mode)?;
        let due = if self.is_due { self.due(&status_by_index(self.ifindex)?) } else { None };
        for address in self.addresses.iter().chain(&due) {
            let doing = format!("putting {address} on interface {} again", self.ifindex);
            let message = RouteNetlinkMessage::NewAddress(self.message(address));
            netlink::ask(&doing, message, NLM_F_CREATE | NLM_F_REPLACE)?;
        }
        Ok(())
    }

    /// The address that the kernel would have made for the interface as it is now.
    fn due(&self, now: &LinkStatus) -> Option<Address> {
        let is_made = self.addresses.is_empty() && self.mode == EUI64 && is_up(now);
        is_made.then(|| Address { ip: of_mac(now.mac).into(), prefix: 64 })
    }

    fn message(&self, address: &Address) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet6;
        message.header.prefix_len = address.prefix;
        message.header.scope = AddressScope::Link;
        message.header.index = self.ifindex;
        message.attributes =
            vec![AddressAttribute::Local(address.ip), AddressAttribute::Address(address.ip)];
        message
    }
}

/// Whether the kernel has made its addresses.
fn is_up(status: &LinkStatus) -> bool {
    status.up && matches!(status.operstate, OperState::Up | OperState::Unknown)
}

/// The link-local address of an interface with this MAC address.
fn of_mac([a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f].into()
}

/// Sets how the kernel makes the link-local address of the interface `ifindex`.
pub(crate) fn generate(ifindex: u32, mode: u8) -> Result<(), LinkError> {
    let doing = format!("setting how interface {ifindex} gets an address");
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message.attributes = vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![
        AfSpecInet6::AddrGenMode(In6AddrGenMode::from(mode)),
    ])])];
    change(ifindex, &doing, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkStatus;

    fn link(mode: Option<u8>, addresses: &[&str]) -> Link {
        let address = |ip: &&str| Address { ip: ip.parse().unwrap(), prefix: 64 };
        let status = LinkStatus { ifindex: 3, address_generation: mode, ..LinkStatus::default() };
        Link { status, addresses: addresses.iter().map(address).collect(), ..Link::default() }
    }

    #[test]
    fn an_interface_that_neither_has_nor_gets_any_is_left_alone() {
        assert_eq!(Automatic::of(&link(None, &[])), None);
        assert_eq!(Automatic::of(&link(Some(NONE), &["192.0.2.1"])), None);
        assert!(Automatic::of(&link(Some(0), &[])).is_some());
        let only_old = Automatic::of(&link(Some(NONE), &["fe80::1", "2001:db8::1"])).unwrap();
        assert_eq!(only_old.addresses.len(), 1);
    }

    #[test]
    fn an_interface_that_came_up_meanwhile_gets_the_address_that_it_would_have_had() {
        let new = Automatic::of(&link(Some(EUI64), &[])).unwrap();
        let mut now = LinkStatus { mac: [0x52, 0x54, 0, 0, 0, 3], ..LinkStatus::default() };
        assert_eq!(new.due(&now), None, "the kernel will make it");
        (now.up, now.operstate) = (true, OperState::Up);
        assert_eq!(new.due(&now).unwrap().to_string(), "fe80::5054:ff:fe00:3/64");
        assert_eq!(Automatic::of(&link(Some(3), &[])).unwrap().due(&now), None, "random");
        // Its operator had taken it off.
        let mut without = link(Some(EUI64), &[]);
        (without.status.up, without.status.operstate) = (true, OperState::Up);
        assert!(!Automatic::of(&without).unwrap().is_due);
        assert!(!Automatic::of(&link(Some(EUI64), &["fe80::1"])).unwrap().is_due);
        let mut earlier = Automatic::of(&without).unwrap();
        earlier.extend(&new);
        assert!(earlier.is_due);
    }

    #[test]
    fn what_comes_later_is_added_and_the_way_they_are_made_is_kept() {
        let mut first = Automatic::of(&link(Some(3), &["fe80::1"])).unwrap();
        first.extend(&Automatic::of(&link(Some(NONE), &["fe80::1", "fe80::2"])).unwrap());
        assert_eq!((first.mode, first.addresses.len()), (3, 2));
    }
}
