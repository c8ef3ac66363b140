//! Another policy under load, by `narrows tc`: nothing is out, nothing is lost.

use super::{Fault, IN_FLIGHT, NOISE, Trace};
use crate::chaos::plane::Plane;
use crate::chaos::policy::policies;
use crate::chaos::rng::Rng;
use crate::chaos::sender::now;
use crate::chaos::span::Span;
use crate::chaos::world::World;
use anyhow::Result;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Change {
    to: usize,
    name: &'static str,
}

impl Change {
    pub(super) fn draw(rng: &mut Rng, plane: Plane) -> Self {
        let policies = policies(plane);
        let to = rng.below(policies.len());
        Self { to, name: policies[to].name }
    }
}

/// Sets a policy by `narrows tc`, a command at a time.
pub(super) fn set(world: &mut World<'_>, to: usize) -> Result<Trace> {
    let began = now()?;
    let policy = world.choose(to)?;
    for line in policy.lines() {
        world.tc(&line)?;
    }
    let unlimited = || Ok::<_, anyhow::Error>(Span::new(began, now()? + IN_FLIGHT));
    let unshaped = policy.is_set_in_steps().then(unlimited).transpose()?;
    Ok(Trace { unshaped, ..Trace::default() })
}

impl Fault for Change {
    fn describe(&self) -> String {
        format!("tc: {}", self.name)
    }

    fn outage(&self) -> Option<Duration> {
        Some(NOISE)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        set(world, self.to)
    }
}
