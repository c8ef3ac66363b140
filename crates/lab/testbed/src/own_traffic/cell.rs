//! One system at one limit: the path at rest, and then under load.

use super::Options;
use super::hosts::{Host, by_host};
use crate::bed::End;
use crate::cpu::{self, MachineTime};
use crate::probe::{self, Probe};
use crate::tcp::Flows;
use crate::trips::Trips;
use crate::window::{Delivered, Meter};
use anyhow::{Context, Result};
use std::net::SocketAddrV4;
use std::thread;
use std::time::Duration;

/// How long the path is measured at rest.
const IDLE: Duration = Duration::from_millis(1500);
/// How long the load runs before it is measured: TCP has found its rate and filled the queues.
const WARM_UP: Duration = Duration::from_secs(3);
/// The first of the ports that flows go to.
const PORT: u16 = 20_000;

/// What asks how long a round trip takes.
const PROBE: Probe = Probe {
    name: "UDP CS0",
    dscp: 0,
    interval: Duration::from_millis(10),
    request: 64,
    answer: 64,
    ports: 32,
};

/// All that was measured.
pub(super) struct Outcome {
    pub(super) idle: Trips,
    pub(super) loaded: Trips,
    /// What the receiver's device got, by seconds.
    pub(super) seconds: Vec<Delivered>,
    /// Payload that each host got within the window, in bytes; of a single one, each of its TCP
    /// flows.
    pub(super) shares: Vec<u64>,
    /// How long all cores together were busy within the window.
    pub(super) busy: Duration,
}

/// Measures what is between sender and receiver under load for a while.
pub(super) fn measure(
    [sender, receiver]: [End<'_>; 2],
    hosts: &[Host],
    options: &Options,
) -> Result<Outcome> {
    let of_host = |host: &Host| {
        let ip = host.ip;
        (PORT..).take(host.flows).map(move |port| SocketAddrV4::new(ip, port))
    };
    let addresses: Vec<_> = hosts.iter().flat_map(of_host).collect();
    let flows = Flows::to(sender, receiver.namespace, &addresses)?;
    let probe = PROBE.start(sender, receiver)?;
    let idle_from = probe::now()?;
    thread::sleep(IDLE);
    let idle_to = probe::now()?;

    let flows = flows.start()?;
    thread::sleep(WARM_UP);
    let mut meter = Meter::at(receiver)?;
    let (from, idle_before) = (probe::now()?, MachineTime::now()?.idle);
    let before = flows.received();
    let mut readings = vec![meter.read()?];
    for _ in 0..options.window.as_secs().max(1) {
        thread::sleep(Duration::from_secs(1));
        readings.push(meter.read()?);
    }
    let after = flows.received();
    let (to, idle_after) = (probe::now()?, MachineTime::now()?.idle);
    let samples = probe.stop()?;
    flows.stop()?;
    let span = to.saturating_sub(from) * u32::try_from(cpu::online()?).context("many cores")?;
    let between = |pair: &[_]| Delivered::between(&pair[0], &pair[1]);
    let flows: Vec<u64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    Ok(Outcome {
        idle: Trips::of(&samples, idle_from, idle_to),
        loaded: Trips::of(&samples, from, to),
        seconds: readings.windows(2).map(between).collect(),
        shares: if hosts.len() > 1 { by_host(hosts, &flows) } else { flows },
        busy: span.saturating_sub(idle_after.saturating_sub(idle_before)),
    })
}
