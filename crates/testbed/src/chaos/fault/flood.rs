//! Short frames, each from an address of its own: what asks most of anything that keeps state.

use super::{Fault, Trace, millis};
use crate::chaos::frame::{SHORTEST, Way};
use crate::chaos::rng::Rng;
use crate::chaos::sender::Stream;
use crate::chaos::world::World;
use crate::pace::Pace;
use anyhow::Result;
use std::thread;
use std::time::Duration;

/// Frames a second: more addresses in a second than any table here has room for.
const RATE: f64 = 40_000.0;
/// The streams of floods, by way.
const NUMBERS: [u8; 2] = [2, 3];

#[derive(Debug)]
pub(super) struct AddressFlood {
    way: Way,
    lasts: Duration,
}

impl AddressFlood {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self { way: rng.pick(&Way::BOTH), lasts: rng.millis(300..900) }
    }
}

impl Fault for AddressFlood {
    fn describe(&self) -> String {
        format!("{RATE} addresses a second {:?} for {}", self.way, millis(self.lasts))
    }

    fn outage(&self) -> Option<Duration> {
        None
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let stream = Stream {
            number: NUMBERS[self.way.index()],
            way: self.way,
            lengths: vec![SHORTEST],
            pace: Pace::Packets(RATE),
            scatter: true,
            first: 0,
        };
        let running = world.send(stream)?;
        thread::sleep(self.lasts);
        world.sent(running)?;
        Ok(Trace::default())
    }
}
