//! The cost of routing: the kernel beside Narrows in the driver, with one route and with a table of
//! the Internet's size, for one destination and for many.
//!
//! Frames of 64 bytes come as from a NIC's driver: pages that never had a socket buffer, which a
//! NAPI [thread](crate::receiving) on the first core receives. The sender on the last core always
//! offers more than is taken. The server's device drops them in XDP. So the packets that arrive
//! there in a second are what one core routes, and the time of that thread and of the softirqs is
//! what a packet costs. Rounds are interleaved, and ratios are taken within a round.
//!
//! Non-goals: systems with workers, which need a third core; the cost of a look-up alone.

mod report;
mod table;

pub use report::{Report, Row};

use crate::bed::{CLIENT, PORT_A, PORT_B, SERVER, SERVER_MAC, written};
use crate::counters::Counters;
use crate::narrows::Instance;
use crate::process;
use crate::progress::Progress;
use crate::receiving::Threaded;
use crate::requirements::{self, ETHTOOL, IP, Refusal};
use crate::{Rounds, Testbed, cpu};
use anyhow::Result;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How many routes lead to the server.
const ROUTES: [usize; 2] = [1, 1_000_000];
/// How many addresses are there.
const DESTINATIONS: [usize; 2] = [1, 60_000];
/// The prefixes from which destinations are drawn, and the larger table.
const TABLE: usize = 1_000_000;
/// The frame's length, without the frame check sequence.
const FRAME_BYTES: usize = 64;
/// How long a load runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// The MAC address to which the client sends.
pub const ROUTER_MAC: [u8; 6] = [0x02, b'n', b'r', b'w', 0, 4];
const CLIENT_IP: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const SERVER_IP: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);

/// A router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum System {
    /// The kernel's own forwarding.
    Kernel,
    /// Narrows on the XDP plane, in the drivers.
    NarrowsXdp,
}

impl System {
    const ALL: [Self; 2] = [Self::Kernel, Self::NarrowsXdp];

    const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::NarrowsXdp => "narrows-xdp",
        }
    }
}

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    routes: usize,
    destinations: usize,
    system: System,
}

/// The measurement of one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    packets_per_second: f64,
    /// Run time of the thread that receives, and of the softirqs' threads, in seconds per second.
    cores: f64,
}

/// Refuses if the benchmark cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL])
}

/// Addresses to which frames are sent.
pub fn destinations(count: usize) -> Vec<Ipv4Addr> {
    table::destinations(&table::prefixes(TABLE), count)
}

/// The source of all frames.
pub fn source() -> Ipv4Addr {
    CLIENT_IP
}

/// Runs it, with its progress on standard error.
pub fn run(options: &Rounds) -> Result<Report> {
    check()?;
    let mut samples: BTreeMap<Cell, Vec<Sample>> = BTreeMap::new();
    let steps = ROUTES.len() * DESTINATIONS.len() * System::ALL.len();
    let mut progress = Progress::over(u64::from(options.rounds) * steps as u64);
    for routes in ROUTES {
        progress.say(&format!("{routes} routes"));
        let bed = routed_bed(routes)?;
        for round in 1..=options.rounds {
            for system in System::ALL {
                for destinations in DESTINATIONS {
                    let cell = Cell { routes, destinations, system };
                    let what = format!("{} to {destinations}", system.name());
                    progress.begin(&format!("round {round} of {}: {what}", options.rounds));
                    let sample = measure(&bed, cell, options)?;
                    samples.entry(cell).or_default().push(sample);
                }
            }
        }
    }
    drop(progress);
    Report::new(&samples)
}

/// A testbed whose middle routes to the server: by one route to everywhere, or by a table.
fn routed_bed(routes: usize) -> Result<Testbed> {
    let bed = Testbed::up(1)?;
    let [router, server] = [ROUTER_MAC, SERVER_MAC].map(written);
    let mut lines = format!(
        "link set {PORT_A} address {router}\n\
         addr add 10.1.0.1/24 dev {PORT_A}\naddr add 10.2.0.1/24 dev {PORT_B}\n\
         neigh replace {SERVER_IP} lladdr {server} dev {PORT_B} nud permanent\n"
    );
    match routes {
        1 => lines.push_str(&format!("route add default via {SERVER_IP}\n")),
        many => lines.push_str(&table::commands(&table::prefixes(many), SERVER_IP)),
    }
    let mut ip = Command::new("ip");
    process::run_with(ip.args(["-n", bed.shaper().name(), "-batch", "-"]), &lines)?;
    bed.shaper().set("ipv4/ip_forward", "1")?;
    Ok(bed)
}

fn measure(bed: &Testbed, cell: Cell, options: &Rounds) -> Result<Sample> {
    let Rounds { program, window, .. } = options;
    let [routers_core, senders_core] = cpu::outer_cores()?;
    // All systems alike: a `veth` takes redirected frames only with GRO on.
    bed.take_redirected(true)?;
    let receives = Threaded::start(bed.shaper(), PORT_A, bed.queues(), routers_core)?;
    let ports = format!("{PORT_A},{PORT_B}");
    let words = ["run", "--router", &ports, "--plane", "xdp", "--xdp", "native"];
    let _instance = match cell.system {
        System::Kernel => None,
        System::NarrowsXdp => Some(Instance::start_command(bed, program, &words)?),
    };
    let drain = ["bench", "drain", SERVER, "--udp"];
    let _drain = Instance::start_in(bed.server(), program, &drain)?;
    let [core, bytes, to] =
        [senders_core, FRAME_BYTES, cell.destinations].map(|number| number.to_string());
    let frames = ["bench", "routed-frames", CLIENT, &bytes, &core, &to];
    let _sender = Instance::start_in(bed.client(), program, &frames)?;
    let mut arrived = Counters::of(bed.server(), SERVER)?;
    let mut look = || -> Result<_> {
        let mut time = receives.cpu()?;
        for thread in cpu::softirq_threads() {
            time += cpu::of_process(thread)?;
        }
        Ok((Instant::now(), arrived.read()?.rx_packets, time))
    };
    thread::sleep(WARM_UP);
    let start = look()?;
    thread::sleep(*window);
    let end = look()?;
    let seconds = (end.0 - start.0).as_secs_f64();
    Ok(Sample {
        packets_per_second: (end.1 - start.1) as f64 / seconds,
        cores: (end.2 - start.2).as_secs_f64() / seconds,
    })
}
