//! SIGHUP: the policy file, which has changed meanwhile, is read again.

use super::{Fault, NOISE, Trace};
use crate::bed::PORT_B;
use crate::chaos::frame::Way;
use crate::chaos::policy::POLICIES;
use crate::chaos::rng::Rng;
use crate::chaos::world::World;
use anyhow::Result;
use nix::sys::signal::Signal;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Reload {
    to: usize,
}

impl Reload {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self { to: rng.below(POLICIES.len()) }
    }
}

impl Fault for Reload {
    fn describe(&self) -> String {
        format!("SIGHUP: {}", POLICIES[self.to].name)
    }

    fn outage(&self) -> Option<Duration> {
        Some(NOISE)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let rate = world.choose(self.to)?.limit(Way::Forth).rate.bits_per_sec();
        world.instance()?.signal(Signal::SIGHUP)?;
        world.wait_until("limited as the file says", |show| show.has_rate(PORT_B, rate))?;
        Ok(Trace::default())
    }
}
