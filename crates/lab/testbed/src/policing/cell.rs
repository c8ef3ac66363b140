//! One measurement: one system, one limit, some flows.

use crate::bed::{FAR_B, SINK_MAC, Testbed};
use crate::flood::{Flood, Pace};
use crate::frames;
use crate::tcp::{self, Flows};
use crate::window::{Delivered, Meter, Reading};
use anyhow::{Context, Result};
use narrows_units::Rate;
use std::net::SocketAddrV4;
use std::thread;
use std::time::Duration;

/// The round trip with `netem`.
pub(super) const ROUND_TRIP: Duration = Duration::from_millis(20);

/// The first of the ports that flows go to.
const PORT: u16 = 20_000;
/// The load of a flood, as a multiple of the limit; its frames, in bytes.
const OVERLOAD: f64 = 1.3;
const FRAME_BYTES: usize = 1514;
/// How long a flood runs before it is measured, so that bucket and virtual queue are full: they
/// fill with the excess over the limit.
const USED_UP: Duration = Duration::from_millis(1500);
/// How often a second of it is measured.
const SECONDS: usize = 3;
/// How long bucket and virtual queue take to be empty again.
const REST: Duration = Duration::from_millis(500);
/// How much longer than it needs a flood may last.
const SPARE: Duration = Duration::from_secs(20);

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) flows: usize,
    pub(super) settle: Duration,
    pub(super) window: Duration,
}

/// The results, in bits per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Of frames at the receiver's device.
    pub(super) frames: f64,
    /// The rates at the receivers.
    pub(super) payload: f64,
    /// Of frames in the second with the least, and in that with the most.
    pub(super) seconds: [f64; 2],
}

impl Cell {
    /// Runs the flows from client to server.
    pub(super) fn measure(&self, bed: &Testbed) -> Result<Found> {
        let [client, server] = bed.ends();
        let ports = (PORT..).take(self.flows);
        let addresses: Vec<_> = ports.map(|port| SocketAddrV4::new(server.ip, port)).collect();
        let flows = Flows::to(client, server.namespace, &addresses)?.start()?;
        thread::sleep(self.settle);
        let mut meter = Meter::at(server)?;
        let read = |running: &tcp::Running| running.received().iter().sum::<u64>();
        let before = read(&flows);
        let mut readings = vec![meter.read()?];
        for _ in 0..self.window.as_secs().max(1) {
            thread::sleep(Duration::from_secs(1));
            readings.push(meter.read()?);
        }
        let payload = read(&flows) - before;
        // A flow that a policer starves carries nothing, which is a result and no error.
        drop(flows);
        thread::sleep(REST);
        found(&readings, payload).context("nothing was measured")
    }
}

fn found(readings: &[Reading], payload: u64) -> Option<Found> {
    let rate = |delivered: &Delivered| delivered.rate().bits_per_sec() as f64;
    let all = Delivered::between(readings.first()?, readings.last()?);
    let seconds = readings.windows(2).map(|pair| rate(&Delivered::between(&pair[0], &pair[1])));
    let seconds: Vec<f64> = seconds.collect();
    let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = seconds.iter().copied().fold(0.0, f64::max);
    let payload = payload as f64 * 8e9 / all.span.0.max(1) as f64;
    Some(Found { frames: rate(&all), payload, seconds: [least, most] })
}

/// The deviation of a UDP flood above the limit over one second, in percent: the least disturbed of
/// a few seconds.
pub(super) fn exactness(bed: &Testbed, limit: Rate) -> Result<f64> {
    let far = bed.far().context("the bed has no distance")?;
    let ports: Vec<u16> = (0..16).map(frames::port).collect();
    let flood = Flood {
        frames: frames::udp_flows(&ports, SINK_MAC, FRAME_BYTES)?,
        pace: Pace::Bits(limit.bits_per_sec() as f64 * OVERLOAD),
        limit: USED_UP + SPARE,
        core: None,
    };
    let flood = flood.start(far, FAR_B)?;
    thread::sleep(USED_UP);
    let [_, server] = bed.ends();
    let mut meter = Meter::at(server)?;
    let mut off = Vec::new();
    let mut before = meter.read()?;
    for _ in 0..SECONDS {
        thread::sleep(Duration::from_secs(1));
        let after = meter.read()?;
        off.push(Delivered::between(&before, &after).deviation_percent(limit));
        before = after;
    }
    flood.stop()?;
    thread::sleep(REST);
    off.into_iter().min_by(|one, other| one.abs().total_cmp(&other.abs())).context("no second")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counts;
    use std::time::Instant;

    #[test]
    fn the_extremes_are_of_whole_seconds() {
        let start = Instant::now();
        let reading = |second: u64, rx_bytes: u64| Reading {
            at: start + Duration::from_secs(second),
            counts: Counts { rx_bytes, ..Counts::default() },
        };
        let readings = [reading(0, 50), reading(1, 150), reading(2, 450)];
        let found = found(&readings, 300).unwrap();
        assert_eq!((found.frames, found.payload), (1600.0, 1200.0));
        assert_eq!(found.seconds, [800.0, 2400.0]);
    }
}
