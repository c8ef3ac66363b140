//! What a packet to a service takes from a driver's queue on: Narrows' balancer beside the kernel's
//! (IPVS), with the same services from the same lines, and beside a program that only sends back.
//!
//! Frames of 64 bytes come as from a NIC's driver: pages that never had a socket buffer, which a
//! NAPI [thread](crate::receiving) on the last core receives. The sender on the first core offers
//! all that it can. The time of that thread, for each frame that it took, is what a packet costs.
//! What leaves is dropped at the other end of the cable, by a program, in the same thread: all
//! systems have that in their time. Each frame is of another TCP connection.
//!
//! *Flows.* `known`: connections that all have begun. `new`: each packet begins one that there was
//! not before.
//!
//! On a machine with one core, as an [emulated one](../vmlab) has where it counts instructions, the
//! thread goes before the sender, and nothing is lost.
//!
//! Non-goals: several cores that receive; servers and their answers, which no balancer here sees;
//! IPVS's defaults: its table of connections has 2^20 rows and not 2^12, so that it is no list.

mod report;
mod system;

pub use report::{Report, Row};

use crate::bed::{CLIENT, CLIENT_IP, CLIENT_MAC, PORT_A, SERVER_IP, SERVER_MAC, written};
use crate::counters::{Counters, Counts};
use crate::narrows::Instance;
use crate::process;
use crate::progress::Progress;
use crate::receiving::{Sample, Threaded};
use crate::requirements::{self, CHRT, ETHTOOL, IP, Refusal};
use crate::{Rounds, Testbed, cpu};
use anyhow::{Context, Result, ensure};
use etherparse::PacketBuilder;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use system::System;

/// The frame's length, without the frame check sequence.
const FRAME_BYTES: usize = 64;
/// The service's port.
const SERVICE_PORT: u16 = 80;
/// The first server's address: they are neighbours of the balancer.
const FIRST_SERVER: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);
/// As many connections as begin where none is to begin twice in a measurement.
const ENDLESS: u32 = 1 << 26;
/// How long frames come before it is measured.
const WARM_UP: Duration = Duration::from_millis(200);
/// How long connections may take to begin.
const BEGIN: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(10);
/// How often each connection begins: the sender is up to ten times faster than what receives, and
/// what is lost is lost at random. On one core nothing is.
const BEGINNINGS: u64 = 32;

/// Which packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Flows {
    /// Of so many connections, all of which have begun.
    Known(u32),
    /// Each begins one.
    New,
}

/// What is measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    flows: Flows,
    servers: u16,
    system: System,
}

/// The samples of each cell by rounds, or why there are none.
type Results = BTreeMap<Cell, Result<Vec<Sample>, String>>;

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL, CHRT])
}

/// The frame that a sender makes the packet of a connection.
///
/// # Errors
/// Never: it holds its headers.
pub fn frame() -> Result<Vec<u8>> {
    let mut frame = Vec::with_capacity(FRAME_BYTES);
    let builder = PacketBuilder::ethernet2(CLIENT_MAC, SERVER_MAC)
        .ipv4(CLIENT_IP.octets(), SERVER_IP.octets(), 64)
        .tcp(0, SERVICE_PORT, 1, 1024);
    let payload = FRAME_BYTES - builder.size(0);
    builder.write(&mut frame, &vec![0; payload])?;
    Ok(frame)
}

/// Runs it with each number of connections and of servers, with its progress on standard error.
pub fn run(options: &Rounds, connections: &[u32], servers: &[u16]) -> Result<Report> {
    check()?;
    let mut results = Results::new();
    let flows: Vec<Flows> = connections.iter().map(|&it| Flows::Known(it)).collect();
    for flows in flows.into_iter().chain([Flows::New]) {
        for &servers in servers {
            for system in System::all() {
                let cell = Cell { flows, servers, system };
                results.insert(cell, system.absent().map_or(Ok(Vec::new()), Err));
            }
        }
    }
    let steps = results.values().filter(|result| result.is_ok()).count() as u64;
    let mut progress = Progress::over(u64::from(options.rounds) * steps);
    for round in 1..=options.rounds {
        for (cell, result) in &mut results {
            let Ok(samples) = result else { continue };
            let name = cell.system.to_string();
            progress.begin(&format!("round {round} of {}: {name}", options.rounds));
            samples.push(measure(*cell, options).with_context(|| name)?);
        }
    }
    drop(progress);
    Report::new(&results)
}

fn measure(Cell { flows, servers, system }: Cell, options: &Rounds) -> Result<Sample> {
    let [sends, receives_on] = cpu::outer_cores()?;
    let bed = balanced_bed(servers)?;
    let drain = ["bench", "drain", CLIENT];
    let _drain = Instance::start_in(bed.client(), &options.program, &drain)?;
    let running = system.start(&bed, servers, options)?;
    let receives = Threaded::start(bed.shaper(), PORT_A, bed.queues(), &[receives_on])?;
    receives.put_first()?;
    let mut counters = Counters::of(bed.client(), CLIENT)?;
    let (connections, begin) = match flows {
        Flows::New => (ENDLESS, ENDLESS.into()),
        Flows::Known(all) => {
            let times = if sends == receives_on { 1 } else { BEGINNINGS };
            (all, times * u64::from(all))
        }
    };
    // Its own account takes a while to read: before the first packet, and after the last.
    let first = (counters.read()?, running.balanced()?);
    let words = [sends.to_string(), connections.to_string(), begin.to_string()];
    let words = ["bench", "connection-frames", CLIENT, &words[0], &words[1], &words[2]];
    let sender = Instance::start_in(bed.client(), &options.program, &words)?;
    if flows != Flows::New {
        let deadline = Instant::now() + BEGIN;
        let sent = |counts: Counts| counts.tx_packets + counts.tx_dropped;
        while sent(counters.read()? - first.0) < begin {
            ensure!(Instant::now() < deadline, "connections do not begin within {BEGIN:?}");
            sleep(LOOK);
        }
    }
    sleep(WARM_UP);
    let mut look = || anyhow::Ok((counters.read()?.tx_packets, receives.cpu()?));
    let begin = look()?;
    sleep(options.window);
    let end = look()?;
    drop(sender);
    sleep(LOOK);
    let all = counters.read()? - first.0;
    let balanced = running.balanced()?.zip(first.1).map(|(after, before)| after - before);
    let is_most = |part: u64| part * 10 > all.tx_packets * 9;
    ensure!(
        is_most(all.rx_packets) && balanced.is_none_or(is_most),
        "of {} frames {} came back, and {balanced:?} were balanced",
        all.tx_packets,
        all.rx_packets
    );
    let frames = end.0 - begin.0;
    ensure!(frames > 0, "no frame arrived");
    Ok(Sample { frames, busy: end.1 - begin.1 })
}

/// A testbed whose middle has the service's address, and whose other end is all the servers.
fn balanced_bed(servers: u16) -> Result<Testbed> {
    let bed = Testbed::up(1)?;
    // All alike: a `veth` takes redirected frames only with GRO on.
    bed.take_redirected(true)?;
    bed.serve_at_the_port()?;
    let mac = written(CLIENT_MAC);
    let mut lines = format!("route add default dev {PORT_A}\n");
    for server in addresses(servers) {
        lines
            .push_str(&format!("neigh replace {server} lladdr {mac} dev {PORT_A} nud permanent\n"));
    }
    let mut ip = Command::new("ip");
    process::run_with(ip.args(["-n", bed.shaper().name(), "-batch", "-"]), &lines)?;
    Ok(bed)
}

/// The servers' addresses.
fn addresses(servers: u16) -> impl Iterator<Item = Ipv4Addr> {
    (0..u32::from(servers)).map(|more| Ipv4Addr::from_bits(FIRST_SERVER.to_bits() + more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_of_tcp_to_the_service_and_has_its_length() {
        let frame = frame().unwrap();
        assert_eq!((frame.len(), frame[23]), (FRAME_BYTES, 6));
        assert_eq!(frame[30..34], SERVER_IP.octets());
        assert_eq!(frame[36..38], SERVICE_PORT.to_be_bytes());
    }
}
