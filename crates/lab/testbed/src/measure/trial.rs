//! One load through any forwarder, measured over a window in which it is steady.
//!
//! The load starts, arrives and warms up; only then does the window open. At both ends of the
//! window the caller may read further values.

use crate::bed::{CLIENT, Testbed};
use crate::flood::{Flood, Running};
use crate::iperf::{Iperf, Report, Traffic};
use crate::ping::{Ping, Stats};
use crate::window::{Delivered, Meter, Reading};
use anyhow::{Result, bail};
use narrows_units::Rate;
use std::thread;
use std::time::{Duration, Instant};

/// How long a load runs before the window opens: bursts are spent and TCP has found its
/// rate.
const WARM_UP: Duration = Duration::from_millis(1500);
/// How much longer than the window a load lasts, so that it still does at its end.
const SPARE: Duration = Duration::from_millis(500);
/// Frames that have come through once a load has arrived, which is more than its ends
/// need to agree on it.
const ARRIVED: u64 = 300;
/// How long a load may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(8);
/// How often the arrival is looked for, and how far apart two rates are shown.
const POLL: Duration = Duration::from_millis(20);
const SHOWN_EVERY: Duration = Duration::from_secs(1);

/// The load to send.
#[derive(Clone, Debug)]
pub enum Load {
    /// Flows of real sockets.
    Iperf {
        /// Their kind.
        traffic: Traffic,
        /// How many.
        flows: u32,
    },
    /// Frames of our own. Its limit must leave room for the window.
    Flood(Flood),
}

/// The result.
#[derive(Clone, Debug)]
pub struct Outcome<T> {
    /// The load received by the server's device within the window.
    pub delivered: Delivered,
    /// Round trips within the window.
    pub ping: Stats,
    /// The report of `iperf3`.
    pub report: Report,
    /// The results of `look` at the window's start and at its end.
    pub edges: [T; 2],
}

/// Sends `load` from the client to the server and measures the delivered rate over `window`. `look`
/// is called at both ends of the window, `show` every second between with the rate of the last.
pub fn run<T>(
    bed: &Testbed,
    load: Load,
    window: Duration,
    mut look: impl FnMut() -> Result<T>,
    mut show: impl FnMut(Rate),
) -> Result<Outcome<T>> {
    let mut meter = Meter::at_server(bed)?;
    let before = meter.read()?;
    let source = Source::start(bed, load, WARM_UP + window + SPARE)?;
    arrive(&mut meter, &before)?;
    thread::sleep(WARM_UP);

    let ping = Ping::start(bed, window + SPARE + SHOWN_EVERY)?;
    let first_look = look()?;
    let start = meter.read()?;
    let end = wait(&mut meter, &start, window, &mut show)?;
    let last_look = look()?;
    let ping = ping.stop()?;
    Ok(Outcome {
        delivered: Delivered::between(&start, &end),
        ping,
        report: source.finish()?,
        edges: [first_look, last_look],
    })
}

fn arrive(meter: &mut Meter, before: &Reading) -> Result<()> {
    let deadline = Instant::now() + ARRIVAL;
    while Delivered::between(before, &meter.read()?).packets < ARRIVED {
        if Instant::now() >= deadline {
            bail!("the load does not arrive at the server: is something forwarding?");
        }
        thread::sleep(POLL);
    }
    Ok(())
}

fn wait(
    meter: &mut Meter,
    start: &Reading,
    window: Duration,
    show: &mut impl FnMut(Rate),
) -> Result<Reading> {
    let close = start.at + window;
    let mut last = *start;
    loop {
        let left = close.saturating_duration_since(Instant::now());
        thread::sleep(left.min(SHOWN_EVERY));
        let now = meter.read()?;
        show(Delivered::between(&last, &now).rate());
        if left <= SHOWN_EVERY {
            return Ok(now);
        }
        last = now;
    }
}

/// A load under way.
enum Source {
    Iperf(Iperf),
    Flood(Running),
}

impl Source {
    fn start(bed: &Testbed, load: Load, span: Duration) -> Result<Self> {
        match load {
            Load::Iperf { traffic, flows } => {
                Iperf::start(bed, traffic, flows, span).map(Self::Iperf)
            }
            Load::Flood(flood) => flood.start(bed.client(), CLIENT).map(Self::Flood),
        }
    }

    fn finish(self) -> Result<Report> {
        match self {
            Self::Iperf(iperf) => iperf.finish(),
            Self::Flood(flood) => flood.stop().map(|_| Report::default()),
        }
    }
}
