//! `kill -9`: what Narrows held is lost, the bridge forwards, a new start takes over.

use super::{Fault, IN_FLIGHT, PROMISED, Trace, millis};
use crate::chaos::books::Destroyed;
use crate::chaos::rng::Rng;
use crate::chaos::sender::now;
use crate::chaos::span::Span;
use crate::chaos::world::World;
use anyhow::Result;
use std::thread;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Kill {
    /// How long nothing is shaped.
    away: Duration,
}

impl Kill {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self { away: rng.millis(20..500) }
    }
}

impl Fault for Kill {
    fn describe(&self) -> String {
        format!("kill -9, started again after {}", millis(self.away))
    }

    fn outage(&self) -> Option<Duration> {
        Some(PROMISED)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        // Drops after its last report are lost with it, like its packets.
        let said = now()?;
        let last = world.drops()?;
        world.take()?.kill()?;
        let gone = now()?;
        world.life_ended(&last);
        thread::sleep(self.away);
        world.start()?;
        let sent = Span::new(said, gone).widened(world.policy().hold() + IN_FLIGHT, IN_FLIGHT);
        Ok(Trace {
            destroyed: vec![Destroyed { by: "with the killed process", sent }],
            unshaped: Some(Span::new(said, now()?)),
            bypassed: true,
            ..Trace::default()
        })
    }
}
