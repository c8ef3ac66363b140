//! What happens to a balancer.

use super::PORT;
use super::model::{Server, Servers};
use super::site::{MOST, Site};
use crate::chaos::books::Destroyed;
use crate::chaos::fault::{IN_FLIGHT, NOISE, PROMISED};
use crate::chaos::rng::Rng;
use crate::chaos::sender::now;
use crate::chaos::span::Span;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::thread::sleep;
use std::time::Duration;

/// How long a port that was down may take until the ways to all servers are known again: routes are
/// asked for after a second, by what is done each second.
const WAYS: Duration = Duration::from_secs(3);

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Nothing.
    Calm,
    /// A server comes, or goes if all are there.
    Come,
    /// A server goes.
    Go,
    /// A server drains, or has weight again.
    Drain,
    /// A server is taken out for a while, as health checks do it.
    Down,
    /// Other services replace these at once.
    Restore,
    /// Another process takes over.
    Upgrade,
    /// `kill -9`, and a start from the state.
    Kill,
    /// SIGTERM, and a start from the state.
    Restart,
    /// The port goes down and up.
    Link,
}

impl Kind {
    pub(super) const ALL: [Self; 10] = [
        Self::Calm,
        Self::Come,
        Self::Go,
        Self::Drain,
        Self::Down,
        Self::Restore,
        Self::Upgrade,
        Self::Kill,
        Self::Restart,
        Self::Link,
    ];

    /// Whether no packet may be lost, whatever server it goes to.
    pub(super) const fn is_seamless(self) -> bool {
        !matches!(self, Self::Kill | Self::Restart | Self::Link)
    }

    /// Whether there is no process for a while.
    pub(super) const fn has_no_process(self) -> bool {
        matches!(self, Self::Kill | Self::Restart)
    }
}

/// An event with its parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) kind: Kind,
    /// The server that it concerns.
    server: u8,
    weight: u32,
    lasts: Duration,
}

/// What an event did, as far as it is not in the site.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) gone: BTreeSet<u8>,
    pub(super) is_forgotten: bool,
    pub(super) destroyed: Vec<Destroyed>,
    pub(super) bypassed: bool,
}

impl Event {
    /// One of `kind` at a site with `servers`.
    pub(super) fn draw(kind: Kind, rng: &mut Rng, servers: &Servers) -> Self {
        let present: Vec<u8> = servers.keys().copied().collect();
        let absent: Vec<u8> = (1..=MOST).filter(|it| !servers.contains_key(it)).collect();
        // Two stay, so that there is always one that takes new connections.
        let from = match kind {
            Kind::Come if !absent.is_empty() => &absent[..],
            _ => &present[2.min(present.len() - 1)..],
        };
        Self {
            kind,
            server: rng.pick(from),
            weight: 1 + rng.below(3) as u32,
            lasts: rng.millis(50..300),
        }
    }

    /// How long a flow may be out. What comes while no process is there goes to the box, and how
    /// long a start takes is nobody's promise.
    pub(super) fn outage(&self) -> Option<Duration> {
        match self.kind {
            Kind::Kill | Kind::Restart => None,
            Kind::Link => Some(self.lasts + WAYS),
            Kind::Upgrade => Some(PROMISED),
            _ => Some(NOISE),
        }
    }

    /// Strikes, and returns when all is in force.
    pub(super) fn strike(self, site: &mut Site<'_>) -> Result<Trace> {
        let mut trace = Trace::default();
        let began = now()?;
        let span = |ended| Span::new(began, ended).widened(IN_FLIGHT, IN_FLIGHT);
        let mut servers = site.servers().clone();
        let (server, weight) = (self.server, self.weight);
        let exists = servers.contains_key(&server);
        match self.kind {
            Kind::Calm => sleep(self.lasts),
            Kind::Come if !exists => {
                site.balance(&format!("add {} -w {weight}", site.named(server)))?;
                servers.insert(server, Server { weight, is_down: false });
            }
            // All are there, or more than two.
            Kind::Come | Kind::Go if servers.len() > 2 => {
                site.balance(&format!("del {}", site.named(server)))?;
                servers.remove(&server);
                trace.gone.insert(server);
            }
            Kind::Come | Kind::Go => sleep(self.lasts),
            Kind::Drain => {
                let drained = servers.get(&server).is_some_and(|it| it.weight == 0);
                let weight = if drained || servers.len() <= 2 { weight } else { 0 };
                site.balance(&format!("edit {} -w {weight}", site.named(server)))?;
                servers.insert(server, Server { weight, is_down: false });
            }
            Kind::Down if servers.len() > 2 => {
                site.balance(&format!("edit {} --down", site.named(server)))?;
                sleep(self.lasts);
                site.balance(&format!("edit {} --up", site.named(server)))?;
                trace.gone.insert(server);
            }
            Kind::Down => sleep(self.lasts),
            Kind::Restore => {
                let next = match servers.remove(&server) {
                    Some(_) if servers.len() >= 2 => {
                        trace.gone.insert(server);
                        servers
                    }
                    _ => site.servers().clone(),
                };
                servers = next;
                let absent = (1..=MOST).find(|it| *it != server && !servers.contains_key(it));
                if let Some(new) = absent {
                    servers.insert(new, Server { weight, is_down: false });
                }
                site.restore(&servers)?;
            }
            Kind::Upgrade => site.upgrade()?,
            Kind::Kill => {
                site.kill()?;
                let gone = now()?;
                sleep(self.lasts);
                site.start()?;
                // What was in the rings when the program came and went.
                for sent in [span(gone), Span::new(gone, now()?).widened(IN_FLIGHT, IN_FLIGHT)] {
                    trace.destroyed.push(Destroyed { by: "as the program came or went", sent });
                }
                trace.is_forgotten = true;
                trace.bypassed = true;
            }
            Kind::Restart => {
                site.stop()?;
                sleep(self.lasts);
                site.start()?;
                let sent = span(now()?);
                trace.destroyed.push(Destroyed { by: "as the program came or went", sent });
                trace.is_forgotten = true;
                trace.bypassed = true;
            }
            Kind::Link => {
                site.ip(&format!("link set dev {PORT} down"))?;
                sleep(self.lasts);
                site.ip(&format!("link set dev {PORT} up"))?;
                site.restore_ways()?;
                site.wait_for_ways(WAYS)?;
                let sent = span(now()?);
                trace.destroyed.push(Destroyed { by: "the port was down", sent });
                trace.bypassed = true;
            }
        }
        site.has(servers);
        Ok(trace)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, server, weight, lasts } = self;
        let lasts = format!("{} ms", lasts.as_millis());
        match kind {
            Kind::Calm => f.write_str("nothing"),
            Kind::Come => write!(f, "server {server} comes with weight {weight}, or goes"),
            Kind::Go => write!(f, "server {server} goes"),
            Kind::Drain => write!(f, "server {server} drains, or no longer"),
            Kind::Down => write!(f, "server {server} is down for {lasts}"),
            Kind::Restore => write!(f, "a restore without server {server}"),
            Kind::Upgrade => f.write_str("another process takes over"),
            Kind::Kill => write!(f, "kill -9, started again after {lasts}"),
            Kind::Restart => write!(f, "stopped, started again after {lasts}"),
            Kind::Link => write!(f, "the port is down for {lasts}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_can_be_drawn_however_few_servers_there_are() {
        let mut rng = Rng::new(1);
        for most in [2, MOST] {
            let one = |number| (number, Server { weight: 1, is_down: false });
            let servers: Servers = (1..=most).map(one).collect();
            for kind in Kind::ALL {
                let event = Event::draw(kind, &mut rng, &servers);
                assert!((1..=MOST).contains(&event.server), "{event}");
            }
        }
    }
}
