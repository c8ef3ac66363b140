//! Routes, as a kernel has them.

use crate::image::Family;
use narrows_forwarding::Tag;
use narrows_image::Prefix;
use std::net::IpAddr;

/// A route for a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Its family.
    pub family: Family,
    /// Its prefix.
    pub prefix: Prefix,
    /// Of several for a prefix the kernel takes that with the smallest.
    pub metric: u32,
    /// The TOS for which it is; 0 for all.
    pub tos: u8,
    /// For packets from and to where it leads: `from << 16 | to`; 0 for none. Only IPv4 has them.
    pub realms: u32,
    /// Where it leads.
    pub target: Target,
    /// Whether it is one of the table `local`, which the kernel looks into first.
    pub is_local: bool,
}

/// What filters may ask of the route that a packet takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Attributes {
    /// Its realms: `from << 16 | to`; 0 for none.
    pub realms: u32,
    /// Its metric.
    pub metric: u32,
}

impl Attributes {
    /// Those of nothing.
    pub(crate) const NONE: Self = Self { realms: 0, metric: 0 };
    pub(crate) const MOST: Self = Self { realms: u32::MAX, metric: u32::MAX };
}

impl Route {
    /// What filters may ask of it.
    pub const fn attributes(&self) -> Attributes {
        Attributes { realms: self.realms, metric: self.metric }
    }
}

/// Where a route leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// To a gateway.
    Gateway {
        /// The device by which it is reached.
        ifindex: u32,
        /// Its address.
        gateway: IpAddr,
        /// The route's MTU in bytes; 0 if it has none.
        mtu: u32,
    },
    /// To a next-hop object (`ip nexthop`).
    Object {
        /// Its number.
        id: u32,
        /// The route's MTU in bytes; 0 if it has none.
        mtu: u32,
    },
    /// To hosts on the link of a device.
    OnLink {
        /// The device.
        ifindex: u32,
    },
    /// Elsewhere: the kernel has to be asked.
    Ask,
}

/// A next-hop object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Object {
    /// A gateway.
    Gateway {
        /// The device by which it is reached.
        ifindex: u32,
        /// Its address.
        gateway: IpAddr,
    },
    /// A group, a blackhole, and all else: the kernel has to be asked.
    Ask,
}

/// What sends what is routed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Device {
    /// The number of the port that it is, or that it is a VLAN of; none if it is neither.
    pub port: Option<u8>,
    /// The tag of its frames, if it is a VLAN.
    pub tag: Option<Tag>,
    /// Whether it is up and has a carrier.
    pub is_running: bool,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// The longest packet of IPv4 that it sends, in bytes.
    pub mtu_v4: u32,
    /// The longest packet of IPv6 that it sends, in bytes.
    pub mtu_v6: u32,
}

impl Device {
    /// The longest packet of `family` that it sends, in bytes.
    pub(crate) fn mtu(&self, family: Family) -> u32 {
        match family {
            Family::V4 => self.mtu_v4,
            Family::V6 => self.mtu_v6,
        }
    }
}

/// A next hop, as a program needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The number of the port through which a packet leaves,
    pub port: u8,
    /// and with which tag.
    pub tag: Option<Tag>,
    /// The MAC addresses with which it leaves: of the next hop,
    pub destination: [u8; 6],
    /// and of the port.
    pub source: [u8; 6],
    /// The longest packet that takes it, in bytes.
    pub mtu: u32,
}

/// The bits of an address, from the highest of 128 on.
pub fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The address of `family` with these bits.
pub fn address_of(family: Family, bits: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(((bits >> 96) as u32).into()),
        Family::V6 => IpAddr::V6(bits.into()),
    }
}
