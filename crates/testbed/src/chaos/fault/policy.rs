//! Another policy under load, by `narrows tc`: nothing is out, nothing is lost.

use super::{Fault, NOISE, Trace};
use crate::chaos::policy::POLICIES;
use crate::chaos::rng::Rng;
use crate::chaos::world::World;
use anyhow::Result;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Change {
    to: usize,
}

impl Change {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self { to: rng.below(POLICIES.len()) }
    }
}

impl Fault for Change {
    fn describe(&self) -> String {
        format!("tc qdisc replace: {}", POLICIES[self.to].name)
    }

    fn outage(&self) -> Option<Duration> {
        Some(NOISE)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        for line in world.choose(self.to)?.lines() {
            world.tc(&line)?;
        }
        Ok(Trace::default())
    }
}
