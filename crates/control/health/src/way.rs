//! The way that packets of a service take to a server, as the balancer takes it: through one of its
//! ports, and within another packet where the server has a tunnel.

use crate::client_path::overhead;
use crate::network::Known;
use narrows_balance::{ListedService, ListedTunnel};
use narrows_control::Client;
use narrows_link::ways::{self, NoWay};
use narrows_link::{Link, LinkError};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

/// How long a route is believed, as by the instance.
const ROUTES_LAST: Duration = Duration::from_secs(10);
/// How long a neighbour may take to say its MAC address: the kernel asks again after a second.
const NEIGHBOURS_WITHIN: Duration = Duration::from_millis(1500);
/// From one look at neighbours to the next.
const PAUSE: Duration = Duration::from_millis(50);

/// The next neighbour on the way to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hop {
    /// The port.
    pub(crate) ifindex: u32,
    /// The neighbour's MAC address.
    pub(crate) mac: [u8; 6],
    /// This host's address on the way.
    pub(crate) source: IpAddr,
    /// The longest packet, in bytes of IP.
    pub(crate) mtu: u32,
}

/// The way to a server, for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Way {
    /// The longest packet of a client that it takes, in bytes of IP; none if there is no way, or
    /// the server is this host itself.
    packet_max: Option<u32>,
    /// Whether such a packet was seen to arrive; none if that is not known.
    pub(crate) full_size_arrives: Option<bool>,
    /// Why there is none.
    why: Option<String>,
}

impl Way {
    /// Whether there is one that takes what the kernel says.
    pub(crate) fn is_good(&self) -> bool {
        self.why.is_none() && self.full_size_arrives != Some(false)
    }

    /// The end of a line about the server.
    pub(crate) fn text(&self) -> String {
        match (&self.why, self.packet_max, self.full_size_arrives) {
            (Some(why), ..) => format!(", NO WAY: {why}"),
            (None, Some(most), Some(false)) => format!(", PACKETS OF {most} BYTES ARE LOST"),
            (None, Some(most), Some(true)) => format!(", packets of up to {most} bytes arrive"),
            (None, Some(most), None) => format!(", packets of up to {most} bytes"),
            (None, None, _) => String::new(),
        }
    }
}

/// The ways through the ports to servers.
#[derive(Clone, Default)]
pub(crate) struct Ways {
    found: BTreeMap<IpAddr, Result<Option<Hop>, NoWay>>,
}

impl Ways {
    /// The hop to `server`, if it is not this host itself; none if it was not asked for.
    pub(crate) fn hop(&self, server: IpAddr) -> Option<Result<Option<Hop>, NoWay>> {
        self.found.get(&server).copied()
    }

    /// The way to `server`, for packets that are put into `tunnel`.
    pub(crate) fn to(&self, server: IpAddr, tunnel: Option<ListedTunnel>) -> Way {
        let (packet_max, why) = match self.hop(server) {
            Some(Ok(Some(hop))) => {
                let overhead = u32::try_from(overhead(server, tunnel)).unwrap_or(u32::MAX);
                (Some(hop.mtu.saturating_sub(overhead)), None)
            }
            Some(Err(why)) => (None, Some(why.to_string())),
            Some(Ok(None)) | None => (None, None),
        };
        Way { packet_max, full_size_arrives: None, why }
    }
}

/// Keeps looking at the ways through the ports: at routes now and then, at neighbours each time.
#[derive(Default)]
pub(crate) struct Lookout {
    routes: Option<Routes>,
}

struct Routes {
    ports: Vec<String>,
    servers: BTreeSet<IpAddr>,
    services: BTreeSet<IpAddr>,
    ways: ways::Ways,
    /// Of the ports, by their indices.
    mtus: BTreeMap<u32, u32>,
    read_at: Instant,
}

impl Lookout {
    /// What is known now of the way to each server of `listed`, which `client` balances over.
    ///
    /// # Errors
    /// As of [`Self::look`].
    pub(crate) fn know(
        &mut self,
        client: &Client,
        listed: &[ListedService],
    ) -> Result<Known, LinkError> {
        let servers = listed.iter().flat_map(|service| &service.servers);
        let servers: BTreeSet<IpAddr> = servers.map(|server| server.address).collect();
        let services = listed.iter().map(|service| service.id().address).collect();
        let ways = self.look(&client.ports, servers, services)?;
        Ok(Known::new(ways, narrows_link::local_addresses()?, listed))
    }

    /// The ways through `ports` to `servers`. Those of new servers may take a second and a half.
    ///
    /// # Errors
    /// If the kernel does not say.
    fn look(
        &mut self,
        ports: &[String],
        servers: BTreeSet<IpAddr>,
        services: BTreeSet<IpAddr>,
    ) -> Result<Ways, LinkError> {
        let before = self.routes.take();
        let are_known = |it: &Routes| {
            it.ports == ports
                && it.servers == servers
                && it.services == services
                && it.read_at.elapsed() < ROUTES_LAST
        };
        let (routes, is_new) = match before {
            Some(routes) if are_known(&routes) => (routes, false),
            before => {
                let is_new = before.is_none_or(|it| it.servers != servers);
                (Routes::read(ports, servers, services)?, is_new)
            }
        };
        let routes = self.routes.insert(routes);
        let patience = if is_new { NEIGHBOURS_WITHIN } else { Duration::ZERO };
        routes.follow(Instant::now() + patience)
    }
}

impl Routes {
    fn read(
        ports: &[String],
        servers: BTreeSet<IpAddr>,
        services: BTreeSet<IpAddr>,
    ) -> Result<Self, LinkError> {
        let mtu = |port: &String| {
            let status = Link::by_name(port)?.status;
            Ok((status.ifindex, status.mtu))
        };
        let mtus: BTreeMap<u32, u32> = ports.iter().map(mtu).collect::<Result<_, LinkError>>()?;
        let indices: Vec<u32> = mtus.keys().copied().collect();
        let ways = ways::Ways::read(&indices, servers.iter().copied(), &services)?;
        let (ports, read_at) = (ports.to_owned(), Instant::now());
        Ok(Self { ports, servers, services, ways, mtus, read_at })
    }

    /// The ways, once all neighbours are known, or at `deadline`.
    fn follow(&self, deadline: Instant) -> Result<Ways, LinkError> {
        loop {
            let found = self.ways.follow()?;
            let is_missing =
                |way: &Result<ways::Way, NoWay>| matches!(way, Err(NoWay::NoNeighbour(_)));
            if Instant::now() >= deadline || !found.values().any(is_missing) {
                let hop = |way: ways::Way| match way {
                    ways::Way::Local => None,
                    ways::Way::Beyond(hop) => {
                        let of_port = self.mtus.get(&hop.ifindex).copied().unwrap_or(u32::MAX);
                        let mtu = hop.mtu.unwrap_or(of_port).min(of_port);
                        let ways::NextHop { ifindex, mac, source, .. } = hop;
                        Some(Hop { ifindex, mac, source, mtu })
                    }
                };
                let found = found.into_iter().map(|(server, way)| (server, way.map(hop)));
                return Ok(Ways { found: found.collect() });
            }
            thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_not_there_has_no_ways() {
        assert!(
            Lookout::default().look(&["nrw-no-port".to_owned()], [].into(), [].into()).is_err()
        );
    }
}
