//! The ways from some ports to servers: what a program in the driver writes in front of their
//! packets.
//!
//! The kernel says the gateway to each server, the source of packets to it and the MTU of the way
//! ([`routes::get`]), and the MAC address of that neighbour. A neighbour that it does not know yet
//! is asked for, and known at the next look.
//!
//! *Cost.* A listing of all neighbours; [`Ways::read`] also a request for each server. So routes
//! are read now and then, and neighbours each second.
//!
//! Non-goals: several ways to one server; ways through devices that are no ports.

use crate::address::{Address, all_addresses};
use crate::routes::{self, Answer, Question};
use crate::{LinkError, neighbours};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// The way to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// It is this host.
    Local,
    /// It is beyond a port.
    Beyond(NextHop),
}

/// Where a way leads first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// The index of the port that it leads through.
    pub ifindex: u32,
    /// The MAC address of the server, or of the gateway to it.
    pub mac: [u8; 6],
    /// This host's address on the way.
    pub source: IpAddr,
    /// The route's MTU in bytes, if it has one of its own.
    pub mtu: Option<u32>,
}

/// Why there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoWay {
    /// The kernel has no route to it.
    NoRoute,
    /// It leads through a device that is no port, with this index.
    OtherDevice(u32),
    /// The route has no source address: the port has no address of that family.
    NoSource,
    /// Nobody at this address has said its MAC address yet.
    NoNeighbour(IpAddr),
}

impl fmt::Display for NoWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoute => f.write_str("there is no route to it: ip route add"),
            Self::OtherDevice(ifindex) => {
                write!(f, "the route to it leads through another device (index {ifindex})")
            }
            Self::NoSource => f.write_str("the port has no address of its family: ip address add"),
            Self::NoNeighbour(ip) => write!(f, "{ip} does not say its MAC address"),
        }
    }
}

/// A server's route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Route {
    Local,
    Leaves(Leaves),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Leaves {
    ifindex: u32,
    neighbour: IpAddr,
    source: IpAddr,
    mtu: Option<u32>,
}

/// The ways from some ports to servers.
#[derive(Clone, Default, Debug)]
pub struct Ways {
    routes: BTreeMap<IpAddr, Result<Route, NoWay>>,
}

impl Ways {
    /// Reads the routes from `ports`, by their indices, to `servers`. Packets to them come from
    /// none of the addresses of `services`, if this host has another one: servers have those, and
    /// discard what comes from an address of their own.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub fn read(
        ports: &[u32],
        servers: impl IntoIterator<Item = IpAddr>,
        services: &BTreeSet<IpAddr>,
    ) -> Result<Self, LinkError> {
        let route = |to: IpAddr| {
            let answer = routes::get(&Question { to, from: None })?;
            Ok::<_, LinkError>((to, route(ports, to, answer)))
        };
        let mut routes: BTreeMap<IpAddr, Result<Route, NoWay>> =
            servers.into_iter().map(route).collect::<Result<_, _>>()?;
        let is_of_service = |leaves: &&mut Leaves| services.contains(&leaves.source);
        let mut wrong = routes.values_mut().filter_map(leaves).filter(is_of_service).peekable();
        if wrong.peek().is_some() {
            let own = all_addresses()?;
            wrong.for_each(|leaves| leaves.source = source(leaves, &own, services));
        }
        Ok(Self { routes })
    }

    /// The way to each server, by what the kernel knows of neighbours now. It is asked for those
    /// that are missing.
    ///
    /// # Errors
    /// If the kernel does not list them.
    pub fn follow(&self) -> Result<BTreeMap<IpAddr, Result<Way, NoWay>>, LinkError> {
        let mut macs = BTreeMap::new();
        routes::neighbours(|ifindex, ip, mac| {
            macs.insert((ifindex, ip), mac);
        })?;
        let mut missing: Vec<(u32, IpAddr)> = Vec::new();
        let mut way = |found: &Result<Route, NoWay>| {
            let Route::Leaves(Leaves { ifindex, neighbour, source, mtu }) = (*found)? else {
                return Ok(Way::Local);
            };
            match macs.get(&(ifindex, neighbour)) {
                Some(mac) => Ok(Way::Beyond(NextHop { ifindex, mac: *mac, source, mtu })),
                None => {
                    missing.push((ifindex, neighbour));
                    Err(NoWay::NoNeighbour(neighbour))
                }
            }
        };
        let ways = self.routes.iter().map(|(server, found)| (*server, way(found))).collect();
        missing.sort_unstable();
        missing.dedup();
        for (ifindex, neighbour) in missing {
            // What fails now is asked for again.
            let _ = neighbours::find(ifindex, neighbour);
        }
        Ok(ways)
    }
}

fn leaves(route: &mut Result<Route, NoWay>) -> Option<&mut Leaves> {
    match route {
        Ok(Route::Leaves(leaves)) => Some(leaves),
        _ => None,
    }
}

/// Of this host's `own` addresses one for a way whose source is of a service: of its port, if that
/// has one that fits.
fn source(leaves: &Leaves, own: &[(u32, Address)], services: &BTreeSet<IpAddr>) -> IpAddr {
    let fits = |(_, address): &&(u32, Address)| {
        address.ip.is_ipv4() == leaves.source.is_ipv4()
            && !address.ip.is_loopback()
            && !address.is_automatic()
            && !services.contains(&address.ip)
    };
    let of_port = own.iter().filter(|(ifindex, _)| *ifindex == leaves.ifindex).find(fits);
    let found = of_port.or_else(|| own.iter().find(fits));
    found.map_or(leaves.source, |(_, address)| address.ip)
}

fn route(ports: &[u32], to: IpAddr, answer: Answer) -> Result<Route, NoWay> {
    match answer {
        Answer::Leaves { ifindex, .. } if !ports.contains(&ifindex) => {
            Err(NoWay::OtherDevice(ifindex))
        }
        Answer::Leaves { ifindex, gateway, source, mtu } => {
            let source = source.ok_or(NoWay::NoSource)?;
            Ok(Route::Leaves(Leaves { ifindex, neighbour: gateway.unwrap_or(to), source, mtu }))
        }
        Answer::Local => Ok(Route::Local),
        Answer::Refused(_) => Err(NoWay::NoRoute),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: [u32; 2] = [3, 5];

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn packets_come_from_an_address_that_servers_do_not_have() {
        let leaves = |source| Leaves {
            ifindex: 3,
            neighbour: address("10.0.0.1"),
            source: address(source),
            mtu: None,
        };
        let all = [
            (1, "127.0.0.1"),
            (5, "10.0.0.5"),
            (3, "192.0.2.1"),
            (3, "10.0.0.3"),
            (3, "fe80::3"),
            (5, "2001:db8::5"),
        ];
        let of = |(ifindex, ip): (u32, &str)| (ifindex, Address { ip: address(ip), prefix: 32 });
        let own = all.map(of);
        let services = ["192.0.2.1", "2001:db8::1"].map(address).into();
        assert_eq!(source(&leaves("192.0.2.1"), &own, &services), address("10.0.0.3"));
        assert_eq!(source(&leaves("192.0.2.1"), &own[..2], &services), address("10.0.0.5"));
        assert_eq!(source(&leaves("2001:db8::1"), &own, &services), address("2001:db8::5"));
        assert_eq!(source(&leaves("2001:db8::1"), &own[..4], &services), address("2001:db8::1"));
    }

    #[test]
    fn a_way_leads_through_a_port_to_the_gateway_or_the_server_itself() {
        let (to, gateway, source) = (address("10.0.0.1"), address("10.1.0.1"), address("10.1.0.2"));
        let leaves =
            |ifindex, gateway, source| Answer::Leaves { ifindex, gateway, source, mtu: Some(1400) };
        let route = |answer| route(&PORTS, to, answer);
        for ifindex in PORTS {
            let found = |neighbour| {
                Ok(Route::Leaves(Leaves { ifindex, neighbour, source, mtu: Some(1400) }))
            };
            assert_eq!(route(leaves(ifindex, Some(gateway), Some(source))), found(gateway));
            assert_eq!(route(leaves(ifindex, None, Some(source))), found(to));
            assert_eq!(route(leaves(ifindex, None, None)), Err(NoWay::NoSource));
        }
        assert_eq!(route(leaves(4, None, Some(source))), Err(NoWay::OtherDevice(4)));
        assert_eq!(route(Answer::Local), Ok(Route::Local));
        assert_eq!(route(Answer::Refused(0)), Err(NoWay::NoRoute));
    }
}
