//! Limits whose rate follows a line: what a [`Controller`] is told each turn, and what is done with
//! its answer.
//!
//! *Idea.* A controller sees the bytes of its port's root qdisc and the round trips beyond the
//! line's port. Its rate takes the path of any change of the policy, in the policy that is
//! enforced, so queues, credit and classes stay.
//!
//! *Turns* are 50 ms. While a direction is loaded its trips are looked at more often, and a turn
//! ends early if they are urgent. Only at the end of a turn the workers are asked, for no more than
//! the counters of the roots.
//!
//! *Limits without a queue.* While a queue in the line drains, next to nothing may pass. A limit
//! that polices would drop all that comes meanwhile, and connections need long to recover. So it
//! lets at least half of the line's rate pass. The drain takes longer then.
//!
//! *Principles.* What the plane refuses is tried again in the next turn. Events name notable
//! changes, at most one a second for each limit. Another process of this instance goes on with the
//! rates that were found.
//!
//! *Non-goals.* The rules: `narrows_autorate`. Bases of paths in another process: it learns them
//! from its first trips.

use super::{Instance, planning};
use crate::clock;
use crate::echoes::{self, Echoes};
use crate::error::InstanceError;
use crate::upgrade::state::LineState;
use crate::worker_report::RootCount;
use narrows_autorate::{
    Bounds, Controller, Decision, Found, GLANCE, Probes, Reason, Side, TURN, Trip, Turn,
};
use narrows_forwarding::{Forwarding, PortId};
use narrows_link::Link;
use narrows_policy::{Autorate, Policy, PolicyError};
use narrows_roundtrip::Seen;
use narrows_snapshot::LineFigures;
use narrows_units::{Bytes, Nanos, Rate};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The least change of a rate that is put in force: one in so many.
const NOTICEABLE: u64 = 200;
/// Looks are so far apart at least.
const LEAST: Nanos = Nanos::from_millis(1);
/// Events of a limit are so far apart.
const EVENTS_EVERY: Nanos = Nanos::from_secs(1);

/// The limits that follow a line, by the name that the policy has for their port.
#[derive(Default)]
pub(super) struct Lines {
    by_dev: BTreeMap<String, Line>,
    /// When to look next.
    next: Nanos,
    /// Of lines with reflectors, by the port that they are beyond.
    probed: BTreeMap<PortId, Probed>,
    /// Readable while reflectors have answered.
    answers: Option<OwnedFd>,
    /// What another process has found, until the limits are here.
    inherited: BTreeMap<String, Found>,
}

/// A line whose reflectors are asked.
struct Probed {
    probes: Probes,
    echoes: Echoes,
    /// Trips that answers told of since the last look.
    trips: Vec<Trip>,
}

/// A limit that follows a line.
struct Line {
    id: PortId,
    /// The port that the line is beyond.
    beyond: PortId,
    side: Side,
    controller: Controller,
    /// Whether nothing waits at the limit, as of the last turn.
    is_policed: bool,
    counted: Option<RootCount>,
    /// When the turn ends if nothing is urgent.
    ends: Nanos,
    /// Of this turn.
    trips: Vec<Trip>,
    segments: u64,
    lost: u64,
    /// The rate of the last event, and when it was.
    said: (Rate, Nanos),
}

/// How long dropped packets are in a turn that sent none, in bytes.
const FULL_PACKET: u64 = 1514;
/// Trips of a turn that are kept. More say nothing new.
const TRIPS: usize = 1024;

/// What was sent between two counts.
fn sent(before: &RootCount, now: &RootCount) -> Bytes {
    Bytes(now.sent_bytes.saturating_sub(before.sent_bytes))
}

/// What was dropped. Dropped packets count as long as sent ones were on average.
fn dropped(before: &RootCount, now: &RootCount) -> Bytes {
    let packets = now.sent_packets.saturating_sub(before.sent_packets);
    let length = sent(before, now).0.checked_div(packets).unwrap_or(FULL_PACKET);
    Bytes(now.drops.saturating_sub(before.drops).saturating_mul(length))
}

/// What arrived.
fn arrived(before: &RootCount, now: &RootCount) -> Bytes {
    let passed = sent(before, now).0.saturating_add(dropped(before, now).0);
    Bytes(passed.saturating_add(now.backlog.0).saturating_sub(before.backlog.0))
}

impl Lines {
    /// The rate in force at `dev`, if it follows a line.
    pub(super) fn rate(&self, dev: &str) -> Option<Rate> {
        match self.by_dev.get(dev) {
            Some(line) => Some(line.rate()),
            None => self.inherited.get(dev).map(|found| found.rate),
        }
    }

    /// What another process needs to go on.
    pub(super) fn state(&self) -> BTreeMap<String, LineState> {
        let state = |(dev, line): (&String, &Line)| {
            let Found { rate, full_at } = line.controller.found();
            let full_at = full_at.map(|rate| rate.bits_per_sec());
            (dev.clone(), LineState { rate: rate.bits_per_sec(), full_at })
        };
        self.by_dev.iter().map(state).collect()
    }

    /// Goes on with the `state` of another process as soon as its limits are here.
    pub(super) fn inherit(&mut self, state: BTreeMap<String, LineState>) {
        let found = |(dev, LineState { rate, full_at }): (String, LineState)| {
            let rate = Rate::from_bits_per_sec(rate);
            (dev, Found { rate, full_at: full_at.map(Rate::from_bits_per_sec) })
        };
        self.inherited = state.into_iter().map(found).collect();
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
    let named = match &autorate.line {
        None => id,
        Some(name) => forwarding.ids().find(|id| forwarding.name(*id) == name)?,
    };
    // What an ifb shapes has come through its port.
    Some(forwarding.ports()[named].ifb_of.unwrap_or(named))
}

/// The reflectors that `policy` names, by the port that they are beyond. Both directions of a line
/// share them.
fn reflectors(policy: &Policy, forwarding: &Forwarding) -> BTreeMap<PortId, BTreeSet<IpAddr>> {
    let mut all: BTreeMap<PortId, BTreeSet<IpAddr>> = BTreeMap::new();
    for id in forwarding.ids() {
        let Some((_, autorate, _)) = followed(policy, forwarding, id) else { continue };
        let Some(beyond) = beyond(autorate, forwarding, id) else { continue };
        if !autorate.reflectors.is_empty() {
            all.entry(beyond).or_default().extend(&autorate.reflectors);
        }
    }
    all
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
            let reflectors: BTreeSet<IpAddr> = autorate.reflectors.iter().copied().collect();
            if reflectors.is_empty() {
                self.check_trips(beyond).or_else(refuse)?;
            } else if let Err(why) = self.echoes(beyond, &reflectors) {
                return refuse(why);
            }
        }
        Ok(())
    }

    /// Whether round trips beyond `port` are seen without reflectors, as far as that is known: a
    /// plane that opens with this policy sees them.
    ///
    /// # Errors
    /// What to write where they are not.
    fn check_trips(&self, port: PortId) -> Result<(), String> {
        if self.plane.as_ref().is_none_or(|plane| plane.sees_trips(port)) {
            return Ok(());
        }
        Err("this instance measures no round trips: start it with --round-trips, or with this \
             policy in its file, or name hosts beyond the line, as reflector 192.0.2.1."
            .to_owned())
    }

    /// The limit at `id` as a view has it, if it follows a line.
    pub(super) fn followed_line(&self, id: PortId) -> Option<LineFigures> {
        let line = self.lines.by_dev.values().find(|line| line.id == id)?;
        let bounds = line.controller.bounds();
        Some(LineFigures {
            least_bps: bounds.least().bits_per_sec(),
            most_bps: bounds.most().bits_per_sec(),
            rate_bps: line.rate().bits_per_sec(),
            reason: line.controller.reason().name().to_owned(),
        })
    }

    /// When the next turn of limits that follow a line is, if there are any.
    pub(crate) fn next_turn(&self) -> Option<Nanos> {
        (!self.lines.by_dev.is_empty()).then_some(self.lines.next)
    }

    /// Follows the policy: limits that are new or gone, and other bounds.
    pub(super) fn follow_lines(&mut self) {
        let forwarding = &self.options.forwarding;
        let mut before = std::mem::take(&mut self.lines.by_dev);
        let inherited = std::mem::take(&mut self.lines.inherited);
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
                _ => {
                    let new = Controller::new(side, bounds);
                    let controller = match inherited.get(&dev) {
                        Some(found) => new.resume(*found),
                        None => new,
                    };
                    let said = (controller.rate(), Nanos::ZERO);
                    Line::new(id, beyond, side, controller, said)
                }
            };
            self.lines.by_dev.insert(dev, line);
        }
        self.follow_reflectors();
        let Some(plane) = &mut self.plane else { return };
        for id in self.options.forwarding.ids() {
            let is_watched = self.lines.by_dev.values().any(|line| line.beyond == id);
            if let Err(error) = plane.watch_trips(id, is_watched) {
                self.events.warn(format!("autorate: no round trips are seen: {error}"));
            }
        }
    }

    /// What is readable while reflectors have answered, if there are any.
    pub(crate) fn reflectors(&self) -> Option<BorrowedFd<'_>> {
        self.lines.answers.as_ref().filter(|_| !self.lines.probed.is_empty()).map(AsFd::as_fd)
    }

    /// Takes the answers of reflectors.
    pub(crate) fn hear_reflectors(&mut self) {
        for probed in self.lines.probed.values_mut() {
            let answers = probed.echoes.hear(clock::now());
            let trips = answers.iter().filter_map(|answer| probed.probes.answered(answer));
            probed.trips.extend(trips);
        }
    }

    /// Opens sockets to the reflectors of the lines of the policy, where they are not open, and
    /// closes others.
    fn follow_reflectors(&mut self) {
        let wanted = reflectors(&self.policy, &self.options.forwarding);
        self.lines.probed.retain(|port, probed| {
            wanted
                .get(port)
                .is_some_and(|wanted| probed.probes.reflectors().eq(wanted.iter().copied()))
        });
        for (port, wanted) in wanted {
            if self.lines.probed.contains_key(&port) {
                continue;
            }
            match self.echoes(port, &wanted) {
                Ok(echoes) => {
                    let probes = Probes::new(wanted, 0);
                    let trips = Vec::new();
                    self.lines.probed.insert(port, Probed { probes, echoes, trips });
                }
                Err(why) => self.events.warn(format!("autorate: {why}")),
            }
        }
        let all = self.lines.probed.values().map(|probed| &probed.echoes);
        self.lines.answers = match echoes::any_of(all) {
            Ok(any) => Some(any),
            Err(error) => {
                self.events.warn(format!("autorate: answers of reflectors are seen late: {error}"));
                None
            }
        };
    }

    /// Sockets to `reflectors` beyond `port`.
    fn echoes(&self, port: PortId, reflectors: &BTreeSet<IpAddr>) -> Result<Echoes, String> {
        let forwarding = &self.options.forwarding;
        let device = &forwarding.devices()[forwarding.device_of(port)];
        let link = Link::by_name(device).map_err(|error| error.to_string())?;
        Echoes::open(reflectors.iter().copied(), device, link.status.ifindex)
    }

    /// Looks at all limits that follow a line, if it is time, and ends the turns that are over or
    /// urgent.
    pub(crate) fn turn_lines(&mut self) {
        let now = clock::now();
        if self.lines.by_dev.is_empty() || now < self.lines.next {
            return;
        }
        let Some(plane) = &self.plane else {
            self.lines.next = now + TURN;
            return;
        };
        let ports: BTreeSet<PortId> = self.lines.by_dev.values().map(|line| line.beyond).collect();
        for port in ports {
            let seen = plane.take_trips(port);
            let of = |trip: &narrows_roundtrip::Trip| Trip {
                path: trip.host,
                flow: trip.connection,
                time: trip.time,
            };
            let mut trips: Vec<Trip> = seen.trips.iter().map(of).collect();
            if let Some(probed) = self.lines.probed.get_mut(&port) {
                let mut lines = self.lines.by_dev.values();
                let is_loaded =
                    lines.any(|line| line.beyond == port && line.controller.is_loaded());
                if !trips.is_empty() {
                    probed.probes.passed(now);
                }
                if let Some(question) = probed.probes.ask(is_loaded, now) {
                    probed.echoes.ask(&question);
                }
                trips.append(&mut probed.trips);
            }
            let lines = self.lines.by_dev.values_mut().filter(|line| line.beyond == port);
            lines.for_each(|line| line.sees(&seen, &trips));
        }
        let held_back: Vec<(PortId, Side)> = (self.lines.by_dev.values())
            .filter(|line| line.controller.is_held_back())
            .map(|line| (line.beyond, line.side))
            .collect();
        let due: Vec<(&String, &mut Line)> =
            self.lines.by_dev.iter_mut().filter(|(_, line)| line.is_due(now)).collect();
        let ids: Vec<PortId> = due.iter().map(|(_, line)| line.id).collect();
        let counts = if ids.is_empty() { Vec::new() } else { plane.roots(&ids) };
        let has_turned = !counts.is_empty();
        let mut changes = Vec::new();
        for ((dev, line), count) in due.into_iter().zip(counts) {
            let other =
                held_back.iter().any(|&(beyond, side)| beyond == line.beyond && side != line.side);
            line.is_policed = plane.polices(line.id);
            let decision = line.turn(count, other, now);
            changes.extend(line.event(dev, &decision, now));
        }
        let is_loaded = self.lines.by_dev.values().any(|line| line.controller.is_loaded());
        let ends = self.lines.by_dev.values().map(|line| line.ends).min();
        let next = if is_loaded { now + GLANCE } else { now + TURN };
        self.lines.next = ends.map_or(next, |ends| ends.min(next)).max(now + LEAST);
        for event in changes {
            self.events.say(event);
        }
        if has_turned && let Err(error) = self.enforce_lines() {
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
        if self.lines.by_dev.keys().all(|dev| in_force(dev).is_none()) {
            return Ok(());
        }
        let enforced = self.enforced.clone().following(in_force);
        let none = self.options.forwarding.ids().map(|_| None).collect();
        let planned = self.enforced.clone();
        self.enforce(enforced, &planned, none).map(drop)
    }
}

impl Line {
    fn new(
        id: PortId,
        beyond: PortId,
        side: Side,
        controller: Controller,
        said: (Rate, Nanos),
    ) -> Self {
        Self {
            id,
            beyond,
            side,
            controller,
            is_policed: false,
            counted: None,
            ends: Nanos::ZERO,
            trips: Vec::new(),
            segments: 0,
            lost: 0,
            said,
        }
    }

    /// The rate to be in force.
    fn rate(&self) -> Rate {
        let rate = self.controller.rate();
        if self.is_policed && self.controller.reason() == Reason::Delay {
            let line = self.controller.found().rate;
            rate.max(Rate::from_bits_per_sec(line.bits_per_sec() / 2))
        } else {
            rate
        }
    }

    /// Takes what was seen beyond its port since it last looked, and the `trips` of then.
    fn sees(&mut self, seen: &Seen, trips: &[Trip]) {
        let room = TRIPS.saturating_sub(self.trips.len());
        self.trips.extend(trips.iter().take(room));
        self.segments += seen.segments;
        self.lost += seen.lost;
    }

    /// Whether its turn ends at `now`.
    fn is_due(&self, now: Nanos) -> bool {
        self.ends <= now || self.controller.is_urgent(&self.trips, now)
    }

    /// Ends its turn, in which its root has come to `count`.
    fn turn(&mut self, count: RootCount, other_is_held_back: bool, now: Nanos) -> Decision {
        // A turn that is late does not bring the next one near.
        self.ends = now + TURN;
        let before = self.counted.replace(count).unwrap_or(count);
        let decision = self.controller.turn(&Turn {
            now,
            arrived: arrived(&before, &count),
            sent: sent(&before, &count),
            // A limit that drops binds, also where nothing waits.
            backlog: count.backlog + dropped(&before, &count),
            trips: &self.trips,
            segments: std::mem::take(&mut self.segments),
            lost: std::mem::take(&mut self.lost),
            other_is_held_back,
        });
        self.trips.clear();
        decision
    }

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
