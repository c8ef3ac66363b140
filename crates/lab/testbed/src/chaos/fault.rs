//! The faults, each in a file of its own: its action, its guarantees, how it is undone.

mod bridge;
mod classes;
mod core;
mod flood;
mod hang;
mod hog;
mod kill;
mod link;
mod mtu;
mod pause;
mod policy;
mod queues;
mod reload;
mod restart;
mod routes;
mod upgrade;

use super::books::Destroyed;
use super::plane::Plane;
use super::rng::Rng;
use super::sender::now;
use super::span::Span;
use super::world::World;
use anyhow::Result;
use narrows_units::Nanos;
use serde::Serialize;
use std::fmt::Debug;
use std::time::Duration;

/// The bound of an outage for which Narrows guarantees one.
pub(super) const PROMISED: Duration = Duration::from_secs(1);
/// The delay of a thread on a machine whose cores are shared by senders, receivers, Narrows and
/// anything else. Part of every bound.
pub(super) const NOISE: Duration = Duration::from_millis(300);
/// The delay of a frame between its sender and the shaper's queue.
pub(super) const IN_FLIGHT: Nanos = Nanos::from_millis(100);

/// The effects of a fault that the books need to know.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// The frames that it may have lost uncounted.
    pub(super) destroyed: Vec<Destroyed>,
    /// When Narrows did not shape.
    pub(super) unshaped: Option<Span>,
    /// When the device of the sender was without an XDP program at its far end.
    pub(super) bypassed: bool,
    /// Broken guarantees of this fault alone.
    pub(super) broken: Option<String>,
}

impl Trace {
    /// For a fault that began at `began`, during which a worker may have been bypassed: its queue
    /// is not shaped until the worker has noticed that it is back. A plane without workers goes on.
    fn passed_by_since(began: Nanos, plane: Plane) -> Result<Self> {
        if !plane.needs_the_process() {
            return Ok(Self::default());
        }
        let unshaped = Some(Span::new(began, now()? + Nanos::from_millis(500)));
        Ok(Self { unshaped, ..Self::default() })
    }
}

/// One fault with its parameters.
pub(super) trait Fault: Debug {
    /// Its effect, in a few words.
    fn describe(&self) -> String;

    /// How long a flow may be out; `None` if there is no guarantee for a single flow.
    fn outage(&self) -> Option<Duration>;

    /// Strikes, lets it last, undoes it, and returns when Narrows forwards again.
    fn strike(&self, world: &mut World<'_>) -> Result<Trace>;
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// No fault: normal operation, with the strictest checks.
    Calm,
    /// `kill -9`, and a new start.
    Kill,
    /// SIGTERM, and a new start.
    Restart,
    /// Another process takes over by `narrows upgrade`.
    Upgrade,
    /// SIGSTOP, SIGCONT.
    Pause,
    /// One worker hangs.
    Hang,
    /// A port goes down and up again.
    Link,
    /// Another MTU on all devices.
    Mtu,
    /// Another number of queues by `narrows reconfigure`.
    Queues,
    /// The standby bridge is damaged.
    Bridge,
    /// Another route for a while.
    Routes,
    /// The next hop has another MAC address for a while.
    Neighbours,
    /// Another policy by `narrows tc`.
    Policy,
    /// Another policy in the file, and SIGHUP.
    Reload,
    /// Classes and filters of a tree by `narrows tc`.
    Classes,
    /// A flood of short frames, each from another address.
    AddressFlood,
    /// Short frames as fast as one core can.
    RingExhaustion,
    /// All threads of Narrows are moved to one core.
    CoreTaken,
    /// A real-time hog takes a core.
    RealTimeHog,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::Calm,
        Self::Kill,
        Self::Restart,
        Self::Upgrade,
        Self::Pause,
        Self::Hang,
        Self::Link,
        Self::Mtu,
        Self::Queues,
        Self::Bridge,
        Self::Routes,
        Self::Neighbours,
        Self::Policy,
        Self::Reload,
        Self::Classes,
        Self::AddressFlood,
        Self::RingExhaustion,
        Self::CoreTaken,
        Self::RealTimeHog,
    ];

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Kill => "kill",
            Self::Restart => "restart",
            Self::Upgrade => "upgrade",
            Self::Pause => "pause",
            Self::Hang => "hang",
            Self::Link => "link",
            Self::Mtu => "mtu",
            Self::Queues => "queues",
            Self::Bridge => "bridge",
            Self::Routes => "routes",
            Self::Neighbours => "neighbours",
            Self::Policy => "policy",
            Self::Reload => "reload",
            Self::Classes => "classes",
            Self::AddressFlood => "address-flood",
            Self::RingExhaustion => "ring-exhaustion",
            Self::CoreTaken => "core-taken",
            Self::RealTimeHog => "real-time-hog",
        }
    }

    /// Whether traffic must not be affected: order holds during the fault, too, and Narrows drops
    /// nothing except by policy.
    pub(super) const fn is_seamless(self) -> bool {
        use Kind::{Bridge, Calm, Neighbours, Policy, Reload, Upgrade};
        matches!(self, Calm | Upgrade | Bridge | Neighbours | Policy | Reload)
    }

    /// A fault of this kind on `plane`, with parameters drawn from `rng`. `time` is the number of
    /// earlier ones.
    pub(super) fn draw(self, rng: &mut Rng, plane: Plane, time: usize) -> Box<dyn Fault> {
        match self {
            Self::Calm => Box::new(Calm),
            Self::Kill => Box::new(kill::Kill::draw(rng)),
            Self::Restart => Box::new(restart::Restart::draw(rng)),
            Self::Upgrade => Box::new(upgrade::Upgrade),
            Self::Pause => Box::new(pause::Pause::draw(rng)),
            Self::Hang => Box::new(hang::Hang::draw(rng)),
            Self::Link => Box::new(link::Flap::draw(rng)),
            Self::Mtu => Box::new(mtu::Mtu::draw(rng)),
            Self::Queues => Box::new(queues::Queues::draw(rng, time)),
            Self::Bridge => Box::new(bridge::Spoilt::draw(rng)),
            Self::Routes => Box::new(routes::Change::of_route(rng)),
            Self::Neighbours => Box::new(routes::Change::of_neighbour(rng)),
            Self::Policy => Box::new(policy::Change::draw(rng, plane)),
            Self::Reload => Box::new(reload::Reload::draw(rng, plane)),
            Self::Classes => Box::new(classes::Classes::draw(rng)),
            Self::AddressFlood => Box::new(flood::Flood::of_addresses(rng)),
            Self::RingExhaustion => Box::new(flood::Flood::flat_out(rng)),
            Self::CoreTaken => Box::new(core::Taken::draw(rng)),
            Self::RealTimeHog => Box::new(hog::Hog::draw(rng)),
        }
    }
}

/// No fault.
#[derive(Debug)]
struct Calm;

impl Fault for Calm {
    fn describe(&self) -> String {
        "nothing".to_owned()
    }

    fn outage(&self) -> Option<Duration> {
        Some(NOISE)
    }

    fn strike(&self, _: &mut World<'_>) -> Result<Trace> {
        std::thread::sleep(Duration::from_millis(500));
        Ok(Trace::default())
    }
}

/// A span as the names of parameters are written: whole milliseconds.
fn millis(duration: Duration) -> String {
    format!("{} ms", duration.as_millis())
}
