//! What the programs of a router's devices share, and what they tell.
//!
//! *The kernel's routes.* A program on each device asks the kernel for the way of a frame
//! (`bpf_fib_lookup`). So routes, rules and neighbours are the kernel's, and are changed with
//! `ip`.
//!
//! *One router, several devices.* Which devices are ports, which addresses are this box's, and how
//! each port's frames are looked up are maps, which user space keeps up to date while the programs
//! run.
//!
//! *The kernel as the way out.* What a program does not route goes to the kernel as it arrived,
//! and is counted by reason ([`Outcome`]). The kernel routes it, answers it, or drops it.
//!
//! Non-goals: routes, and their changes; what becomes of a frame at the port through which it
//! leaves.

use crate::attach::Hold;
use crate::load::{LoadError, explained};
use crate::routes::RouteTables;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use narrows_forwarding::{PORTS_MAX, PortId};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::ops::{AddAssign, Index};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

mod ask;
mod program;

pub use ask::{AskFib, FibAnswer};
pub use program::RouterProgram;

/// The bytes that say, in front of a frame, through which port it leaves.
pub const EGRESS_PORT_BYTES: u32 = 8;

/// `OWN_ADDRESSES_MAX` of `programs/route.h`.
const OWN_ADDRESSES_MAX: u32 = 4096;
/// `PORT_SEAL` of `programs/steer_router.bpf.c`.
const PORT_SEAL: u32 = 0x706f_7274;
/// `BPF_FIB_LOOKUP_DIRECT` of `linux/bpf.h`.
const DIRECT: u32 = 1;

/// The number of the port through which a frame leaves, by `before`, the bytes directly before it;
/// `None` if a program with `seal` has not said so. Whether there is such a port it does not say.
#[inline]
pub fn egress_port(before: &[u8], seal: u32) -> Option<u8> {
    let (before, found) = before.split_last_chunk()?;
    let (_, port) = before.split_last_chunk()?;
    if u32::from_ne_bytes(*found) != seal ^ PORT_SEAL {
        return None;
    }
    u32::from_ne_bytes(*port).try_into().ok()
}

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

/// Declares [`Outcome`] in the order of `enum outcome` of `programs/route.h`.
macro_rules! outcomes {
    ($($(#[doc = $doc:literal])* $outcome:ident $name:literal,)*) => {
        /// What became of a frame. All but [`Routed`](Self::Routed) and
        /// [`Blackhole`](Self::Blackhole) went to the kernel as they arrived.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Outcome {
            $($(#[doc = $doc])* $outcome,)*
        }

        impl Outcome {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$outcome),*];

            /// Its name, as counters have it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$outcome => $name,)*
                }
            }
        }
    };
}

outcomes! {
    /// It leaves through a port.
    Routed "routed",
    /// To another MAC address: another's, multicast, broadcast.
    NotForUs "not_for_us",
    /// ARP, with a VLAN tag, and all else.
    NotIp "not_ip",
    /// Shorter than its headers say.
    Short "short",
    /// With options of IPv4, or with options for each hop of IPv6.
    Options "options",
    /// Its TTL or hop limit is used up.
    Ttl "ttl",
    /// With an address that no router forwards.
    Martian "martian",
    /// From an address of this box.
    OwnSource "own_source",
    /// Its source is not where it came from.
    BadSource "bad_source",
    /// For this box, or without a route.
    NotForwarded "not_forwarded",
    /// Its device does not forward.
    Disabled "disabled",
    /// Too long for its route.
    TooLong "too_long",
    /// The next hop's MAC address is not known.
    NoNeighbour "no_neighbour",
    /// It leaves through a device that is no port.
    OtherPort "other_port",
    /// A route says unreachable, or prohibited.
    Unreachable "unreachable",
    /// The route encapsulates, or the look-up has another answer.
    Unsupported "unsupported",
    /// Dropped: a route says so.
    Blackhole "blackhole",
    /// There is no room for metadata in front of it.
    NoRoom "no_room",
    /// Nothing takes what leaves through that port.
    Nobody "nobody",
}

const OUTCOMES: usize = Outcome::ALL.len();

/// The frames of each outcome, on all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouteCounters([u64; OUTCOMES]);

impl RouteCounters {
    /// From the frames of each outcome, in the order of [`Outcome::ALL`]. Missing ones are 0.
    pub fn of(words: &[u64]) -> Self {
        Self(std::array::from_fn(|outcome| words.get(outcome).copied().unwrap_or(0)))
    }

    /// The inverse of [`of`](Self::of).
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// Each outcome, and its frames.
    pub fn iter(&self) -> impl Iterator<Item = (Outcome, u64)> {
        Outcome::ALL.iter().copied().zip(self.0)
    }

    /// The frames that went to the kernel.
    pub fn passed(&self) -> u64 {
        let went = |outcome| !matches!(outcome, Outcome::Routed | Outcome::Blackhole);
        self.iter().filter(|&(outcome, _)| went(outcome)).map(|(_, frames)| frames).sum()
    }

    /// Those in a program's `map`.
    pub(crate) fn read(map: &MapHandle) -> libbpf_rs::Result<Self> {
        let mut counters = Self::default();
        for (outcome, sum) in (0_u32..).zip(&mut counters.0) {
            *sum = sum_of(map, outcome)?;
        }
        Ok(counters)
    }

    /// The bytes of routed frames in a program's `map`: they are behind the outcomes.
    pub(crate) fn read_bytes(map: &MapHandle) -> libbpf_rs::Result<u64> {
        sum_of(map, OUTCOMES as u32)
    }
}

/// The sum over all CPUs of a slot of `map`.
fn sum_of(map: &MapHandle, slot: u32) -> libbpf_rs::Result<u64> {
    let slots = map.lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    let words = slots.iter().filter_map(|slot| slot.as_slice().try_into().ok());
    Ok(words.map(u64::from_ne_bytes).sum())
}

impl Index<Outcome> for RouteCounters {
    type Output = u64;

    fn index(&self, outcome: Outcome) -> &u64 {
        &self.0[outcome as usize]
    }
}

impl AddAssign for RouteCounters {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }
}

/// What the programs of all devices of a router share.
pub struct Router {
    ingresses: MapHandle,
    /// Numbers of ports, by the indices of devices.
    ports: MapHandle,
    addresses: MapHandle,
    /// On the XDP plane, what takes frames that leave through each port, and then the same for
    /// those that have met filters that set something. The kernel empties it once nobody has it
    /// open.
    takers: MapHandle,
    /// What these filters have set.
    handed: MapHandle,
    /// Where routes are looked up.
    tables: [OwnedFd; 3],
    /// What marks the frames that trees behind it send; 0 for nothing.
    seal: u32,
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
                takers: map(MapType::ProgArray, "takers", [4, 4, 2 * PORTS_MAX as u32], 0)?,
                handed: map(MapType::PercpuArray, "handed", [4, 8, 1], 0)?,
                tables: owned(tables.maps())?,
                seal: 0,
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

    /// This router, whose trees mark the frames that they send with `seal`, which nobody outside
    /// knows: so that their [slow path](crate::tree::Tree::slow_path) does not charge them again.
    #[must_use]
    pub fn sealed(self, seal: u32) -> Self {
        Self { seal, ..self }
    }

    pub(crate) fn seal(&self) -> u32 {
        self.seal
    }

    /// Where the trees behind it read what filters in front of it set: for
    /// [`FrontPort`](crate::FrontPort).
    pub fn handed(&self) -> &MapHandle {
        &self.handed
    }

    /// What keeps a program where frames go on that leave through `port`, and what keeps one where
    /// those do that have met filters that set something.
    pub(crate) fn holds_of(&self, port: PortId) -> io::Result<[Hold; 2]> {
        let takers = || self.takers.as_fd().try_clone_to_owned();
        let place = port.index() as u32;
        let behind = place + PORTS_MAX as u32;
        Ok([Hold::Place(takers()?, place), Hold::Place(takers()?, behind)])
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

/// A map with keys and values of so many bytes, for so many entries.
fn map(
    kind: MapType,
    name: &str,
    [key, value, entries]: [u32; 3],
    flags: u32,
) -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: flags,
        ..Default::default()
    };
    MapHandle::create(kind, Some(name), key, value, entries, &options)
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
