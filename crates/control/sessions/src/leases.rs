//! Leases of DHCP servers as addresses of subscribers.
//!
//! *Idea.* A DHCP server knows which device has which address, and a directory knows whose device
//! it is. [`Leases`] holds the leases of all servers; [`Leases::assignments`] finds the subscriber
//! of each by the rules of a [`Config`]: a field of the lease equals a label of the subscriber, or
//! its identity. A lease of nobody changes nothing.
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
mod options;
mod source;

pub use config::{Config, ConfigError, Rule, Server};
pub use source::{Source, SourceError};

use crate::hardware;
use crate::prefix;
use narrows_directory::{Directory, Prefix};
use std::collections::{BTreeMap, BTreeSet, HashMap};

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

/// The leases of all servers.
#[derive(Debug)]
pub struct Leases {
    config: Config,
    tables: Vec<Table>,
}

/// The addresses of subscribers, by identity.
pub type Assignments = BTreeMap<String, BTreeSet<Prefix>>;

impl Leases {
    /// Of as many servers as the configuration has.
    pub fn new(config: Config) -> Self {
        let tables = config.servers.iter().map(|_| Table::new()).collect();
        Self { config, tables }
    }

    /// The rules.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The leases of the server with this index from now on. Says whether they differ.
    pub fn set(&mut self, server: usize, table: Table) -> bool {
        match self.tables.get_mut(server) {
            Some(place) if *place != table => {
                *place = table;
                true
            }
            _ => false,
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.tables.iter().map(Table::len).sum()
    }

    /// Who has which leased addresses at `unix` seconds since 1970. An address that two servers
    /// lease belongs to the client of the first one. One of the addresses `fixed` is nobody's
    /// lease.
    pub fn assignments(
        &self,
        unix: u64,
        directory: &Directory,
        fixed: &BTreeSet<Prefix>,
    ) -> Assignments {
        let indices: Vec<HashMap<String, &String>> =
            self.config.rules.iter().map(|rule| index(rule, directory)).collect();
        let mut assignments = Assignments::new();
        let mut taken = BTreeSet::new();
        for lease in self.tables.iter().flat_map(HashMap::values) {
            if lease.expires.is_some_and(|expires| expires <= unix)
                || fixed.contains(&lease.address)
            {
                continue;
            }
            let found = self
                .config
                .rules
                .iter()
                .zip(&indices)
                .find_map(|(rule, index)| index.get(&normal(lease.value(rule)?)).copied());
            if let Some(identity) = found
                && taken.insert(lease.address)
            {
                assignments.entry(identity.clone()).or_default().insert(lease.address);
            }
        }
        assignments
    }
}

/// Subscribers by what a rule compares. Who has the same as another is not found: it is not known
/// who is meant.
fn index<'a>(rule: &Rule, directory: &'a Directory) -> HashMap<String, &'a String> {
    let mut index: HashMap<String, Option<&String>> = HashMap::new();
    for (identity, subscriber) in &directory.subscribers {
        let value = match &rule.label {
            Some(label) => subscriber.labels.get(label),
            None => Some(identity),
        };
        // A label may name several devices.
        let words = value.map(|value| value.split(',')).into_iter().flatten();
        for word in words.map(str::trim).filter(|word| !word.is_empty()) {
            index
                .entry(normal(word))
                .and_modify(|known| *known = known.filter(|known| *known == identity))
                .or_insert(Some(identity));
        }
    }
    index.into_iter().filter_map(|(value, identity)| Some((value, identity?))).collect()
}

/// MAC addresses in one spelling; other text without regard to case.
fn normal(text: &str) -> String {
    hardware::address(text.trim()).unwrap_or_else(|| text.trim().to_ascii_lowercase())
}

/// Whether a client can have it.
fn usable(address: Option<Prefix>) -> Option<Prefix> {
    address.filter(|prefix| prefix.bits >= 8 && prefix::is_usable(prefix.ip))
}
