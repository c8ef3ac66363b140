//! What a packet says of a session: whose it is, at which NAS, with which addresses.

use super::attribute::{
    ACCT_SESSION_ID, CALLING_STATION_ID, DELEGATED_IPV6_PREFIX, FRAMED_IP_ADDRESS,
    FRAMED_IP_NETMASK, FRAMED_IPV6_ADDRESS, FRAMED_IPV6_PREFIX, FRAMED_IPV6_ROUTE, FRAMED_ROUTE,
    NAS_IDENTIFIER, NAS_IP_ADDRESS, NAS_IPV6_ADDRESS, text,
};
use super::config::Config;
use super::offer::{Fault, Offer};
use super::packet::{Packet, Type};
use crate::{hardware, prefix};
use narrows_directory::Prefix;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most addresses that a session has of each kind.
const ADDRESSES_MAX: usize = 16;

/// Attributes of RFC 5176 section 3 that say which session is meant, beside Acct-Session-Id and
/// addresses, by number: User-Name, NAS-Port, Called-Station-Id, Calling-Station-Id,
/// Acct-Multi-Session-Id, NAS-Port-Id, Chargeable-User-Identity.
pub const IDENTIFICATION: [u8; 7] = [1, 5, 30, 31, 50, 87, 89];

/// A NAS, as it names itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nas {
    /// The client that sends its packets, itself or a proxy.
    pub client: String,
    /// Its NAS-Identifier.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub identifier: Option<String>,
    /// Its NAS-IP-Address or NAS-IPv6-Address; if it says nothing of itself, where it sends from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<IpAddr>,
}

impl Nas {
    /// That of a packet of `client`, which came from `from`.
    pub fn of(packet: &Packet<'_>, client: &str, from: IpAddr) -> Self {
        let (identifier, address) = named(packet);
        let unnamed = (identifier.is_none() && address.is_none()).then_some(from);
        Self { client: client.to_owned(), identifier, address: address.or(unnamed) }
    }

    /// For people.
    pub fn name(&self) -> String {
        match (&self.identifier, self.address) {
            (Some(identifier), _) => identifier.clone(),
            (None, Some(address)) => address.to_string(),
            (None, None) => self.client.clone(),
        }
    }
}

/// How a packet names a NAS.
fn named(packet: &Packet<'_>) -> (Option<String>, Option<IpAddr>) {
    let identifier = packet.value(NAS_IDENTIFIER).and_then(text);
    let ipv4 = packet.fixed::<4>(NAS_IP_ADDRESS.number).map(IpAddr::from);
    let ipv6 = packet.fixed::<16>(NAS_IPV6_ADDRESS.number).map(IpAddr::from);
    (identifier, ipv4.or(ipv6))
}

/// Which session of which NAS. Sorted by session first, since a request may leave the NAS out.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Acct-Session-Id.
    pub id: String,
    /// Whose.
    pub nas: Nas,
}

/// By which attribute a session has an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// Framed-IP-Address, with Framed-IP-Netmask.
    #[serde(rename = "framed4")]
    Framed4,
    /// Framed-Route.
    #[serde(rename = "route4")]
    Route4,
    /// Framed-IPv6-Prefix.
    #[serde(rename = "framed6")]
    Framed6,
    /// Framed-IPv6-Address.
    #[serde(rename = "address6")]
    Address6,
    /// Delegated-IPv6-Prefix.
    #[serde(rename = "delegated6")]
    Delegated6,
    /// Framed-IPv6-Route.
    #[serde(rename = "route6")]
    Route6,
}

/// The addresses of a session. Of a kind that a packet does not mention, it keeps those it has:
/// many clients send a delegated prefix only when there is one.
pub type Addresses = BTreeMap<Kind, Vec<Prefix>>;

/// What a packet of accounting says of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Which.
    pub key: Key,
    /// When it was so, in seconds since 1970.
    pub event: u64,
    /// Who it is.
    pub identity: Option<String>,
    /// Its name for people, if an attribute says it.
    pub name: Option<String>,
    /// The identity of its site.
    pub site: Option<String>,
    /// Its addresses.
    pub addresses: Addresses,
    /// Attributes by which others may mean it.
    pub identification: BTreeMap<u8, String>,
    /// What it says of the plan.
    pub offer: Offer,
    /// It came with an Interim-Update.
    pub is_interim: bool,
}

impl Report {
    /// What `packet` says, and what in it cannot be used. `None` if it does not say which session.
    pub fn read(
        config: &Config,
        packet: &Packet<'_>,
        nas: Nas,
        event: u64,
        is_interim: bool,
    ) -> Option<(Self, Option<Fault>)> {
        let id = packet.value(ACCT_SESSION_ID).and_then(text)?;
        let (offer, rate_fault) = Offer::read(config, packet);
        let (addresses, address_fault) = addresses(packet, config);
        let words = [nas.identifier.clone(), nas.address.map(|ip| ip.to_string())];
        let site = words.iter().flatten().find_map(|word| config.sites.get(word)).cloned();
        let report = Self {
            key: Key { id, nas },
            event,
            identity: packet.value(config.identity).and_then(text),
            name: config.name.and_then(|name| packet.value(name)).and_then(text),
            site,
            addresses,
            identification: identification(packet),
            offer,
            is_interim,
        };
        Some((report, rate_fault.or(address_fault)))
    }

    /// The MAC address, if the packet has one.
    pub fn mac(identification: &BTreeMap<u8, String>) -> Option<String> {
        hardware::address(identification.get(&CALLING_STATION_ID.number)?)
    }
}

/// The sessions that a Disconnect or CoA means: those that match all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selector {
    /// Acct-Session-Id.
    pub id: Option<String>,
    /// NAS-Identifier.
    pub nas_identifier: Option<String>,
    /// NAS-IP-Address or NAS-IPv6-Address.
    pub nas_address: Option<IpAddr>,
    /// The identity.
    pub identity: Option<String>,
    /// Addresses that it has.
    pub addresses: Addresses,
    /// Other attributes.
    pub identification: BTreeMap<u8, String>,
}

impl Selector {
    /// What `packet` says. `None` if it says of no session in particular.
    pub fn read(config: &Config, packet: &Packet<'_>) -> Option<Self> {
        let (nas_identifier, nas_address) = named(packet);
        // A mask is no part of an address that somebody looks for; routes are none at all.
        let selector = Self {
            id: packet.value(ACCT_SESSION_ID).and_then(text),
            nas_identifier,
            nas_address,
            identity: packet.value(config.identity).and_then(text),
            addresses: named_addresses(packet),
            identification: identification(packet),
        };
        let is_particular = selector.id.is_some()
            || selector.identity.is_some()
            || !selector.addresses.is_empty()
            || !selector.identification.is_empty();
        is_particular.then_some(selector)
    }

    /// Whether it means sessions of `nas`.
    pub fn means_nas(&self, nas: &Nas) -> bool {
        let is_same = |wanted: &Option<String>| wanted.is_none() || *wanted == nas.identifier;
        is_same(&self.nas_identifier)
            && (self.nas_address.is_none() || self.nas_address == nas.address)
    }
}

fn identification(packet: &Packet<'_>) -> BTreeMap<u8, String> {
    let value = |number: u8| Some((number, text(packet.value(Type::standard(number))?)?));
    IDENTIFICATION.into_iter().filter_map(value).collect()
}

/// The addresses in `packet` that a subscriber may have.
fn addresses(packet: &Packet<'_>, config: &Config) -> (Addresses, Option<Fault>) {
    let mut addresses = Addresses::new();
    let mut fault = None;
    for (kind, value) in packet.attributes() {
        let Some((of, found)) = address(packet, config.use_netmask, kind, value) else { continue };
        let list = addresses.entry(of).or_default();
        let Some(prefix) = found else { continue };
        let shortest = config.limits.shortest[usize::from(prefix.ip.is_ipv6())];
        if prefix.bits < shortest {
            let why = format!(
                "{} has less than {shortest} bits, see [limits] in the configuration",
                prefix::show(&prefix)
            );
            fault.get_or_insert((kind, why));
        } else if list.len() < ADDRESSES_MAX && !list.contains(&prefix) {
            list.push(prefix);
        }
    }
    (addresses, fault)
}

/// The addresses by which `packet` means a session (RFC 5176 section 3).
fn named_addresses(packet: &Packet<'_>) -> Addresses {
    let mut addresses = Addresses::new();
    for (kind, value) in packet.attributes() {
        let named = match kind {
            FRAMED_IP_ADDRESS => {
                <[u8; 4]>::try_from(value).ok().map(|ip| (Kind::Framed4, prefix::host(ip.into())))
            }
            FRAMED_IPV6_PREFIX => ipv6_prefix(value).map(|prefix| (Kind::Framed6, prefix)),
            FRAMED_IPV6_ADDRESS => {
                <[u8; 16]>::try_from(value).ok().map(|ip| (Kind::Address6, prefix::host(ip.into())))
            }
            DELEGATED_IPV6_PREFIX => ipv6_prefix(value).map(|prefix| (Kind::Delegated6, prefix)),
            _ => None,
        };
        if let Some((of, prefix)) = named {
            addresses.entry(of).or_default().push(prefix);
        }
    }
    addresses
}

/// The kind of an attribute with an address, and the address unless it is one that nobody has.
fn address(
    packet: &Packet<'_>,
    use_netmask: bool,
    kind: Type,
    value: &[u8],
) -> Option<(Kind, Option<Prefix>)> {
    let (of, prefix) = match kind {
        FRAMED_IP_ADDRESS => {
            let ip = Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?);
            let mask = packet.integer(FRAMED_IP_NETMASK.number).filter(|_| use_netmask);
            // A mask with holes is none.
            let bits = mask.map_or(32, u32::leading_ones);
            let is_mask = mask.is_none_or(|mask| mask.count_ones() == bits && bits > 0);
            (Kind::Framed4, prefix::network(ip.into(), if is_mask { bits as u8 } else { 32 }))
        }
        FRAMED_IPV6_ADDRESS => {
            let ip = Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?);
            (Kind::Address6, Some(prefix::host(ip.into())))
        }
        FRAMED_IPV6_PREFIX => (Kind::Framed6, ipv6_prefix(value)),
        DELEGATED_IPV6_PREFIX => (Kind::Delegated6, ipv6_prefix(value)),
        // The first word is the network (RFC 2865 section 5.22, RFC 3162 section 2.5).
        FRAMED_ROUTE | FRAMED_IPV6_ROUTE => {
            let word = str::from_utf8(value).ok()?.split_ascii_whitespace().next()?;
            let prefix = prefix::parse(word)?;
            let of = if prefix.ip.is_ipv4() { Kind::Route4 } else { Kind::Route6 };
            (of, Some(prefix))
        }
        _ => return None,
    };
    Some((of, prefix.filter(|prefix| prefix::is_usable(prefix.ip))))
}

/// RFC 3162 section 2.3: a reserved byte, the length in bits, and as many bytes as it needs.
fn ipv6_prefix(value: &[u8]) -> Option<Prefix> {
    let [_, bits, bytes @ ..] = value else { return None };
    let mut ip = [0; 16];
    ip.get_mut(..bytes.len())?.copy_from_slice(bytes);
    prefix::network(IpAddr::from(ip), *bits)
}
