//! A host under attack: how many transactions it still serves beside a flood.
//!
//! A client and a server exchange single bytes over TCP, one transaction after the other. Meanwhile
//! a flood of short UDP packets goes to the same server, at a rate that rises to what the machine
//! can send. Everything takes the one queue of the devices, so the work on the flood delays the
//! transactions, as on the single receive queue of the XDP paper (Høiland-Jørgensen et al. 2018,
//! section 5.1). The result is the share of the transactions that each system serves without a
//! flood.
//!
//! # Which core does what
//!
//! By itself, a `veth` handles a frame on the core that sends it, or on that which happens to
//! handle others from the same ring. So the transactions' core would drop a part of the flood, a
//! different one in each run, and more the better a system keeps up. Here the cores stand for
//! machines, for each system alike:
//!
//! - The first has client and server, and all that they receive: what comes up to them is steered
//!   there (RPS).
//! - The last is the box of the shaper. It receives at the flooded port, in a thread that comes
//!   before all others, as an interrupt would (threaded NAPI); then it runs the workers. What
//!   comes back from the server is received where the server sends it.
//! - The flood has the time that the box leaves, even without a packet to send: so the box is as
//!   awake without a flood as with one. More than the box can take is therefore not offered, and
//!   the highest rate also depends on the system.
//!
//! The flood comes as from a NIC's driver, in frames that never had a socket buffer, in bursts of
//! 32. To send or to copy a socket buffer takes longer than any filter here.
//!
//! There are two kinds of floods: from the addresses of a blocklist, and from random addresses, a
//! new one for each packet. Systems: no filter (Narrows and a bridge), nftables in front of the
//! bridge, and Narrows' filters in the driver in front of both of its planes. As a bound, a program
//! of a few instructions drops all UDP in the driver in front of the bridge: no filter keeps more
//! on this machine.
//!
//! The same flood also goes to the server itself, without a box in front of it: its port has the
//! core of the shaper, whose driver and stack receive there, and its processes run on the first
//! core, as those of the paper do on the cores that have no queue. Systems: no filter, nftables at
//! the port's ingress, Narrows' filters in the driver of a host's port, also with the stack on the
//! processes' core (`--rps`), as in the paper's figure 5, and the same bound.

mod flood;
mod placement;
mod report;
mod system;
mod transactions;

pub mod demo;

pub use flood::{blocklist, frame};
pub use placement::Cores;
pub use report::{Report, Row};

use crate::progress::Progress;
use crate::requirements::{self, CHRT, ETHTOOL, IP, NFT, Refusal};
use crate::{Rounds, Testbed};
use anyhow::{Context, Result, ensure};
use flood::{Assault, Sent};
use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::{Duration, Instant};
use system::{System, Under};
use transactions::Transactions;

/// Packets a second of the flood, at first none; `None` for as many as its core sends.
const STEPS: [Option<f64>; 6] = [Some(0.0), Some(100e3), Some(250e3), Some(500e3), Some(1e6), None];
/// How long everything runs before it is measured.
const SETTLING: Duration = Duration::from_millis(500);

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL, NFT, CHRT])
}

/// The names of all systems.
pub fn systems() -> Vec<&'static str> {
    System::ALL.map(System::name).to_vec()
}

/// Runs it over the systems with these names, with its progress on standard error.
pub fn run(options: &Rounds, names: &[String]) -> Result<Report> {
    check()?;
    ensure!(crate::cpu::cores() > 1, "the flood needs a core of its own: this takes two");
    let (list, cores) = (blocklist(), Cores::of_this_machine()?);
    let is_chosen = |system: &System| names.iter().any(|name| name == system.name());
    let systems: Vec<System> = System::ALL.into_iter().filter(is_chosen).collect();
    let turns = (systems.len() * STEPS.len()) as u64;
    let mut progress = Progress::over(u64::from(options.rounds) * turns);
    let mut rounds = Vec::new();
    for round in 1..=options.rounds {
        let mut rows = Vec::new();
        for &system in &systems {
            let title = format!("round {round} of {}: {}", options.rounds, system.name());
            let turn = one(system, &list, cores, options, &title, &mut progress);
            rows.extend(turn.with_context(|| title)?);
        }
        rounds.push(rows);
    }
    Ok(Report::over(&rounds, cores))
}

fn one(
    system: System,
    list: &[Ipv4Addr],
    cores: Cores,
    options: &Rounds,
    title: &str,
    progress: &mut Progress,
) -> Result<Vec<Row>> {
    let bed = Testbed::up(1)?;
    let server = match system.is_server() {
        true => {
            bed.serve_at_the_port()?;
            bed.shaper()
        }
        false => bed.server(),
    };
    let under = Under::start(&bed, system, &options.program, list, cores)?;
    let placement = cores.take(&bed)?;
    let transactions = Transactions::start(&bed, server, cores.ends)?;
    let mut sent = Sent::by(&bed)?;
    let mut rows: Vec<Row> = Vec::new();
    for rate in STEPS {
        progress.begin(title);
        let assault = Assault { is_spoofed: system.is_spoofed(), rate };
        let assault = assault.start(&bed, &options.program, cores)?;
        sleep(SETTLING);
        let (before, began) = (transactions.done(), Instant::now());
        let sent_before = sent.read(before)?;
        sleep(options.window);
        let (done, seconds) = (transactions.done(), began.elapsed().as_secs_f64());
        let flood = sent.read(done)?.saturating_sub(sent_before);
        drop(assault);
        let per_second = (done - before) as f64 / seconds;
        let idle = rows.first().map_or(per_second, |row| row.transactions);
        let row = Row {
            system: system.name(),
            flood_pps: flood as f64 / seconds,
            wanted_pps: rate,
            is_idle: rate == Some(0.0),
            transactions: per_second,
            share: if idle > 0.0 { per_second / idle } else { 0.0 },
        };
        progress.end(&format!("{title}: {row}"));
        rows.push(row);
    }
    drop(transactions);
    drop(placement);
    drop(under);
    Ok(rows)
}
