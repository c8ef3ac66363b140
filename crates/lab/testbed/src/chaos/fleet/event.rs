//! What happens to a box of a fleet.

use crate::chaos::rng::Rng;
use crate::fleet::Fleet;
use crate::fleet::site::Site;
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use std::thread::sleep;
use std::time::Duration;

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nothing.
    Calm,
    /// `kill -9` of the agent, and another one.
    Agent,
    /// The agent stands still, and goes on with what it knew.
    Pause,
    /// `kill -9` of the box's NATS server, and another one.
    Engine,
    /// The box hears nobody.
    Wire,
    /// Another process takes over from the instance.
    Upgrade,
    /// `kill -9` of the instance, and another one.
    Instance,
    /// All of the box: instance, agent and engine.
    Power,
}

impl Kind {
    pub(super) const ALL: [Self; 8] = [
        Self::Calm,
        Self::Agent,
        Self::Pause,
        Self::Engine,
        Self::Wire,
        Self::Upgrade,
        Self::Instance,
        Self::Power,
    ];
}

/// An event with its parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) kind: Kind,
    /// The box.
    number: usize,
    lasts: Duration,
}

impl Event {
    /// One of `kind` at one of so many boxes. Some end before a lease of 2 s is over, and some
    /// after it.
    pub(super) fn draw(kind: Kind, boxes: usize, rng: &mut Rng) -> Self {
        Self { kind, number: rng.below(boxes), lasts: rng.millis(100..4_000) }
    }

    /// Whether it killed the instance of the box `number`.
    pub(super) fn has_killed(self, number: usize) -> bool {
        matches!(self.kind, Kind::Instance | Kind::Power) && number == self.number
    }

    /// Strikes, and undoes it.
    pub(super) fn strike(self, fleet: &mut Fleet, sites: &mut [Site]) -> Result<()> {
        let number = self.number;
        match self.kind {
            Kind::Calm => sleep(self.lasts),
            Kind::Agent => {
                fleet.kill_agent(number)?;
                sleep(self.lasts);
                fleet.start_agent(number)?;
            }
            Kind::Pause => {
                fleet.freeze_agent(number, true)?;
                sleep(self.lasts);
                fleet.freeze_agent(number, false)?;
            }
            Kind::Engine => {
                fleet.kill_server(number)?;
                sleep(self.lasts);
                fleet.start_server(number)?;
            }
            Kind::Wire => {
                fleet.wires.set(number, false)?;
                sleep(self.lasts);
                fleet.wires.set(number, true)?;
            }
            Kind::Upgrade => sites[number].instance()?.upgrade()?,
            Kind::Instance => {
                sites[number].kill()?;
                sleep(self.lasts);
                sites[number].start()?;
            }
            Kind::Power => {
                sites[number].kill()?;
                fleet.kill_agent(number)?;
                fleet.kill_server(number)?;
                sleep(self.lasts);
                fleet.start_server(number)?;
                sites[number].start()?;
                fleet.start_agent(number)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.number + 1;
        let lasts = format!("{} ms", self.lasts.as_millis());
        match self.kind {
            Kind::Calm => write!(f, "nothing for {lasts}"),
            Kind::Agent => write!(f, "the agent of box {number} is killed, and back after {lasts}"),
            Kind::Pause => write!(f, "the agent of box {number} stands still for {lasts}"),
            Kind::Engine => {
                write!(f, "the engine of box {number} is killed, and back after {lasts}")
            }
            Kind::Wire => write!(f, "box {number} is cut off for {lasts}"),
            Kind::Upgrade => write!(f, "another process takes over on box {number}"),
            Kind::Instance => {
                write!(f, "the instance of box {number} is killed, and back after {lasts}")
            }
            Kind::Power => write!(f, "all of box {number} is killed, and back after {lasts}"),
        }
    }
}
