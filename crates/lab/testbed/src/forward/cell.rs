//! One measurement: one system, one frame size, one load.

use super::load::{Ends, Load, Place, Sender};
use super::system::{Running, System};
use crate::accounting::{Books, Devices};
use anyhow::{Context, Result};
use std::thread;
use std::time::{Duration, Instant};

/// How long a load runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(300);
/// How much longer than its measurement a flood may last.
const SPARE: Duration = Duration::from_secs(5);

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    pub(super) frame_bytes: usize,
    pub(super) load: Load,
    pub(super) system: System,
}

/// The measurements of one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Offered by the sender.
    pub(super) offered_per_second: f64,
    /// Received by the server's device.
    pub(super) packets_per_second: f64,
    /// Taken in by the forwarder: received, or dropped by its limit.
    pub(super) taken_per_second: f64,
    /// Run time of the forwarder's threads, in seconds per second.
    pub(super) worker_cores: Option<f64>,
    /// Run time of all threads that the traffic keeps busy, in seconds per second: the sender's,
    /// unless the forwarder [receives on another core](Load::is_received_elsewhere), the
    /// forwarder's, and the kernel's.
    pub(super) machine_cores: f64,
    /// Frames lost without a limit asking for it, over the whole flood.
    pub(super) lost: u64,
}

/// The values read at both ends of the window.
struct Look {
    at: Instant,
    worker: Option<Duration>,
    /// The worker's, too.
    machine: Duration,
    devices: Devices,
}

fn look(books: &mut Books, running: &Running<'_>, ends: &Ends<'_>, by: &Sender) -> Result<Look> {
    let at = Instant::now();
    let worker = running.cpu()?;
    let machine = worker.unwrap_or_default() + ends.cpu(by)?;
    Ok(Look { at, worker, machine, devices: books.read()? })
}

/// Sends what `cell` says through `running`, and measures for `window`.
pub(super) fn measure(
    place: Place<'_>,
    running: &Running<'_>,
    cell: &Cell,
    window: Duration,
) -> Result<Sample> {
    let dropped_before = running.dropped_by_limit()?;
    let ends = place.prepare(cell.load)?;
    let mut books = Books::open(place.bed)?;
    let sender = ends.send(cell.frame_bytes, WARM_UP + window + SPARE)?;
    thread::sleep(WARM_UP);
    let start = look(&mut books, running, &ends, &sender)?;
    thread::sleep(window);
    let end = look(&mut books, running, &ends, &sender)?;
    drop(sender);
    let all = books.settle()?;
    let dropped = running
        .dropped_by_limit()?
        .checked_sub(dropped_before)
        .context("a change of the limit has reset the counters")?;
    Ok(sample(&start, &end, &all, dropped))
}

/// `dropped` and `all` are over the whole flood, the readings over the window within it.
fn sample(start: &Look, end: &Look, all: &Devices, dropped: u64) -> Sample {
    let seconds = (end.at - start.at).as_secs_f64();
    let offered = |devices: &Devices| devices.client.tx_packets + devices.client.tx_dropped;
    let received = end.devices.server.rx_packets - start.devices.server.rx_packets;
    let packets_per_second = received as f64 / seconds;
    // Drops of the limit are evenly distributed.
    let received_in_all = all.server.rx_packets;
    let taken = (received_in_all + dropped) as f64 / received_in_all.max(1) as f64;
    let worker = start.worker.zip(end.worker);
    Sample {
        offered_per_second: (offered(&end.devices) - offered(&start.devices)) as f64 / seconds,
        packets_per_second,
        taken_per_second: packets_per_second * taken,
        worker_cores: worker.map(|(start, end)| (end - start).as_secs_f64() / seconds),
        machine_cores: (end.machine - start.machine).as_secs_f64() / seconds,
        lost: offered(all).saturating_sub(received_in_all + dropped),
    }
}
