//! A port that goes down and up again.

use super::{Fault, IN_FLIGHT, NOISE, PROMISED, Trace, millis};
use crate::bed::{PORT_A, PORT_B};
use crate::chaos::books::Destroyed;
use crate::chaos::rng::Rng;
use crate::chaos::sender::now;
use crate::chaos::span::Span;
use crate::chaos::world::World;
use anyhow::Result;
use std::thread;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Flap {
    port: &'static str,
    /// How long it is down.
    down: Duration,
}

impl Flap {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self { port: rng.pick(&[PORT_A, PORT_B]), down: rng.millis(20..600) }
    }
}

impl Fault for Flap {
    fn describe(&self) -> String {
        format!("{} down for {}", self.port, millis(self.down))
    }

    fn outage(&self) -> Option<Duration> {
        // The kernel announces a carrier at most once a second, so the far end may learn of it
        // late.
        Some(self.down + PROMISED + NOISE)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let down = now()?;
        world.ip(&format!("link set dev {} down", self.port))?;
        thread::sleep(self.down);
        world.ip(&format!("link set dev {} up", self.port))?;
        world.restore_routes()?;
        world.wait_until("running", |show| show.is_running())?;
        let up = now()?;
        // A veth that goes down frees the frames in its rings, and a bridge whose other port is
        // down frees those it should send there; neither counts them.
        let sent = Span::new(down, up).widened(world.policy().hold() + IN_FLIGHT, IN_FLIGHT);
        Ok(Trace {
            destroyed: vec![Destroyed { by: "a port was down", sent }],
            unshaped: Some(Span::new(down, up + IN_FLIGHT)),
            bypassed: true,
            ..Trace::default()
        })
    }
}
