//! Another MTU on every device, under load.

use super::{Fault, IN_FLIGHT, PROMISED, Trace};
use crate::chaos::books::Destroyed;
use crate::chaos::rng::Rng;
use crate::chaos::sender::now;
use crate::chaos::span::Span;
use crate::chaos::world::World;
use anyhow::Result;
use std::time::Duration;

/// Values that all carry the frames of a run and need no other XDP program.
const VALUES: [u32; 3] = [1500, 1600, 1700];

#[derive(Debug)]
pub(super) struct Mtu {
    mtu: u32,
}

impl Mtu {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self { mtu: rng.pick(&VALUES) }
    }
}

impl Fault for Mtu {
    fn describe(&self) -> String {
        format!("MTU {}", self.mtu)
    }

    fn outage(&self) -> Option<Duration> {
        Some(PROMISED)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let began = now()?;
        for end in world.ends() {
            let words = format!("link set dev {} mtu {}", end.device, self.mtu);
            end.namespace.run("ip", &words.split(' ').collect::<Vec<_>>())?;
        }
        for port in world.ports() {
            world.ip(&format!("link set dev {port} mtu {}", self.mtu))?;
        }
        let mtu = self.mtu;
        world.wait_until("running with the new MTU", |show| {
            show.is_running() && show.ports.iter().all(|port| port.mtu == mtu)
        })?;
        let over = now()?;
        // The session ends and restarts, and the rings of the veths are lost with its programs.
        let sent = Span::new(began, over).widened(world.policy().hold() + IN_FLIGHT, IN_FLIGHT);
        Ok(Trace {
            destroyed: vec![Destroyed { by: "in a veth's ring as XDP was detached", sent }],
            unshaped: Some(Span::new(began, over)),
            bypassed: true,
            ..Trace::default()
        })
    }
}
