//! A host under attack: how many transactions it still serves beside a flood.
//!
//! A client and a server exchange single bytes over TCP, one transaction after the other. Meanwhile
//! a flood of short UDP packets goes to the same server, at a rate that rises to what the machine
//! can send. Everything takes the one queue of the devices, so the work on the flood delays the
//! transactions, as on the single receive queue of the XDP paper (Høiland-Jørgensen et al. 2018,
//! section 5.1). The result is the share of the transactions that each system serves without a
//! flood.
//!
//! Client and server have the first core. The flood has the last one, which also does the work that
//! a `veth` does instead of an interrupt for the frames that it sends.
//!
//! There are two kinds of floods: from the addresses of a blocklist, and from random addresses, a
//! new one for each packet. Systems: no filter (Narrows and a bridge), nftables in front of the
//! bridge, and Narrows' filters in the driver in front of both of its planes. As a bound, a program
//! of a few instructions drops all UDP in the driver in front of the bridge: no filter keeps more
//! on this machine.

mod flood;
mod report;
mod system;
mod transactions;

pub mod demo;

pub use report::{Report, Row};

use crate::progress::Progress;
use crate::requirements::{self, ETHTOOL, IP, NFT, Refusal};
use crate::{Rounds, Testbed};
use anyhow::{Context, Result, ensure};
use flood::{Assault, Sources};
use std::thread::sleep;
use std::time::{Duration, Instant};
use system::{System, Under};
use transactions::Transactions;

/// Packets a second of the flood; `None` for as many as a core sends.
const STEPS: [Option<f64>; 4] = [Some(100e3), Some(250e3), Some(500e3), None];
/// How long everything runs before it is measured.
const SETTLING: Duration = Duration::from_millis(500);

/// Refuses if it cannot run.
pub fn check() -> Result<(), Refusal> {
    requirements::check(&[IP, ETHTOOL, NFT])
}

/// The names of all systems.
pub fn systems() -> Vec<&'static str> {
    System::ALL.map(System::name).to_vec()
}

/// Runs it over the systems with these names, with its progress on standard error.
pub fn run(options: &Rounds, names: &[String]) -> Result<Report> {
    check()?;
    ensure!(crate::cpu::cores() > 1, "the flood needs a core of its own: this takes two");
    let list = flood::blocklist();
    let per_system = STEPS.len() as u64 + 1;
    let is_chosen = |system: &System| names.iter().any(|name| name == system.name());
    let systems: Vec<System> = System::ALL.into_iter().filter(is_chosen).collect();
    let turns = systems.len() as u64 * per_system;
    let mut progress = Progress::over(u64::from(options.rounds) * turns);
    let mut rounds = Vec::new();
    for round in 1..=options.rounds {
        let mut rows = Vec::new();
        for &system in &systems {
            let title = format!("round {round} of {}: {}", options.rounds, system.name());
            let turn = one(system, &list, options, &title, &mut progress);
            rows.extend(turn.with_context(|| title)?);
        }
        rounds.push(rows);
    }
    Ok(Report::over(&rounds))
}

fn one(
    system: System,
    list: &[[u8; 4]],
    options: &Rounds,
    title: &str,
    progress: &mut Progress,
) -> Result<Vec<Row>> {
    let bed = Testbed::up(1)?;
    let under = Under::start(&bed, system, &options.program, list)?;
    let transactions = Transactions::start(&bed)?;
    let mut rows: Vec<Row> = Vec::new();
    for step in [None].into_iter().chain(STEPS.map(Some)) {
        progress.begin(title);
        let sources = match system.is_spoofed() {
            true => Sources::Invented,
            false => Sources::Listed(list.to_vec()),
        };
        let assault = match step {
            Some(pace) => Some(Assault { sources, pace }.start(&bed)?),
            None => None,
        };
        sleep(SETTLING);
        let sent = |it: &Option<flood::Running>| it.as_ref().map_or(0, flood::Running::sent);
        let (before, sent_before, began) = (transactions.done(), sent(&assault), Instant::now());
        sleep(options.window);
        let seconds = began.elapsed().as_secs_f64();
        let per_second = (transactions.done() - before) as f64 / seconds;
        let flood = (sent(&assault) - sent_before) as f64 / seconds;
        drop(assault);
        let idle = rows.first().map_or(per_second, |row| row.transactions);
        let row = Row {
            system: system.name(),
            flood_pps: flood,
            wanted_pps: step.flatten(),
            is_idle: step.is_none(),
            transactions: per_second,
            share: if idle > 0.0 { per_second / idle } else { 0.0 },
        };
        progress.end(&format!("{title}: {row}"));
        rows.push(row);
    }
    drop(transactions);
    drop(under);
    Ok(rows)
}
