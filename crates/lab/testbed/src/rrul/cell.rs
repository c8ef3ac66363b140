//! One system at one limit: the path at rest, and then under load.

use crate::accounting::Books;
use crate::bed::{PORT_A, PORT_B, Testbed};
use crate::narrows::Instance;
use crate::ping::{self, Ping};
use crate::probe::{self, Probe};
use crate::tcp::{self, Flow, Flows};
use crate::trips::Trips;
use crate::window::{Delivered, Meter, Reading};
use anyhow::{Context, Result};
use narrows_snapshot::Snapshot;
use std::thread;
use std::time::{Duration, Instant};

/// How long the path is measured at rest.
const IDLE: Duration = Duration::from_secs(2);
/// How long the load runs before it is measured: TCP has found its rate and filled the queues.
const WARM_UP: Duration = Duration::from_secs(3);
/// The grace time of `ping`; then it is ended.
const SPARE: Duration = Duration::from_secs(5);

/// Code points of the TCP flows of each direction: CS0, CS1, CS5 and EF.
pub(super) const MARKS: [u8; 4] = [0, 8, 40, 46];

const fn udp(name: &'static str, dscp: u8, millis: u64) -> Probe {
    let interval = Duration::from_millis(millis);
    Probe { name, dscp, interval, request: 64, answer: 64, ports: 32 }
}

/// The probes beside the load, except `ping`.
pub(super) const PROBES: [Probe; 5] = [
    udp("UDP CS0", 0, 10),
    udp("UDP CS1", 8, 20),
    udp("UDP EF", 46, 20),
    Probe { request: 40, answer: 200, ..udp("DNS-like", 0, 100) },
    Probe { request: 172, answer: 172, ports: 1, ..udp("VoIP-like", 46, 20) },
];

/// Of one kind of probe, at rest and under load.
pub(super) struct Delays {
    pub(super) probe: Probe,
    pub(super) idle: Trips,
    pub(super) loaded: Trips,
}

/// One direction of the load.
pub(super) struct Way {
    /// The load received by the receiver's device, in whole frames.
    pub(super) delivered: Delivered,
    /// Payload that each TCP flow carried within the window, in bytes.
    pub(super) flows: Vec<u64>,
    /// Bytes that each queue of the port has sent within the window.
    pub(super) queues: Vec<u64>,
}

/// All that was measured.
pub(super) struct Outcome {
    pub(super) ping_idle: ping::Stats,
    pub(super) ping: ping::Stats,
    pub(super) probes: Vec<Delays>,
    /// Client to server, and back.
    pub(super) ways: [Way; 2],
    /// Frames dropped from the start of the load to its end, by Narrows and by devices whose ring
    /// was full.
    pub(super) dropped_by_narrows: u64,
    pub(super) dropped_by_devices: u64,
    /// Time that Narrows's threads ran for within the window.
    pub(super) cpu: Duration,
    pub(super) span: Duration,
}

/// The readings at both ends of the window.
struct Look {
    at: Instant,
    clock: Duration,
    readings: [Reading; 2],
    flows: [Vec<u64>; 2],
    show: Snapshot,
    cpu: Duration,
}

/// Measures the system between the ports of `bed`, under load for `window`.
pub(super) fn measure(bed: &Testbed, instance: &Instance, window: Duration) -> Result<Outcome> {
    let [client, server] = bed.ends();
    let wanted: Vec<Flow> =
        MARKS.iter().enumerate().map(|(queue, &dscp)| Flow { dscp, queue }).collect();
    let flows =
        [Flows::open(bed, client, server, &wanted)?, Flows::open(bed, server, client, &wanted)?];
    let mut books = Books::open(bed)?;
    let probes = PROBES
        .iter()
        .map(|probe| probe.start(client, server))
        .collect::<Result<Vec<probe::Running>>>()?;

    let idle_from = probe::now()?;
    let ping = Ping::start(bed, IDLE + SPARE)?;
    thread::sleep(IDLE);
    let ping_idle = ping.stop()?;
    let idle_to = probe::now()?;

    let before = instance.show()?;
    let [up, down] = flows;
    let flows = [up.start()?, down.start()?];
    thread::sleep(WARM_UP);
    let ping = Ping::start(bed, window + SPARE)?;
    let mut meters = [Meter::at(server)?, Meter::at(client)?];
    let mut look = || {
        let [at_server, at_client] = &mut meters;
        Ok::<_, anyhow::Error>(Look {
            show: instance.show()?,
            cpu: instance.cpu()?,
            at: Instant::now(),
            clock: probe::now()?,
            readings: [at_server.read()?, at_client.read()?],
            flows: flows.each_ref().map(tcp::Running::received),
        })
    };
    let start = look()?;
    thread::sleep(window);
    let end = look()?;

    // While the load still lasts, so that the last answers are also under load.
    probes.iter().for_each(probe::Running::pause);
    let ping = ping.stop()?;
    for flow in flows {
        flow.stop()?;
    }
    let mut delays = Vec::new();
    for (probe, running) in PROBES.into_iter().zip(probes) {
        let samples = running.stop()?;
        let idle = Trips::of(&samples, idle_from, idle_to);
        let loaded = Trips::of(&samples, start.clock, end.clock);
        delays.push(Delays { probe, idle, loaded });
    }
    let devices = books.settle()?;
    let after = instance.show()?;
    let dropped = |show: &Snapshot| -> u64 {
        [PORT_A, PORT_B]
            .iter()
            .filter_map(|port| show.port(port))
            .map(|port| port.total.drops)
            .sum()
    };
    Ok(Outcome {
        ping_idle,
        ping,
        probes: delays,
        ways: [way(&start, &end, 0, PORT_B)?, way(&start, &end, 1, PORT_A)?],
        dropped_by_narrows: dropped(&after).saturating_sub(dropped(&before)),
        dropped_by_devices: devices.client.tx_dropped
            + devices.server.tx_dropped
            + devices.port_a.tx_dropped
            + devices.port_b.tx_dropped
            + devices.port_a.rx_dropped
            + devices.port_b.rx_dropped,
        cpu: end.cpu.saturating_sub(start.cpu),
        span: end.at.saturating_duration_since(start.at),
    })
}

fn way(start: &Look, end: &Look, way: usize, port: &str) -> Result<Way> {
    let added = |before: &[u64], after: &[u64]| -> Vec<u64> {
        before.iter().zip(after).map(|(before, after)| after.saturating_sub(*before)).collect()
    };
    let queues = |look: &Look| -> Result<Vec<u64>> {
        let port = look.show.port(port).with_context(|| format!("narrows does not show {port}"))?;
        Ok(port.per_queue.iter().map(|queue| queue.tx_bytes).collect())
    };
    Ok(Way {
        delivered: Delivered::between(&start.readings[way], &end.readings[way]),
        flows: added(&start.flows[way], &end.flows[way]),
        queues: added(&queues(start)?, &queues(end)?),
    })
}
