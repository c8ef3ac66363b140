//! The ways from a port to servers: what a program in the driver writes in front of their packets.
//!
//! The kernel says the gateway to each server, the source of packets to it and the MTU of the way
//! ([`routes::get`]), and the MAC address of that neighbour. A neighbour that it does not know yet
//! is asked for, and known at the next look.
//!
//! *Cost.* A listing of all neighbours; [`Ways::read`] also a request for each server. So routes
//! are read now and then, and neighbours each second.
//!
//! Non-goals: several ways to one server; ways through other devices than the port.

use crate::routes::{self, Answer, Question};
use crate::{LinkError, neighbours};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// The way to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
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
    /// It is an address of this host.
    Local,
    /// It leads through another device, with this index.
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
            Self::Local => f.write_str("it is an address of this host"),
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
struct Route {
    neighbour: IpAddr,
    source: IpAddr,
    mtu: Option<u32>,
}

/// The ways from one port to servers.
#[derive(Clone, Default, Debug)]
pub struct Ways {
    ifindex: u32,
    routes: BTreeMap<IpAddr, Result<Route, NoWay>>,
}

impl Ways {
    /// Reads the routes from the port `ifindex` to `servers`.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub fn read(
        ifindex: u32,
        servers: impl IntoIterator<Item = IpAddr>,
    ) -> Result<Self, LinkError> {
        let route = |to: IpAddr| {
            let answer = routes::get(&Question { to, from: None })?;
            Ok::<_, LinkError>((to, route(ifindex, to, answer)))
        };
        let routes = servers.into_iter().map(route).collect::<Result<_, _>>()?;
        Ok(Self { ifindex, routes })
    }

    /// The way to each server, by what the kernel knows of neighbours now. It is asked for those
    /// that are missing.
    ///
    /// # Errors
    /// If the kernel does not list them.
    pub fn follow(&self) -> Result<BTreeMap<IpAddr, Result<Way, NoWay>>, LinkError> {
        let mut macs = BTreeMap::new();
        routes::neighbours(|ifindex, ip, mac| {
            if ifindex == self.ifindex {
                macs.insert(ip, mac);
            }
        })?;
        let mut missing: Vec<IpAddr> = Vec::new();
        let mut way = |found: &Result<Route, NoWay>| {
            let Route { neighbour, source, mtu } = (*found)?;
            match macs.get(&neighbour) {
                Some(mac) => Ok(Way { mac: *mac, source, mtu }),
                None => {
                    missing.push(neighbour);
                    Err(NoWay::NoNeighbour(neighbour))
                }
            }
        };
        let ways = self.routes.iter().map(|(server, found)| (*server, way(found))).collect();
        missing.sort_unstable();
        missing.dedup();
        for neighbour in missing {
            // What fails now is asked for again.
            let _ = neighbours::find(self.ifindex, neighbour);
        }
        Ok(ways)
    }
}

fn route(ifindex: u32, to: IpAddr, answer: Answer) -> Result<Route, NoWay> {
    match answer {
        Answer::Leaves { ifindex: other, .. } if other != ifindex => Err(NoWay::OtherDevice(other)),
        Answer::Leaves { gateway, source, mtu, .. } => {
            let source = source.ok_or(NoWay::NoSource)?;
            Ok(Route { neighbour: gateway.unwrap_or(to), source, mtu })
        }
        Answer::Local => Err(NoWay::Local),
        Answer::Refused(_) => Err(NoWay::NoRoute),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u32 = 3;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_way_leads_through_the_port_to_the_gateway_or_the_server_itself() {
        let (to, gateway, source) = (address("10.0.0.1"), address("10.1.0.1"), address("10.1.0.2"));
        let leaves =
            |ifindex, gateway, source| Answer::Leaves { ifindex, gateway, source, mtu: Some(1400) };
        let found = |neighbour| Ok(Route { neighbour, source, mtu: Some(1400) });
        assert_eq!(route(PORT, to, leaves(PORT, Some(gateway), Some(source))), found(gateway));
        assert_eq!(route(PORT, to, leaves(PORT, None, Some(source))), found(to));
        assert_eq!(route(PORT, to, leaves(PORT, None, None)), Err(NoWay::NoSource));
        assert_eq!(route(PORT, to, leaves(4, None, Some(source))), Err(NoWay::OtherDevice(4)));
        assert_eq!(route(PORT, to, Answer::Local), Err(NoWay::Local));
        assert_eq!(route(PORT, to, Answer::Refused(0)), Err(NoWay::NoRoute));
    }
}
