//! A flood of short frames beside the traffic.

use super::{Fault, Trace, millis};
use crate::chaos::frame::{SHORTEST, Way};
use crate::chaos::rng::Rng;
use crate::chaos::sender::Stream;
use crate::chaos::world::World;
use crate::pace::Pace;
use anyhow::Result;
use std::ops::Range;
use std::thread;
use std::time::Duration;

/// The streams of floods, by way.
const NUMBERS: [u8; 2] = [2, 3];

/// The flood's load.
#[derive(Debug)]
struct Kind {
    what: &'static str,
    pace: Pace,
    /// Whether each frame comes from an address of its own.
    scatter: bool,
    lasts_ms: Range<u64>,
}

/// The hardest load for anything with state: more addresses in a second than any table can hold.
const ADDRESSES: Kind = Kind {
    what: "40000 addresses a second",
    pace: Pace::Packets(40_000.0),
    scatter: true,
    lasts_ms: 300..900,
};

/// Few flows as fast as one core can send them: more than rings can hold.
const FLAT_OUT: Kind =
    Kind { what: "short frames flat out", pace: Pace::FlatOut, scatter: false, lasts_ms: 100..300 };

#[derive(Debug)]
pub(super) struct Flood {
    kind: &'static Kind,
    way: Way,
    lasts: Duration,
}

impl Flood {
    /// Frames from ever new addresses.
    pub(super) fn of_addresses(rng: &mut Rng) -> Self {
        Self::draw(&ADDRESSES, rng)
    }

    /// More frames than rings can hold.
    pub(super) fn flat_out(rng: &mut Rng) -> Self {
        Self::draw(&FLAT_OUT, rng)
    }

    fn draw(kind: &'static Kind, rng: &mut Rng) -> Self {
        Self { kind, way: rng.pick(&Way::BOTH), lasts: rng.millis(kind.lasts_ms.clone()) }
    }
}

impl Fault for Flood {
    fn describe(&self) -> String {
        format!("{} {:?} for {}", self.kind.what, self.way, millis(self.lasts))
    }

    fn outage(&self) -> Option<Duration> {
        None
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let stream = Stream {
            number: NUMBERS[self.way.index()],
            way: self.way,
            lengths: vec![SHORTEST],
            pace: self.kind.pace,
            scatter: self.kind.scatter,
            first: 0,
        };
        let running = world.send(stream)?;
        thread::sleep(self.lasts);
        world.sent(running)?;
        Ok(Trace::default())
    }
}
