//! Instructions, counted by valgrind.
//!
//! A program runs twice, for few packets and for many; the difference leaves out start and
//! set-up. Unlike time, the count is the same on a busy machine. (Counters of the processor would
//! be quicker, but virtual machines rarely offer them.)

use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Command;

/// Instructions a packet of `program`, which takes the number of packets as its last argument and
/// prints how many there were; between `few` packets and `many`.
pub fn per_packet(program: &Program, few: u64, many: u64) -> Result<f64> {
    let (few, many) = (count(program, few)?, count(program, many)?);
    Ok((many.instructions as f64 - few.instructions as f64)
        / (many.packets as f64 - few.packets as f64))
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
    instructions: u64,
    packets: u64,
}

fn count(program: &Program, packets: u64) -> Result<Count> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(&program.path)
        .args(&program.arguments)
        .arg(packets.to_string())
        .output()
        .context("valgrind did not start; install it (`apt install valgrind`)")?;
    let log = String::from_utf8_lossy(&output.stderr);
    let what = program.arguments.join(" ");
    ensure!(output.status.success(), "valgrind failed on {what}: {log}");
    let collected = log.lines().find_map(|line| line.split_once("Collected :"));
    let (_, instructions) = collected.context("valgrind did not say what it collected")?;
    Ok(Count {
        instructions: instructions.trim().parse()?,
        packets: String::from_utf8(output.stdout)?.trim().parse()?,
    })
}
