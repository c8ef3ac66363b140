//! What the programs of a router's devices share, and what they tell.
//!
//! *The kernel's routes.* A program on each device finds the way of a frame in tables that follow
//! the kernel's ([`RouteTables`]), or asks the kernel (`bpf_fib_lookup`). So routes, rules and
//! neighbours are the kernel's, and are changed with `ip`.
//!
//! *One router, several devices.* Which devices are ports, which addresses are this box's, and how
//! each port's frames are looked up are maps, which user space keeps up to date while the programs
//! run.
//!
//! *The kernel as the way out.* What a program does not route goes to the kernel as it arrived, and
//! is counted by reason ([`Outcome`](crate::Outcome)). The kernel routes it, answers it, or drops
//! it.
//!
//! Non-goals: routes, and their changes; what becomes of a frame at the port through which it
//! leaves.

use crate::load::{LoadError, explained};
use crate::routes::RouteTables;
use crate::takers::{Takers, map};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use narrows_forwarding::{PORTS_MAX, PortId};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

mod ask;
mod program;

pub use ask::{AskFib, FibAnswer};

/// `OWN_ADDRESSES_MAX` of `programs/route.h`.
const OWN_ADDRESSES_MAX: u32 = 4096;
/// `BPF_FIB_LOOKUP_DIRECT` of `linux/bpf.h`.
const DIRECT: u32 = 1;

/// How sources of IPv4 are checked: the kernel's `rp_filter`. IPv6 has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SourceCheck {
    /// Not at all.
    #[default]
    Off,
    /// The way back to it leads out of the device where the frame arrived.
    Strict,
    /// There is a way back to it.
    Loose,
}

impl SourceCheck {
    /// That of a value of `rp_filter`.
    pub const fn of(rp_filter: u32) -> Self {
        match rp_filter {
            0 => Self::Off,
            1 => Self::Strict,
            _ => Self::Loose,
        }
    }
}

/// How frames that arrive at a port are routed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ingress {
    /// The check of their sources.
    pub source_check: SourceCheck,
    /// Whether the table `main`, or that of the device's VRF, is asked and no rule is, for IPv4.
    /// That costs less. It is right only while there are no rules but the kernel's own, and there
    /// never were: a rule takes the local addresses out of that table for good.
    pub direct: bool,
    /// By family, whether [`RouteTables`](crate::RouteTables) are looked into first. That is right
    /// only while there are no rules but the kernel's own, and no VRF.
    pub by_tables: [bool; 2],
}

impl Ingress {
    /// `struct ingress` of `programs/route.h`.
    fn bytes(self) -> Vec<u8> {
        let check = match self.source_check {
            SourceCheck::Off => 0,
            SourceCheck::Strict => 1,
            SourceCheck::Loose => 2,
        };
        let flags = if self.direct { DIRECT } else { 0 };
        let [v4, v6] = self.by_tables.map(u32::from);
        [check, flags, v4, v6].map(u32::to_ne_bytes).concat()
    }
}

/// What the programs of all devices of a router share.
pub struct Router {
    ingresses: MapHandle,
    /// Numbers of ports, by the indices of devices.
    ports: MapHandle,
    addresses: MapHandle,
    takers: Takers,
    /// Where routes are looked up.
    tables: [OwnedFd; 3],
}

impl Router {
    /// One with these `ports`, by the indices of their devices, whose programs may look into
    /// `tables`. It has no address yet, and looks up by all rules, without a check of sources.
    ///
    /// # Errors
    /// If the kernel refuses it: for lack of privileges.
    pub fn new(ports: &[(u32, PortId)], tables: &RouteTables) -> Result<Self, LoadError> {
        let router = explained(|| {
            Ok(Self {
                ingresses: map(MapType::Array, "ingresses", [4, 16, PORTS_MAX as u32], 0)?,
                ports: map(MapType::Hash, "port_of", [4, 4, PORTS_MAX as u32], 0)?,
                addresses: map(
                    MapType::Hash,
                    "own_addresses",
                    [16, 4, OWN_ADDRESSES_MAX],
                    libbpf_sys::BPF_F_NO_PREALLOC,
                )?,
                takers: Takers::new()?,
                tables: owned(tables.maps())?,
            })
        })?;
        router.set_ports(ports).map_err(LoadError::Other)?;
        Ok(router)
    }

    /// Makes these its ports, by the indices of their devices. What leaves through another device
    /// goes to the kernel.
    fn set_ports(&self, ports: &[(u32, PortId)]) -> libbpf_rs::Result<()> {
        let entry = |&(ifindex, port): &(u32, PortId)| {
            (ifindex.to_ne_bytes().to_vec(), (port.index() as u32).to_ne_bytes())
        };
        make_equal(&self.ports, &ports.iter().map(entry).collect())
    }

    /// Makes these the addresses of this box from now on: what claims to come from one of them goes
    /// to the kernel.
    ///
    /// # Errors
    /// If the kernel refuses it, as it does for more than 4096.
    pub fn set_own_addresses(&self, addresses: &[IpAddr]) -> libbpf_rs::Result<()> {
        let entry = |address: &IpAddr| {
            let address = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => *address,
            };
            (address.octets().to_vec(), [0; 4])
        };
        make_equal(&self.addresses, &addresses.iter().map(entry).collect())
    }

    /// Routes frames that arrive at `port` as `ingress` says, from now on.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn set_ingress(&self, port: PortId, ingress: Ingress) -> libbpf_rs::Result<()> {
        let key = (port.index() as u32).to_ne_bytes();
        self.ingresses.update(&key, &ingress.bytes(), MapFlags::ANY)
    }

    /// This router, with [`Takers::sealed`].
    #[must_use]
    pub fn sealed(self, seal: u32) -> Self {
        Self { takers: self.takers.sealed(seal), ..self }
    }

    /// Where frames go on that it routes, on the XDP plane.
    pub fn takers(&self) -> &Takers {
        &self.takers
    }

    /// How ports' frames are routed, ports, addresses, and tables: for programs.
    pub(crate) fn maps(&self) -> [BorrowedFd<'_>; 6] {
        let [roots, chunks, hops] = self.tables.each_ref().map(AsFd::as_fd);
        let own = [&self.ingresses, &self.ports, &self.addresses].map(AsFd::as_fd);
        let [ingresses, ports, addresses] = own;
        [ingresses, ports, addresses, roots, chunks, hops]
    }
}

/// Descriptors of the same maps.
fn owned(maps: [BorrowedFd<'_>; 3]) -> io::Result<[OwnedFd; 3]> {
    let [one, two, three] = maps.map(|map| map.try_clone_to_owned());
    Ok([one?, two?, three?])
}

/// Makes the entries of `map` those of `wanted`. One that stays is there all the time.
fn make_equal(map: &MapHandle, wanted: &BTreeMap<Vec<u8>, [u8; 4]>) -> libbpf_rs::Result<()> {
    // First, so that there is room for new ones.
    let gone: Vec<Vec<u8>> = map.keys().filter(|key| !wanted.contains_key(key)).collect();
    for key in gone {
        map.delete(&key)?;
    }
    wanted.iter().try_for_each(|(key, value)| map.update(key, value, MapFlags::ANY))
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests;
