//! One worker hangs while the others run: its queue is bypassed.

use super::{Fault, NOISE, PROMISED, Trace, millis};
use crate::chaos::rng::Rng;
use crate::chaos::sender::now;
use crate::chaos::world::World;
use anyhow::Result;
use std::thread;
use std::time::Duration;

/// The worker that hangs: one that exists for any number of queues.
const WORKER: u32 = 0;

#[derive(Debug)]
pub(super) struct Hang {
    lasts: Duration,
}

impl Hang {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self { lasts: rng.millis(100..1500) }
    }
}

impl Fault for Hang {
    fn describe(&self) -> String {
        format!("worker {WORKER} hangs for {}", millis(self.lasts))
    }

    fn outage(&self) -> Option<Duration> {
        Some(self.lasts.min(PROMISED) + NOISE)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let began = now()?;
        let hung = world.instance()?.hang(WORKER)?;
        thread::sleep(self.lasts);
        drop(hung);
        world.wait_until("without a silent worker", |show| !show.has_silent_worker())?;
        Trace::passed_by_since(began, world.plane)
    }
}
