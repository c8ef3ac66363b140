//! Sites, subscribers, plans and addresses.
//!
//! As JSON, rates are whole numbers of bits per second, a pair is `[downstream, upstream]`, and an
//! address is text, as `"10.0.0.1"` or `"2001:db8::/56"`. Fields that are left out are empty.

use crate::json;
use narrows_units::Rate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// All sites and subscribers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Directory {
    /// The sites, by identity.
    pub sites: BTreeMap<String, Site>,
    /// The subscribers, by identity.
    pub subscribers: BTreeMap<String, Subscriber>,
}

/// A node of the network that subscribers share: a tower, an access point, a street.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Site {
    /// For people.
    pub name: String,
    /// The identity of the site above; none at the top.
    pub parent: Option<String>,
    /// Its capacity, downstream and upstream; none: that of the site above.
    #[serde(with = "json::capacity")]
    pub capacity: [Option<Rate>; 2],
}

/// Somebody with a rate of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Subscriber {
    /// For people.
    pub name: String,
    /// The identity of its site; none at the top.
    pub site: Option<String>,
    /// What it pays for.
    pub plan: Plan,
    /// Its addresses. An address belongs to one subscriber.
    pub addresses: Vec<Prefix>,
    /// Anything else that the source says of it.
    pub labels: BTreeMap<String, String>,
}

/// Rates, downstream and upstream, and how packets queue.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The assured rates; zero for the least that a class can have.
    #[serde(with = "json::rates")]
    pub assured: [Rate; 2],
    /// The ceilings.
    #[serde(with = "json::rates")]
    pub ceiling: [Rate; 2],
    /// The queues of each direction.
    pub queueing: [Queueing; 2],
}

/// The qdisc of a subscriber.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queueing {
    /// `cake`.
    #[default]
    Cake,
    /// `fq_codel`.
    FqCodel,
    /// None: a FIFO.
    Fifo,
}

/// An address or a prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    /// The address. Bits beyond the prefix are zero.
    pub ip: IpAddr,
    /// Its length in bits.
    pub bits: u8,
}
