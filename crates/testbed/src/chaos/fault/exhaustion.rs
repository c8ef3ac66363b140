//! Short frames of a few flows as fast as one core can send them: more than rings hold.

use super::{Fault, Trace, millis};
use crate::chaos::frame::{SHORTEST, Way};
use crate::chaos::rng::Rng;
use crate::chaos::sender::Stream;
use crate::chaos::world::World;
use crate::pace::Pace;
use anyhow::Result;
use std::thread;
use std::time::Duration;

/// The streams of floods, by way.
const NUMBERS: [u8; 2] = [4, 5];

#[derive(Debug)]
pub(super) struct Exhaustion {
    way: Way,
    lasts: Duration,
}

impl Exhaustion {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self { way: rng.pick(&Way::BOTH), lasts: rng.millis(100..300) }
    }
}

impl Fault for Exhaustion {
    fn describe(&self) -> String {
        format!("short frames flat out {:?} for {}", self.way, millis(self.lasts))
    }

    fn outage(&self) -> Option<Duration> {
        None
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let stream = Stream {
            number: NUMBERS[self.way.index()],
            way: self.way,
            lengths: vec![SHORTEST],
            pace: Pace::FlatOut,
            scatter: false,
            first: 0,
        };
        let running = world.send(stream)?;
        thread::sleep(self.lasts);
        world.sent(running)?;
        Ok(Trace::default())
    }
}
