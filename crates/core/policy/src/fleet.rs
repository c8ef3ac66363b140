//! Limits that a fleet of boxes shares: their words, where they are, and the policy that is
//! enforced while an agent moves shares between boxes.
//!
//! *Idea.* The rate of a `tbf` or `cake`, or the ceiling of a class of an `htb`, may be that of
//! several boxes together. It has a name, which is the same on all boxes, and this box has a *safe
//! share* of it, which it may use alone. What is in force is decided at run time. So there are two
//! policies: the operator's, which commands edit and show, and the enforced one, with the rates in
//! force in place of the shared ones ([`Policy::enforced`]). The second takes the path of any
//! change of a policy.
//!
//! *Principles.* A name has one place in an instance ([`Policy::shared_limit`]); an edit that gives
//! it a second one is refused. Finding a name, and following a change of the policy, costs as much
//! as what has changed.
//!
//! *Non-goals.* How much is lent or borrowed, and until when: the instance keeps that.

use crate::{ClassId, Handle, HtbParams, Kind, Node, Parent, Policy, PolicyError, PortPolicy};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use narrows_units::Rate;
use std::fmt;
use std::sync::Arc;

/// The least rate that can be in force.
pub const FLEET_LEAST: Rate = Rate::from_bits_per_sec(8);

/// The name of a shared limit: 1 to 63 letters, digits, `-`, `_` and `.`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FleetName(Arc<str>);

impl FleetName {
    /// The most bytes.
    pub const MAX: usize = 63;

    /// `word` as a name, if it is one.
    pub fn new(word: &str) -> Option<Self> {
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let fits = (1..=Self::MAX).contains(&word.len());
        (fits && word.bytes().all(is_legal)).then(|| Self(word.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Names are found by their text.
impl std::borrow::Borrow<str> for FleetName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FleetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What makes a limit that of a fleet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fleet {
    /// Its name on all boxes.
    pub name: FleetName,
    /// What this box may use alone.
    pub safe: SafeShare,
    /// Whether this box waits for its agent's word after a start, since others may have been given
    /// its share while it was off.
    pub rejoins: bool,
    /// Whether boxes share it by their weights, however many flows each has.
    pub by_box: bool,
}

/// The part of a shared limit that a box may use alone. Those of all boxes add up to the limit at
/// most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SafeShare {
    /// That much.
    Rate(Rate),
    /// As much as each of so many boxes.
    Boxes(u32),
}

impl Fleet {
    /// The safe share of `limit`, rounded down.
    pub fn safe_share(&self, limit: Rate) -> Rate {
        match self.safe {
            SafeShare::Rate(rate) => rate,
            SafeShare::Boxes(boxes) => {
                Rate::from_bits_per_sec(limit.bits_per_sec() / u64::from(boxes.max(1)))
            }
        }
    }

    /// Refuses a safe share that is no part of `limit`, which the word `of` sets.
    pub(crate) fn check(&self, of: &str, limit: Rate) -> Result<(), PolicyError> {
        let refuse = |why: String| Err(PolicyError::Fleet(why));
        let name = &self.name;
        match self.safe {
            SafeShare::Rate(safe) if safe > limit => refuse(format!(
                "{name}: safe {safe} is above the {of} of all boxes, {limit}: give a part of it."
            )),
            SafeShare::Boxes(0) => refuse(format!(
                "{name}: boxes 0 are none: say how many share the {of}, as boxes 2."
            )),
            _ if self.safe_share(limit) < FLEET_LEAST => refuse(format!(
                "{name}: the share of this box in {limit} lets nothing pass: give at least 8bit, or \
                 fewer boxes."
            )),
            _ => Ok(()),
        }
    }
}

/// Where a shared limit is on its port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FleetPlace {
    /// The rate of this qdisc.
    Qdisc(Handle),
    /// The ceiling of this class.
    Class(ClassId),
}

/// As `tc` names it.
impl fmt::Display for FleetPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Qdisc(handle) => handle.fmt(f),
            Self::Class(class) => class.fmt(f),
        }
    }
}

/// The shared limits of a port, by name.
pub(crate) type FleetPlaces = OrdMap<FleetName, FleetPlace>;

/// A shared limit, as the policy has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FleetLimit {
    /// Where it is on its port.
    pub place: FleetPlace,
    /// The nearest one above it on its port.
    pub within: Option<FleetName>,
    /// The rate of all boxes together.
    pub limit: Rate,
    /// The part that this box may use alone.
    pub safe: Rate,
    /// What a class is assured in all boxes together; zero for a qdisc.
    pub assured: Rate,
    /// A class's priority.
    pub prio: u8,
    /// Whether this box waits for its agent's word after a start.
    pub rejoins: bool,
    /// Whether boxes share it by their weights, however many flows each has.
    pub by_box: bool,
}

impl Node {
    /// What makes the rate of this qdisc that of a fleet, with that rate.
    pub(crate) fn fleet(&self) -> Option<(&Fleet, Rate)> {
        match &self.kind {
            Kind::Tbf(tbf) => Some((tbf.fleet.as_deref()?, tbf.rate)),
            Kind::Cake(cake) => {
                let rate = cake.params.config.rate.unwrap_or_default();
                Some((cake.params.fleet.as_deref()?, rate))
            }
            _ => None,
        }
    }

    /// This qdisc with `rate` in place of the shared one.
    pub(crate) fn with_rate(&mut self, rate: Rate) {
        match &mut self.kind {
            Kind::Tbf(tbf) => tbf.rate = rate,
            Kind::Cake(cake) => cake.params.config.rate = Some(rate),
            _ => {}
        }
    }

    /// The name of the shared limit of the class `minor`.
    pub(crate) fn class_fleet(&self, minor: u32) -> Option<&Fleet> {
        match &self.kind {
            Kind::Htb(htb) => htb.classes.get(minor)?.params.fleet.as_deref(),
            _ => None,
        }
    }
}

impl HtbParams {
    /// These parameters with the ceiling `ceil` in force. The assured rate is scaled as the ceiling
    /// is; `quantum`, the weight, stays.
    fn with_ceil(&self, ceil: Rate, quantum: u32) -> Self {
        let [assured, whole, part] =
            [self.assured(), self.ceil, ceil].map(|rate| u128::from(rate.bits_per_sec()));
        let rate = u64::try_from(assured * part / whole.max(1)).unwrap_or(u64::MAX);
        let rate = Rate::from_bits_per_sec(rate).max(FLEET_LEAST).min(ceil);
        Self { rate, ceil, quantum: Some(quantum), ..self.clone() }
    }
}

impl PortPolicy {
    /// The names of shared limits, with their places.
    pub fn shared_limits(&self) -> impl Iterator<Item = (&FleetName, FleetPlace)> {
        self.fleet.iter().map(|(name, place)| (name, *place))
    }

    /// Whether any limit is shared.
    pub fn shares_limits(&self) -> bool {
        !self.fleet.is_empty()
    }

    /// The shared limit at `place`.
    fn limit_at(&self, place: FleetPlace) -> Option<FleetLimit> {
        match place {
            FleetPlace::Qdisc(handle) => {
                let node = self.find(handle)?;
                let (fleet, limit) = node.fleet()?;
                Some(FleetLimit {
                    place,
                    within: self.fleet_above(node).map(|fleet| fleet.name.clone()),
                    limit,
                    safe: fleet.safe_share(limit),
                    assured: Rate::default(),
                    prio: 0,
                    rejoins: fleet.rejoins,
                    by_box: fleet.by_box,
                })
            }
            FleetPlace::Class(class) => {
                let node = self.find(Handle::new(class.major)?)?;
                let Kind::Htb(htb) = &node.kind else { return None };
                let params = &htb.classes.get(class.minor)?.params;
                let fleet = params.fleet.as_deref()?;
                let above = class_above(node, htb.classes.parent(class.minor));
                let within = above.or_else(|| self.fleet_above(node));
                Some(FleetLimit {
                    place,
                    within: within.map(|fleet| fleet.name.clone()),
                    limit: params.ceil,
                    safe: fleet.safe_share(params.ceil),
                    assured: params.assured(),
                    prio: params.prio,
                    rejoins: fleet.rejoins,
                    by_box: fleet.by_box,
                })
            }
        }
    }

    /// The nearest shared limit above `node`.
    fn fleet_above<'a>(&'a self, node: &'a Node) -> Option<&'a Fleet> {
        let mut above = self.upwards(node).zip(self.upwards(node).skip(1));
        above.find_map(|(node, above)| {
            let class = match node.parent {
                Parent::Class(class) => class_above(above, Some(class.minor)),
                Parent::Root => None,
            };
            class.or_else(|| above.fleet().map(|(fleet, _)| fleet))
        })
    }

    /// This port with the rates that are in force, by `in_force`, where `names` are shared.
    fn enforcing<'a>(
        &mut self,
        places: impl Iterator<Item = (&'a FleetName, FleetPlace)>,
        configured: &Self,
        in_force: &impl Fn(&FleetName, &FleetLimit) -> Rate,
    ) {
        let mut classes: Vec<(ClassId, Rate)> = Vec::new();
        for (name, place) in places {
            let Some(limit) = configured.limit_at(place) else { continue };
            let rate = in_force(name, &limit);
            match place {
                FleetPlace::Qdisc(handle) => {
                    if self
                        .find(handle)
                        .is_some_and(|node| node.fleet().is_some_and(|(_, now)| now != rate))
                    {
                        self.change_node(handle, |node| node.with_rate(rate));
                    }
                }
                FleetPlace::Class(class) => classes.push((class, rate)),
            }
        }
        classes.sort_unstable_by_key(|(class, _)| (class.major, class.minor));
        for of_one in classes.chunk_by(|(one, _), (other, _)| one.major == other.major) {
            let Some(handle) = of_one.first().and_then(|(class, _)| Handle::new(class.major))
            else {
                continue;
            };
            let Some(Node { kind: Kind::Htb(configured), .. }) = configured.find(handle) else {
                continue;
            };
            self.change_node(handle, |node| {
                let Kind::Htb(htb) = &mut node.kind else { return };
                for (class, ceil) in of_one {
                    let Some(class_now) = configured.classes.get(class.minor) else { continue };
                    let mut next = class_now.clone();
                    next.params =
                        next.params.with_ceil(*ceil, configured.quantum(&class_now.params));
                    if htb.classes.get(class.minor) != Some(&next) {
                        htb.classes.insert(class.minor, next);
                    }
                }
            });
        }
    }

    /// What is enforced in place of this port, where `enforced` was in place of `before`.
    fn enforced_after(
        &self,
        before: &Self,
        enforced: &Self,
        in_force: &impl Fn(&FleetName, &FleetLimit) -> Rate,
    ) -> Self {
        let mut next = self.clone();
        if !self.shares_limits() {
            return next;
        }
        // Where nothing has changed, it is as before.
        next.take_nodes(before, self, enforced);
        let changed = self.changed_places(before);
        next.enforcing(changed.iter().map(|(name, place)| (name, *place)), self, in_force);
        next
    }

    /// The shared limits here that are new or in changed qdiscs and classes since `before`.
    fn changed_places(&self, before: &Self) -> Vec<(FleetName, FleetPlace)> {
        let mut changed = Vec::new();
        for (old, new) in before.changes(self) {
            let Some(new) = new else { continue };
            if let Some((fleet, _)) = new.fleet() {
                changed.push((fleet.name.clone(), FleetPlace::Qdisc(new.handle)));
            }
            let Kind::Htb(htb) = &new.kind else { continue };
            let old = old.and_then(|old| match &old.kind {
                Kind::Htb(htb) => Some(htb),
                _ => None,
            });
            let minors: Vec<u32> = match old {
                // The weights of all classes depend on it.
                Some(old) if old.r2q == htb.r2q => old.classes.changes(&htb.classes).collect(),
                _ => htb.classes.iter().map(|(minor, _)| minor).collect(),
            };
            changed.extend(minors.into_iter().filter_map(|minor| {
                let name = new.class_fleet(minor)?.name.clone();
                Some((name, FleetPlace::Class(new.handle.class(minor))))
            }));
        }
        changed
    }

    /// Whether a shared limit that can have others below it has come or gone since `before`.
    fn is_renamed_inside(&self, before: &Self) -> bool {
        let is_inner = |port: &Self, name: &FleetName| match port.fleet.get(name) {
            Some(FleetPlace::Qdisc(handle)) => {
                port.find(*handle).is_some_and(|node| port.children(node).next().is_some())
            }
            Some(FleetPlace::Class(class)) => {
                let node = Handle::new(class.major).and_then(|handle| port.find(handle));
                let tree = node.and_then(|node| node.kind.tree());
                tree.is_some_and(|tree| tree.is_inner(class.minor))
            }
            None => false,
        };
        self.renamed(before)
            .any(|(name, is_here)| is_inner(if is_here { self } else { before }, name))
    }

    /// The shared limits that are here and were not in `before`, and those that are gone.
    fn renamed<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (&'a FleetName, bool)> + 'a {
        before.fleet.diff(&self.fleet).filter_map(|change| match change {
            DiffItem::Add(name, _) => Some((name, true)),
            DiffItem::Remove(name, _) => Some((name, false)),
            DiffItem::Update { .. } => None,
        })
    }
}

/// The shared limit of the class `minor` of `node`, or of the nearest class above that one.
fn class_above(node: &Node, minor: Option<u32>) -> Option<&Fleet> {
    let Kind::Htb(htb) = &node.kind else { return None };
    let mut classes = std::iter::successors(minor, |minor| htb.classes.parent(*minor));
    classes.find_map(|minor| node.class_fleet(minor))
}

impl Policy {
    /// The port with the shared limit `name`, and what the policy says of it.
    pub fn shared_limit(&self, name: &str) -> Option<(&str, FleetLimit)> {
        self.ports().find_map(|(dev, port)| {
            let place = *port.fleet.get(name)?;
            Some((dev, port.limit_at(place)?))
        })
    }

    /// The names of all shared limits.
    pub fn shared_limits(&self) -> impl Iterator<Item = &FleetName> {
        self.ports().flat_map(|(_, port)| port.fleet.keys())
    }

    /// The shared limits that this policy has and `before` had not, and those that are gone.
    pub fn shared_limits_since<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (&'a FleetName, bool)> {
        let gone = before.ports().filter(|(dev, _)| !self.ports.contains_key(*dev));
        let gone = gone.flat_map(|(_, port)| port.fleet.keys()).map(|name| (name, false));
        self.ports().flat_map(|(dev, port)| port.renamed(before.port(dev))).chain(gone)
    }

    /// The shared limits that are new here or otherwise than in `before`, with their ports.
    pub fn changed_shared_limits(&self, before: &Self) -> Vec<(&str, FleetName, FleetLimit)> {
        let mut changed = Vec::new();
        for (dev, port) in self.ports() {
            let before = before.port(dev);
            let all = || port.fleet.iter().map(|(name, place)| (name.clone(), *place)).collect();
            let places: Vec<(FleetName, FleetPlace)> = match port.is_renamed_inside(before) {
                // Others may be within another one now.
                true => all(),
                false => port.changed_places(before),
            };
            changed.extend(places.into_iter().filter_map(|(name, place)| {
                let limit = port.limit_at(place)?;
                Some((dev, name, limit))
            }));
        }
        changed
    }

    /// The policy that is enforced in place of this one: with the rates that `in_force` says where
    /// limits are shared. `enforced` was in place of `before`, and is used for all that has not
    /// changed since.
    #[must_use]
    pub fn enforced(
        &self,
        before: &Self,
        enforced: &Self,
        in_force: impl Fn(&FleetName, &FleetLimit) -> Rate,
    ) -> Self {
        let mut next = self.clone();
        for (dev, port) in &mut next.ports {
            if port.shares_limits() {
                *port =
                    self.port(dev).enforced_after(before.port(dev), enforced.port(dev), &in_force);
            }
        }
        next
    }

    /// What is enforced in place of this policy, which is `enforced` now, when other rates are in
    /// force for `names`.
    #[must_use]
    pub fn enforced_with<'a>(
        &self,
        enforced: &Self,
        names: impl Iterator<Item = &'a str> + Clone,
        in_force: impl Fn(&FleetName, &FleetLimit) -> Rate,
    ) -> Self {
        let mut next = enforced.clone();
        for (dev, port) in &mut next.ports {
            let configured = self.port(dev);
            if !configured.shares_limits() {
                continue;
            }
            let there = |name: &'a str| configured.fleet.get_key_value(name);
            let places = names.clone().filter_map(there).map(|(name, place)| (name, *place));
            port.enforcing(places, configured, &in_force);
        }
        next
    }

    /// Refuses a name of a shared limit that `dev` has at `place` if another port has it, too.
    pub(crate) fn check_shared(&self, dev: &str, name: &FleetName) -> Result<(), PolicyError> {
        let other = self.ports().filter(|(port, _)| *port != dev);
        let mut other = other.filter_map(|(port, there)| Some((port, *there.fleet.get(name)?)));
        match other.next() {
            Some((port, place)) => Err(taken(name, Some(port), place)),
            None => Ok(()),
        }
    }
}

/// The refusal of a name that is at `place` already.
pub(crate) fn taken(name: &FleetName, port: Option<&str>, place: FleetPlace) -> PolicyError {
    let there = port.map(|port| format!(" of {port}")).unwrap_or_default();
    PolicyError::Fleet(format!(
        "{name} is the limit of {place}{there} already, and a name is one limit of a box: give this \
         one another name, or put both below one class."
    ))
}
