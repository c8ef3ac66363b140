//! Limits whose rate follows a line: what a [`Controller`] is told each turn, and what is done with
//! its answer.
//!
//! *Idea.* A controller sees the bytes of its port's root qdisc and the round trips beyond the
//! line's port. Its rate takes the path of any change of the policy, in the policy that is
//! enforced, so queues, credit and classes stay.
//!
//! *Principles.* What the plane refuses is tried again in the next turn. Events name notable
//! changes, at most one a second for each limit.
//!
//! *Non-goals.* The rules: `narrows_autorate`. Probes. Handing the rates over to another process:
//! it begins at the configured rate, and finds the line's within seconds.

use super::{Instance, planning};
use crate::clock;
use crate::error::InstanceError;
use narrows_autorate::{Bounds, Controller, Decision, Reason, Side, TURN, Trip, Turn};
use narrows_forwarding::{Forwarding, PortId};
use narrows_policy::{Autorate, Policy, PolicyError};
use narrows_roundtrip::Seen;
use narrows_units::{Bytes, Nanos, Rate};
use std::collections::BTreeMap;

/// The least change of a rate that is put in force: one in so many.
const NOTICEABLE: u64 = 200;
/// Events of a limit are so far apart.
const EVENTS_EVERY: Nanos = Nanos::from_secs(1);

/// The limits that follow a line, by the name that the policy has for their port.
#[derive(Default)]
pub(super) struct Lines {
    by_dev: BTreeMap<String, Line>,
    next: Nanos,
}

/// A limit that follows a line.
struct Line {
    id: PortId,
    /// The port that the line is beyond.
    beyond: PortId,
    side: Side,
    controller: Controller,
    counted: Option<Counted>,
    /// The rate of the last event, and when it was.
    said: (Rate, Nanos),
}

/// The figures of a root qdisc, so far.
#[derive(Clone, Copy, Default)]
struct Counted {
    sent: u64,
    packets: u64,
    drops: u64,
    backlog: u64,
}

impl Counted {
    /// What arrived since `before`. Dropped packets count as long as sent ones were on average.
    fn arrived_since(&self, before: &Self) -> Bytes {
        let sent = self.sent.saturating_sub(before.sent);
        let packets = self.packets.saturating_sub(before.packets);
        let dropped = self.drops.saturating_sub(before.drops);
        let dropped = dropped.saturating_mul(sent.checked_div(packets).unwrap_or(0));
        let arrived = sent.saturating_add(dropped).saturating_add(self.backlog);
        Bytes(arrived.saturating_sub(before.backlog))
    }
}

impl Lines {
    /// The rate in force at `dev`, if it follows a line.
    pub(super) fn rate(&self, dev: &str) -> Option<Rate> {
        Some(self.by_dev.get(dev)?.controller.rate())
    }
}

/// What the policy says of the limit at `id`: its name there, and how it follows which line.
fn followed<'a>(
    policy: &'a Policy,
    forwarding: &Forwarding,
    id: PortId,
) -> Option<(String, &'a Autorate, Rate)> {
    let dev = forwarding.across(id).map_or_else(
        || forwarding.name(id).to_owned(),
        |across| policy.shaping(forwarding.name(id), forwarding.name(across)),
    );
    let (autorate, rate) = policy.port(&dev).autorate()?;
    Some((dev, autorate, rate))
}

/// The port that the line of the limit at `id` is beyond; none if there is no such port.
fn beyond(autorate: &Autorate, forwarding: &Forwarding, id: PortId) -> Option<PortId> {
    match &autorate.line {
        None => Some(id),
        Some(name) => forwarding.ids().find(|id| forwarding.name(*id) == name),
    }
}

impl Instance {
    /// Refuses limits of `policy` that cannot follow a line here.
    ///
    /// # Errors
    /// Without round trips, or a port of that name.
    pub(super) fn check_lines(&self, policy: &Policy) -> Result<(), InstanceError> {
        let forwarding = &self.options.forwarding;
        for id in forwarding.ids() {
            let Some((dev, autorate, _)) = followed(policy, forwarding, id) else { continue };
            let refuse =
                |why: String| Err(planning::does_not_fit(&dev, PolicyError::Autorate(why)));
            let Some(beyond) = beyond(autorate, forwarding, id) else {
                let name = autorate.line.as_deref().unwrap_or_default();
                let names: Vec<&str> = forwarding.ids().map(|id| forwarding.name(id)).collect();
                return refuse(format!(
                    "line {name} is no port of this instance: give one of {}.",
                    names.join(", ")
                ));
            };
            if !self.options.plane.has_workers() {
                return refuse(
                    "only the plane xsk measures round trips: run it there, or leave autorate out."
                        .to_owned(),
                );
            }
            if self.plane.as_ref().is_some_and(|plane| plane.board(beyond).is_none()) {
                return refuse(
                    "this instance measures no round trips: start it with --round-trips, or with \
                     this policy in its file."
                        .to_owned(),
                );
            }
        }
        Ok(())
    }

    /// When the next turn of limits that follow a line is, if there are any.
    pub(crate) fn next_turn(&self) -> Option<Nanos> {
        (!self.lines.by_dev.is_empty()).then_some(self.lines.next)
    }

    /// Follows the policy: limits that are new or gone, and other bounds.
    pub(super) fn follow_lines(&mut self) {
        let forwarding = &self.options.forwarding;
        let mut before = std::mem::take(&mut self.lines.by_dev);
        for id in forwarding.ids() {
            let Some((dev, autorate, rate)) = followed(&self.policy, forwarding, id) else {
                continue;
            };
            let (Some(beyond), Some(bounds)) = (
                beyond(autorate, forwarding, id),
                Bounds::new(autorate.least, rate, autorate.most),
            ) else {
                continue;
            };
            let side = if beyond == id { Side::Before } else { Side::Behind };
            let line = match before.remove(&dev) {
                Some(mut line) if (line.id, line.beyond) == (id, beyond) => {
                    line.controller.rebound(bounds);
                    line
                }
                _ => Line {
                    id,
                    beyond,
                    side,
                    controller: Controller::new(side, bounds),
                    counted: None,
                    said: (rate, Nanos::ZERO),
                },
            };
            self.lines.by_dev.insert(dev, line);
        }
        let Some(plane) = &self.plane else { return };
        for id in forwarding.ids() {
            let is_watched = self.lines.by_dev.values().any(|line| line.beyond == id);
            if let Some(board) = plane.board(id) {
                board.watch(is_watched);
            }
        }
    }

    /// A turn of all limits that follow a line, if it is due.
    pub(crate) fn turn_lines(&mut self) {
        let now = clock::now();
        if self.lines.by_dev.is_empty() || now < self.lines.next {
            return;
        }
        // A turn that is late does not bring the next one near.
        self.lines.next = now + TURN;
        let Some(plane) = &self.plane else { return };
        let held_back: Vec<(PortId, Side)> = (self.lines.by_dev.values())
            .filter(|line| line.controller.is_held_back())
            .map(|line| (line.beyond, line.side))
            .collect();
        let mut seen: BTreeMap<PortId, Seen> = BTreeMap::new();
        let mut changes = Vec::new();
        for (dev, line) in &mut self.lines.by_dev {
            let of_port = seen.entry(line.beyond).or_insert_with(|| {
                plane.board(line.beyond).map(|board| board.take()).unwrap_or_default()
            });
            let Some(root) = self.policy.port(dev).root().map(|root| root.handle) else { continue };
            let stats = plane.stats(line.id);
            let Some(stats) = stats.iter().find(|node| node.handle == Some(root)) else { continue };
            let stats = &stats.stats;
            let counted = Counted {
                sent: stats.sent_bytes,
                packets: stats.sent_packets,
                drops: stats.drops,
                backlog: stats.backlog.bytes.0,
            };
            let before = line.counted.replace(counted).unwrap_or(counted);
            let trips: Vec<Trip> =
                of_port.trips.iter().map(|&(path, time)| Trip { path, time }).collect();
            let other =
                held_back.iter().any(|&(beyond, side)| beyond == line.beyond && side != line.side);
            let decision = line.controller.turn(&Turn {
                now,
                arrived: counted.arrived_since(&before),
                sent: Bytes(counted.sent.saturating_sub(before.sent)),
                backlog: stats.backlog.bytes,
                trips: &trips,
                segments: of_port.segments,
                lost: of_port.lost,
                other_is_held_back: other,
            });
            if let Some(event) = line.event(dev, &decision, now) {
                changes.push(event);
            }
        }
        for event in changes {
            self.events.say(event);
        }
        if let Err(error) = self.enforce_lines() {
            self.events.warn(format!("autorate: {error}; it is tried again"));
        }
    }

    /// Puts the controllers' rates in force where they differ noticeably.
    fn enforce_lines(&mut self) -> Result<(), InstanceError> {
        let in_force = |dev: &str| {
            let now = self.enforced.port(dev).autorate()?.1.bits_per_sec();
            let rate = self.lines.rate(dev)?;
            let is_noticeable = rate.bits_per_sec().abs_diff(now) > now / NOTICEABLE;
            is_noticeable.then_some(rate)
        };
        let enforced = self.enforced.clone().following(in_force);
        let none = self.options.forwarding.ids().map(|_| None).collect();
        let planned = self.enforced.clone();
        self.enforce(enforced, &planned, none).map(drop)
    }
}

impl Line {
    /// What is to be said of `decision`: a rate that differs by a quarter from the one that was
    /// said last, and a path that became longer.
    fn event(&mut self, dev: &str, decision: &Decision, now: Nanos) -> Option<String> {
        let Decision { rate, reason, excess } = *decision;
        let (said, at) = self.said;
        let far = rate.bits_per_sec().abs_diff(said.bits_per_sec()) > said.bits_per_sec() / 4;
        // A rate that is in force only while a queue drains is not worth an event.
        let is_notable = far && reason != Reason::Delay || reason == Reason::Path && now != at;
        if !is_notable || now < at + EVENTS_EVERY {
            return None;
        }
        self.said = (rate, now);
        let why = match reason {
            Reason::Drained => "a queue in the line has drained".to_owned(),
            Reason::Rises => "it binds, and the line has no queue".to_owned(),
            Reason::Loss => "the line loses segments".to_owned(),
            Reason::Path => format!("the path became {excess} longer"),
            Reason::Idle => "it is idle".to_owned(),
            Reason::Holds | Reason::Delay => "a queue in the line".to_owned(),
        };
        Some(format!("{dev}: rate {said} → {rate}: {why}"))
    }
}
