//! Services as others see them: for listings in JSON, for views, and for what checks servers.

use crate::service::{Forward, Health, Protocol, ServerId, ServiceId, Tunnel};
use crate::services::{Counts, Entry, Seen};
use crate::text::flags;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::net::IpAddr;

/// A service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedService {
    /// How.
    #[serde(serialize_with = "write_protocol", deserialize_with = "read_protocol")]
    pub protocol: Protocol,
    /// Where.
    pub address: IpAddr,
    /// The port; 0 for all that are no service of their own.
    pub port: u16,
    /// The scheduler's name.
    pub scheduler: String,
    /// The scheduler's flags, as `-b` takes them.
    pub flags: Option<String>,
    /// How long a client stays with its server, in seconds.
    pub persistence_s: Option<u32>,
    /// How many bits of a client's address count.
    pub client_bits: u8,
    /// Whether each datagram goes where its turn says.
    pub one_packet: bool,
    /// The form of QUIC's connection ids, if they say a server, as `--quic` takes it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quic: Option<String>,
    /// What is counted.
    pub stats: Counts,
    /// Its servers, by address.
    pub servers: Vec<ListedServer>,
}

impl ListedService {
    /// The service `id`, with what is counted of it.
    pub(crate) fn of(id: ServiceId, entry: &Entry, seen: &Seen) -> Self {
        let figures = &seen.figures;
        let Entry { number, service, servers, .. } = entry;
        let counted = |counts: Option<&Counts>| counts.copied().unwrap_or_default();
        let servers = servers.iter().map(|(server, numbered)| ListedServer {
            address: server.address,
            forward: ListedForward::of(*server, numbered.server.forward, seen),
            weight: numbered.server.weight,
            health: numbered.health,
            stats: counted(figures.servers.get(&numbered.number)),
            tunnel: ListedTunnel::of(numbered.server.forward),
            quic_id: numbered.server.quic_id.map(|id| format!("{id:#x}")),
        });
        Self {
            protocol: id.protocol,
            address: id.address,
            port: id.port,
            scheduler: service.scheduler.name().to_owned(),
            flags: flags(service),
            persistence_s: service.persistence_s,
            client_bits: service.client_bits,
            one_packet: service.one_packet,
            quic: service.quic.map(|format| format.to_string()),
            stats: counted(figures.services.get(number)),
            servers: servers.collect(),
        }
    }

    /// Which one it is.
    pub const fn id(&self) -> ServiceId {
        ServiceId { protocol: self.protocol, address: self.address, port: self.port }
    }
}

/// A server of a service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedServer {
    /// Its address.
    pub address: IpAddr,
    /// How packets reach it.
    pub forward: ListedForward,
    /// Its part of new connections.
    pub weight: u16,
    /// What was said of it.
    pub health: Health,
    /// What is counted.
    pub stats: Counts,
    /// What packets are put into.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tunnel: Option<ListedTunnel>,
    /// Its id in QUIC's connection ids, in hexadecimal digits: JSON's numbers are not that long.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quic_id: Option<String>,
}

/// How packets reach a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListedForward {
    /// With its MAC address.
    Route,
    /// In another packet.
    Tunnel,
    /// It is this box itself.
    Local,
}

impl ListedForward {
    pub(crate) fn of(server: ServerId, forward: Forward, seen: &Seen) -> Self {
        match forward {
            _ if seen.local.contains(&server.address) => Self::Local,
            Forward::Route => Self::Route,
            Forward::Tunnel(_) => Self::Tunnel,
        }
    }

    /// As `ipvsadm` writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Route => "Route",
            Self::Tunnel => "Tunnel",
            Self::Local => "Local",
        }
    }
}

/// What packets to a server are put into.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ListedTunnel {
    /// An IP packet.
    Ipip,
    /// GUE.
    Gue {
        /// To this UDP port.
        port: u16,
    },
}

impl ListedTunnel {
    /// That of `forward`, if it is one.
    pub(crate) const fn of(forward: Forward) -> Option<Self> {
        match forward {
            Forward::Route => None,
            Forward::Tunnel(Tunnel::Ip) => Some(Self::Ipip),
            Forward::Tunnel(Tunnel::Gue(port)) => Some(Self::Gue { port }),
        }
    }
}

fn write_protocol<S: Serializer>(protocol: &Protocol, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&protocol.name().to_lowercase())
}

fn read_protocol<'de, D: Deserializer<'de>>(from: D) -> Result<Protocol, D::Error> {
    let name = String::deserialize(from)?;
    let mut all = [Protocol::Tcp, Protocol::Udp].into_iter();
    let known = all.find(|known| known.name().eq_ignore_ascii_case(&name));
    known.ok_or_else(|| D::Error::custom(format!("unknown protocol {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Services;
    use narrows_units::Nanos;
    use serde_json::Value;

    #[test]
    fn json_says_what_a_service_has_and_is_read_again() {
        let text = "-A -t 192.0.2.1:80 -s mh -p 600 -M 255.255.255.0 -b mh-port\n\
                    -a -t 192.0.2.1:80 -r 10.0.0.1:80 -i -w 1\n\
                    -A -u [2001:db8::1]:53 -s rr\n\
                    -a -u [2001:db8::1]:53 -r [2001:db8::2]:53 -g -w 3\n\
                    -A -u [2001:db8::1]:443 -s mh --quic lb:4\n\
                    -a -u [2001:db8::1]:443 -r [2001:db8::3]:443 -g -w 1 --quic-id 0x2a\n";
        let mut services = Services::default();
        services.restore(text, Nanos::ZERO).unwrap();
        let local = [IpAddr::from([10, 0, 0, 1])].into();
        let seen = Seen { local, ..Seen::default() };
        let listed = services.listed(seen);
        let value = serde_json::to_value(&listed).unwrap();
        assert_eq!(value[0]["protocol"], "tcp");
        assert_eq!(value[0]["scheduler"], "mh");
        assert_eq!(value[0]["client_bits"], 24);
        assert_eq!(value[0]["servers"][0]["tunnel"]["type"], "ipip");
        assert_eq!(value[0]["servers"][0]["forward"], "local");
        assert_eq!(value[2]["quic"], "lb:4");
        assert_eq!(value[2]["servers"][0]["quic_id"], "0x2a");
        assert_eq!(value[1]["servers"][0]["forward"], "route");
        assert_eq!(value[1]["servers"][0].get("tunnel"), None::<&Value>);
        let read: Vec<ListedService> = serde_json::from_value(value).unwrap();
        assert_eq!(read, listed);
    }
}
