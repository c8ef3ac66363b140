//! The memory of a structure, measured in a separate process.

use super::shape::Shape;
use super::subject::Subject;
use super::work::Work;
use crate::callgrind::Program;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::process::Command;

/// The number of classes from which the memory of one is derived.
const SAMPLE: u32 = 1024;
/// The part of free memory that a structure may take.
const PART: u64 = 4;

/// Resident memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Footprint {
    /// Before any traffic, and without packets.
    pub idle: u64,
    /// After every leaf has had packets, the packets included.
    pub used: u64,
}

impl Footprint {
    /// Builds the structure in this process, which has done nothing before, and lets packets
    /// through every leaf.
    pub fn measure(subject: Subject, shape: Shape) -> Result<Self> {
        let before = resident()?;
        // A structure with packets is a tree that started without any, or has all memory from the
        // start.
        let idle = match subject.below() {
            Some(below) => {
                let _tree = shape.tree(subject.kind(), &below);
                resident()?
            }
            None => before,
        };
        let mut work = Work::new(subject, shape)?;
        work.run(work.round());
        Ok(Self { idle: idle.saturating_sub(before), used: resident()?.saturating_sub(before) })
    }

    /// Builds the structure in a process of its own, and lets packets through every leaf.
    pub(super) fn of(program: &Program, subject: Subject, shape: Shape) -> Result<Self> {
        let Shape { classes, depth, active, load } = shape;
        let output = Command::new(&program.path)
            .args(&program.arguments)
            .args([subject.name(), &classes.to_string(), &depth.to_string()])
            .args([&active.to_string(), load.name()])
            .output()
            .context("cannot start a process to find out how much memory a structure takes")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} with {classes} classes: {complaint}", subject.name());
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Why there is too little memory for it; `None` if there is enough.
pub(super) fn shortage(
    program: &Program,
    subject: Subject,
    shape: Shape,
) -> Result<Option<String>> {
    if shape.active <= SAMPLE {
        return Ok(None);
    }
    let sample = Shape { classes: SAMPLE, active: SAMPLE, ..shape };
    let used = Footprint::of(program, subject, sample)?.used;
    let needed = used / u64::from(SAMPLE) * u64::from(shape.active);
    let free = free()?;
    let gigabytes = |bytes: u64| bytes as f64 / 1e9;
    Ok((needed > free / PART).then(|| {
        let (needed, free) = (gigabytes(needed), gigabytes(free));
        format!("takes about {needed:.1} GB, more than a quarter of the {free:.1} GB that are free")
    }))
}

/// This process's memory.
pub(crate) fn resident() -> Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = pages.split(' ').nth(1).context("statm has no second number")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// The available memory.
fn free() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.context("meminfo has no MemAvailable")?.trim().trim_end_matches(" kB");
    Ok(kilobytes.parse::<u64>()? * 1024)
}
