//! The cost of routing: the kernel and others beside Narrows in the driver, with one route and with
//! a table of the Internet's size, for one destination and for many.
//!
//! Frames of 64 bytes come as from a NIC's driver: pages that never had a socket buffer, which a
//! NAPI [thread](crate::receiving) on each of the first cores receives. A sender on each of the
//! last cores always offers more than is taken. The server's device drops them in XDP. So the
//! packets that arrive there in a second are what these cores route, and the time of those threads,
//! of the softirqs and of the system's own threads is what a packet costs. Rounds are interleaved,
//! and ratios are taken within a round.
//!
//! Routes of the table lead to 64 next hops, all of which are the server, so that no table can
//! leave most of them out. A router is measured once it knows all routes. What a look-up alone
//! takes is measured in test runs in the same network: in the table of Narrows, and by the kernel
//! for programs (`bpf_fib_lookup`).
//!
//! *With a limit.* A tree of classes or `cake` at the port where packets leave is measured with one
//! route of IPv4, on one core: the tree beside the same plane without it, `cake` beside a wire with
//! the same `cake`. Frames go through the wire to the server's own MAC address, since those to a
//! port's address go up to the kernel. Where a limit binds, it is half of what passed without, and
//! what it drops counts as a packet, too.

mod limit;
mod measuring;
mod report;
mod system;
mod table;
mod table6;
mod tables;

pub use report::{Report, Row};

use crate::arrivals::Sample;
use crate::bed::{CLIENT, CLIENT_MAC, PORT_A, PORT_B, SERVER, SERVER_MAC, written};
use crate::frames;
use crate::process;
use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, Refusal};
use crate::{Rounds, Testbed, cpu};
use anyhow::{Context, Result, bail};
use measuring::InBed;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use system::System;

/// How many addresses the destinations are.
const DESTINATIONS: [usize; 2] = [1, 60_000];
/// How many cores route.
const CPUS: [usize; 2] = [1, 2];
/// The frame's length, without the frame check sequence.
const FRAME_BYTES: usize = 64;
/// How many next hops the routes of a table lead to.
const HOPS: u8 = 64;
/// The MAC address to which the client sends.
const ROUTER_MAC: [u8; 6] = [0x02, b'n', b'r', b'w', 0, 4];
const CLIENT_IP: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const SERVER_IP: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
const CLIENT_IP6: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 2);
const SERVER_IP6: Ipv6Addr = Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, 2);

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }

    /// How many routes lead to the server: one, or about as many as the Internet has.
    const fn routes(self) -> [usize; 2] {
        match self {
            Self::Ipv4 => [1, 1_000_000],
            Self::Ipv6 => [1, 220_000],
        }
    }
}

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    family: Family,
    cpus: usize,
    routes: usize,
    destinations: usize,
    system: System,
}

/// The measurements of a cell, by rounds.
type Samples = BTreeMap<u32, Sample>;

/// Why a cell was not measured.
type Absences = BTreeMap<Cell, String>;

/// Refuses if the benchmark cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL])
}

/// Frames like this one go to `to`, a destination.
///
/// # Errors
/// If `bytes` cannot hold its headers.
pub fn frame(to: IpAddr, bytes: usize) -> Result<Vec<u8>> {
    let macs = [CLIENT_MAC, ROUTER_MAC];
    match to {
        IpAddr::V4(to) => frames::udp4(frames::port(0), macs, [CLIENT_IP, to], bytes),
        IpAddr::V6(to) => {
            let payload = bytes.checked_sub(HEADERS6);
            let payload = payload.with_context(|| format!("{bytes} bytes hold no headers"))?;
            frames::udp6(frames::port(0), macs, [CLIENT_IP6, to], payload)
        }
    }
}

/// Ethernet, IPv6 and UDP headers.
const HEADERS6: usize = 14 + 40 + 8;

/// The MAC address to which frames go, the router's or, without one, the server's; and the
/// destinations in the file `path`, one a line.
pub fn towards(path: &Path, is_routed: bool) -> Result<([u8; 6], Vec<IpAddr>)> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let destinations = text.lines().map(str::parse).collect::<Result<Vec<IpAddr>, _>>();
    let destinations = destinations.with_context(|| format!("no addresses: {}", path.display()))?;
    if destinations.is_empty() {
        bail!("{} names no address", path.display());
    }
    Ok((if is_routed { ROUTER_MAC } else { SERVER_MAC }, destinations))
}

/// The table of a family, and the destinations in it, made once for all senders.
struct Networks {
    family: Family,
    /// What `ip -batch` reads to make the larger table.
    commands: String,
    /// By the number of destinations, the file that lists them.
    files: BTreeMap<usize, PathBuf>,
}

impl Networks {
    fn of(family: Family) -> Result<Self> {
        let [_, size] = family.routes();
        let most = DESTINATIONS.into_iter().max().unwrap_or(1);
        let (commands, destinations): (String, Vec<IpAddr>) = match family {
            Family::Ipv4 => {
                let table = table::prefixes(size);
                let to = table::destinations(&table, most).into_iter().map(IpAddr::from);
                (table::commands(&table, &hops(SERVER_IP)), to.collect())
            }
            Family::Ipv6 => {
                let table = table6::prefixes(size);
                let to = table6::destinations(&table, most).into_iter().map(IpAddr::from);
                (table6::commands(&table, &hops6(SERVER_IP6)), to.collect())
            }
        };
        let mut networks = Self { family, commands, files: BTreeMap::new() };
        for count in DESTINATIONS {
            let name = format!("nrw-towards-{}-{count}-{}", family.name(), std::process::id());
            let path = std::env::temp_dir().join(name);
            let lines: String = destinations[..count].iter().map(|to| format!("{to}\n")).collect();
            networks.files.insert(count, path.clone());
            fs::write(&path, lines).with_context(|| path.display().to_string())?;
        }
        Ok(networks)
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for path in self.files.values() {
            // A file in the temporary directory that is left behind does no harm.
            let _ = fs::remove_file(path);
        }
    }
}

/// The next hops from `first` on.
fn hops(first: Ipv4Addr) -> Vec<Ipv4Addr> {
    (0..u32::from(HOPS)).map(|more| Ipv4Addr::from_bits(first.to_bits() + more)).collect()
}

/// The same of IPv6.
fn hops6(first: Ipv6Addr) -> Vec<Ipv6Addr> {
    (0..u128::from(HOPS)).map(|more| Ipv6Addr::from_bits(first.to_bits() + more)).collect()
}

/// What look-ups take, in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct LookUps {
    table_ns: f64,
    helper_ns: f64,
}

/// The names of the systems that it compares.
pub fn systems() -> Vec<&'static str> {
    System::ALL.map(System::name).to_vec()
}

/// Runs it with `systems`, by their names, and what these are compared with; with its progress on
/// standard error. What fails in one round is in the report, and the other rounds count.
pub fn run(options: &Rounds, systems: &[String]) -> Result<Report> {
    check()?;
    let cores = cpu::usable_cores()?;
    let chosen = System::named(systems);
    let mut absent = Absences::new();
    let why = |cell: &Cell| match enough(cores.len(), cell.cpus) {
        true => cell.system.absent(),
        false => Some(format!(
            "{cpus} cores that route and {cpus} that send are {}; this machine has {}",
            2 * cell.cpus,
            cores.len(),
            cpus = cell.cpus
        )),
    };
    let mut beds: Vec<(Family, usize, usize, Vec<Cell>)> = Vec::new();
    for family in Family::ALL {
        for (routes, cpus) in tables(family) {
            let cells = cells(family, routes, cpus, &chosen);
            let (cells, missing): (Vec<Cell>, Vec<Cell>) = cells.partition(|it| why(it).is_none());
            absent.extend(missing.into_iter().filter_map(|cell| Some((cell, why(&cell)?))));
            if !cells.is_empty() {
                beds.push((family, routes, cpus, cells));
            }
        }
    }
    let steps = beds.iter().map(|(.., cells)| cells.len()).sum::<usize>() as u64;
    let mut progress = Progress::over(u64::from(options.rounds) * steps);
    let mut results = Results { absent, ..Results::default() };
    for of_family in beds.chunk_by(|(family, ..), (next, ..)| family == next) {
        progress.say("tables of routes");
        let networks = Networks::of(of_family[0].0)?;
        for (family, routes, cpus, cells) in of_family {
            if progress.is_over() {
                return Ok(Report::new(&results));
            }
            progress.say(&format!("{routes} routes of {}", family.name()));
            let bed = routed_bed(&networks, *routes, *cpus)?;
            let in_bed = InBed { bed: &bed, networks: &networks, cores: &cores, options };
            in_bed.run(cells, &mut results, &mut progress);
        }
    }
    drop(progress);
    Ok(Report::new(&results))
}

/// What was measured.
#[derive(Default)]
pub(crate) struct Results {
    samples: BTreeMap<Cell, Samples>,
    look_ups: BTreeMap<Cell, Vec<f64>>,
    absent: Absences,
    /// Which cell failed in which round, and why; without a round, its look-ups.
    failures: Vec<(Cell, Option<u32>, String)>,
}

/// The tables of a family, each on so many cores.
fn tables(family: Family) -> impl Iterator<Item = (usize, usize)> {
    family.routes().into_iter().flat_map(|routes| CPUS.map(|cpus| (routes, cpus)))
}

/// What is measured of the `chosen` systems with a table, in the order of a round.
fn cells(
    family: Family,
    routes: usize,
    cpus: usize,
    chosen: &[System],
) -> impl Iterator<Item = Cell> {
    let of = move |&system: &System| {
        DESTINATIONS.map(|destinations| Cell { family, cpus, routes, destinations, system })
    };
    chosen.iter().flat_map(of).filter(|cell| {
        let is_plain = (cell.family, cell.routes, cell.cpus) == (Family::Ipv4, 1, 1);
        is_plain || cell.system.limit().is_none()
    })
}

/// Whether `cores` suffice for as many senders as `cpus` that route. A single core is shared.
fn enough(cores: usize, cpus: usize) -> bool {
    cpus == 1 || cores >= 2 * cpus
}

/// What `ip -batch` reads to make a next hop known.
fn neighbour(hop: IpAddr, mac: &str) -> String {
    format!("neigh replace {hop} lladdr {mac} dev {PORT_B} nud permanent\n")
}

/// A testbed whose middle routes to the server on so many cores: by one route to everywhere, or by
/// a table.
fn routed_bed(networks: &Networks, routes: usize, cpus: usize) -> Result<Testbed> {
    let bed = Testbed::up(u32::try_from(cpus)?)?;
    let [router, server] = [ROUTER_MAC, SERVER_MAC].map(written);
    let mut lines = format!("link set {PORT_A} address {router}\n");
    let default = match networks.family {
        Family::Ipv4 => {
            lines.push_str(&format!(
                "addr add 10.1.0.1/24 dev {PORT_A}\naddr add 10.2.0.1/24 dev {PORT_B}\n"
            ));
            for hop in hops(SERVER_IP) {
                lines.push_str(&neighbour(hop.into(), &server));
            }
            bed.shaper().set("ipv4/ip_forward", "1")?;
            format!("route add default via {SERVER_IP}\n")
        }
        Family::Ipv6 => {
            for scope in ["all", PORT_A, PORT_B] {
                bed.shaper().set(&format!("ipv6/conf/{scope}/disable_ipv6"), "0")?;
            }
            bed.shaper().set("ipv6/conf/all/forwarding", "1")?;
            lines.push_str(&format!(
                "addr add fd01::1/64 dev {PORT_A} nodad\naddr add fd02::1/64 dev {PORT_B} nodad\n"
            ));
            for hop in hops6(SERVER_IP6) {
                lines.push_str(&neighbour(hop.into(), &server));
            }
            format!("route add default via {SERVER_IP6}\n")
        }
    };
    lines.push_str(if routes == 1 { &default } else { &networks.commands });
    let mut ip = Command::new("ip");
    process::run_with(ip.args(["-n", bed.shaper().name(), "-batch", "-"]), &lines)?;
    Ok(bed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_core_that_routes_has_one_that_sends() {
        assert!(enough(1, 1) && enough(2, 1));
        assert!(!enough(3, 2) && enough(4, 2));
    }

    #[test]
    fn limits_are_measured_with_one_route_of_ipv4_on_one_core() {
        let limited = |(family, routes, cpus)| {
            let cells = cells(family, routes, cpus, &System::ALL);
            cells.filter(|cell| cell.system.limit().is_some()).count()
        };
        assert_eq!(limited((Family::Ipv4, 1, 1)), 6 * DESTINATIONS.len());
        for others in [(Family::Ipv4, 1, 2), (Family::Ipv4, 1_000_000, 1), (Family::Ipv6, 1, 1)] {
            assert_eq!(limited(others), 0, "{others:?}");
        }
    }

    #[test]
    fn destinations_are_read_from_a_file_and_frames_are_of_their_family() {
        let path = std::env::temp_dir().join(format!("nrw-towards-test-{}", std::process::id()));
        fs::write(&path, "192.0.2.1\n2001:db8::1\n").unwrap();
        let (router, read) = towards(&path, true).unwrap();
        assert_ne!(router, towards(&path, false).unwrap().0);
        assert_eq!(
            read.iter().map(|to| frame(*to, 64).unwrap()[12]).collect::<Vec<_>>(),
            [8, 0x86]
        );
        fs::write(&path, "").unwrap();
        assert!(towards(&path, true).unwrap_err().to_string().contains("names no address"));
        fs::remove_file(&path).unwrap();
        assert!(frame(read[1], 60).is_err());
    }
}
