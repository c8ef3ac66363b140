//! Keeps the next hops of routes alive.
//!
//! The kernel probes a neighbour when it sends something to it. What a program in XDP forwards is
//! nothing that the kernel sends. So the entries of gateways grow stale and stay so, even if their
//! MAC addresses change, and are collected in time. Since 5.16, the kernel probes an entry by
//! itself if it is *managed*. [`KeptAlive::keep`] marks the gateways that routes name as such, and
//! [`KeptAlive::release`] takes back what it did.
//!
//! * **Whose an entry is**: one that an operator or a routing daemon looks after is left alone: a
//!   permanent one, one that was managed before, one that was learned externally.
//! * A managed entry goes with `ip neigh flush`, and when its interface goes down. To call
//!   [`KeptAlive::keep`] again marks a new one.
//! * An older kernel takes the mark for a use. It probes then, once, so `keep` has to be called
//!   again and again.
//!
//! Non-goals: hosts on the link, of which there may be any number and of which no route names one;
//! following changes of routes.

use crate::LinkError;
use crate::address::ip;
use crate::netlink::{self, Request, stream};
use crate::status::{each, u32_at};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The most gateways that are kept alive. Of each, the kernel asks for the MAC address about once a
/// minute. A router with more neighbours in use than this has larger neighbour tables, too.
const MOST: usize = 4096;

const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_MULTIPATH: u16 = 9;
const RTA_VIA: u16 = 18;
/// `struct rtmsg`: family, lengths of prefixes, TOS, table, protocol, scope, type, flags.
const ROUTE_HEADER: usize = 12;
/// `struct rtnexthop`: length, flags, hops, index.
const HOP_HEADER: usize = 8;
/// The family before an address of [`RTA_VIA`].
const VIA_HEADER: usize = 2;

const RTM_GETNEXTHOP: u16 = 106;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
/// `struct nhmsg`: family, scope, protocol, padding, flags.
const NEXTHOP_HEADER: usize = 8;

const NDA_DST: u16 = 1;
const NDA_FLAGS_EXT: u16 = 15;
/// `struct ndmsg`: family, padding, index, state, flags, type.
const NEIGHBOUR_HEADER: usize = 12;
const NUD_NOARP: u16 = 0x40;
const NUD_PERMANENT: u16 = 0x80;

/// A router that routes name, on the link of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Gateway {
    /// The index of the device.
    pub ifindex: u32,
    /// Its address. That of an IPv4 route may be one of IPv6.
    pub ip: IpAddr,
}

/// The gateways that routes name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gateways {
    /// Each once.
    pub found: BTreeSet<Gateway>,
    /// Whether there are no others. If not, there are more than are kept alive, or routes changed
    /// while they were listed.
    pub complete: bool,
}

/// Finds the gateways on the links of the devices with these indices that routes of the namespace
/// name, in any table, one by one or among several. Routes are read one after the other and not
/// kept. A full table takes a second or two.
///
/// # Errors
///
/// If the kernel does not list routes.
pub fn gateways(devices: &[u32]) -> Result<Gateways, LinkError> {
    let mut gateways = Gateways { found: BTreeSet::new(), complete: true };
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut body = vec![0; ROUTE_HEADER];
        body[0] = family as u8;
        let request = Request::route(libc::RTM_GETROUTE, body);
        let listed = stream("listing routes", &request, |route| {
            of_route(route, &mut |gateway| gateways.add(devices, gateway));
        });
        gateways.complete &= !is_torn(listed)?;
    }
    // Routes may name next hops by number only (`nexthop_compat_mode` 0).
    let request = Request::route(RTM_GETNEXTHOP, vec![0; NEXTHOP_HEADER]);
    let listed = stream("listing next hops", &request, |nexthop| {
        if let Some(gateway) = of_nexthop(nexthop) {
            gateways.add(devices, gateway);
        }
    });
    gateways.complete &= !is_torn(listed)?;
    Ok(gateways)
}

/// Whether a change interrupted a listing. A kernel without the family, or without next hops that
/// have a number, lists none.
fn is_torn(listed: Result<bool, LinkError>) -> Result<bool, LinkError> {
    match listed {
        Err(error) if matches!(error.errno(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {
            Ok(false)
        }
        result => result,
    }
}

impl Gateways {
    fn add(&mut self, devices: &[u32], gateway: Gateway) {
        // Most of a million routes name one that is there.
        if !devices.contains(&gateway.ifindex) || self.found.contains(&gateway) {
            return;
        }
        match self.found.len() < MOST {
            true => drop(self.found.insert(gateway)),
            false => self.complete = false,
        }
    }
}

/// Lets `see` have the gateways of a route, if it leads to another host and not, say, to this one
/// or to none.
fn of_route(route: &[u8], see: &mut impl FnMut(Gateway)) {
    let Some((header, attributes)) = route.split_at_checked(ROUTE_HEADER) else { return };
    if header[7] != libc::RTN_UNICAST {
        return;
    }
    let (mut ifindex, mut ip_of_it) = (None, None);
    each(attributes, |kind, value| match kind {
        RTA_OIF => ifindex = u32_at(value, 0),
        RTA_MULTIPATH => of_hops(value, see),
        _ => ip_of_it = ip_of_it.or(address(kind, value)),
    });
    if let Some((ifindex, ip)) = ifindex.zip(ip_of_it) {
        see(Gateway { ifindex, ip });
    }
}

/// Lets `see` have the gateways among several next hops of a route.
fn of_hops(mut hops: &[u8], see: &mut impl FnMut(Gateway)) {
    while let Some((header, _)) = hops.split_at_checked(HOP_HEADER) {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let Some(attributes) = hops.get(HOP_HEADER..length) else { return };
        let mut ip_of_it = None;
        each(attributes, |kind, value| ip_of_it = ip_of_it.or(address(kind, value)));
        if let Some((ifindex, ip)) = u32_at(header, 4).zip(ip_of_it) {
            see(Gateway { ifindex, ip });
        }
        hops = hops.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// The address of a gateway, if the attribute holds one.
fn address(kind: u16, value: &[u8]) -> Option<IpAddr> {
    match kind {
        RTA_GATEWAY => ip(value),
        // One of another family than the route's.
        RTA_VIA => ip(value.get(VIA_HEADER..)?),
        _ => None,
    }
}

fn of_nexthop(nexthop: &[u8]) -> Option<Gateway> {
    let (mut ifindex, mut ip_of_it) = (None, None);
    each(nexthop.get(NEXTHOP_HEADER..)?, |kind, value| match kind {
        NHA_OIF => ifindex = u32_at(value, 0),
        NHA_GATEWAY => ip_of_it = ip(value),
        _ => {}
    });
    Some(Gateway { ifindex: ifindex?, ip: ip_of_it? })
}

/// Gateways that are kept alive.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[must_use = "the entries stay managed until they are released"]
pub struct KeptAlive {
    /// Those that were not managed before.
    ours: BTreeSet<Gateway>,
}

impl KeptAlive {
    /// Marks the entries of `gateways` as managed, and makes those that are missing. Takes the mark
    /// off those that no route names any more, unless there may be more gateways than are known.
    /// Calling it again changes only what is different.
    ///
    /// Returns whether the kernel keeps them alive by itself now. If not, it does not know the mark
    /// (before 5.16), and this has to be called every ten seconds or so.
    ///
    /// # Errors
    ///
    /// Without CAP_NET_ADMIN, or if the kernel does not list neighbours or does not change one. The
    /// others are marked all the same.
    pub fn keep(&mut self, gateways: &Gateways) -> Result<bool, LinkError> {
        let before = entries()?;
        let mut result = Ok(());
        let mut marked = None;
        for gateway in &gateways.found {
            if before.get(gateway).is_some_and(|entry| entry.is_looked_after()) {
                continue;
            }
            match mark(gateway) {
                Ok(()) => {
                    self.ours.insert(*gateway);
                    marked = Some(gateway);
                }
                // The device went in the meantime.
                Err(error) if error.errno() == Some(libc::ENODEV) => {}
                Err(error) => result = Err(error),
            }
        }
        if gateways.complete {
            self.drop_all_but(&gateways.found, &before);
        }
        result?;
        let Some(marked) = marked else { return Ok(true) };
        Ok(entries()?.get(marked).is_none_or(Entry::is_managed))
    }

    /// Takes the marks off. The entries stay, and age like any other.
    pub fn release(&mut self) {
        // If they cannot be listed, they cannot be changed.
        let before = entries().unwrap_or_default();
        self.drop_all_but(&BTreeSet::new(), &before);
    }

    fn drop_all_but(&mut self, wanted: &BTreeSet<Gateway>, entries: &Entries) {
        let is_managed = |it: &Gateway| entries.get(it).is_some_and(Entry::is_managed);
        for gateway in self.ours.difference(wanted).filter(|it| is_managed(it)) {
            // It went in the meantime, or it stays managed, which costs a probe now and then.
            let _ = unmark(gateway);
        }
        self.ours.retain(|gateway| wanted.contains(gateway));
    }
}

/// What the kernel knows of its neighbours.
type Entries = BTreeMap<Gateway, Entry>;

/// An entry for a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    state: u16,
    flags: NeighbourFlags,
    more_flags: NeighbourExtFlags,
}

impl Entry {
    fn is_managed(&self) -> bool {
        self.more_flags.contains(NeighbourExtFlags::Managed)
    }

    /// Whether the kernel probes it by itself, or somebody else takes care of it. To mark such an
    /// entry would make a permanent one age, and one that was learned externally the kernel's.
    fn is_looked_after(&self) -> bool {
        self.state & (NUD_PERMANENT | NUD_NOARP) != 0
            || self.flags.contains(NeighbourFlags::ExtLearned)
            || !self.more_flags.is_empty()
    }

    fn parse(body: &[u8]) -> Option<(Gateway, Self)> {
        let (header, attributes) = body.split_at_checked(NEIGHBOUR_HEADER)?;
        let mut entry = Self {
            state: u16::from_ne_bytes([header[8], header[9]]),
            flags: NeighbourFlags::from_bits_retain(header[10]),
            more_flags: NeighbourExtFlags::empty(),
        };
        let mut ip_of_it = None;
        each(attributes, |kind, value| match kind {
            NDA_DST => ip_of_it = ip(value),
            NDA_FLAGS_EXT => {
                let bits = u32_at(value, 0).unwrap_or_default();
                entry.more_flags = NeighbourExtFlags::from_bits_retain(bits);
            }
            _ => {}
        });
        Some((Gateway { ifindex: u32_at(header, 4)?, ip: ip_of_it? }, entry))
    }
}

fn entries() -> Result<Entries, LinkError> {
    let mut entries = Entries::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut body = vec![0; NEIGHBOUR_HEADER];
        body[0] = family as u8;
        let request = Request::route(libc::RTM_GETNEIGH, body);
        // An entry that is missed is marked again, which changes nothing.
        is_torn(stream("listing neighbours", &request, |body| entries.extend(Entry::parse(body))))?;
    }
    Ok(entries)
}

fn mark(gateway: &Gateway) -> Result<(), LinkError> {
    let doing = format!("keeping the gateway {} alive", gateway.ip);
    set(&doing, gateway, NeighbourExtFlags::Managed, NLM_F_CREATE | NLM_F_REPLACE)
}

fn unmark(gateway: &Gateway) -> Result<(), LinkError> {
    let doing = format!("no longer keeping the gateway {} alive", gateway.ip);
    set(&doing, gateway, NeighbourExtFlags::empty(), NLM_F_REPLACE)
}

/// Sets the flags of an entry. It counts as used, too: so its state stays as it is, also on a
/// kernel that does not know these flags.
fn set(
    doing: &str,
    gateway: &Gateway,
    more_flags: NeighbourExtFlags,
    how: u16,
) -> Result<(), LinkError> {
    let mut message = NeighbourMessage::default();
    let (family, destination) = match gateway.ip {
        IpAddr::V4(ip) => (AddressFamily::Inet, NeighbourAddress::Inet(ip)),
        IpAddr::V6(ip) => (AddressFamily::Inet6, NeighbourAddress::Inet6(ip)),
    };
    message.header.family = family;
    message.header.ifindex = gateway.ifindex;
    message.header.flags = NeighbourFlags::Use;
    message.attributes = vec![
        NeighbourAttribute::Destination(destination),
        NeighbourAttribute::ExtFlags(more_flags),
    ];
    netlink::ask(doing, RouteNetlinkMessage::NewNeighbour(message), how).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn gateway(ifindex: u32, last: u8) -> Gateway {
        Gateway { ifindex, ip: [192, 0, 2, last].into() }
    }

    /// The gateways of a route of this type with these attributes.
    fn of(kind: u8, attributes: &[Vec<u8>]) -> Vec<Gateway> {
        let mut route = vec![libc::AF_INET as u8, 0, 0, 0, 254, 0, 0, kind, 0, 0, 0, 0];
        route.extend(attributes.concat());
        let mut seen = Vec::new();
        of_route(&route, &mut |gateway| seen.push(gateway));
        seen
    }

    #[test]
    fn a_route_names_the_gateways_that_it_leads_through() {
        let oif = attribute(RTA_OIF, &3_u32.to_ne_bytes());
        let via = |last| attribute(RTA_GATEWAY, &[192, 0, 2, last]);
        assert_eq!(of(libc::RTN_UNICAST, &[oif.clone(), via(1)]), [gateway(3, 1)]);
        assert_eq!(of(libc::RTN_UNICAST, std::slice::from_ref(&oif)), [], "on the link");
        assert_eq!(of(libc::RTN_LOCAL, &[oif.clone(), via(1)]), []);
        let mut ipv6 = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
        ipv6.extend(std::net::Ipv6Addr::LOCALHOST.octets());
        let other = of(libc::RTN_UNICAST, &[oif, attribute(RTA_VIA, &ipv6)]);
        assert_eq!(other, [Gateway { ifindex: 3, ip: std::net::Ipv6Addr::LOCALHOST.into() }]);
        let hop = |ifindex: u32, attributes: &[u8]| {
            let mut hop = ((HOP_HEADER + attributes.len()) as u16).to_ne_bytes().to_vec();
            hop.extend([0, 0]);
            hop.extend(ifindex.to_ne_bytes());
            hop.extend(attributes);
            hop
        };
        let hops = [hop(3, &via(1)), hop(4, &[]), hop(5, &via(2))].concat();
        let several = of(libc::RTN_UNICAST, &[attribute(RTA_MULTIPATH, &hops)]);
        assert_eq!(several, [gateway(3, 1), gateway(5, 2)]);
        let cut = of(libc::RTN_UNICAST, &[attribute(RTA_MULTIPATH, &hops[..hops.len() - 4])]);
        assert_eq!(cut, [gateway(3, 1)]);
    }

    #[test]
    fn no_more_gateways_are_found_than_are_kept_alive() {
        let mut all = Gateways { complete: true, ..Gateways::default() };
        let number = |it: u32| Gateway { ifindex: 3, ip: std::net::Ipv4Addr::from(it).into() };
        for it in 0..MOST as u32 {
            all.add(&[3], number(it));
        }
        all.add(&[3], number(0));
        all.add(&[3], gateway(4, 1));
        assert!(all.complete && all.found.len() == MOST);
        all.add(&[3], number(MOST as u32));
        assert!(!all.complete && all.found.len() == MOST);
    }

    #[test]
    fn an_entry_that_somebody_looks_after_is_known_by_its_flags() {
        let entry = |state: u16, flags: u8, more: Option<u32>| {
            let mut body = vec![libc::AF_INET as u8, 0, 0, 0];
            body.extend(3_u32.to_ne_bytes());
            body.extend(state.to_ne_bytes());
            body.extend([flags, 1]);
            body.extend(attribute(NDA_DST, &[192, 0, 2, 1]));
            body.extend(more.iter().flat_map(|it| attribute(NDA_FLAGS_EXT, &it.to_ne_bytes())));
            let (of, entry) = Entry::parse(&body).unwrap();
            assert_eq!(of, gateway(3, 1));
            (entry.is_looked_after(), entry.is_managed())
        };
        const STALE: u16 = 4;
        const ROUTER: u8 = 1 << 7;
        const LEARNED: u8 = 1 << 4;
        assert_eq!(entry(STALE, ROUTER, None), (false, false));
        assert_eq!(entry(STALE, 0, Some(1)), (true, true));
        assert_eq!(entry(STALE, 0, Some(1 << 31)), (true, false), "a flag to come");
        assert_eq!(entry(STALE, LEARNED, None), (true, false));
        assert_eq!(entry(NUD_PERMANENT, 0, None), (true, false));
        assert_eq!(entry(NUD_NOARP, 0, Some(0)), (true, false));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            of_route(&bytes, &mut |_| ());
            of_hops(&bytes, &mut |_| ());
            let _ = (of_nexthop(&bytes), Entry::parse(&bytes));
        }
    }
}
