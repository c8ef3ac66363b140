//! The limits that a fleet of boxes shares: what an agent orders takes the path of any change of
//! the policy, and the agent is told what has changed.
//!
//! *Idea.* The instance has two policies: the operator's, and the one that is enforced, with the
//! rates in force where limits are shared. An order, and what runs out by itself, changes the
//! second one. A cursor is the time of a change, so an agent that asks with the last one gets what
//! has changed since, also from another process after an upgrade.
//!
//! *Principles.* An order is in force on all workers when it is answered; if the plane refuses it,
//! nothing has changed and the answer says so. What runs out by itself is tried again.

use super::{Instance, planning};
use crate::clock;
use crate::error::InstanceError;
use crate::plane::{InheritedPlane, Plane};
use crate::upgrade::state::LineState;
use narrows_forwarding::PortId;
use narrows_packet::Backlog;
use narrows_policy::{
    FleetLimit, FleetName, FleetPlace, Handle, Kind, NodeStats, Policy, PortPolicy,
};
use narrows_shares::{Held, Shares, SharesState};
use narrows_snapshot::{FleetFacts, FleetOrder, FleetStanding, SharedLimit};
use narrows_units::{Nanos, Rate};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;

/// How many shared limits are in a snapshot without trees.
pub(super) const STANDING_MAX: usize = 1_000;
/// How many names that are gone are remembered.
const GONE_MAX: usize = 1 << 16;

/// All shared limits of an instance.
#[derive(Default)]
pub(super) struct Fleet {
    shares: Shares,
    limits: BTreeMap<FleetName, Known>,
    /// The ports whose shared limits are all classes of the tree at the root.
    of_roots: BTreeSet<String>,
    /// The names by when they last changed.
    changed: BTreeMap<u64, BTreeSet<FleetName>>,
    /// Names that are gone, and when they went.
    gone: VecDeque<(u64, FleetName)>,
    /// The time of the last change.
    cursor: u64,
    /// Names whose parts have changed and are not enforced yet.
    unenforced: BTreeSet<FleetName>,
}

/// What is known of a shared limit.
struct Known {
    port: String,
    limit: FleetLimit,
    counted: Counted,
    /// When it last changed.
    changed: u64,
}

/// What passed a shared limit, waits there, and was dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counted {
    sent_bytes: u64,
    backlog_bytes: u64,
    dropped_packets: u64,
    /// The flows that take turns there, if all qdiscs there can tell.
    flows: Option<u32>,
}

impl Counted {
    /// Of a place that nothing has used.
    const NOTHING: Self =
        Self { sent_bytes: 0, backlog_bytes: 0, dropped_packets: 0, flows: Some(0) };

    /// Adds what a class below it counts.
    fn add(&mut self, sent_bytes: u64, backlog: Backlog, drops: u64, flows: Option<u32>) {
        self.sent_bytes += sent_bytes;
        self.backlog_bytes += backlog.bytes.0;
        self.dropped_packets += drops;
        self.flows = self.flows.zip(flows).map(|(sum, flows)| sum.saturating_add(flows));
    }
}

impl Fleet {
    /// The rate in force.
    pub(super) fn in_force(&self, name: &FleetName, limit: &FleetLimit) -> Rate {
        self.shares.in_force(name, limit)
    }

    pub(super) fn shares(&self) -> &Shares {
        &self.shares
    }

    /// The parts for another process.
    pub(super) fn state(&self) -> SharesState {
        self.shares.state()
    }

    /// Follows the policy, which was `before` and is `policy` from `now` on.
    pub(super) fn follow(&mut self, before: &Policy, policy: &Policy, now: u64) {
        if before.shared_limits().next().is_none() && policy.shared_limits().next().is_none() {
            return;
        }
        let at = self.next_change(now);
        for (name, is_here) in policy.shared_limits_since(before) {
            if is_here {
                self.shares.add(name, now);
            } else if policy.shared_limit(name.as_str()).is_none() {
                self.shares.remove(name);
                self.unenforced.remove(name);
                if let Some(known) = self.limits.remove(name) {
                    leave(&mut self.changed, known.changed, name);
                }
                if self.gone.len() == GONE_MAX {
                    self.gone.pop_front();
                }
                self.gone.push_back((at, name.clone()));
            }
        }
        for (port, name, limit) in policy.changed_shared_limits(before) {
            let (counted, limit_rejoins) = (Counted::NOTHING, limit.rejoins);
            let known = self.limits.entry(name.clone());
            let known = known.or_insert_with(|| Known {
                port: port.to_owned(),
                limit: limit.clone(),
                counted,
                changed: 0,
            });
            (known.port, known.limit) = (port.to_owned(), limit);
            self.shares.set_rejoins(&name, limit_rejoins);
            self.change(&name, at);
        }
        let ports = policy.ports().filter(|(_, port)| shares_only_classes_of_root(port));
        self.of_roots = ports.map(|(dev, _)| dev.to_owned()).collect();
    }

    /// The time of a change that is made `now`: each has another one.
    fn next_change(&self, now: u64) -> u64 {
        now.max(self.cursor + 1)
    }

    /// Records that `name` changes at the time `at`.
    fn change(&mut self, name: &FleetName, at: u64) {
        let Some(known) = self.limits.get_mut(name) else { return };
        leave(&mut self.changed, known.changed, name);
        known.changed = at;
        self.changed.entry(at).or_default().insert(name.clone());
        self.cursor = at;
    }

    /// Takes what was counted, `now`.
    fn count(&mut self, counted: impl Iterator<Item = (FleetName, Counted)>, now: u64) {
        let at = self.next_change(now);
        for (name, counted) in counted {
            let Some(known) = self.limits.get_mut(&name) else { continue };
            if known.counted != counted {
                known.counted = counted;
                self.change(&name, at);
            }
        }
    }

    /// What the agent is told that asked for what `order` says, `now`.
    fn facts(&self, order: &FleetOrder, now: u64) -> FleetFacts {
        // A cursor of another life of this box says nothing.
        let since = if order.since > self.cursor { 0 } else { order.since };
        let later = (Bound::Excluded(since), Bound::Unbounded);
        let names = self.changed.range(later).flat_map(|(_, names)| names);
        let gone = self.gone.iter().filter(|(at, _)| *at > since).map(|(_, name)| name.as_str());
        let asked = order.shares.iter().map(|share| share.name.as_str());
        let gone = gone.chain(asked).filter(|name| !self.limits.contains_key(*name));
        let gone: BTreeSet<&str> = gone.collect();
        FleetFacts {
            now_ns: now,
            deadline_ns: self.shares.deadline(),
            cursor: self.cursor,
            limits: names.filter_map(|name| self.shared_limit(name)).collect(),
            gone: gone.into_iter().map(Into::into).collect(),
        }
    }

    /// The limit `name`, as an agent is told.
    fn shared_limit(&self, name: &FleetName) -> Option<SharedLimit> {
        let Known { port, limit, counted, .. } = self.limits.get(name)?;
        let part = self.shares.part(name.as_str())?;
        Some(SharedLimit {
            name: name.as_str().into(),
            port: port.as_str().into(),
            at: limit.place.to_string().into(),
            within: limit.within.as_ref().map(|name| name.as_str().into()),
            limit_bps: limit.limit.bits_per_sec(),
            safe_bps: limit.safe.bits_per_sec(),
            lent_bps: part.lent(limit.safe),
            borrowed_bps: part.borrowed(),
            in_force_bps: self.shares.in_force(name, limit).bits_per_sec(),
            unset_since_ns: part.unset_since(),
            assured_bps: limit.assured.bits_per_sec(),
            prio: limit.prio,
            rejoins: limit.rejoins,
            sent_bytes: counted.sent_bytes,
            backlog_bytes: counted.backlog_bytes,
            dropped_packets: counted.dropped_packets,
            flows: counted.flows.filter(|_| !limit.by_box),
        })
    }

    /// As many as `most`, for people.
    pub(super) fn standing(&self, most: usize) -> Vec<FleetStanding> {
        let (now, held) = (clock::since_boot(), self.shares.held());
        let standing = |(name, Known { port, limit, .. }): (&FleetName, &Known)| {
            let part = self.shares.part(name.as_str())?;
            let alone = (held != Held::All).then(|| self.shares.deadline());
            let alone_since = part.unset_since().or(alone);
            Some(FleetStanding {
                name: name.as_str().into(),
                port: port.as_str().into(),
                at: limit.place.to_string().into(),
                limit_bps: limit.limit.bits_per_sec(),
                safe_bps: limit.safe.bits_per_sec(),
                in_force_bps: self.shares.in_force(name, limit).bits_per_sec(),
                because: part.because(held).name().into(),
                alone_s: alone_since.map(|since| now.saturating_sub(since) as f64 / 1e9),
            })
        };
        self.limits.iter().take(most).filter_map(standing).collect()
    }
}

/// Removes `name` from the names that changed at the time `at`.
fn leave(changed: &mut BTreeMap<u64, BTreeSet<FleetName>>, at: u64, name: &FleetName) {
    if let Some(names) = changed.get_mut(&at) {
        names.remove(name);
        if names.is_empty() {
            changed.remove(&at);
        }
    }
}

impl Instance {
    /// Begins with `policy`, whose shared limits are new here.
    pub(super) fn adopt_policy(&mut self, policy: Policy) {
        self.fleet.follow(&self.policy, &policy, clock::since_boot());
        let in_force = |name: &FleetName, limit: &FleetLimit| self.fleet.in_force(name, limit);
        self.enforced = policy.enforced(&Policy::default(), &Policy::default(), in_force);
        self.options.session.round_trips |=
            self.options.plane.has_workers() && policy.autorates().next().is_some();
        self.policy = policy;
    }

    /// Goes on with the shares of another process, before anything runs here. Returns what was to
    /// be enforced until now.
    pub(super) fn adopt_shares(&mut self, state: SharesState) -> Policy {
        let changed = self.fleet.shares.take_over(state);
        let in_force = |name: &FleetName, limit: &FleetLimit| self.fleet.in_force(name, limit);
        let names = changed.iter().map(FleetName::as_str);
        let enforced = self.policy.enforced_with(&self.enforced, names, in_force);
        std::mem::replace(&mut self.enforced, enforced)
    }

    /// Has a plane that this process is about to take over run with the shares of the other one,
    /// and with the rates that it found for `lines`.
    ///
    /// # Errors
    /// If the policy does not fit it.
    pub(super) fn retune(
        &mut self,
        inherited: &mut dyn InheritedPlane,
        state: SharesState,
        lines: BTreeMap<String, LineState>,
    ) -> Result<(), InstanceError> {
        let before = self.adopt_shares(state);
        self.lines.inherit(lines);
        self.enforced = self.enforced.clone().following(|dev| self.lines.rate(dev));
        let forwarding = &self.options.forwarding;
        for id in forwarding.ids() {
            let was = planning::in_force(&before, forwarding, id)?;
            let port = planning::in_force(&self.enforced, forwarding, id)?;
            if was != port {
                let plan = inherited.plan(id).next(&was, &port);
                inherited.retune(id, self.fitted(id, &port, plan)?);
            }
        }
        Ok(())
    }

    /// Puts `order` in force, and says what has changed since the agent last asked.
    ///
    /// # Errors
    /// If the plane refuses the new rates: then the order has changed nothing.
    pub(crate) fn share(&mut self, order: &FleetOrder) -> Result<FleetFacts, InstanceError> {
        self.expire_shares();
        let now = clock::since_boot();
        let before = self.fleet.shares.clone();
        let changed = self.fleet.shares.order(order, now);
        if !changed.is_empty() {
            if let Err(error) = self.enforce_shares(&changed) {
                self.fleet.shares = before;
                return Err(error);
            }
            let at = self.fleet.next_change(now);
            changed.iter().for_each(|name| self.fleet.change(name, at));
        }
        let counted = self.counted();
        self.fleet.count(counted.into_iter(), now);
        Ok(self.fleet.facts(order, now))
    }

    /// Lets shares fall back that have run out.
    pub(crate) fn expire_shares(&mut self) {
        let now = clock::since_boot();
        let changed = self.fleet.shares.advance(now);
        if !changed.is_empty() {
            let at = self.fleet.next_change(now);
            changed.iter().for_each(|name| self.fleet.change(name, at));
            self.fleet.unenforced.extend(changed);
        }
        if self.fleet.unenforced.is_empty() {
            return;
        }
        let names: Vec<FleetName> = self.fleet.unenforced.iter().cloned().collect();
        match self.enforce_shares(&names) {
            Ok(()) => self.fleet.unenforced.clear(),
            Err(error) => self.events.warn(format!("shared limits: {error}; it is tried again")),
        }
    }

    /// When shares run out next, by the clock of the workers.
    pub(crate) fn next_share_end(&self) -> Option<Nanos> {
        let end = self.fleet.shares.next_end()?;
        let left = end.saturating_sub(clock::since_boot());
        Some(Nanos(clock::now().0.saturating_add(left)))
    }

    /// Enforces the present parts of `names`.
    fn enforce_shares(&mut self, names: &[FleetName]) -> Result<(), InstanceError> {
        let in_force = |name: &FleetName, limit: &FleetLimit| self.fleet.in_force(name, limit);
        let names = names.iter().map(FleetName::as_str);
        let enforced = self.policy.enforced_with(&self.enforced, names, in_force);
        let none = self.options.forwarding.ids().map(|_| None).collect();
        let planned = self.enforced.clone();
        self.enforce(enforced, &planned, none).map(drop)
    }

    /// What passed each shared limit.
    fn counted(&self) -> Vec<(FleetName, Counted)> {
        let Some(plane) = &self.plane else { return Vec::new() };
        let mut counted = Vec::new();
        for id in self.options.forwarding.ids() {
            let Ok(port) = planning::in_force(&self.policy, &self.options.forwarding, id) else {
                continue;
            };
            if !port.shares_limits() {
                continue;
            }
            let dev = self.options.forwarding.across(id).map_or_else(
                || self.options.forwarding.name(id).to_owned(),
                |across| {
                    let names = [id, across].map(|id| self.options.forwarding.name(id));
                    self.policy.shaping(names[0], names[1])
                },
            );
            let of_root = self.fleet.of_roots.contains(&dev);
            match of_root.then(|| counted_classes(&**plane, id, &port)).flatten() {
                Some(of_classes) => counted.extend(of_classes),
                None => counted_anywhere(&port, &plane.stats(id), &mut counted),
            }
        }
        counted
    }
}

/// Whether all shared limits of `port` are classes of the tree at its root.
fn shares_only_classes_of_root(port: &PortPolicy) -> bool {
    let Some(root) = port.root().filter(|root| root.stab.is_none()) else { return false };
    let is_of_root = |place| match place {
        FleetPlace::Class(class) => class.major == root.handle.major(),
        FleetPlace::Qdisc(_) => false,
    };
    matches!(root.kind, Kind::Htb(_)) && port.shared_limits().all(|(_, place)| is_of_root(place))
}

/// What passed each shared limit of `port` that has been used, where all are classes of the tree at
/// its root: with many classes, these few words of each are all that is read.
fn counted_classes(
    plane: &dyn Plane,
    id: PortId,
    port: &PortPolicy,
) -> Option<Vec<(FleetName, Counted)>> {
    let Kind::Htb(htb) = &port.root()?.kind else { return None };
    let mut sums: HashMap<u32, Counted> = HashMap::new();
    for count in plane.class_counts(id)?.into_iter().flatten() {
        let above = std::iter::successors(Some(count.class), |at| htb.classes.parent(*at));
        for minor in above {
            let Some(class) = htb.classes.get(minor) else { break };
            if class.params.fleet.is_some() {
                let sum = sums.entry(minor).or_insert(Counted::NOTHING);
                sum.add(count.sent_bytes, count.backlog, count.drops, count.flows);
            }
        }
    }
    let named = |(minor, counted): (u32, Counted)| {
        let fleet = htb.classes.get(minor)?.params.fleet.as_deref()?;
        Some((fleet.name.clone(), counted))
    };
    Some(sums.into_iter().filter_map(named).collect())
}

/// Adds what passed each shared limit of `port`, by the `stats` of its qdiscs.
fn counted_anywhere(
    port: &PortPolicy,
    stats: &[NodeStats],
    counted: &mut Vec<(FleetName, Counted)>,
) {
    let stats: HashMap<Handle, &NodeStats> =
        stats.iter().filter_map(|node| Some((node.handle?, node))).collect();
    for (name, place) in port.shared_limits() {
        let of_one = match place {
            FleetPlace::Qdisc(handle) => stats.get(&handle).map(|node| Counted {
                sent_bytes: node.stats.sent_bytes,
                backlog_bytes: node.stats.backlog.bytes.0,
                dropped_packets: node.stats.drops,
                flows: node.stats.flows,
            }),
            FleetPlace::Class(class) => Handle::new(class.major).and_then(|handle| {
                let Kind::Htb(htb) = &port.find(handle)?.kind else { return None };
                let figures = stats.get(&handle)?.stats.detail.as_ref()?.htb()?;
                let mut sum = Counted::NOTHING;
                for minor in htb.classes.below(class.minor) {
                    let Some(leaf) = figures.leaves.get(&minor) else { continue };
                    sum.add(leaf.sent_bytes, leaf.backlog, leaf.drops, leaf.flows);
                }
                Some(sum)
            }),
        };
        counted.extend(of_one.map(|of_one| (name.clone(), of_one)));
    }
}
