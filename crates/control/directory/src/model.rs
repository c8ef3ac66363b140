//! Sites, subscribers, plans and addresses.

use narrows_units::Rate;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// All sites and subscribers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Directory {
    /// The sites, by identity.
    pub sites: BTreeMap<String, Site>,
    /// The subscribers, by identity.
    pub subscribers: BTreeMap<String, Subscriber>,
}

/// A node of the network that subscribers share: a tower, an access point, a street.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Site {
    /// For people.
    pub name: String,
    /// The identity of the site above; none at the top.
    pub parent: Option<String>,
    /// Its capacity, downstream and upstream; none: that of the site above.
    pub capacity: [Option<Rate>; 2],
}

/// Somebody with a rate of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
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
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The assured rates; zero for the least that a class can have.
    pub assured: [Rate; 2],
    /// The ceilings.
    pub ceiling: [Rate; 2],
    /// The queues of each direction.
    pub queueing: [Queueing; 2],
}

/// The qdisc of a subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix {
    /// The address. Bits beyond the prefix are zero.
    pub ip: IpAddr,
    /// Its length in bits.
    pub bits: u8,
}
