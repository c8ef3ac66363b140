//! What the programs of a router's devices share, and what they tell.
//!
//! *The kernel's routes.* A program on each device finds the way of a frame in tables that follow
//! the kernel's ([`RouteTables`]), or asks the kernel (`bpf_fib_lookup`). So routes, rules and
//! neighbours are the kernel's, and are changed with `ip`.
//!
//! *One router, several devices.* To the kernel, a port and each VLAN of a port are devices of
//! their own ([`Interface`]). Which there are, which addresses are this box's, and how frames that
//! arrive at each are looked up are maps, which user space keeps up to date while the programs run.
//!
//! *The kernel as the way out.* What a program does not route goes to the kernel as it arrived, and
//! is counted by reason ([`Outcome`](crate::Outcome)). The kernel routes it, answers it, or drops
//! it.
//!
//! *By routes or by flows* ([`RoutedBy`]). Where the kernel has a firewall or NAT, only what is of
//! a flow in its flowtable is routed.
//!
//! Non-goals: routes, and their changes; what becomes of a frame at the port through which it
//! leaves.

use crate::load::{LoadError, explained};
use crate::maps::map;
use crate::routes::{RouteTables, bytes_of};
use crate::takers::Takers;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use narrows_forwarding::{PORTS_MAX, PortId, Tag};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

mod ask;
mod program;

pub use ask::{AskFib, FibAnswer};

/// `OWN_ADDRESSES_MAX` of `programs/route.h`.
const OWN_ADDRESSES_MAX: u32 = 4096;
/// `VLANS_MAX`.
pub const VLANS_MAX: usize = 16384;
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

/// What filters of the ports ask of the routes that packets take.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Asks {
    /// Nothing.
    #[default]
    Nothing,
    /// The metric, and the realm of the destination.
    Route,
    /// The realm of the source, too.
    Source,
}

/// How frames that arrive at an interface are routed.
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
    /// What is found out for filters.
    pub asks: Asks,
}

/// What has addresses and routes of its own: a port, or a VLAN of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The port.
    pub port: PortId,
    /// The tag of its frames, if it is a VLAN.
    pub tag: Option<Tag>,
    /// The index of its device.
    pub ifindex: u32,
    /// Its MAC address: frames to others go to the kernel.
    pub mac: [u8; 6],
    /// How frames that arrive there are routed.
    pub ingress: Ingress,
}

impl Interface {
    /// `struct ingress` of `programs/route.h`.
    fn ingress(&self) -> Vec<u8> {
        let Ingress { source_check, direct, by_tables: [v4, v6], asks } = self.ingress;
        let check = match source_check {
            SourceCheck::Off => 0,
            SourceCheck::Strict => 1,
            SourceCheck::Loose => 2,
        };
        let flags = if direct { DIRECT } else { 0 };
        let words = [check, flags, u32::from(v4), u32::from(v6), self.ifindex];
        // `ASKS_ROUTE` and `ASKS_SOURCE` of `programs/route.h`.
        let asks: u32 = match asks {
            Asks::Nothing => 0,
            Asks::Route => 1,
            Asks::Source => 3,
        };
        let words = words.map(u32::to_ne_bytes).concat();
        [&words[..], &self.mac, &[0; 2], &asks.to_ne_bytes()].concat()
    }

    /// `struct port_vlan`.
    fn port_vlan(&self) -> Vec<u8> {
        let tag = self.tag.map_or([0; 4], bytes_of);
        [(self.port.index() as u32).to_ne_bytes(), tag].concat()
    }
}

/// Which packets programs route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RoutedBy {
    /// Those to which a route leads.
    #[default]
    Routes,
    /// Of these only those of flows in the kernel's flowtable, whose translation they get. It needs
    /// the kernel function `bpf_xdp_flow_lookup` (Linux 6.11), and programs at XDP.
    Flows,
}

/// What the programs of all devices of a router share.
pub struct Router {
    ingresses: MapHandle,
    vlan_ingresses: MapHandle,
    egresses: MapHandle,
    addresses: MapHandle,
    takers: Takers,
    /// Where routes are looked up.
    tables: [OwnedFd; 3],
    routed_by: RoutedBy,
}

impl Router {
    /// One whose programs may look into `tables`. It has no address and no interface yet, so
    /// everything goes to the kernel.
    ///
    /// # Errors
    /// If the kernel refuses it: for lack of privileges.
    pub fn new(tables: &RouteTables) -> Result<Self, LoadError> {
        let interfaces = (PORTS_MAX + VLANS_MAX) as u32;
        let some = libbpf_sys::BPF_F_NO_PREALLOC;
        explained(|| {
            Ok(Self {
                ingresses: map(MapType::Array, "ingresses", [4, 32, PORTS_MAX as u32], 0)?,
                vlan_ingresses: map(
                    MapType::Hash,
                    "vlan_ingresses",
                    [8, 32, VLANS_MAX as u32],
                    some,
                )?,
                egresses: map(MapType::Hash, "egresses", [4, 8, interfaces], some)?,
                addresses: map(MapType::Hash, "own_addresses", [16, 4, OWN_ADDRESSES_MAX], some)?,
                takers: Takers::new()?,
                tables: owned(tables.maps())?,
                routed_by: RoutedBy::default(),
            })
        })
    }

    /// Makes these its interfaces from now on: frames of other VLANs go to the kernel, and so does
    /// what leaves through another device. A port that is not among them stays as it was.
    ///
    /// # Errors
    /// If the kernel refuses it, as it does for more than [`VLANS_MAX`] VLANs.
    pub fn set_interfaces(&self, interfaces: &[Interface]) -> libbpf_rs::Result<()> {
        let (vlans, ports): (Vec<&Interface>, Vec<_>) =
            interfaces.iter().partition(|interface| interface.tag.is_some());
        let ingresses = vlans.iter().map(|vlan| (vlan.port_vlan(), vlan.ingress()));
        make_equal(&self.vlan_ingresses, &ingresses.collect())?;
        let egress = |it: &Interface| (it.ifindex.to_ne_bytes().to_vec(), it.port_vlan());
        make_equal(&self.egresses, &interfaces.iter().map(egress).collect())?;
        ports.iter().try_for_each(|port| {
            let number = (port.port.index() as u32).to_ne_bytes();
            self.ingresses.update(&number, &port.ingress(), MapFlags::ANY)
        })
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
            (address.octets().to_vec(), vec![0; 4])
        };
        make_equal(&self.addresses, &addresses.iter().map(entry).collect())
    }

    /// This router, with [`Takers::sealed`].
    #[must_use]
    pub fn sealed(self, seal: u32) -> Self {
        Self { takers: self.takers.sealed(seal), ..self }
    }

    /// This router, whose programs route by these.
    #[must_use]
    pub fn routed_by(self, routed_by: RoutedBy) -> Self {
        Self { routed_by, ..self }
    }

    /// By what its programs route.
    pub fn by(&self) -> RoutedBy {
        self.routed_by
    }

    /// Where frames go on that it routes, on the XDP plane.
    pub fn takers(&self) -> &Takers {
        &self.takers
    }

    /// Interfaces, addresses, and tables: for programs.
    pub(crate) fn maps(&self) -> [BorrowedFd<'_>; 7] {
        let [roots, chunks, hops] = self.tables.each_ref().map(AsFd::as_fd);
        let own = [&self.ingresses, &self.vlan_ingresses, &self.egresses, &self.addresses];
        let [ingresses, vlan_ingresses, egresses, addresses] = own.map(AsFd::as_fd);
        [ingresses, vlan_ingresses, egresses, addresses, roots, chunks, hops]
    }
}

/// Gives an opened object that routes the maps of a router. A macro, because each object's skeleton
/// has types of its own.
macro_rules! share_router {
    ($open:expr, $router:expr) => {
        let [ingresses, vlan_ingresses, egresses, addresses, roots, chunks, hops] = $router.maps();
        $open.maps.ingresses.reuse_fd(ingresses)?;
        $open.maps.vlan_ingresses.reuse_fd(vlan_ingresses)?;
        $open.maps.egresses.reuse_fd(egresses)?;
        $open.maps.own_addresses.reuse_fd(addresses)?;
        $open.maps.fib_roots.reuse_fd(roots)?;
        $open.maps.fib_chunks.reuse_fd(chunks)?;
        $open.maps.fib_hops.reuse_fd(hops)?;
    };
}

pub(crate) use share_router;

/// Descriptors of the same maps.
fn owned(maps: [BorrowedFd<'_>; 3]) -> io::Result<[OwnedFd; 3]> {
    let [one, two, three] = maps.map(|map| map.try_clone_to_owned());
    Ok([one?, two?, three?])
}

/// Makes the entries of `map` those of `wanted`. One that stays is there all the time.
fn make_equal(map: &MapHandle, wanted: &BTreeMap<Vec<u8>, Vec<u8>>) -> libbpf_rs::Result<()> {
    // First, so that there is room for new ones.
    let gone: Vec<Vec<u8>> = map.keys().filter(|key| !wanted.contains_key(key)).collect();
    for key in gone {
        map.delete(&key)?;
    }
    wanted.iter().try_for_each(|(key, value)| map.update(key, value, MapFlags::ANY))
}

#[cfg(test)]
#[allow(unsafe_code)]
pub(crate) mod tests;
