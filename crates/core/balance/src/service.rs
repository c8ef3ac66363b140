//! A service, and its servers.

use crate::address;
use crate::quic::QuicFormat;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// The transport protocol of a service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// Its number in an IP header.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// Its name in listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// What clients connect to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ServiceId {
    /// How.
    pub protocol: Protocol,
    /// The address.
    pub address: IpAddr,
    /// The port; 0 for all that are no service of their own.
    pub port: u16,
}

impl ServiceId {
    /// Reads `ADDRESS:PORT`, the word behind `-t` or `-u`. Without a port it is all ports.
    ///
    /// # Errors
    /// What it is not.
    pub fn read(protocol: Protocol, word: &str) -> Result<Self, String> {
        let (address, port) = address::read(word)?;
        if address.is_unspecified() || address.is_multicast() {
            return Err(format!("{address} is no address of a service"));
        }
        Ok(Self { protocol, address, port: port.unwrap_or(0) })
    }

    /// The option that names it: `-t ADDRESS:PORT` or `-u ADDRESS:PORT`.
    pub fn option(self) -> String {
        let letter = match self.protocol {
            Protocol::Tcp => "-t",
            Protocol::Udp => "-u",
        };
        format!("{letter} {self}")
    }
}

/// Which server a new connection goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheduler {
    /// `mh`: by the hash of the client's address, in a [ring](crate::Ring).
    Maglev,
    /// `sh`: the same. In IPVS the hash is not consistent; there is no reason for another one here.
    SourceHash,
    /// `rr`: each server in turn.
    RoundRobin,
    /// `wrr`: each in turn, as often as its weight says.
    WeightedRoundRobin,
}

impl Scheduler {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Maglev, Self::SourceHash, Self::RoundRobin, Self::WeightedRoundRobin];

    /// Its name in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Maglev => "mh",
            Self::SourceHash => "sh",
            Self::RoundRobin => "rr",
            Self::WeightedRoundRobin => "wrr",
        }
    }

    /// Whether the client decides, and not who came before.
    pub const fn is_hash(self) -> bool {
        matches!(self, Self::Maglev | Self::SourceHash)
    }
}

/// A service, without its servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// Which server a new connection goes to.
    pub scheduler: Scheduler,
    /// Whether the client's port counts, too: `mh-port`, `sh-port`.
    pub hashes_port: bool,
    /// `mh-fallback`, `sh-fallback`. It says what is always so here: a server of weight 0 gets no
    /// new connections.
    pub falls_back: bool,
    /// For how long in seconds a client returns to its server, if connections of one client belong
    /// together.
    pub persistence_s: Option<u32>,
    /// How many bits of a client's address make it one, if they belong together.
    pub client_bits: u8,
    /// Whether each packet is a connection of its own: `--ops`.
    pub one_packet: bool,
    /// Where the server's id is in connection ids of QUIC, if they name one: `--quic`.
    pub quic: Option<QuicFormat>,
}

impl Service {
    /// One with `scheduler` and defaults, at an address of this family.
    pub const fn new(scheduler: Scheduler, is_v6: bool) -> Self {
        Self {
            scheduler,
            hashes_port: false,
            falls_back: false,
            persistence_s: None,
            client_bits: if is_v6 { 128 } else { 32 },
            one_packet: false,
            quic: None,
        }
    }
}

/// How packets reach a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forward {
    /// `-g`: the MAC address changes. The server is in the same network.
    Route,
    /// `-i`: within another packet. The server is anywhere.
    Tunnel(Tunnel),
}

/// What a packet is put into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tunnel {
    /// IP in IP (RFC 2003, RFC 2473).
    Ip,
    /// GUE (variant 0, without checksum) to this UDP port.
    Gue(u16),
}

/// A server among those of a service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ServerId {
    /// Its address.
    pub address: IpAddr,
}

/// A server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// How packets reach it.
    pub forward: Forward,
    /// Its part of new connections. With 0 it gets none, and keeps those that it has.
    pub weight: u16,
    /// Its id in connection ids of QUIC: `--quic-id`.
    pub quic_id: Option<u128>,
}

/// What is said of a server's health.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// It answers.
    #[default]
    Up,
    /// It does not answer, and gets no packets, as if it were removed.
    Down,
    /// It does not answer, and gets packets, because no other server is up.
    Last,
}

impl Default for Server {
    /// As `ipvsadm` adds one.
    fn default() -> Self {
        Self { forward: Forward::Route, weight: 1, quic_id: None }
    }
}

impl fmt::Display for ServiceId {
    /// Address and port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        address::write(f, self.address, self.port)
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}
