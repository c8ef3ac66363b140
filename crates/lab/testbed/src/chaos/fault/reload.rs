//! SIGHUP: the policy file, which has changed meanwhile, is read again.

use super::{Fault, NOISE, Trace};
use crate::chaos::plane::Plane;
use crate::chaos::policy::policies;
use crate::chaos::rng::Rng;
use crate::chaos::world::World;
use anyhow::Result;
use nix::sys::signal::Signal;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Reload {
    to: usize,
    name: &'static str,
}

impl Reload {
    pub(super) fn draw(rng: &mut Rng, plane: Plane) -> Self {
        let policies = policies(plane);
        let to = rng.below(policies.len());
        Self { to, name: policies[to].name }
    }
}

impl Fault for Reload {
    fn describe(&self) -> String {
        format!("SIGHUP: {}", self.name)
    }

    fn outage(&self) -> Option<Duration> {
        Some(NOISE)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let policy = world.choose(self.to)?;
        world.instance()?.signal(Signal::SIGHUP)?;
        world.wait_until("limited as the file says", |show| policy.is_in_force(show))?;
        Ok(Trace::default())
    }
}
