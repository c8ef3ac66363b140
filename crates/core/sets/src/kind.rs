//! The type of a set: what its members are, and what is recorded for each.

/// The type of a set's members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Addresses, of which only this many bits count (`hash:ip`, `netmask`).
    Ip {
        /// All of them, unless `netmask` says less.
        netmask: u8,
    },
    /// Prefixes (`hash:net`).
    Net,
    /// Prefixes, each with a port (`hash:net,port`).
    NetPort,
    /// Ethernet addresses (`hash:mac`).
    Mac,
}

impl Shape {
    /// As `ipset` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ip { .. } => "hash:ip",
            Self::Net => "hash:net",
            Self::NetPort => "hash:net,port",
            Self::Mac => "hash:mac",
        }
    }

    /// The revision of the type that is spoken here, as `ipset list` shows it.
    pub(crate) fn revision(self) -> u8 {
        match self {
            Self::Ip { .. } | Self::Mac => 5,
            Self::Net => 7,
            Self::NetPort => 8,
        }
    }

    /// The number of words in a look-up: `src`, or `src,dst`.
    pub fn dimensions(self) -> usize {
        if self == Self::NetPort { 2 } else { 1 }
    }

    /// Whether a packet's address alone leads to a member, so that members may have rates.
    pub(crate) fn is_of_addresses(self) -> bool {
        matches!(self, Self::Ip { .. } | Self::Net)
    }

    /// Whether a member may exclude its addresses from the set (`nomatch`).
    pub(crate) fn has_exceptions(self) -> bool {
        matches!(self, Self::Net | Self::NetPort)
    }
}

/// Whose addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4.
    Inet,
    /// IPv6.
    Inet6,
}

impl Family {
    /// As `ipset` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inet => "inet",
            Self::Inet6 => "inet6",
        }
    }

    /// How many bits an address has.
    pub fn bits(self) -> u8 {
        match self {
            Self::Inet => 32,
            Self::Inet6 => 128,
        }
    }
}

/// The definition of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// What its members are.
    pub shape: Shape,
    /// Whose addresses; without meaning for `hash:mac`.
    pub family: Family,
    /// How many members it may have.
    pub maxelem: u32,
    /// The default time-out of members in seconds, 0 for never; `None` if the set has no time-outs.
    pub timeout: Option<u32>,
    /// Whether packets are counted for each member.
    pub counters: bool,
    /// Whether something may be noted on a member.
    pub comment: bool,
    /// Whether a member may have a rate for the flows of packets that it covers. Narrows' own.
    pub rates: bool,
    /// The size of `ipset`'s hash: kept, so that `save` prints it.
    pub hashsize: u32,
    /// The number of its buckets; `None` if not given.
    pub bucketsize: Option<u8>,
    /// The seed of its hash; `None` if not given.
    pub initval: Option<u32>,
}

impl Kind {
    /// `ipset`'s own defaults for a set of `shape`.
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            family: Family::Inet,
            maxelem: 65_536,
            timeout: None,
            counters: false,
            comment: false,
            rates: false,
            hashsize: 1024,
            bucketsize: None,
            initval: None,
        }
    }

    /// Whether a set of this kind may take the place of one of `other`, and the other way round.
    pub fn fits(&self, other: &Self) -> bool {
        let is_mac = self.shape == Shape::Mac;
        let is_same_type = self.shape.name() == other.shape.name();
        is_same_type && (is_mac || self.family == other.family) && self.rates == other.rates
    }
}
