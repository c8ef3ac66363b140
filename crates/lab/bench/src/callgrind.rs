//! Instructions and cache lines, counted by valgrind.
//!
//! A program runs twice, for few packets and for many; the difference leaves out start and
//! set-up. Unlike time, the count is the same on a busy machine. (Counters of the processor would
//! be quicker, but virtual machines rarely offer them.)
//!
//! *Cache lines* are the misses of data in a model of a small cache, [`CACHE`]: what a structure
//! larger than that touches for a packet. The model knows no prefetching, so it counts lines that
//! are fetched ahead, too.

use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Command;

/// The model, the same on every machine: bytes, ways, bytes a line.
const CACHE: [&str; 4] =
    ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=131072,16,64"];

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Instructions.
    Instructions,
    /// Cache lines of data that are not in the [`CACHE`].
    CacheLines,
}

/// Instructions a packet of `program`, which takes the number of packets as its last argument and
/// prints how many there were; between `few` packets and `many`.
pub fn per_packet(program: &Program, few: u64, many: u64) -> Result<f64> {
    events_per_packet(program, Event::Instructions, few, many)
}

/// As [`per_packet`], of any `event`.
pub fn events_per_packet(program: &Program, event: Event, few: u64, many: u64) -> Result<f64> {
    let (few, many) = (count(program, event, few)?, count(program, event, many)?);
    Ok((many.events as f64 - few.events as f64) / (many.packets as f64 - few.packets as f64))
}

/// A program with its first arguments.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// All arguments but the last.
    pub arguments: Vec<String>,
}

struct Count {
    events: u64,
    packets: u64,
}

fn count(program: &Program, event: Event, packets: u64) -> Result<Count> {
    let cache: &[&str] = match event {
        Event::Instructions => &[],
        Event::CacheLines => &CACHE,
    };
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(cache)
        .arg(&program.path)
        .args(&program.arguments)
        .arg(packets.to_string())
        .output()
        .context("valgrind did not start; install it (`apt install valgrind`)")?;
    let log = String::from_utf8_lossy(&output.stderr);
    let what = program.arguments.join(" ");
    ensure!(output.status.success(), "valgrind failed on {what}: {log}");
    let of = |label: &str| {
        let mut lines = log.lines();
        lines.find_map(|line| line.split_once(label)).map(|(_, words)| words.split_whitespace())
    };
    let (names, numbers) =
        of("Events    :").zip(of("Collected :")).context("valgrind did not say what it counted")?;
    let wanted: &[&str] = match event {
        Event::Instructions => &["Ir"],
        Event::CacheLines => &["DLmr", "DLmw"],
    };
    let mut events = 0;
    for (_, number) in names.zip(numbers).filter(|(name, _)| wanted.contains(name)) {
        events += number.parse::<u64>()?;
    }
    Ok(Count { events, packets: String::from_utf8(output.stdout)?.trim().parse()? })
}
