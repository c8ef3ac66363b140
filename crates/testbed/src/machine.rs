//! Which machine a measurement was taken on, in its own words.

use crate::cpu;
use std::fs;

/// The processor's name and the number of cores in use.
pub fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name"));
    let name = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name);
    format!("{name}, {} cores", cpu::cores())
}

/// The kernel's release.
pub fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}
