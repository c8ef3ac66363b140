//! Leases of DHCP servers as addresses of subscribers.
//!
//! *Idea.* A DHCP server knows which device has which address, and a directory knows whose device
//! it is. [`Leases`] holds the leases of all servers; it finds the subscriber of each by the rules
//! of a [`Config`]: a field of the lease equals a label of the subscriber, or its identity. A lease
//! of nobody changes nothing.
//!
//! | server | how |
//! | --- | --- |
//! | Kea | its lease file ([`kea_file`]), or its control socket ([`kea_socket`]) |
//! | ISC dhcpd | its lease file ([`isc_file`]), for IPv4 or IPv6 |
//! | dnsmasq | its lease file ([`dnsmasq`]) |
//!
//! *Non-goals.* Subscribers that only a lease knows: it does not say what they pay for.

mod config;
pub mod dnsmasq;
mod growing_file;
pub mod isc_file;
mod isc_text;
pub mod kea_file;
pub mod kea_socket;
mod news;
mod options;
mod source;
mod whose;

pub use config::{Config, ConfigError, Rule, Server};
pub use news::News;
pub use source::{Source, SourceError};
pub use whose::{Assignments, Leases};

use crate::hardware;
use crate::prefix;
use narrows_directory::Prefix;
use std::collections::{BTreeMap, HashMap};

/// The most leases of one server.
pub const LEASES_MAX: usize = 1_000_000;

/// A field of a lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Field {
    /// The MAC address of the client.
    HwAddress,
    /// The identifier that the client chose (DHCPv4).
    ClientId,
    /// The identifier that the client chose (DHCPv6).
    Duid,
    /// The name that the client wants.
    Hostname,
    /// The line, as its access node calls it: option 82, sub-option 1 (RFC 3046), or option 18 of
    /// DHCPv6 (RFC 8415).
    CircuitId,
    /// The other end of the line, as its access node calls it: option 82, sub-option 2, or option
    /// 37 of DHCPv6 (RFC 4649).
    RemoteId,
    /// The subscriber, as its access node calls it: option 82, sub-option 6 (RFC 3993), or option
    /// 38 of DHCPv6 (RFC 4580).
    SubscriberId,
}

/// A lease that is in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The address, or the prefix.
    pub address: Prefix,
    /// Until when, in seconds since 1970; none for ever.
    pub expires: Option<u64>,
    /// What is known of the client.
    pub fields: BTreeMap<Field, String>,
    /// Texts in the user context of Kea, or variables that dhcpd sets, by key.
    pub context: BTreeMap<String, String>,
}

impl Lease {
    /// What a rule compares.
    fn value(&self, rule: &Rule) -> Option<&String> {
        match rule {
            Rule { field: Some(field), .. } => self.fields.get(field),
            Rule { context: Some(key), .. } => self.context.get(key),
            _ => None,
        }
    }
}

/// The leases of one server.
pub type Table = HashMap<Prefix, Lease>;

/// MAC addresses in one spelling; other text without regard to case.
fn normal(text: &str) -> String {
    hardware::address(text.trim()).unwrap_or_else(|| text.trim().to_ascii_lowercase())
}

/// Whether a client can have it.
fn usable(address: Option<Prefix>) -> Option<Prefix> {
    address.filter(|prefix| prefix.bits >= 8 && prefix::is_usable(prefix.ip))
}
