//! SIGSTOP and SIGCONT: the process exists but does nothing, and is bypassed.

use super::{Fault, NOISE, PROMISED, Trace, millis};
use crate::chaos::rng::Rng;
use crate::chaos::sender::now;
use crate::chaos::world::World;
use anyhow::Result;
use nix::sys::signal::Signal;
use std::thread;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Pause {
    /// How long it is stopped.
    stopped: Duration,
}

impl Pause {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self { stopped: rng.millis(20..2500) }
    }
}

impl Fault for Pause {
    fn describe(&self) -> String {
        format!("SIGSTOP, SIGCONT after {}", millis(self.stopped))
    }

    fn outage(&self) -> Option<Duration> {
        Some(self.stopped.min(PROMISED) + NOISE)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let began = now()?;
        world.instance()?.signal(Signal::SIGSTOP)?;
        thread::sleep(self.stopped);
        world.instance()?.signal(Signal::SIGCONT)?;
        world.wait_until("running", |show| show.is_running())?;
        Trace::passed_by_since(began, world.plane)
    }
}
