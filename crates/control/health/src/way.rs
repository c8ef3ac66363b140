//! The way that packets of a service take to a server, as the balancer takes it: through its port,
//! and within another packet where the server has a tunnel.

use narrows_link::{Link, LinkError, ways};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// An outer header of IPv4 (RFC 2003) and one of IPv6 (RFC 2473), in bytes.
const OUTER: (u32, u32) = (20, 40);
/// UDP, and the header of GUE, in bytes.
const GUE: u32 = 8 + 4;

/// What packets to a server are put into.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Tunnel {
    Ipip,
    Gue,
}

/// The way to a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Way {
    /// The longest packet of a client that it takes, in bytes of IP; none if there is no way.
    packet_max: Option<u32>,
    /// Why there is none.
    why: Option<String>,
}

impl Way {
    pub(crate) fn is_there(&self) -> bool {
        self.why.is_none()
    }

    /// The end of a line about the server.
    pub(crate) fn text(&self) -> String {
        match (&self.why, self.packet_max) {
            (Some(why), _) => format!(", NO WAY: {why}"),
            (None, Some(most)) => format!(", packets of up to {most} bytes"),
            (None, None) => String::new(),
        }
    }
}

/// The ways through a port.
pub(crate) struct Ways {
    /// What each takes, in bytes of IP, or why there is none.
    found: BTreeMap<IpAddr, Result<u32, String>>,
}

impl Ways {
    /// Reads those through `port` to `servers`. The kernel has to know the neighbours already.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub(crate) fn read(
        port: &str,
        servers: impl IntoIterator<Item = IpAddr>,
    ) -> Result<Self, LinkError> {
        let of_port = Link::by_name(port)?.status;
        let found = ways::Ways::read(of_port.ifindex, servers)?.follow()?.into_iter();
        let found = found.map(|(server, way)| {
            let mtu = way.map(|way| way.mtu.unwrap_or(of_port.mtu).min(of_port.mtu));
            (server, mtu.map_err(|why| why.to_string()))
        });
        Ok(Self { found: found.collect() })
    }

    /// The way to `server`, for packets that are put into `tunnel`.
    pub(crate) fn to(&self, server: IpAddr, tunnel: Option<Tunnel>) -> Way {
        match self.found.get(&server) {
            Some(Ok(mtu)) => {
                let packet_max = mtu.saturating_sub(overhead(server, tunnel));
                Way { packet_max: Some(packet_max), why: None }
            }
            Some(Err(why)) => Way { packet_max: None, why: Some(why.clone()) },
            None => Way { packet_max: None, why: None },
        }
    }
}

/// How many bytes go in front of a packet.
fn overhead(server: IpAddr, tunnel: Option<Tunnel>) -> u32 {
    let outer = if server.is_ipv4() { OUTER.0 } else { OUTER.1 };
    match tunnel {
        None => 0,
        Some(Tunnel::Ipip) => outer,
        Some(Tunnel::Gue) => outer + GUE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_takes_its_headers_from_what_a_way_takes() {
        let [four, six] = ["10.0.0.1", "2001:db8::1"].map(|text| text.parse().unwrap());
        assert_eq!(overhead(four, None), 0);
        assert_eq!(overhead(four, Some(Tunnel::Ipip)), 20);
        assert_eq!(overhead(six, Some(Tunnel::Ipip)), 40);
        assert_eq!(overhead(four, Some(Tunnel::Gue)), 32);
        assert_eq!(overhead(six, Some(Tunnel::Gue)), 52);
    }

    #[test]
    fn a_port_that_is_not_there_has_no_ways() {
        assert!(Ways::read("nrw-no-port", []).is_err());
    }
}
