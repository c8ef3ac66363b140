//! The way that packets of a service's clients take to a server, for checks.
//!
//! *Idea.* A check is a client's packet, as the balancer would send it on: to the service's
//! address, in the server's tunnel, through the port, to the same neighbour. The server answers to
//! an address of this host. So a check sees what a client would: that the server has the service's
//! address, unpacks the tunnel, and lets packets in.
//!
//! *Principles.* It touches neither the instance nor the host's configuration. The host's own IP
//! and its firewall are passed by in both directions: they would drop packets from an address of
//! their own.
//!
//! *Non-goals.* Speed: a check is a few packets.

mod answers;
mod connection;
mod datagram;
mod echo;
mod encapsulation;
mod local_port;

pub(crate) use answers::Answers;
pub(crate) use connection::connect;
pub(crate) use datagram::exchange;
pub(crate) use echo::full_size_arrives;
pub(crate) use encapsulation::GUE_BYTES;

use crate::probe::NoAnswer;
use crate::way::Hop;
use answers::{Conversation, Inbox};
use encapsulation::encapsulated;
use etherparse::{IpHeaders, IpNumber, PacketBuilderStep};
use local_port::LocalPort;
use narrows_balance::{ListedTunnel, Protocol};
use narrows_link::packet_socket::IpFamily;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The way to one server of a service.
#[derive(Clone)]
pub(crate) struct ClientPath {
    /// The address that clients use.
    pub(crate) service: IpAddr,
    /// This host's, to which the server answers.
    pub(crate) source: IpAddr,
    pub(crate) server: IpAddr,
    pub(crate) tunnel: Option<ListedTunnel>,
    pub(crate) hop: Hop,
    pub(crate) answers: Arc<Answers>,
}

/// A conversation with a server: what is sent, and what comes back.
struct Exchange {
    path: ClientPath,
    local: SocketAddr,
    inbox: Inbox,
    /// Nobody else has the port meanwhile.
    _port: Option<LocalPort>,
}

impl ClientPath {
    /// A conversation by `protocol`.
    fn talk(&self, protocol: Protocol) -> Result<Exchange, NoAnswer> {
        let port = LocalPort::take(protocol, self.source)?;
        let number = IpNumber(protocol.number());
        Ok(self.exchange(number, port.at, Some(port)))
    }

    fn exchange(&self, protocol: IpNumber, local: SocketAddr, port: Option<LocalPort>) -> Exchange {
        let conversation = Conversation { protocol, local, service: self.service };
        let inbox = self.answers.wait_for(conversation, self.server);
        Exchange { path: self.clone(), local, inbox, _port: port }
    }

    /// What a packet to the service begins with.
    fn header(&self) -> Result<PacketBuilderStep<IpHeaders>, NoAnswer> {
        let header = encapsulation::header((self.source, self.service));
        header.ok_or_else(|| NoAnswer::Here("two families of addresses".into()))
    }

    /// The longest packet that it takes, in bytes of IP.
    fn packet_max(&self) -> usize {
        (self.hop.mtu as usize).saturating_sub(overhead(self.server, self.tunnel))
    }
}

impl Exchange {
    /// Sends a packet of IP.
    fn send(&self, packet: &[u8]) -> Result<(), NoAnswer> {
        let ClientPath { hop, server, tunnel, answers, .. } = &self.path;
        let put = |family, packet: &[u8]| {
            match answers.socket(family).send(hop.ifindex, hop.mac, packet) {
                // As on a full wire: it is sent again, or not answered.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                sent => sent,
            }
        };
        let sent = match tunnel {
            None => put(IpFamily::of(self.path.service), packet),
            Some(tunnel) => {
                let flow = self.local.port();
                match encapsulated(*tunnel, (hop.source, *server), flow, packet) {
                    Some(packet) => put(IpFamily::of(*server), &packet),
                    None => Err(io::ErrorKind::InvalidInput.into()),
                }
            }
        };
        sent.map_err(|error| NoAnswer::Here(format!("sending: {error}")))
    }
}

/// How many bytes go in front of a packet to `server`.
pub(crate) fn overhead(server: IpAddr, tunnel: Option<ListedTunnel>) -> usize {
    let outer = match server {
        IpAddr::V4(_) => etherparse::Ipv4Header::MIN_LEN,
        IpAddr::V6(_) => etherparse::Ipv6Header::LEN,
    };
    match tunnel {
        None => 0,
        Some(ListedTunnel::Ipip) => outer,
        Some(ListedTunnel::Gue { .. }) => outer + GUE_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_takes_its_headers_from_what_a_way_takes() {
        let [four, six] = ["10.0.0.1", "2001:db8::1"].map(|text| text.parse().unwrap());
        let gue = Some(ListedTunnel::Gue { port: 6080 });
        assert_eq!(overhead(four, None), 0);
        assert_eq!(overhead(four, Some(ListedTunnel::Ipip)), 20);
        assert_eq!(overhead(six, Some(ListedTunnel::Ipip)), 40);
        assert_eq!(overhead(four, gue), 32);
        assert_eq!(overhead(six, gue), 52);
    }
}
