//! What checks know of the network: where each server is, and from where it can be asked.

use crate::check::Check;
use crate::client_path::{Answers, ClientPath};
use crate::probe::{NoAnswer, To};
use crate::way::Ways;
use narrows_balance::{ListedServer, ListedService, ListedTunnel, ServiceId};
use narrows_link::ways::NoWay;
use narrows_units::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// What checks know. It changes while they run.
pub(crate) struct Network {
    /// Or why none can be received.
    answers: Result<Arc<Answers>, String>,
    known: Mutex<Known>,
}

/// What was seen at one look.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) ways: Ways,
    /// This host's addresses.
    pub(crate) addresses: Vec<IpAddr>,
    services: BTreeSet<IpAddr>,
    tunnels: BTreeMap<(ServiceId, IpAddr), Option<ListedTunnel>>,
}

impl Known {
    pub(crate) fn new(ways: Ways, addresses: Vec<IpAddr>, listed: &[ListedService]) -> Self {
        let tunnels = listed.iter().flat_map(|service| {
            let of = |server: &ListedServer| ((service.id(), server.address), server.tunnel);
            service.servers.iter().map(of)
        });
        Self {
            ways,
            addresses,
            services: listed.iter().map(|service| service.id().address).collect(),
            tunnels: tunnels.collect(),
        }
    }

    /// An address of this host to which a server of `service` can answer, by which the way to it
    /// leads `from`. It is none of a service: servers have those themselves.
    fn source(&self, service: IpAddr, from: IpAddr) -> Option<IpAddr> {
        let suits = |address: &IpAddr| {
            let is_for_anybody = match address {
                IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
                IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
            };
            is_for_anybody
                && address.is_ipv4() == service.is_ipv4()
                && !self.services.contains(address)
        };
        [from].iter().chain(&self.addresses).copied().find(|address| suits(address))
    }
}

impl Network {
    /// Begins to receive answers. If that is not possible, it is said, and only servers' own
    /// addresses can be asked.
    pub(crate) fn open() -> Self {
        Self::new(Answers::open().map_err(|error| {
            log::error!("{error}");
            error.to_string()
        }))
    }

    pub(crate) fn new(answers: Result<Arc<Answers>, String>) -> Self {
        Self { answers, known: Mutex::default() }
    }

    /// Knows what was seen from now on.
    pub(crate) fn follow(&self, known: Known) {
        if let Ok(answers) = &self.answers
            && let Err(error) = answers.come_from(&known.services)
        {
            log::warn!("answers from {}: {error}", counted(known.services.len(), "address"));
        }
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// Where `server` is asked by `check`.
    ///
    /// # Errors
    /// If clients' packets do not reach it, or a check cannot be sent as they are.
    pub(crate) fn to(
        &self,
        check: &Check,
        service: ServiceId,
        server: IpAddr,
    ) -> Result<To, NoAnswer> {
        match check.is_direct {
            true => Ok(self.direct(server)),
            false => self.path(service, server),
        }
    }

    /// `server` at its own address. The kernel may choose an address to ask from that is a
    /// service's, to which no server answers: the one on the way is none.
    pub(crate) fn direct(&self, server: IpAddr) -> To {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let hop = known.ways.hop(server).and_then(Result::ok).flatten();
        To::Address { at: server, from: hop.map(|hop| hop.source) }
    }

    /// The way that clients' packets take.
    ///
    /// # Errors
    /// As of [`Self::to`].
    pub(crate) fn path(&self, service: ServiceId, server: IpAddr) -> Result<To, NoAnswer> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let hop = match known.ways.hop(server) {
            Some(Ok(Some(hop))) => hop,
            // This host itself.
            Some(Ok(None)) => return Ok(To::Address { at: service.address, from: None }),
            // It does not say its MAC address.
            Some(Err(why @ NoWay::NoNeighbour(_))) => return Err(NoAnswer::There(why.to_string())),
            Some(Err(why)) => return Err(NoAnswer::Here(why.to_string())),
            None => return Err(NoAnswer::Here("the way to it is not known yet".into())),
        };
        let answers = self.answers.clone().map_err(NoAnswer::Here)?;
        let source = known.source(service.address, hop.source).ok_or_else(|| {
            let family = if service.address.is_ipv4() { "IPv4" } else { "IPv6" };
            NoAnswer::Here(format!(
                "this host has no {family} address but those of services, to which it could \
                 answer: ip address add, or say --direct"
            ))
        })?;
        let tunnel = known.tunnels.get(&(service, server)).copied().flatten();
        Ok(To::Path(ClientPath { service: service.address, source, server, tunnel, hop, answers }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_answers_to_an_address_that_it_does_not_have_itself() {
        let address = |text: &str| -> IpAddr { text.parse().unwrap() };
        let all = ["127.0.0.1", "192.0.2.1", "10.0.0.9", "fe80::1", "2001:db8::9"].map(address);
        let known = Known {
            addresses: all.to_vec(),
            services: [address("192.0.2.1"), address("2001:db8::1")].into(),
            ..Known::default()
        };
        let source = |service, from| known.source(address(service), address(from));
        assert_eq!(source("192.0.2.1", "10.0.0.7"), Some(address("10.0.0.7")), "the way's own");
        assert_eq!(source("192.0.2.1", "192.0.2.1"), Some(address("10.0.0.9")));
        assert_eq!(source("2001:db8::1", "10.0.0.7"), Some(address("2001:db8::9")), "a tunnel");
        assert_eq!(source("2001:db8::1", "fe80::1"), Some(address("2001:db8::9")));
        let poor = Known { addresses: vec![address("127.0.0.1")], ..Known::default() };
        assert_eq!(poor.source(address("2001:db8::1"), address("10.0.0.7")), None);
    }
}
