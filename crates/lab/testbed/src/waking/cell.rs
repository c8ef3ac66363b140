//! One system at one limit: at rest, and then under load.

use crate::Testbed;
use crate::cpu::{self, MachineTime};
use crate::ping::Ping;
use crate::tcp::{Flow, Flows, Running};
use crate::window::{Delivered, Meter};
use anyhow::{Context, Result};
use std::thread;
use std::time::{Duration, Instant};

/// TCP flows of each direction, one on each queue.
const FLOWS: usize = 4;
/// How long everything is at rest before it is measured so, which is half as long as the window.
const SETTLE: Duration = Duration::from_millis(500);
/// How long the load runs before it is measured: TCP has found its rate.
const WARM_UP: Duration = Duration::from_secs(2);
/// The grace time of `ping`; then it is ended.
const SPARE: Duration = Duration::from_secs(5);

/// The measurements of one round.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Cores' time of the whole machine, in percent of one core, with nothing to forward.
    pub(super) idle_cpu_percent: f64,
    /// Cores' time of the whole machine, in percent of one core, under load.
    pub(super) cpu_percent: f64,
    /// Context switches of the whole machine in a second.
    pub(super) switches_per_sec: f64,
    /// The slowest of 100 round trips, in microseconds.
    pub(super) ping_p99_us: f64,
    /// The rate at either end, in bits per second.
    pub(super) rates: [f64; 2],
}

impl Sample {
    /// In short.
    pub(super) fn shown(&self) -> String {
        let Self { cpu_percent, switches_per_sec, .. } = self;
        format!("{cpu_percent:.1} % of a core, {switches_per_sec:.0} switches a second")
    }
}

/// Measures the system between the ports of `bed`, under load for `window`.
pub(super) fn measure(bed: &Testbed, window: Duration) -> Result<Sample> {
    let [client, server] = bed.ends();
    let wanted: Vec<Flow> = (0..FLOWS).map(|queue| Flow { dscp: 0, queue }).collect();
    let flows =
        [Flows::open(bed, client, server, &wanted)?, Flows::open(bed, server, client, &wanted)?];
    thread::sleep(SETTLE);
    let idle_cpu_percent = over(window / 2)?.0;

    let [up, down] = flows;
    let flows: [Running; 2] = [up.start()?, down.start()?];
    thread::sleep(WARM_UP);
    let ping = Ping::start(bed, window + SPARE)?;
    let mut meters = [Meter::at(server)?, Meter::at(client)?];
    let [at_server, at_client] = &mut meters;
    let start = [at_server.read()?, at_client.read()?];
    let (cpu_percent, switches_per_sec) = over(window)?;
    let end = [at_server.read()?, at_client.read()?];
    let ping = ping.stop()?;
    for flow in flows {
        flow.stop()?;
    }
    let p99 = ping.p99().context("no ping was answered")?;
    let rates =
        [0, 1].map(|way| Delivered::between(&start[way], &end[way]).rate().bits_per_sec() as f64);
    let ping_p99_us = p99.as_secs_f64() * 1e6;
    Ok(Sample { idle_cpu_percent, cpu_percent, switches_per_sec, ping_p99_us, rates })
}

/// The whole machine for `window`: percent of a core, and switches a second.
fn over(window: Duration) -> Result<(f64, f64)> {
    let (at, before) = (Instant::now(), MachineTime::now()?);
    thread::sleep(window);
    let (span, after) = (at.elapsed(), MachineTime::now()?);
    let idle = (after.idle - before.idle).as_secs_f64() / span.as_secs_f64();
    let switches = (after.switches - before.switches) as f64 / span.as_secs_f64();
    Ok((100.0 * (cpu::online()? as f64 - idle).max(0.0), switches))
}
