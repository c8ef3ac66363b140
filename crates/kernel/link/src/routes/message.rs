//! Messages about routes, next-hop objects and neighbours.
//!
//! Only what is understood entirely is plain. An attribute that changes where packets go, and is
//! not known here, makes a route one for which the kernel is asked. Its realms are known all the
//! same.

use crate::address::ip;
use crate::status::{each, u32_at};
use narrows_image::Prefix;
use narrows_routes::{Family, Object, Route, Target, bits_of};
use std::net::IpAddr;

/// `struct rtmsg`: family, lengths of prefixes, TOS, table, protocol, scope, type, flags.
pub(super) const ROUTE_HEADER: usize = 12;
/// `struct nhmsg`: family, scope, protocol, padding, flags.
pub(super) const OBJECT_HEADER: usize = 8;
/// `struct ndmsg`: family, padding, index, state, flags, type.
pub(super) const NEIGHBOUR_HEADER: usize = 12;
/// `struct rtnexthop`: length, flags, weight, index.
const NEXT_HOP_HEADER: usize = 8;

pub(super) const RTA_DST: u16 = 1;
pub(super) const RTA_OIF: u16 = 4;
pub(super) const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
pub(super) const RTA_PREFSRC: u16 = 7;
pub(super) const RTA_METRICS: u16 = 8;
pub(super) const RTA_MULTIPATH: u16 = 9;
const RTA_FLOW: u16 = 11;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
pub(super) const RTA_VIA: u16 = 18;
const RTA_PREF: u16 = 20;
const RTA_UID: u16 = 25;
const RTA_NH_ID: u16 = 30;
pub(super) const RTAX_MTU: u16 = 2;
/// Where `struct rta_cacheinfo` says when a route expires.
const EXPIRES: usize = 8;
/// `RTM_F_CLONED`: no route, but what one look-up made of it.
const CLONED: u32 = 0x200;

const NHA_ID: u16 = 1;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NTF_PROXY: u8 = 0x08;
/// `NUD_VALID`: permanent, without ARP, reachable, probed, stale, delayed.
const VALID: u16 = 0x80 | 0x40 | 0x02 | 0x10 | 0x04 | 0x08;

/// A neighbour, as a message has it.
pub(super) struct NeighbourChange {
    pub(super) ifindex: u32,
    pub(super) address: IpAddr,
    /// None if it is not known.
    pub(super) mac: Option<[u8; 6]>,
}

pub(super) fn number_of(family: Family) -> u8 {
    match family {
        Family::V4 => libc::AF_INET as u8,
        Family::V6 => libc::AF_INET6 as u8,
    }
}

fn family_of(number: u8) -> Option<Family> {
    Family::ALL.into_iter().find(|family| number_of(*family) == number)
}

/// The gateway in `RTA_VIA`: a family, and an address of it.
pub(super) fn via(value: &[u8]) -> Option<IpAddr> {
    ip(value.get(2..)?)
}

/// A route of the table `main` or `local`; none if it is of another, or too short.
pub(super) fn route(body: &[u8]) -> Option<Route> {
    let header: [u8; ROUTE_HEADER] = *body.first_chunk()?;
    let [family, len, source_len, tos, table, _, _, kind, ..] = header;
    let family = family_of(family)?;
    let flags = u32_at(&header, 8)?;
    if len > family.bits() || flags & CLONED != 0 {
        return None;
    }
    let (mut table, mut bits, mut metric, mut mtu, mut realms) = (u32::from(table), 0, 0, 0, 0);
    let (mut ifindex, mut gateway, mut object) = (None, None, None);
    // A route for some sources only is none for the others.
    let mut is_plain = kind == libc::RTN_UNICAST && source_len == 0;
    each(&body[ROUTE_HEADER..], |kind, value| match kind {
        RTA_DST => bits = ip(value).map_or(0, bits_of),
        RTA_OIF => ifindex = u32_at(value, 0),
        RTA_GATEWAY => gateway = ip(value),
        RTA_VIA => gateway = via(value),
        RTA_PRIORITY => metric = u32_at(value, 0).unwrap_or_default(),
        RTA_TABLE => table = u32_at(value, 0).unwrap_or_default(),
        RTA_NH_ID => object = u32_at(value, 0),
        RTA_METRICS => each(value, |kind, value| {
            if kind == RTAX_MTU {
                mtu = u32_at(value, 0).unwrap_or_default();
            }
        }),
        // The kernel may stop using it without a word.
        RTA_CACHEINFO => is_plain &= u32_at(value, EXPIRES).is_none_or(|expires| expires == 0),
        RTA_FLOW => realms = u32_at(value, 0).unwrap_or_default(),
        RTA_MULTIPATH => {
            is_plain = false;
            realms = realms_of_all(value);
        }
        RTA_PREFSRC | RTA_PREF | RTA_UID => {}
        // Encapsulations, and what is not known.
        _ => is_plain = false,
    });
    let is_local = table == u32::from(libc::RT_TABLE_LOCAL);
    if !is_local && table != u32::from(libc::RT_TABLE_MAIN) {
        return None;
    }
    let target = match (object, ifindex, gateway) {
        _ if !is_plain || is_local => Target::Ask,
        (Some(id), ..) => Target::Object { id, mtu },
        (None, Some(ifindex), Some(gateway)) => Target::Gateway { ifindex, gateway, mtu },
        (None, Some(ifindex), None) if mtu == 0 => Target::OnLink { ifindex },
        _ => Target::Ask,
    };
    let prefix = Prefix::new(bits, len);
    Some(Route { family, prefix, metric, tos, realms, target, is_local })
}

/// The realms of several next hops; 0 if they differ, since the kernel says which one it takes, and
/// not whose realm that is.
fn realms_of_all(mut hops: &[u8]) -> u32 {
    let mut all = None;
    while let Some([low, high, ..]) = hops.get(..NEXT_HOP_HEADER) {
        let len = usize::from(u16::from_ne_bytes([*low, *high]));
        let Some(attributes) = hops.get(NEXT_HOP_HEADER..len) else { return 0 };
        let mut realms = 0;
        each(attributes, |kind, value| {
            if kind == RTA_FLOW {
                realms = u32_at(value, 0).unwrap_or_default();
            }
        });
        if *all.get_or_insert(realms) != realms {
            return 0;
        }
        hops = hops.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    all.unwrap_or(0)
}

/// A next-hop object, and its number.
pub(super) fn object(body: &[u8]) -> Option<(u32, Object)> {
    let (mut id, mut ifindex, mut gateway, mut is_plain) = (None, None, None, true);
    each(body.get(OBJECT_HEADER..)?, |kind, value| match kind {
        NHA_ID => id = u32_at(value, 0),
        NHA_OIF => ifindex = u32_at(value, 0),
        NHA_GATEWAY => gateway = ip(value),
        _ => is_plain = false,
    });
    let object = match (ifindex, gateway) {
        (Some(ifindex), Some(gateway)) if is_plain => Object::Gateway { ifindex, gateway },
        _ => Object::Ask,
    };
    Some((id?, object))
}

/// A neighbour; none if it is a proxy's, or none of IP.
pub(super) fn neighbour(body: &[u8]) -> Option<NeighbourChange> {
    let header: [u8; NEIGHBOUR_HEADER] = *body.first_chunk()?;
    family_of(header[0])?;
    let (state, flags) = (u16::from_ne_bytes([header[8], header[9]]), header[10]);
    let (mut address, mut mac) = (None, None);
    each(&body[NEIGHBOUR_HEADER..], |kind, value| match kind {
        NDA_DST => address = ip(value),
        NDA_LLADDR => mac = value.try_into().ok(),
        _ => {}
    });
    if flags & NTF_PROXY != 0 {
        return None;
    }
    let ifindex = u32_at(&header, 4)?;
    Some(NeighbourChange { ifindex, address: address?, mac: mac.filter(|_| state & VALID != 0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::attribute;

    fn body(len: u8, more: &[Vec<u8>]) -> Vec<u8> {
        let header = vec![libc::AF_INET as u8, len, 0, 0, libc::RT_TABLE_MAIN, 4, 0, 1, 0, 0, 0, 0];
        [header, more.concat()].concat()
    }

    fn target(more: &[Vec<u8>]) -> Target {
        let oif = attribute(RTA_OIF, &3_u32.to_ne_bytes());
        let dst = attribute(RTA_DST, &[10, 1, 0, 0]);
        route(&body(16, &[vec![dst, oif], more.to_vec()].concat())).unwrap().target
    }

    fn gateway() -> Vec<u8> {
        attribute(RTA_GATEWAY, &[10, 0, 0, 1])
    }

    #[test]
    fn a_route_by_a_gateway_is_plain() {
        let plain = Target::Gateway { ifindex: 3, gateway: [10, 0, 0, 1].into(), mtu: 0 };
        assert_eq!(target(&[gateway()]), plain);
        let metrics = attribute(RTA_METRICS, &attribute(RTAX_MTU, &1400_u32.to_ne_bytes()));
        let smaller = Target::Gateway { ifindex: 3, gateway: [10, 0, 0, 1].into(), mtu: 1400 };
        assert_eq!(target(&[gateway(), metrics]), smaller);
        assert_eq!(target(&[]), Target::OnLink { ifindex: 3 });
        let id = attribute(RTA_NH_ID, &7_u32.to_ne_bytes());
        assert_eq!(target(&[gateway(), id]), Target::Object { id: 7, mtu: 0 });
    }

    #[test]
    fn a_gateway_of_ipv6_is_one_of_ipv4_routes_too() {
        let address: std::net::Ipv6Addr = "fe80::1".parse().unwrap();
        let family = (libc::AF_INET6 as u16).to_ne_bytes();
        let via = attribute(RTA_VIA, &[&family[..], &address.octets()].concat());
        assert_eq!(target(&[via]), Target::Gateway { ifindex: 3, gateway: address.into(), mtu: 0 });
    }

    #[test]
    fn what_is_more_than_a_gateway_is_asked_for() {
        const RTA_ENCAP_TYPE: u16 = 21;
        assert_eq!(target(&[gateway(), attribute(RTA_MULTIPATH, &[0; 16])]), Target::Ask);
        assert_eq!(target(&[gateway(), attribute(RTA_ENCAP_TYPE, &[1, 0])]), Target::Ask);
        assert_eq!(target(&[gateway(), attribute(999, &[1, 0])]), Target::Ask);
        let mut cache = [0_u8; 32];
        assert_ne!(target(&[gateway(), attribute(RTA_CACHEINFO, &cache)]), Target::Ask);
        cache[EXPIRES] = 1;
        assert_eq!(target(&[gateway(), attribute(RTA_CACHEINFO, &cache)]), Target::Ask);
    }

    #[test]
    fn realms_are_of_the_route_or_of_all_its_next_hops() {
        let realms = |more: Vec<u8>| route(&body(16, &[more])).unwrap().realms;
        let flow = |realms: u32| attribute(RTA_FLOW, &realms.to_ne_bytes());
        assert_eq!(realms(gateway()), 0);
        assert_eq!(realms([gateway(), flow(0x5_000a)].concat()), 0x5_000a);
        let hop = |of: Vec<u8>| {
            let attributes = [gateway(), of].concat();
            let len = (NEXT_HOP_HEADER + attributes.len()) as u16;
            [&len.to_ne_bytes()[..], &[0, 0, 3, 0, 0, 0], &attributes].concat()
        };
        let several = |hops: &[Vec<u8>]| realms(attribute(RTA_MULTIPATH, &hops.concat()));
        assert_eq!(several(&[hop(flow(10)), hop(flow(10))]), 10);
        assert_eq!(several(&[hop(flow(10)), hop(flow(11))]), 0);
        assert_eq!(several(&[hop(flow(10)), hop(vec![])]), 0);
        assert_eq!(several(&[hop(vec![]), hop(vec![])]), 0);
        assert_eq!(several(&[hop(flow(10)), vec![9, 0, 0, 0, 0, 0, 0, 0]]), 0, "cut off");
        assert_eq!(several(&[vec![0; 8]]), 0, "no length");
    }

    #[test]
    fn other_tables_and_what_look_ups_made_are_no_routes() {
        let table = attribute(RTA_TABLE, &100_u32.to_ne_bytes());
        assert_eq!(route(&body(16, &[table])), None);
        let mut cloned = body(16, &[]);
        cloned[8..12].copy_from_slice(&CLONED.to_ne_bytes());
        assert_eq!(route(&cloned), None);
        assert_eq!(route(&body(33, &[])), None);
    }

    #[test]
    fn a_neighbour_is_known_in_valid_states_only() {
        let mac = |state: u16| {
            let mut body = vec![libc::AF_INET as u8, 0, 0, 0, 3, 0, 0, 0];
            body.extend(state.to_ne_bytes());
            body.extend([0, 1]);
            body.extend(attribute(NDA_DST, &[10, 0, 0, 1]));
            body.extend(attribute(NDA_LLADDR, &[2, 0, 0, 0, 0, 1]));
            neighbour(&body).unwrap().mac
        };
        for valid in [0x02, 0x04, 0x08, 0x10, 0x40, 0x80] {
            assert_eq!(mac(valid), Some([2, 0, 0, 0, 0, 1]), "{valid:#x}");
        }
        for invalid in [0, 0x01, 0x20] {
            assert_eq!(mac(invalid), None, "{invalid:#x}");
        }
    }
}
