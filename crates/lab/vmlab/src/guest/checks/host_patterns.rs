//! Patterns of the host plane: a process that keeps an instance for this machine's first port, over
//! the kernel's `fq`.

use super::departures::qdiscs;
use super::host_plane::{limited, own};
use super::router::with_networks;
use super::{LIMIT, Lab, SETTLE};
use crate::guest::Verdict;
use crate::guest::bed::PORTS;
use crate::guest::networks::Networks;
use crate::guest::shaper::{Shaper, narrows};
use crate::guest::traffic::wait_for_ping;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// The policy file.
const POLICY: &str = "/tmp/patterns.tc";
/// How long instances may take to end after the process that keeps them.
const END: Duration = Duration::from_secs(20);

/// The limit of a pattern holds, also after an upgrade of the instance; and nothing is left below
/// the port when the process that keeps it ends or is killed.
pub(super) fn keeps(lab: &mut Lab) -> Result<Verdict> {
    with_networks(lab, |_, networks| checks(networks))
}

fn checks(networks: &Networks) -> Result<String> {
    let before = qdiscs()?;
    let pattern = format!("{}*", PORTS[0]);
    let limit = format!("tbf rate {LIMIT}mbit burst 30k latency 200ms");
    fs::write(POLICY, format!("qdisc add dev \"{pattern}\" root handle 1: {limit}\n"))?;
    let start = || -> Result<Shaper> {
        let shaper = Shaper::run(&["--plane", "host", "--ports", &pattern, "--batch", POLICY])?;
        wait_for_ping(&networks.ends[0], own()?, SETTLE).with_context(|| shaper.log())?;
        Ok(shaper)
    };
    let shaper = start()?;
    let rate = limited(networks, &shaper, "shaped").with_context(|| shaper.log())?;
    shaper.kill()?;
    let begin = Instant::now();
    while qdiscs()? != before {
        ensure!(begin.elapsed() < END, "{} is left of {before} after a kill", qdiscs()?);
        thread::sleep(Duration::from_millis(100));
    }

    let shaper = start()?;
    narrows(&["upgrade"]).with_context(|| shaper.log())?;
    limited(networks, &shaper, "shaped").with_context(|| shaper.log())?;
    shaper.stop()?;
    ensure!(qdiscs()? == before, "{} is left of {before}", qdiscs()?);
    Ok(format!("{rate:.2} Mbit/s of {LIMIT}, also after a kill and an upgrade"))
}
