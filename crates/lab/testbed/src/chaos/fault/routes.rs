//! What goes forth has another next hop for a while: another route, another MAC address of the next
//! hop, or a route that leads nowhere.

use super::{Fault, IN_FLIGHT, NOISE, Trace, millis};
use crate::chaos::rng::Rng;
use crate::chaos::routes::{Hop, PORT_C};
use crate::chaos::sender::now;
use crate::chaos::span::Span;
use crate::chaos::world::World;
use anyhow::Result;
use narrows_units::Nanos;
use std::thread;
use std::time::Duration;

/// What port C has in front of it: nothing, or one of these, which passes less than is offered.
const QDISCS: [Option<&str>; 2] = [None, Some("tbf rate 45mbit burst 32000 latency 50ms")];

#[derive(Debug)]
pub(super) struct Change {
    to: Hop,
    lasts: Duration,
    qdisc: Option<&'static str>,
}

impl Change {
    /// Another route.
    pub(super) fn of_route(rng: &mut Rng) -> Self {
        let to = rng.pick(&[Hop::Aside, Hop::Aside, Hop::Blackhole]);
        Self { to, lasts: rng.millis(400..1000), qdisc: rng.pick(&QDISCS) }
    }

    /// Another neighbour.
    pub(super) fn of_neighbour(rng: &mut Rng) -> Self {
        Self { to: Hop::Moved, lasts: rng.millis(400..1000), qdisc: None }
    }

    /// The qdisc of port C while it has one.
    fn qdisc(&self) -> Option<&'static str> {
        self.qdisc.filter(|_| self.to == Hop::Aside)
    }
}

impl Fault for Change {
    fn describe(&self) -> String {
        let what = match self.to {
            Hop::Usual => "as it is",
            Hop::Moved => "the next hop has another MAC address",
            Hop::Aside => "through port C",
            Hop::Blackhole => "into a black hole",
        };
        let behind = self.qdisc().map_or(String::new(), |qdisc| format!(", {qdisc}"));
        format!("{what} for {}{behind}", millis(self.lasts))
    }

    fn outage(&self) -> Option<Duration> {
        let hole = if self.to == Hop::Blackhole { self.lasts } else { Duration::ZERO };
        Some(hole + NOISE)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let began = now()?;
        if let Some(qdisc) = self.qdisc() {
            world.tc(&format!("qdisc replace dev {PORT_C} root {qdisc}"))?;
        }
        world.lead(self.to)?;
        thread::sleep(self.lasts);
        world.lead(Hop::Usual)?;
        if self.qdisc().is_some() {
            world.tc(&format!("qdisc del dev {PORT_C} root"))?;
        }
        // What waits at one port leaves beside what goes through the other. The limit of port B
        // goes on all the time.
        let hold = Nanos(world.policy().hold().0 + IN_FLIGHT.0);
        let unshaped = (self.to == Hop::Aside).then_some(Span::new(began, now()? + hold));
        Ok(Trace { unshaped, ..Trace::default() })
    }
}
