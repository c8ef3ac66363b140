//! Neighbours that only programs in XDP send to.
//!
//! The kernel confirms a neighbour when it sends something to it, and finds out then whether its
//! MAC address has changed, or it is gone. What a program in XDP forwards is nothing that the
//! kernel sends. So such entries grow stale and stay so. [`use_stale`] takes them for the kernel,
//! as a packet would: it waits five seconds for a sign of life, and then asks.
//!
//! Called every few seconds, that is all: a stale entry is confirmed or goes. There is nothing to
//! undo, and it works on all kernels. The kernel's *managed* entries (since 5.16) would do the same
//! for entries that one marks, but not for hosts on the link, and a mark outlives who made it.
//!
//! A neighbour that is not known yet is found by the first packet through the kernel, or, where
//! none takes that way, by [`find`].
//!
//! Non-goals: entries that an operator or a routing daemon looks after.

use crate::LinkError;
use crate::address::ip;
use crate::netlink::{self, Request, stream};
use crate::status::{each, u32_at};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::net::IpAddr;

const NDA_DST: u16 = 1;
const NDA_FLAGS_EXT: u16 = 15;
/// `struct ndmsg`: family, padding, index, state, flags, type.
const HEADER: usize = 12;
const NUD_STALE: u16 = 4;

/// Makes the kernel confirm the stale neighbours on the links of the devices with these indices.
/// Returns how many there were. Costs a listing of all neighbours, and a request for each of them.
///
/// # Errors
///
/// Without CAP_NET_ADMIN, or if the kernel does not list neighbours or does not use one. It uses
/// the others all the same.
pub fn use_stale(devices: &[u32]) -> Result<usize, LinkError> {
    let mut stale = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut body = vec![0; HEADER];
        body[0] = family as u8;
        let request = Request::route(libc::RTM_GETNEIGH, body);
        let listed = stream("listing neighbours", &request, |body| {
            let entry = Stale::parse(body);
            stale.extend(entry.filter(|entry| devices.contains(&entry.ifindex)));
        });
        match listed {
            // A kernel without IPv6.
            Err(error) if error.errno() == Some(libc::EAFNOSUPPORT) => {}
            // One that is missed is used the next time.
            listed => drop(listed?),
        }
    }
    let mut result = Ok(stale.len());
    for entry in &stale {
        match entry.confirm() {
            Ok(()) => {}
            // It went in the meantime, or its device did.
            Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::ENODEV)) => {}
            Err(error) => result = Err(error),
        }
    }
    result
}

/// Has the kernel ask for the MAC address of the neighbour `ip` on the link of the device
/// `ifindex`, as a packet to it would. The answer is among the
/// [neighbours](crate::routes::neighbours) a moment later, if there is one.
///
/// # Errors
///
/// Without CAP_NET_ADMIN, or if the device is gone.
pub fn find(ifindex: u32, ip: IpAddr) -> Result<(), LinkError> {
    let message = Stale { ifindex, ip, flags: 0 }.message();
    let doing = format!("finding the neighbour {ip}");
    netlink::ask(&doing, RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE).map(drop)
}

/// An entry that nothing has confirmed for a while, and nobody but the kernel looks after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stale {
    ifindex: u32,
    ip: IpAddr,
    flags: u8,
}

impl Stale {
    fn parse(body: &[u8]) -> Option<Self> {
        let (header, attributes) = body.split_at_checked(HEADER)?;
        let state = u16::from_ne_bytes([header[8], header[9]]);
        let (mut ip_of_it, mut more_flags) = (None, 0);
        each(attributes, |kind, value| match kind {
            NDA_DST => ip_of_it = ip(value),
            NDA_FLAGS_EXT => more_flags = u32_at(value, 0).unwrap_or_default(),
            _ => {}
        });
        let flags = header[10];
        // A request without the flag that it was learned externally takes that off.
        let is_learned = flags & NeighbourFlags::ExtLearned.bits() != 0;
        let is_ours = state == NUD_STALE && !is_learned && more_flags == 0;
        let ip = ip_of_it.filter(|_| is_ours)?;
        Some(Self { ifindex: u32_at(header, 4)?, ip, flags })
    }

    /// Has the kernel use it.
    fn confirm(&self) -> Result<(), LinkError> {
        let message = self.message();
        let doing = format!("confirming the neighbour {}", self.ip);
        netlink::ask(&doing, RouteNetlinkMessage::NewNeighbour(message), NLM_F_REPLACE).map(drop)
    }

    /// A message by which the kernel uses it.
    fn message(&self) -> NeighbourMessage {
        let (family, destination) = match self.ip {
            IpAddr::V4(ip) => (AddressFamily::Inet, NeighbourAddress::Inet(ip)),
            IpAddr::V6(ip) => (AddressFamily::Inet6, NeighbourAddress::Inet6(ip)),
        };
        let mut message = NeighbourMessage::default();
        message.header.family = family;
        message.header.ifindex = self.ifindex;
        message.header.flags = NeighbourFlags::from_bits_retain(self.flags) | NeighbourFlags::Use;
        message.attributes = vec![NeighbourAttribute::Destination(destination)];
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::attribute;
    use proptest::prelude::*;

    #[test]
    fn an_entry_is_used_if_it_is_stale_and_nobody_else_looks_after_it() {
        let entry = |state: u16, flags: u8, more: Option<u32>| {
            let mut body = vec![libc::AF_INET as u8, 0, 0, 0];
            body.extend(3_u32.to_ne_bytes());
            body.extend(state.to_ne_bytes());
            body.extend([flags, 1]);
            body.extend(attribute(NDA_DST, &[192, 0, 2, 1]));
            body.extend(more.iter().flat_map(|it| attribute(NDA_FLAGS_EXT, &it.to_ne_bytes())));
            Stale::parse(&body)
        };
        const REACHABLE: u16 = 2;
        const PERMANENT: u16 = 0x80;
        const ROUTER: u8 = 1 << 7;
        const LEARNED: u8 = 1 << 4;
        let stale = Stale { ifindex: 3, ip: [192, 0, 2, 1].into(), flags: ROUTER };
        assert_eq!(entry(NUD_STALE, ROUTER, None), Some(stale));
        assert_eq!(entry(NUD_STALE, ROUTER, Some(0)), Some(stale));
        assert_eq!(entry(NUD_STALE, 0, Some(1)), None, "managed");
        assert_eq!(entry(NUD_STALE, LEARNED, None), None);
        assert_eq!(entry(REACHABLE, 0, None), None);
        assert_eq!(entry(PERMANENT, 0, None), None);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Stale::parse(&bytes);
        }
    }
}
