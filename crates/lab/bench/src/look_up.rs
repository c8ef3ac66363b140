//! The cost of finding a route's next hop: in a router's table, beside the kernel's look-up.
//!
//! A program looks 64 addresses up in each test run, one after the other, and goes round through
//! all of them. The same without a look-up is subtracted. So caches are as they are for packets to
//! that many destinations. The table is what the kernel has in this namespace.

use crate::qdisc::median;
use anyhow::{Context, Result, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder};
use narrows_bpf::{RouteTables, test_run::test_run};
use narrows_link::routes::Follower;
use serde::Serialize;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::Instant;

const LOOK_UP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/look_up.bpf.o"));
/// `ASKED` and `AT_ONCE` of `programs/look_up.bpf.c`.
const ASKED: usize = 65_536;
const AT_ONCE: u32 = 64;
/// The runs of a round: all addresses twice.
const RUNS: u32 = 2 * ASKED as u32 / AT_ONCE;
const ROUNDS: usize = 15;
/// An Ethernet header.
const FRAME: [u8; 14] = [0; 14];

/// Nanoseconds for a look-up: medians of rounds that alternate.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LookUps {
    /// In the table.
    pub table_ns: f64,
    /// By the kernel (`bpf_fib_lookup`).
    pub helper_ns: f64,
    /// The shares of look-ups that find a next hop.
    pub found: [f64; 2],
    /// Milliseconds to list all routes, and to lay them out.
    pub listed_ms: f64,
    /// Microseconds from the kernel's notification of a changed route until programs find it: the
    /// median, and the longest.
    pub followed_us: [f64; 2],
}

/// The routes whose changes are followed.
const CHANGES: usize = 200;

/// Measures look-ups of `addresses`, all of one family, as for packets that arrive at the device
/// `ifindex`.
///
/// # Errors
/// If the kernel does not list its routes, or does not take the program.
pub fn measure(addresses: &[IpAddr], ifindex: u32) -> Result<LookUps> {
    let first = *addresses.first().context("there is no address")?;
    ensure!(addresses.len() <= ASKED, "at most {ASKED} addresses");
    let same = addresses.iter().all(|address| address.is_ipv4() == first.is_ipv4());
    ensure!(same, "addresses of two families");
    // Every device is one that a next hop may be behind: what is measured is finding it.
    let ports: Vec<(u32, u8)> =
        narrows_link::routes::links()?.iter().map(|link| (link.ifindex, 0)).collect();
    let mut follower = Follower::new(ports)?;
    let mut tables = RouteTables::new()?;
    let begin = Instant::now();
    follower.list()?;
    tables.follow(follower.mirror_mut())?;
    let listed_ms = begin.elapsed().as_secs_f64() * 1e3;
    while follower.follow() {}
    let followed_us = followed(&mut follower, &mut tables)?;
    let load = |mode| program(mode, addresses, ifindex, &tables);
    let programs = [load(0)?, load(1)?, load(2)?];
    let mut times = [const { Vec::new() }; 3];
    let mut found = [0.0; 2];
    for round in 0..=ROUNDS {
        for (at, program) in programs.iter().enumerate() {
            let run = test_run(program.as_fd(), &FRAME, RUNS)?;
            // The first round fills caches.
            if round > 0 {
                times[at].push(f64::from(run.ns) / f64::from(AT_ONCE));
            }
            if at > 0 {
                found[at - 1] = f64::from(run.verdict) / f64::from(AT_ONCE);
            }
        }
    }
    let [none, table, helper] = times.map(median);
    let (table_ns, helper_ns) = (table - none, helper - none);
    Ok(LookUps { table_ns, helper_ns, found, listed_ms, followed_us })
}

/// Adds a route again and again, and removes it, and follows.
fn followed(follower: &mut Follower, tables: &mut RouteTables) -> Result<[f64; 2]> {
    let mut times = Vec::new();
    for change in 0..CHANGES {
        let what = if change % 2 == 0 { "add" } else { "del" };
        // Of the addresses for documentation, where nothing is.
        let to = format!("203.0.113.{}/32", change / 2 % 256);
        let status = Command::new("ip").args(["route", what, "blackhole", &to]).status()?;
        ensure!(status.success(), "ip route {what} blackhole {to} fails");
        let begin = Instant::now();
        while follower.follow() {
            tables.follow(follower.mirror_mut())?;
        }
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    let longest = times.iter().copied().fold(0.0, f64::max);
    Ok([median(times), longest])
}

/// The program in that mode.
fn program(mode: u32, addresses: &[IpAddr], ifindex: u32, tables: &RouteTables) -> Result<OwnedFd> {
    let mut open = ObjectBuilder::default().open_memory(LOOK_UP)?;
    let is_v6 = u32::from(addresses[0].is_ipv6());
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let [roots, chunks, hops] = tables.maps();
        match &*name {
            "fib_roots" => map.reuse_fd(roots)?,
            "fib_chunks" => map.reuse_fd(chunks)?,
            "fib_hops" => map.reuse_fd(hops)?,
            name if name.ends_with(".rodata") => {
                map.set_initial_value(&[mode, is_v6, ifindex].map(u32::to_ne_bytes).concat())?;
            }
            _ => {}
        }
    }
    let loaded = open.load()?;
    let asked = loaded.maps().find(|map| map.name() == "asked").context("no map")?;
    let asked = MapHandle::try_from(&asked)?;
    for (at, address) in (0..ASKED as u32).zip(addresses.iter().cycle()) {
        let mut bytes = [0; 16];
        match address {
            IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes = address.octets(),
        }
        asked.update(&at.to_ne_bytes(), &bytes, MapFlags::ANY)?;
    }
    let program = loaded.progs().next().context("no program")?;
    Ok(program.as_fd().try_clone_to_owned()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_runs_in_each_mode_and_finds_nothing_in_an_empty_table() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: BPF programs need root");
        }
        let tables = RouteTables::new().unwrap();
        for address in ["192.0.2.1", "2001:db8::1"] {
            let address: IpAddr = address.parse().unwrap();
            for mode in 0..3 {
                let program = program(mode, &[address], 1, &tables).unwrap();
                let found = test_run(program.as_fd(), &FRAME, 1).unwrap().verdict;
                assert!(found <= AT_ONCE && (mode != 1 || found == 0), "{mode}: {found}");
            }
        }
    }
}
