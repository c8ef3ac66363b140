//! What a small box has little of: memory. The program under test has to be the packaged one, since
//! others are larger.

use super::{LIMIT, Lab};
use crate::guest::Verdict::{self, Passed};
use crate::guest::bed::PORTS;
use crate::guest::shaper::Shaper;
use crate::guest::traffic::transfer;
use anyhow::{Context, Result, ensure};

/// Frames of a worker, for a box with little memory: 4 MiB of them.
const FRAMES: &str = "2048";
/// What the process may have in memory, in MiB.
const MOST: f64 = 30.0;

/// The process keeps to its bound with one limit, while that holds a queue.
pub(super) fn memory(lab: &mut Lab) -> Result<Verdict> {
    lab.stopped()?;
    let shaper = Shaper::start_with(&["--frames", FRAMES])?;
    lab.flows()?;
    shaper.tc(&format!("qdisc replace dev {} root cake bandwidth {LIMIT}mbit", PORTS[1]))?;
    transfer(lab.client(), lab.server())?;
    let status = shaper.status()?;
    shaper.stop()?;
    let kib = field(&status, "VmRSS:").with_context(|| format!("no VmRSS in {status}"))?;
    let mib = f64::from(kib) / 1024.0;
    ensure!(mib <= MOST, "{mib:.1} MiB are resident, of {MOST}");
    Ok(Passed(format!("{mib:.1} MiB resident with --frames {FRAMES}")))
}

/// The number in a line of `/proc/PID/status`.
fn field(status: &str, name: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_status_is_a_number_of_kib() {
        let status = "Name:\tnarrows\nVmHWM:\t   13000 kB\nVmRSS:\t   12288 kB\n";
        assert_eq!(field(status, "VmRSS:"), Some(12_288));
        assert_eq!(field(status, "VmSwap:"), None);
    }
}
