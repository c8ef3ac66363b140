//! The link-local addresses that the kernel gives every interface: taken off a port, and put back.
//!
//! With such an address the host can be reached from the port's network, and sends there on its
//! own: router solicitations, multicast reports. A bump in the wire does neither.
//!
//! It is done over netlink, not in `/proc/sys`, which a confined process cannot write.

use crate::link::change;
use crate::{Address, Link, LinkError, netlink};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use serde::{Deserialize, Serialize};

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
}

impl Automatic {
    /// Those of `link`; none if it has none and gets none.
    pub fn of(link: &Link) -> Option<Self> {
        let mode = link.status.address_generation?;
        let addresses = link.addresses.iter().copied().filter(Address::is_automatic);
        let addresses: Vec<Address> = addresses.collect();
        let ifindex = link.status.ifindex;
        (mode != NONE || !addresses.is_empty()).then_some(Self { ifindex, mode, addresses })
    }

    /// Adds what was `found` later on the same interface.
    pub fn extend(&mut self, found: &Self) {
        if found.mode != NONE {
            self.mode = found.mode;
        }
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

    /// Puts them back.
    ///
    /// # Errors
    ///
    /// If the interface is gone, or without CAP_NET_ADMIN.
    pub fn put_back(&self) -> Result<(), LinkError> {
        generate(self.ifindex, self.mode)?;
        for address in &self.addresses {
            let doing = format!("putting {address} on interface {} again", self.ifindex);
            let message = RouteNetlinkMessage::NewAddress(self.message(address));
            netlink::ask(&doing, message, NLM_F_CREATE | NLM_F_REPLACE)?;
        }
        Ok(())
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
    fn what_comes_later_is_added_and_the_way_they_are_made_is_kept() {
        let mut first = Automatic::of(&link(Some(3), &["fe80::1"])).unwrap();
        first.extend(&Automatic::of(&link(Some(NONE), &["fe80::1", "fe80::2"])).unwrap());
        assert_eq!((first.mode, first.addresses.len()), (3, 2));
    }
}
