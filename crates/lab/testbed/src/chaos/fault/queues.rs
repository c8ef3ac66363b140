//! Another number of queues, by `narrows reconfigure`: the ports are released while `ethtool`
//! changes them, and packets take the bridge.

use super::{Fault, IN_FLIGHT, NOISE, PROMISED, Trace};
use crate::bed::{End, QUEUES};
use crate::chaos::books::Destroyed;
use crate::chaos::plane::Plane;
use crate::chaos::rng::Rng;
use crate::chaos::sender::now;
use crate::chaos::span::Span;
use crate::chaos::world::World;
use anyhow::Result;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Queues {
    to: u32,
}

impl Queues {
    /// Fewer than there are at first, every other `time` all of them again.
    pub(super) fn draw(rng: &mut Rng, time: usize) -> Self {
        let fewer = rng.pick(&[1, 2, 3]);
        Self { to: if time.is_multiple_of(2) { fewer } else { QUEUES } }
    }

    /// The command that changes every device. The ends change, too, because a `veth` accepts no XDP
    /// program while its peer has more transmit queues than it has receive queues.
    fn change(&self, world: &World<'_>) -> String {
        let change = |device: &str| format!("ethtool -L {device} rx {to} tx {to}", to = self.to);
        let at_end = |End { namespace, device, .. }: End<'_>| {
            format!("ip netns exec {} {}", namespace.name(), change(device))
        };
        let ports = world.ports().into_iter().map(change);
        world.ends().into_iter().map(at_end).chain(ports).collect::<Vec<_>>().join(" && ")
    }
}

impl Fault for Queues {
    fn describe(&self) -> String {
        format!("reconfigure, ethtool -L: {} queues", self.to)
    }

    fn outage(&self) -> Option<Duration> {
        // The kernel announces a carrier at most once a second, so the far end may learn of it
        // late.
        Some(PROMISED + NOISE)
    }

    fn strike(&self, world: &mut World<'_>) -> Result<Trace> {
        let (to, change) = (self.to, self.change(world));
        let began = now()?;
        world.instance()?.reconfigure(&change)?;
        // The plane in the driver has no queues of its own.
        let is_in_driver = world.plane == Plane::Xdp;
        let what = format!("running with {to} queues");
        world.wait_until(&what, |show| {
            let has_queues = || show.ports.iter().all(|port| port.queues == to);
            show.is_running() && (is_in_driver || has_queues())
        })?;
        let over = now()?;
        // A veth that loses its XDP program or its carrier frees the frames in its rings, and a
        // bridge whose other port has no carrier frees those it should send there; neither counts
        // them.
        let sent = Span::new(began, over).widened(IN_FLIGHT, IN_FLIGHT);
        Ok(Trace {
            destroyed: vec![Destroyed { by: "as ports changed their queues", sent }],
            unshaped: Some(Span::new(began, over)),
            bypassed: true,
            ..Trace::default()
        })
    }
}
