//! Services and their servers, as the program of a balancer looks them up: `programs/balance.h`.
//!
//! The program and its [`BalanceTables`] follow [`Services`]: after each change,
//! [`BalanceTables::follow`] makes the same change here. It also says the [`Way`] to each server,
//! because the program knows no routes and no neighbours.
//!
//! *A change in order.* New servers are there before a ring leads to them, and old ones go when
//! none does any more. A server's words are never written while a packet may be reading them: there
//! are two halves, and each change is written into the one that is not in force.
//!
//! Non-goals: what services mean (`crates/core/balance`), where ways lead (`crates/kernel/link`).

use crate::attach::Entry;
use crate::load::{LoadError, Tries, explained, keep};
use crate::mapped::{Mapped, SharedLine};
use crate::maps::{map, map_of_maps, put, sums_in};
use crate::named::named;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use narrows_balance::{
    Counts, Figures, Forward, Numbered, Protocol, QuicFormat, Ring, SERVERS_MAX, SERVICES_MAX,
    SLOTS, Service, ServiceId, Services, Tunnel,
};
use narrows_forwarding::{PORTS_MAX, PortId};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::ops::Index;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

#[cfg(test)]
mod tests;

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/balance.skel.rs"));
    pub use {BalanceSkelBuilder as Builder, OpenBalanceSkel as OpenSkel};
}

/// How many maps the program and user space share.
const MAPS: usize = 9;
/// Rows of recorded connections, each of eight: a power of two. 16 MiB. The first sixteenth is the
/// front, which has most of 100,000 connections. With a million connections a row of the rest has
/// less than four on average, and one in a thousand finds none that is free.
const ROWS: usize = 1 << 18;
/// The numbers of servers; none has the first.
const SERVERS: usize = SERVERS_MAX + 1;
/// A unit of time of `programs/connections.h`, and the longest silence in these.
const TIME_UNIT_SHIFT: u32 = 32;
const SILENCE_MAX: u64 = 0xfff;
/// After how many seconds without a packet a record counts no more: IPVS's times.
const TCP_SILENCE_S: u64 = 900;
const UDP_SILENCE_S: u64 = 300;

/// `struct service_key`, `struct service` and `struct balanced` of `programs/balance.h`.
const KEY_BYTES: u32 = 20;
const SERVICE_BYTES: u32 = 32;
const BALANCED_BYTES: u32 = 32;
/// `struct fated`.
const FATED_BYTES: u32 = 16;
/// What is counted there behind the fates.
const COUNTED: usize = Fate::ALL.len() + 3;
const FROM_OTHERS: usize = Fate::ALL.len();
const BY_ID: usize = Fate::ALL.len() + 1;
const NOT_BY_ID: usize = Fate::ALL.len() + 2;
/// The flags of a service there.
const BY_TURNS: u32 = 1;
const HASHES_PORT: u32 = 2;
const PERSISTS: u32 = 4;
const ONE_PACKET: u32 = 8;
/// Where it says how connection ids of QUIC name servers: in how many octets, or as Katran has it.
const QUIC_SHIFT: u32 = 8;
const QUIC_KATRAN: u32 = 16;
/// `struct quic_key` of `programs/quic.h`.
const QUIC_KEY_BYTES: u32 = 24;
/// How packets reach a server there.
const BY_ROUTE: u8 = 1;
const BY_IP: u8 = 2;
const BY_GUE: u8 = 3;
/// Where the way to a server leads.
const WAY_OUT: u8 = 1;
const WAY_LOCAL: u8 = 2;

/// Packets cannot be balanced.
#[derive(Debug, thiserror::Error)]
pub enum BalanceError {
    /// The kernel does not load the program, or does not make its maps.
    #[error("the kernel offers no balancer: {0}")]
    Load(#[from] LoadError),
    /// A map cannot be written.
    #[error("the services cannot be put where packets are looked up: {0}")]
    Map(#[from] libbpf_rs::Error),
    /// At tcx frames cannot be sent back.
    #[error(
        "a balancer needs XDP, and this port's program is at tcx: start again with --xdp native, or \
         --xdp generic"
    )]
    NoXdp,
}

// In the order of `enum fate` of `programs/balance.h`.
named! {
    /// What becomes of a frame at a balancer.
    Fate {
        /// It leaves towards a server, through the port where it came in.
        Balanced "balanced",
        /// It is longer than the way to the server takes, and its sender is told so: the answer
        /// leaves in its place.
        Answered "answered",
        /// It leaves towards a server, through another port.
        Redirected "redirected",
        /// Its server is this box itself: it goes on.
        Local "local",
        /// It is of no service, and goes on.
        Elsewhere "elsewhere",
        /// A fragment, which may be of a service for certain ports; it goes on.
        Fragment "fragment",
        /// Of a connection that nobody knows, where servers take turns; it goes on.
        Unrecorded "unrecorded",
        /// Dropped: the service has no server for it.
        NoServer "no_server",
        /// Dropped: the Ethernet address on the way to the server is not known.
        NoWay "no_way",
        /// Dropped: it is longer than the way to the server takes, and is not answered.
        TooBig "too_big",
        /// Dropped: its TTL or hop limit is used up.
        Expired "expired",
        /// Dropped: the driver leaves no room for headers in front of it.
        NoHeadroom "no_headroom",
        /// Dropped: nothing is sent to the port on the way to the server.
        PortGone "port_gone",
    }
}

/// Packets and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fated {
    /// Packets.
    pub packets: u64,
    /// Their bytes, as they came.
    pub bytes: u64,
}

/// What is counted at a port: the frames of each fate that came in there, on all CPUs, and then
/// those that left there and came in elsewhere, or went by connection ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FateCounters([Fated; COUNTED]);

impl FateCounters {
    /// Each fate, and its frames.
    pub fn iter(&self) -> impl Iterator<Item = (Fate, Fated)> {
        Fate::ALL.iter().copied().zip(self.0)
    }

    /// Frames that left towards a server through this port, and came in at another.
    pub fn of_other_ports(&self) -> Fated {
        self.0[FROM_OTHERS]
    }

    /// Packets of QUIC whose connection id named a server.
    pub fn by_id(&self) -> Fated {
        self.0[BY_ID]
    }

    /// Packets of services with connection ids that went as others do.
    pub fn not_by_id(&self) -> Fated {
        self.0[NOT_BY_ID]
    }
}

impl Index<Fate> for FateCounters {
    type Output = Fated;

    fn index(&self, fate: Fate) -> &Fated {
        &self.0[fate as usize]
    }
}

/// The way to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// It is this box itself.
    Local,
    /// It is beyond a port.
    Beyond(NextHop),
}

/// Where a way leads first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// The port that it leads through.
    pub port: PortId,
    /// The MAC address of the server, or of the gateway to it.
    pub to: [u8; 6],
    /// The port's own.
    pub from: [u8; 6],
    /// The port's IP address: where tunnels to the server begin.
    pub source: IpAddr,
    /// The largest IP packet on the way, in bytes.
    pub mtu: u16,
}

/// The maps of a balancer.
pub struct BalanceTables {
    services: MapHandle,
    rings: MapHandle,
    /// Instead of rings of services that are gone.
    no_ring: MapHandle,
    servers: Mapped<SharedLine>,
    half: Mapped<AtomicU64>,
    connections: MapHandle,
    service_counts: MapHandle,
    server_counts: MapHandle,
    fates: MapHandle,
    quic_ids: MapHandle,
    key: [u64; 2],
    /// What both halves contain.
    written: [Vec<[u64; 8]>; 2],
    /// The services in the map, and the rings.
    present: BTreeMap<ServiceId, (u16, [u8; SERVICE_BYTES as usize], Arc<Ring>)>,
    /// What there are figures of.
    counted: Numbers,
    /// What is in `quic_ids`: numbers of servers, by a service's number and an id.
    named: BTreeMap<(u16, u128), u16>,
}

/// By which numbers programs know services, and their servers, also those that are down.
#[derive(Default)]
struct Numbers {
    services: BTreeSet<u16>,
    servers: BTreeSet<u16>,
}

impl Numbers {
    fn of(all: &Services) -> Self {
        let servers = all.iter().flat_map(|(id, ..)| all.servers(id));
        Self {
            services: all.iter().map(|(_, number, ..)| number).collect(),
            servers: servers.map(|(_, numbered)| numbered.number).collect(),
        }
    }
}

/// The port that a program is for.
#[derive(Clone, Copy, Debug)]
pub struct BalancedPort {
    /// Its number.
    pub number: PortId,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Whether its frames may be in several buffers.
    pub multi_buffer: bool,
    /// How it is attached.
    pub entry: Entry,
}

/// The program of one port.
pub struct Balancer {
    program: OwnedFd,
    plane: MapHandle,
    other_ports: MapHandle,
    /// What is in there: devices by their indices.
    reached: BTreeMap<PortId, u32>,
}

fn per_cpu(name: &str, value: u32, len: usize) -> libbpf_rs::Result<MapHandle> {
    map(MapType::PercpuArray, name, [4, value, len as u32], 0)
}

fn ring_map() -> libbpf_rs::Result<MapHandle> {
    map(MapType::Array, "ring", [4, 4, SLOTS as u32], 0)
}

impl BalanceTables {
    /// Makes the maps.
    ///
    /// # Errors
    /// If the kernel refuses them: for lack of privileges or memory.
    pub fn new() -> Result<Self, BalanceError> {
        explained(Self::make).map_err(BalanceError::Load)
    }

    fn make() -> Result<Self, libbpf_rs::Error> {
        let no_ring = ring_map()?;
        let random = RandomState::new();
        let mmapable = libbpf_sys::BPF_F_MMAPABLE;
        let (services, rows) = (SERVICES_MAX as u32, ROWS as u32);
        let line = size_of::<SharedLine>() as u32;
        Ok(Self {
            services: map(MapType::Hash, "services", [KEY_BYTES, SERVICE_BYTES, services], 0)?,
            // One more, which is no service's: a change there waits for all readers.
            rings: map_of_maps("rings", &no_ring, services + 1)?,
            no_ring,
            servers: Mapped::new("servers", 2 * SERVERS)?,
            half: Mapped::new("servers_half", 1)?,
            connections: map(MapType::Array, "connections", [4, line, rows], mmapable)?,
            service_counts: per_cpu("service_counts", BALANCED_BYTES, SERVICES_MAX)?,
            server_counts: per_cpu("server_counts", BALANCED_BYTES, SERVERS)?,
            fates: per_cpu("fates", FATED_BYTES, PORTS_MAX * COUNTED)?,
            quic_ids: map(MapType::Hash, "quic_ids", [QUIC_KEY_BYTES, 4, SERVERS_MAX as u32], 0)?,
            key: [random.hash_one(0), random.hash_one(1)],
            written: [vec![[0; 8]; SERVERS], vec![[0; 8]; SERVERS]],
            present: BTreeMap::new(),
            counted: Numbers::default(),
            named: BTreeMap::new(),
        })
    }

    /// The maps of another process, whose [`descriptors`](Self::descriptors) these are, and whose
    /// key, with its `services`. What is recorded and counted goes on.
    ///
    /// # Errors
    /// If they are others, or the kernel does not load the program.
    pub fn inherit(
        descriptors: &[OwnedFd],
        key: [u64; 2],
        services: &Services,
    ) -> Result<Self, BalanceError> {
        let fds: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        let Ok(fds) = fds.try_into() else {
            return Err(libbpf_rs::Error::from(io::Error::from(io::ErrorKind::InvalidInput)).into());
        };
        let mut tries = Tries::new();
        let loaded = tries.explained(|storage| {
            let open = skeleton::Builder::default().open(storage)?;
            on_maps(open, fds)?.load()
        })?;
        let maps = &loaded.maps;
        let servers = Mapped::on(MapHandle::try_from(&maps.servers)?, 2 * SERVERS)?;
        let half: Mapped<AtomicU64> = Mapped::on(MapHandle::try_from(&maps.servers_half)?, 1)?;
        let written = [0, 1].map(|half| {
            let lines = servers.iter().skip(half * SERVERS).take(SERVERS);
            let words = |line: &SharedLine| line.0.each_ref().map(|word| word.load(Relaxed));
            lines.map(words).collect()
        });
        Ok(Self {
            services: MapHandle::try_from(&maps.services)?,
            rings: MapHandle::try_from(&maps.rings)?,
            no_ring: ring_map()?,
            servers,
            half,
            connections: MapHandle::try_from(&maps.connections)?,
            service_counts: MapHandle::try_from(&maps.service_counts)?,
            server_counts: MapHandle::try_from(&maps.server_counts)?,
            fates: MapHandle::try_from(&maps.fates)?,
            named: named_in(&maps.quic_ids)?,
            quic_ids: MapHandle::try_from(&maps.quic_ids)?,
            key,
            written,
            present: BTreeMap::new(),
            counted: Numbers::of(services),
        })
    }

    /// The maps, for [`inherit`](Self::inherit) in another process.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        self.maps().iter().map(BorrowedFd::try_clone_to_owned).collect()
    }

    /// The secret of the hash of connections, for [`inherit`](Self::inherit).
    pub fn key(&self) -> [u64; 2] {
        self.key
    }

    /// Applies the present `services` to packets; to their servers lead `ways`, by address.
    ///
    /// # Errors
    /// If a map cannot be written. What was in force stays, or parts of it; the next call tries
    /// again.
    pub fn follow(
        &mut self,
        services: &Services,
        ways: &BTreeMap<IpAddr, Way>,
    ) -> Result<(), BalanceError> {
        let next = lines(services, ways);
        self.counted = Numbers::of(services);
        let named = named(services);
        self.forget_ids(&named)?;
        let now = &self.written[self.in_force()];
        // Until no ring leads to them, servers stay that are gone.
        let both = next.iter().zip(now).map(|(next, now)| if next[0] == 0 { *now } else { *next });
        let both: Vec<[u64; 8]> = both.collect();
        self.put_servers(&both)?;
        let kept: BTreeSet<ServiceId> = services.iter().map(|(id, ..)| id).collect();
        let present = self.present.iter().map(|(id, (number, ..))| (*id, *number));
        let gone: Vec<_> = present.filter(|(id, _)| !kept.contains(id)).collect();
        for (id, number) in gone {
            self.services.delete(&key(id))?;
            self.present.remove(&id);
            put(&self.rings, number.into(), &self.no_ring)?;
        }
        for (id, number, service, ring) in services.iter() {
            self.put_service(id, number, service, ring)?;
        }
        for (key, number) in named {
            if self.named.get(&key) != Some(&number) {
                let value = u32::from(number).to_ne_bytes();
                self.quic_ids.update(&quic_key(key), &value, MapFlags::ANY)?;
                self.named.insert(key, number);
            }
        }
        self.put_servers(&next)
    }

    /// Takes ids out that name other servers than in `next`, or none.
    fn forget_ids(&mut self, next: &BTreeMap<(u16, u128), u16>) -> Result<(), BalanceError> {
        let gone = self.named.iter().filter(|(key, number)| next.get(key) != Some(number));
        for key in gone.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.quic_ids.delete(&quic_key(key))?;
            self.named.remove(&key);
        }
        Ok(())
    }

    fn put_service(
        &mut self,
        id: ServiceId,
        number: u16,
        service: &Service,
        ring: &Arc<Ring>,
    ) -> Result<(), BalanceError> {
        let value = value(id, number, service, ring);
        let present = self.present.get(&id);
        let has_ring = present.is_some_and(|(at, _, it)| *at == number && Arc::ptr_eq(it, ring));
        if !has_ring {
            let map = ring_map()?;
            let slots = ring.slots();
            let keys: Vec<u8> = (0..slots.len() as u32).flat_map(u32::to_ne_bytes).collect();
            let words: Vec<u8> = slots.iter().flat_map(|slot| slot.word().to_ne_bytes()).collect();
            if !slots.is_empty() {
                let count = slots.len() as u32;
                map.update_batch(&keys, &words, count, MapFlags::ANY, MapFlags::ANY)?;
            }
            // A service is never longer than its ring: zeros are behind the slots.
            put(&self.rings, number.into(), &map)?;
        }
        if present.is_none_or(|(_, before, _)| *before != value) {
            self.services.update(&key(id), &value, MapFlags::ANY)?;
        }
        self.present.insert(id, (number, value, Arc::clone(ring)));
        Ok(())
    }

    fn in_force(&self) -> usize {
        (self.half[0].load(Relaxed) & 1) as usize
    }

    /// Puts `lines` in force, and waits until no packet reads what was before.
    fn put_servers(&mut self, lines: &[[u64; 8]]) -> Result<(), BalanceError> {
        let now = self.in_force();
        if self.written[now] == lines {
            return Ok(());
        }
        let other = 1 - now;
        for (number, line) in lines.iter().enumerate() {
            if self.written[other][number] == *line {
                continue;
            }
            self.written[other][number] = *line;
            let words = &self.servers[other * SERVERS + number].0;
            words.iter().zip(line).for_each(|(word, value)| word.store(*value, Relaxed));
        }
        self.half[0].store(other as u64, Release);
        // Waits for those who have read which half is in force.
        Ok(put(&self.rings, SERVICES_MAX as u32, &self.no_ring)?)
    }

    /// What is counted.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn figures(&self) -> Result<Figures, BalanceError> {
        let mut figures = Figures::default();
        for number in &self.counted.services {
            let counts = counted(&self.service_counts, u32::from(*number))?;
            figures.services.insert(*number, counts);
        }
        for number in &self.counted.servers {
            let counts = counted(&self.server_counts, u32::from(*number))?;
            figures.servers.insert(*number, counts);
        }
        Ok(figures)
    }

    /// What is counted at `port`.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn fates(&self, port: PortId) -> Result<FateCounters, BalanceError> {
        let mut counters = FateCounters::default();
        let first = port.index() * COUNTED;
        for (at, counted) in (first as u32..).zip(&mut counters.0) {
            let [packets, bytes] = sums_in(&self.fates, at)?;
            *counted = Fated { packets, bytes };
        }
        Ok(counters)
    }

    /// In the order in which `on_maps` takes them.
    fn maps(&self) -> [BorrowedFd<'_>; MAPS] {
        [
            self.services.as_fd(),
            self.rings.as_fd(),
            self.servers.map().as_fd(),
            self.half.map().as_fd(),
            self.connections.as_fd(),
            self.service_counts.as_fd(),
            self.server_counts.as_fd(),
            self.fates.as_fd(),
            self.quic_ids.as_fd(),
        ]
    }
}

/// The object `open`, which uses `maps` in the place of its own.
fn on_maps<'obj>(
    mut open: skeleton::OpenSkel<'obj>,
    maps: [BorrowedFd<'_>; MAPS],
) -> Result<skeleton::OpenSkel<'obj>, libbpf_rs::Error> {
    let [services, rings, servers, half, connections, of_services, of_servers, fates, quic_ids] =
        maps;
    open.maps.services.reuse_fd(services)?;
    open.maps.rings.reuse_fd(rings)?;
    open.maps.servers.reuse_fd(servers)?;
    open.maps.servers_half.reuse_fd(half)?;
    open.maps.connections.reuse_fd(connections)?;
    open.maps.service_counts.reuse_fd(of_services)?;
    open.maps.server_counts.reuse_fd(of_servers)?;
    open.maps.fates.reuse_fd(fates)?;
    open.maps.quic_ids.reuse_fd(quic_ids)?;
    Ok(open)
}

impl Balancer {
    /// Loads the program for `port`. It [reaches](Self::reach) no other.
    ///
    /// # Errors
    /// If the kernel refuses it, or the port's programs are at tcx.
    pub fn load(tables: &BalanceTables, port: BalancedPort) -> Result<Self, BalanceError> {
        let BalancedPort { number, mac, multi_buffer, entry } = port;
        if entry == Entry::Tcx {
            return Err(BalanceError::NoXdp);
        }
        let mut tries = Tries::new();
        let loaded = tries.explained(|storage| {
            let mut open = skeleton::Builder::default().open(storage)?;
            if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
                rodata.own_mac = mac;
                rodata.multi_buffer = multi_buffer.into();
                rodata.arrives_at = number.index() as u32;
                rodata.rows_mask = ROWS as u32 - 1;
                rodata.connections_key = tables.key;
            }
            entry.set_up(&mut open.progs.balance, multi_buffer);
            on_maps(open, tables.maps())?.load()
        })?;
        let plane = MapHandle::try_from(&loaded.maps.plane)?;
        let other_ports = MapHandle::try_from(&loaded.maps.other_ports)?;
        let program = keep(&loaded.progs.balance)?;
        Ok(Self { program, plane, other_ports, reached: BTreeMap::new() })
    }

    /// Sends packets through these `others`, devices by their indices, from now on. What a way
    /// leads through another port than these is dropped, and counted.
    ///
    /// # Errors
    /// If the kernel refuses; the next call tries again.
    pub fn reach(&mut self, others: &BTreeMap<PortId, u32>) -> Result<(), BalanceError> {
        let gone = self.reached.keys().filter(|port| !others.contains_key(port));
        for port in gone.copied().collect::<Vec<_>>() {
            self.other_ports.delete(&(port.index() as u32).to_ne_bytes())?;
            self.reached.remove(&port);
        }
        for (&port, &ifindex) in others {
            if self.reached.get(&port) != Some(&ifindex) {
                let number = (port.index() as u32).to_ne_bytes();
                self.other_ports.update(&number, &ifindex.to_ne_bytes(), MapFlags::ANY)?;
                self.reached.insert(port, ifindex);
            }
        }
        Ok(())
    }

    /// Makes frames that are of no service continue to `program`.
    ///
    /// # Errors
    /// If the kernel refuses; the former program stays.
    pub fn lead_to(&self, program: BorrowedFd<'_>) -> Result<(), libbpf_rs::Error> {
        let fd = program.as_raw_fd();
        self.plane.update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
    }

    /// The program.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

/// `address` in sixteen bytes.
fn bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(address) => address.octets(),
    }
}

const fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

/// `struct service_key`.
fn key(id: ServiceId) -> Vec<u8> {
    let mut key = bytes(id.address).to_vec();
    key.extend(id.port.to_be_bytes());
    key.extend([id.protocol.number(), family(id.address)]);
    key
}

/// `struct service`.
fn value(
    id: ServiceId,
    number: u16,
    service: &Service,
    ring: &Ring,
) -> [u8; SERVICE_BYTES as usize] {
    let flag = |is: bool, flag: u32| if is { flag } else { 0 };
    let flags = flag(!service.scheduler.is_hash(), BY_TURNS)
        | flag(service.hashes_port && service.persistence_s.is_none(), HASHES_PORT)
        | flag(service.persistence_s.is_some(), PERSISTS)
        | flag(service.one_packet, ONE_PACKET)
        | service.quic.map_or(0, quic_format) << QUIC_SHIFT;
    let seconds = match service.persistence_s {
        Some(seconds) => u64::from(seconds),
        None if id.protocol == Protocol::Tcp => TCP_SILENCE_S,
        None => UDP_SILENCE_S,
    };
    let silence = ((seconds * 1_000_000_000) >> TIME_UNIT_SHIFT).clamp(1, SILENCE_MAX) as u32;
    let ones = |bits: u8| u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    let mask = match service.persistence_s {
        Some(_) => ones(service.client_bits),
        None => u128::MAX,
    };
    let mut value = [0; SERVICE_BYTES as usize];
    let words = [u32::from(number), flags, ring.slots().len() as u32, silence];
    for (part, word) in value.chunks_exact_mut(4).zip(words) {
        part.copy_from_slice(&word.to_ne_bytes());
    }
    value[16..].copy_from_slice(&mask.to_be_bytes());
    value
}

const fn quic_format(format: QuicFormat) -> u32 {
    match format {
        QuicFormat::Lb(octets) => octets as u32,
        QuicFormat::Katran => QUIC_KATRAN,
    }
}

/// Which servers connection ids name: by the service's number and the id.
fn named(services: &Services) -> BTreeMap<(u16, u128), u16> {
    let services_with = services.iter().flat_map(|(id, service, ..)| {
        services.servers(id).map(move |(_, numbered)| (service, numbered))
    });
    let named = services_with.filter_map(|(service, Numbered { number, server, .. })| {
        Some(((service, server.quic_id?), *number))
    });
    named.collect()
}

/// `struct quic_key`.
fn quic_key((service, id): (u16, u128)) -> Vec<u8> {
    let mut key: Vec<u8> = [(id >> 64) as u64, id as u64].map(u64::to_ne_bytes).concat();
    key.extend(u32::from(service).to_ne_bytes());
    key.extend([0; 4]);
    key
}

/// What is in a map of another process.
fn named_in(map: &impl MapCore) -> Result<BTreeMap<(u16, u128), u16>, libbpf_rs::Error> {
    let word = |key: &[u8], at: usize| {
        let bytes = key.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        u64::from_ne_bytes(bytes.unwrap_or_default())
    };
    let mut named = BTreeMap::new();
    for key in map.keys() {
        let Some(value) = map.lookup(&key, MapFlags::ANY)? else { continue };
        let number = value.try_into().map(u32::from_ne_bytes).unwrap_or_default();
        let id = u128::from(word(&key, 0)) << 64 | u128::from(word(&key, 8));
        let service = key.get(16..20).and_then(|bytes| bytes.try_into().ok());
        let service = u32::from_ne_bytes(service.unwrap_or_default());
        named.insert((service as u16, id), number as u16);
    }
    Ok(named)
}

/// `struct server` of all numbers. A server that is down has none, as one that is gone.
fn lines(services: &Services, ways: &BTreeMap<IpAddr, Way>) -> Vec<[u64; 8]> {
    let mut lines = vec![[0; 8]; SERVERS];
    for (id, service, ..) in services.iter() {
        let up = services.servers(id).filter(|(_, numbered)| !numbered.is_down());
        for (server, Numbered { number, server: it, .. }) in up {
            let (forward, port) = match it.forward {
                Forward::Route => (BY_ROUTE, 0),
                Forward::Tunnel(Tunnel::Ip) => (BY_IP, 0),
                Forward::Tunnel(Tunnel::Gue(port)) => (BY_GUE, port),
            };
            let (known, way) = match ways.get(&server.address) {
                None => (0, None),
                Some(Way::Local) => (WAY_LOCAL, None),
                Some(Way::Beyond(hop)) => (WAY_OUT, Some(hop)),
            };
            let mut line = Vec::with_capacity(64);
            line.extend((service + 1).to_ne_bytes());
            line.extend([forward, family(server.address), known]);
            line.push(way.map_or(0, |way| way.port.index() as u8));
            line.extend(port.to_be_bytes());
            line.extend(way.map_or(0, |way| way.mtu).to_ne_bytes());
            line.extend(way.map_or([0; 6], |way| way.to));
            line.extend(way.map_or([0; 6], |way| way.from));
            line.extend([0; 2]);
            line.extend(way.map_or([0; 16], |way| bytes(way.source)));
            line.extend(bytes(server.address));
            line.resize(64, 0);
            let words = line.chunks_exact(8).map(|word| word.try_into().unwrap_or_default());
            let words = lines[usize::from(*number)].iter_mut().zip(words);
            words.for_each(|(to, word)| *to = u64::from_ne_bytes(word));
        }
    }
    lines
}

/// What all CPUs have counted at `number`.
fn counted(map: &MapHandle, number: u32) -> Result<Counts, libbpf_rs::Error> {
    let [connections, packets, bytes] = sums_in(map, number)?;
    Ok(Counts { connections, packets, bytes })
}
