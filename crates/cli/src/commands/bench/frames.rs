//! What sends frames as a driver has them, and what drops frames in a driver, each in a process of
//! its own: benchmarks put them into their namespaces.

use crate::output;
use clap::{Args, ValueEnum};
use narrows_bench::xdp::driver;
use narrows_link::Link;
use narrows_testbed::bed::{CLIENT_MAC, SERVER_MAC, SINK_MAC};
use narrows_testbed::{attack, balancing, cpu, frames, routing};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

/// The highest number of a core that Linux has by default.
const CORES: i64 = 8191;
/// The highest number of a CPU that a program can hand frames to.
const CPUS: i64 = 63;
/// More frames a second than any core sends.
const RATE_MOST: f64 = 1e9;

/// Send frames that never had a socket buffer, until this is ended.
#[derive(Args)]
#[command(hide = true)]
pub(super) struct LiveFrames {
    /// The interface by which they leave.
    device: String,
    /// The length of a frame, without the frame check sequence.
    #[arg(value_parser = clap::value_parser!(u16).range(60..=9216))]
    bytes: u16,
    /// The core that sends.
    #[arg(value_parser = clap::value_parser!(u16).range(..=CORES))]
    core: u16,
    /// With the tag of this VLAN.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4094))]
    vlan: Option<u16>,
}

impl LiveFrames {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let mut frame = frames::udp(frames::port(0), SINK_MAC, self.bytes.into())?;
        if let Some(vlan) = self.vlan {
            frames::tag(&mut frame, vlan);
            frame.truncate(self.bytes.into());
        }
        send(&driver::Driver::of(number(&self.device)?)?, &frame, self.core.into())
    }
}

/// Send a flood of short UDP frames to the server, from one address after the other, until this is
/// ended.
#[derive(Args)]
#[command(hide = true)]
pub(super) struct FloodFrames {
    /// The interface by which they leave.
    device: String,
    /// The core that sends.
    #[arg(value_parser = clap::value_parser!(u16).range(..=CORES))]
    core: u16,
    /// Frames a second [default: as many as the core sends]
    #[arg(long, value_parser = parse_rate)]
    rate: Option<f64>,
    /// From a new address each, and not from those of the blocklist.
    #[arg(long)]
    spoofed: bool,
}

impl FloodFrames {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let sources = if self.spoofed { Vec::new() } else { attack::blocklist() };
        let driver = driver::Driver::flooding(number(&self.device)?, self.rate, &sources)?;
        send(&driver, &attack::frame()?, self.core.into())
    }
}

/// Send short UDP frames through a router, to one destination after the other, until this is ended.
#[derive(Args)]
#[command(hide = true)]
pub(super) struct RoutedFrames {
    /// The interface by which they leave.
    device: String,
    /// The length of a frame, without the frame check sequence.
    #[arg(value_parser = clap::value_parser!(u16).range(60..=9216))]
    bytes: u16,
    /// The core that sends.
    #[arg(value_parser = clap::value_parser!(u16).range(..=CORES))]
    core: u16,
    /// The file with the addresses to which they go, one a line.
    destinations: PathBuf,
    /// To the server's MAC address, as where no router is.
    #[arg(long)]
    unrouted: bool,
}

impl RoutedFrames {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let (router, destinations) = routing::towards(&self.destinations, !self.unrouted)?;
        let frame = routing::frame(destinations[0], self.bytes.into())?;
        let driver = driver::Driver::towards(number(&self.device)?, router, &destinations)?;
        send(&driver, &frame, self.core.into())
    }
}

/// Send short UDP frames through a switch, from and to one station after the other, until this is
/// ended.
#[derive(Args)]
#[command(hide = true)]
pub(super) struct SwitchedFrames {
    /// The interface by which they leave.
    device: String,
    /// The length of a frame, without the frame check sequence.
    #[arg(value_parser = clap::value_parser!(u16).range(60..=9216))]
    bytes: u16,
    /// The core that sends.
    #[arg(value_parser = clap::value_parser!(u16).range(..=CORES))]
    core: u16,
    /// How many stations there are on each side.
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    stations: u32,
}

impl SwitchedFrames {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let frame = frames::udp(frames::port(0), SINK_MAC, self.bytes.into())?;
        let driver = driver::Driver::switched(number(&self.device)?, self.stations)?;
        send(&driver, &frame, self.core.into())
    }
}

/// Send short TCP frames to a service, of one connection after the other, until this is ended.
#[derive(Args)]
#[command(hide = true)]
pub(super) struct ConnectionFrames {
    /// The interface by which they leave.
    device: String,
    /// The core that sends.
    #[arg(value_parser = clap::value_parser!(u16).range(..=CORES))]
    core: u16,
    /// How many connections there are.
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    connections: u32,
    /// How many of the frames begin a connection: the first ones.
    begin: u64,
}

impl ConnectionFrames {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let macs = [SERVER_MAC, CLIENT_MAC];
        let device = number(&self.device)?;
        let driver = driver::Driver::connecting(device, macs, self.connections, self.begin)?;
        send(&driver, &balancing::frame()?, self.core.into())
    }
}

/// Drop what arrives, before it has a socket buffer, until this is ended.
#[derive(Args)]
#[command(hide = true)]
pub(super) struct Drain {
    /// The interface at which it arrives.
    device: String,
    /// Drop only UDP over IPv4.
    #[arg(long)]
    udp: bool,
}

impl Drain {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let what = if self.udp { driver::Dropped::Udp } else { driver::Dropped::All };
        let _drain = driver::Drain::at(number(&self.device)?, what)?;
        output::say("ready");
        loop {
            thread::park();
        }
    }
}

/// Give all frames that arrive at an interface one verdict, by the smallest program for it, until
/// this is ended.
#[derive(Args)]
#[command(hide = true)]
pub(super) struct Verdict {
    /// The interface at which they arrive.
    device: String,
    /// What becomes of them.
    verdict: Becomes,
    /// The interface through which they leave.
    #[arg(long, required_if_eq("verdict", "redirect"))]
    to: Option<String>,
    /// The CPU whose stack gets them.
    #[arg(long, required_if_eq("verdict", "cpumap"), value_parser = clap::value_parser!(u32).range(..=CPUS))]
    cpu: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Becomes {
    Drop,
    Tx,
    Redirect,
    Cpumap,
    Pass,
}

impl Verdict {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let verdict = match (self.verdict, &self.to, self.cpu) {
            (Becomes::Drop, ..) => driver::Verdict::Drop,
            (Becomes::Tx, ..) => driver::Verdict::Tx,
            (Becomes::Redirect, Some(to), _) => driver::Verdict::Redirect(number(to)?),
            (Becomes::Cpumap, _, Some(cpu)) => driver::Verdict::Cpu(cpu),
            (Becomes::Pass | Becomes::Redirect | Becomes::Cpumap, ..) => driver::Verdict::Pass,
        };
        let _bare = driver::Bare::at(number(&self.device)?, verdict)?;
        output::say("ready");
        loop {
            thread::park();
        }
    }
}

/// Sends frames like `frame` on `core`, until this process is ended.
fn send(driver: &driver::Driver, frame: &[u8], core: usize) -> anyhow::Result<ExitCode> {
    cpu::pin_this_thread(core)?;
    output::say("ready");
    loop {
        driver.send(frame)?;
    }
}

/// With a rate of 0 a flood has nothing to send, and is as awake as with some.
fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate == 0.0 || (1.0..=RATE_MOST).contains(&rate) => Ok(rate),
        _ => Err(format!("give a number of frames a second from 1 to {RATE_MOST}, or 0 for none")),
    }
}

pub(super) fn number(device: &str) -> anyhow::Result<u32> {
    Ok(Link::by_name(device)?.status.ifindex)
}
