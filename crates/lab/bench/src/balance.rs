//! The cost of a packet to a service: the balancer compared with the kernel's LRU hash as a table
//! of connections, and with a program that only sends a frame back. By test runs in the kernel.
//!
//! In front of each program another one makes of each frame the packet of another connection, so
//! that what is looked up is in the cache only as far as it would be. What that one costs is in the
//! figures of `ns_per_packet`, and not in those of `ns_above`.
//!
//! *Rows.* `narrows`: hashing, of which nothing has to be recorded. `narrows-recorded`: servers
//! take turns, so each connection is recorded and looked up. `lru`: Katran's way, a look-up in an
//! LRU hash for each packet, without anything else that a balancer does. `tx`: the floor.
//!
//! *Flows.* `known`: packets of connections that exist. `new`: each packet begins one.
//!
//! Non-goals: receiving and sending, which all of them do alike; IPVS, which not every kernel has.

mod program;
mod report;

pub use report::{Report, Row};

use crate::coordination::cores::Cores;
use crate::processor;
use crate::qdisc::median;
use anyhow::{Context, Result, ensure};
use narrows_bpf::test_run::{TX, test_run};
use program::Program;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The numbers of connections, each at least 1.
    pub connections: Vec<u32>,
    /// The numbers of servers, each at least 1.
    pub servers: Vec<u16>,
    /// Frames through each program on each CPU in one repeat.
    pub packets: u32,
    /// Repeats, at least one.
    pub repeats: usize,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// The balancer, with consistent hashing.
    Narrows,
    /// The balancer, where servers take turns.
    NarrowsRecorded,
    /// An LRU hash of the kernel.
    Lru,
    /// What only sends frames back.
    Tx,
}

impl System {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tx, Self::Narrows, Self::NarrowsRecorded, Self::Lru];

    /// Its name in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Narrows => "narrows",
            Self::NarrowsRecorded => "narrows-recorded",
            Self::Lru => "lru",
            Self::Tx => "tx",
        }
    }

    /// Whether it matters how many servers there are.
    const fn has_servers(self) -> bool {
        matches!(self, Self::Narrows | Self::NarrowsRecorded)
    }
}

/// What a program is loaded for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    system: System,
    are_new: bool,
    connections: u32,
    servers: u16,
    cpus: usize,
}

/// The number of calls of `begin`.
pub fn steps(options: &Options) -> u64 {
    options.repeats as u64
}

/// Measures. Calls `begin` with the title of each step at its start.
///
/// # Errors
/// If the kernel does not load or run a program; without root it does not.
pub fn run(options: &Options, mut begin: impl FnMut(&str)) -> Result<Report> {
    let cores = Cores::allowed()?;
    let mut measured = Vec::new();
    for shape in shapes(options, cores.len()) {
        measured.push((shape, Program::load(shape)?, Vec::new()));
    }
    for repeat in 0..options.repeats {
        begin(&format!("repeat {}", repeat + 1));
        for (shape, program, costs) in &mut measured {
            if repeat == 0 {
                let all = shape.connections.max(1);
                test_run(program.beginning(), &program::frame(), all)?;
            }
            costs.push(measure(*shape, program, options.packets, &cores)?);
        }
    }
    let row = |(shape, _, costs): &(Shape, Program, Vec<f64>)| -> Result<Row> {
        let floor = measured.iter().find(|(other, ..)| {
            *other == Shape { system: System::Tx, servers: options.servers[0], ..*shape }
        });
        let (_, _, floor) = floor.context("the floor has as many connections")?;
        let above = costs.iter().zip(floor).map(|(cost, floor)| cost - floor).collect();
        Ok(Row::new(*shape, costs, median(above)))
    };
    Ok(Report { rows: measured.iter().map(row).collect::<Result<_>>()? })
}

fn shapes(options: &Options, cores: usize) -> Vec<Shape> {
    let mut shapes = Vec::new();
    let cpus = if cores > 1 { vec![1, cores] } else { vec![1] };
    for cpus in cpus {
        for &connections in &options.connections {
            for are_new in [false, true] {
                for system in System::ALL {
                    let servers = match system.has_servers() {
                        true => &options.servers[..],
                        false => &options.servers[..1],
                    };
                    let shape = |&servers| Shape { system, are_new, connections, servers, cpus };
                    shapes.extend(servers.iter().map(shape));
                }
            }
        }
    }
    shapes
}

/// The CPU time of a frame, in nanoseconds, on average over all CPUs.
fn measure(shape: Shape, program: &Program, packets: u32, cores: &Cores) -> Result<f64> {
    processor::time_of_each(packets, shape.cpus, cores, |_| {
        let run = test_run(program.fd(), &program::frame(), packets)
            .context("the kernel does not run it")?;
        ensure!(run.verdict == TX, "{} ends with verdict {}", shape.system.name(), run.verdict);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_balances_every_load() {
        let options =
            Options { connections: vec![1, 100], servers: vec![1, 3], packets: 200, repeats: 1 };
        let report = match run(&options, |_| ()) {
            Err(error) if format!("{error:#}").contains("not permitted") => {
                eprintln!("SKIPPED: loading BPF programs needs root");
                return;
            }
            report => report.unwrap(),
        };
        let rows = report.rows.iter().map(|row| row.system).collect::<Vec<_>>();
        assert!(System::ALL.iter().all(|system| rows.contains(&system.name())));
        assert!(report.rows.iter().all(|row| row.ns_per_packet > 0.0));
    }
}
