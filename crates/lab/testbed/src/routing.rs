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
//! the same `cake`. Where a limit binds, it is half of what passed without, and what it drops
//! counts as a packet, too.

mod limit;
mod report;
mod system;
mod table;
mod table6;
mod tables;

pub use report::{Report, Row};

use crate::arrivals::{self, Sample};
use crate::bed::{CLIENT, CLIENT_MAC, PORT_A, PORT_B, SERVER, SERVER_MAC, written};
use crate::frames;
use crate::narrows::Instance;
use crate::process;
use crate::progress::Progress;
use crate::receiving::Threaded;
use crate::requirements::{self, ETHTOOL, IP, Refusal};
use crate::{Rounds, Testbed, cpu};
use anyhow::{Context, Result, bail, ensure};
use narrows_units::Rate;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use system::{Limited, System};

/// How many addresses the destinations are.
const DESTINATIONS: [usize; 2] = [1, 60_000];
/// How many cores route.
const CPUS: [usize; 2] = [1, 2];
/// The frame's length, without the frame check sequence.
const FRAME_BYTES: usize = 64;
/// How many next hops the routes of a table lead to.
const HOPS: u8 = 64;
/// How long a router may take to know all routes.
const LISTING: Duration = Duration::from_secs(120);
/// How often look-ups are measured for a table, each by the median of many runs.
const LOOK_UPS: usize = 3;
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

/// The router's MAC address, and the destinations in the file `path`, one a line.
pub fn towards(path: &Path) -> Result<([u8; 6], Vec<IpAddr>)> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let destinations = text.lines().map(str::parse).collect::<Result<Vec<IpAddr>, _>>();
    let destinations = destinations.with_context(|| format!("no addresses: {}", path.display()))?;
    if destinations.is_empty() {
        bail!("{} names no address", path.display());
    }
    Ok((ROUTER_MAC, destinations))
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

/// Runs it, with its progress on standard error.
pub fn run(options: &Rounds) -> Result<Report> {
    check()?;
    let cores = cpu::usable_cores()?;
    let mut samples: BTreeMap<Cell, Vec<Sample>> = BTreeMap::new();
    let mut absent = Absences::new();
    let mut look_ups: BTreeMap<Cell, Vec<f64>> = BTreeMap::new();
    let why = |cell: &Cell| match enough(cores.len(), cell.cpus) {
        true => cell.system.absent(),
        false => Some(format!(
            "{cpus} cores that route and {cpus} that send are {}; this machine has {}",
            2 * cell.cpus,
            cores.len(),
            cpus = cell.cpus
        )),
    };
    let steps = Family::ALL
        .into_iter()
        .flat_map(|family| {
            tables(family).flat_map(move |(routes, cpus)| cells(family, routes, cpus))
        })
        .filter(|cell| why(cell).is_none())
        .count();
    let mut progress = Progress::over(u64::from(options.rounds) * steps as u64);
    for family in Family::ALL {
        let networks = Networks::of(family)?;
        for (routes, cpus) in tables(family) {
            let (cells, missing): (Vec<Cell>, Vec<Cell>) =
                cells(family, routes, cpus).partition(|cell| why(cell).is_none());
            absent.extend(missing.into_iter().filter_map(|cell| Some((cell, why(&cell)?))));
            if cells.is_empty() {
                continue;
            }
            progress.say(&format!("{routes} routes of {}", family.name()));
            let bed = routed_bed(&networks, routes, cpus)?;
            for round in 1..=options.rounds {
                for cell in &cells {
                    let what = format!("{} to {}", cell.system.name(), cell.destinations);
                    progress.begin(&format!("round {round} of {}: {what}", options.rounds));
                    let limit = limit_of(*cell, &samples)?;
                    let sample = measure(&bed, &networks, *cell, limit, &cores, options)?;
                    samples.entry(*cell).or_default().push(sample);
                }
            }
            progress.say("look-ups");
            for cell in &cells {
                let found = match cell.system {
                    System::Kernel => measure_look_ups(&bed, &networks, *cell, options)?,
                    _ => continue,
                };
                for LookUps { table_ns, helper_ns } in found {
                    look_ups.entry(*cell).or_default().push(helper_ns);
                    for system in [System::NarrowsXdp, System::NarrowsXsk] {
                        look_ups.entry(Cell { system, ..*cell }).or_default().push(table_ns);
                    }
                }
            }
        }
    }
    drop(progress);
    Report::new(&samples, &look_ups, &absent)
}

/// The tables of a family, each on so many cores.
fn tables(family: Family) -> impl Iterator<Item = (usize, usize)> {
    family.routes().into_iter().flat_map(|routes| CPUS.map(|cpus| (routes, cpus)))
}

/// What is measured with a table, in the order of a round.
fn cells(family: Family, routes: usize, cpus: usize) -> impl Iterator<Item = Cell> {
    let of = move |system| {
        DESTINATIONS.map(|destinations| Cell { family, cpus, routes, destinations, system })
    };
    System::ALL.into_iter().flat_map(of).filter(|cell| {
        let is_plain = (cell.family, cell.routes, cell.cpus) == (Family::Ipv4, 1, 1);
        is_plain || cell.system.limit().is_none()
    })
}

/// The limit of `cell`, if it has one. One that binds is half of what passed in this round without.
fn limit_of(cell: Cell, samples: &BTreeMap<Cell, Vec<Sample>>) -> Result<Option<Rate>> {
    let Some(Limited { unlimited, binds, .. }) = cell.system.limit() else { return Ok(None) };
    if !binds {
        return Ok(Some(limit::FAR_ABOVE));
    }
    let passed = samples.get(&Cell { system: unlimited, ..cell }).and_then(|rounds| rounds.last());
    let passed = passed.context("what passes without a limit was not measured")?;
    let bits = passed.packets_per_second * FRAME_BYTES as f64 * 8.0;
    ensure!(bits > 0.0, "nothing arrived: {} without a limit", unlimited.name());
    Ok(Some(Rate::from_bits_per_sec((bits / 2.0) as u64)))
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

/// Measures look-ups of the destinations of `cell`, alone.
fn measure_look_ups(
    bed: &Testbed,
    networks: &Networks,
    cell: Cell,
    options: &Rounds,
) -> Result<Vec<LookUps>> {
    let addresses = fs::read_to_string(&networks.files[&cell.destinations])?;
    let one = || -> Result<LookUps> {
        let mut command = bed.shaper().command(&options.program);
        let said = process::run_with(command.args(["bench", "look-ups", PORT_A]), &addresses)?;
        serde_json::from_str(&said).context("no times of look-ups")
    };
    (0..LOOK_UPS).map(|_| one()).collect()
}

/// Waits until `program`, which routes, knows all routes of `cell`.
fn wait_for_routes(bed: &Testbed, program: &Path, cell: Cell) -> Result<()> {
    let deadline = Instant::now() + LISTING;
    loop {
        let output = bed.shaper().command(program).args(["route", "stats", "--json"]).output()?;
        let stats: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let of_family = &stats["families"][cell.family as usize];
        let prefixes = of_family["prefixes"].as_u64().unwrap_or(0);
        if of_family["in_use"] == true && prefixes >= cell.routes as u64 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("the table of routes is not in use after {LISTING:?}: {of_family}");
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn measure(
    bed: &Testbed,
    networks: &Networks,
    cell: Cell,
    limit: Option<Rate>,
    cores: &[usize],
    options: &Rounds,
) -> Result<Sample> {
    let Rounds { program, window, .. } = options;
    let (routers, senders) = (&cores[..cell.cpus], &cores[cores.len() - cell.cpus..]);
    // All systems alike: a `veth` takes redirected frames only with GRO on.
    bed.take_redirected(true)?;
    let receives = Threaded::start(bed.shaper(), PORT_A, bed.queues(), routers)?;
    let running = cell.system.start(bed, program, routers)?;
    if cell.system.has_routes() {
        wait_for_routes(bed, program, cell)?;
    }
    if let Some(rate) = limit {
        running.set_limit(cell.system, rate)?;
    }
    // What is no UDP over IPv4 is for the server itself, but nothing is of IPv6.
    let drain = ["bench", "drain", SERVER, "--udp"];
    let drain = if cell.family == Family::Ipv4 { &drain[..] } else { &drain[..3] };
    let _drain = Instance::start_in(bed.server(), program, drain)?;
    let bytes = FRAME_BYTES.to_string();
    let file = networks.files[&cell.destinations].to_string_lossy().into_owned();
    let send = |core: &usize| {
        let core = core.to_string();
        let words = ["bench", "routed-frames", CLIENT, &bytes, &core, &file];
        Instance::start_in(bed.client(), program, &words)
    };
    let start = || senders.iter().map(send).collect::<Result<Vec<_>>>();
    let busy = || Ok(receives.cpu()? + running.cpu()?);
    arrivals::measure(bed, *window, start, busy, || running.dropped())
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
            cells(family, routes, cpus).filter(|cell| cell.system.limit().is_some()).count()
        };
        assert_eq!(limited((Family::Ipv4, 1, 1)), 6 * DESTINATIONS.len());
        for others in [(Family::Ipv4, 1, 2), (Family::Ipv4, 1_000_000, 1), (Family::Ipv6, 1, 1)] {
            assert_eq!(limited(others), 0, "{others:?}");
        }
    }

    #[test]
    fn a_limit_that_binds_is_half_of_what_passed_without() {
        let cell =
            |system| Cell { family: Family::Ipv4, cpus: 1, routes: 1, destinations: 1, system };
        let sample =
            |packets| Sample { packets_per_second: packets, taken_per_second: packets, cores: 1.0 };
        let samples = BTreeMap::from([(cell(System::NarrowsXdp), vec![sample(1e6), sample(2e6)])]);
        let limit = |system| limit_of(cell(system), &samples);
        assert_eq!(limit(System::Kernel).unwrap(), None);
        assert_eq!(limit(System::NarrowsXdpTree).unwrap(), Some(limit::FAR_ABOVE));
        let half = Rate::from_bits_per_sec(512_000_000);
        assert_eq!(limit(System::NarrowsXdpTreeBinding).unwrap(), Some(half));
        assert!(limit(System::NarrowsXskCakeBinding).is_err());
    }

    #[test]
    fn destinations_are_read_from_a_file_and_frames_are_of_their_family() {
        let path = std::env::temp_dir().join(format!("nrw-towards-test-{}", std::process::id()));
        fs::write(&path, "192.0.2.1\n2001:db8::1\n").unwrap();
        let (_, read) = towards(&path).unwrap();
        assert_eq!(
            read.iter().map(|to| frame(*to, 64).unwrap()[12]).collect::<Vec<_>>(),
            [8, 0x86]
        );
        fs::write(&path, "").unwrap();
        assert!(towards(&path).unwrap_err().to_string().contains("names no address"));
        fs::remove_file(&path).unwrap();
        assert!(frame(read[1], 60).is_err());
    }
}
