//! The routes of one family, by prefix, and the number that each prefix has for them.
//!
//! The kernel takes the longest prefix, and of several routes for it the one with the smallest
//! metric. Whatever would need more than that has the number [`Number::ASK`]: routes for a TOS,
//! several with the same metric, several next hops, all that does not lead to one gateway.
//!
//! *Hosts on a link* have a number each, as if there were a route for each of them: those that are
//! known neighbours, and whose longest route leads to the link. For all others there the kernel is
//! asked, which finds out where they are. The attributes of all of them are their route's.
//!
//! *Local addresses* are prefixes for which the kernel is asked. It looks into the table `local`
//! first. So a local *prefix*, other than those that no router forwards, could hide longer ones;
//! while there is one, the table says that it [may be used](Table::is_plain) for nothing.

use crate::hops::Hops;
use crate::image::{Family, Source};
use crate::number::Number;
use crate::route::{Attributes, Route, Target, address_of, bits_of};
use narrows_image::Prefix;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// An address of one family.
pub(crate) trait Address: Copy + Ord {
    const FAMILY: Family;

    /// That with these bits, from the highest of 128 on.
    fn of(bits: u128) -> Self;

    /// Its bits, from the highest of 128 on.
    fn bits(self) -> u128;
}

impl Address for u32 {
    const FAMILY: Family = Family::V4;

    fn of(bits: u128) -> Self {
        (bits >> 96) as u32
    }

    fn bits(self) -> u128 {
        u128::from(self) << 96
    }
}

impl Address for u128 {
    const FAMILY: Family = Family::V6;

    fn of(bits: u128) -> Self {
        bits
    }

    fn bits(self) -> u128 {
        self
    }
}

/// A route as the table holds it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Held {
    metric: u32,
    tos: u8,
    target: HeldTarget,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HeldTarget {
    /// What has this number.
    Hop(Number),
    /// Known hosts on the link of a device, with these attributes; all others have this number.
    OnLink(u32, Attributes, Number),
    Ask,
}

/// Most prefixes have one route, which is not worth an allocation.
#[derive(Default)]
enum Routes {
    #[default]
    None,
    One(Held),
    Several(Box<[Held]>),
}

#[derive(Default)]
struct Entry {
    routes: Routes,
    /// The number of the host with this address, if it is one on a link.
    host: Option<Number>,
    /// The routes of the table `local`.
    local: u16,
    /// Whether it is not known which routes there are.
    is_unclear: bool,
}

/// All routes of a family.
pub(crate) struct Table<A> {
    entries: BTreeMap<(A, u8), Entry>,
    /// How many prefixes there are of each length.
    lengths: [u32; 129],
    /// The neighbours, and by which devices.
    hosts: BTreeSet<(A, u32)>,
    /// The prefixes whose number changed.
    changed: Vec<Prefix>,
    /// How many prefixes are unclear, and how many prefixes are local.
    unclear: usize,
    local_prefixes: usize,
}

impl<A: Address> Default for Table<A> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            lengths: [0; 129],
            hosts: BTreeSet::new(),
            changed: Vec::new(),
            unclear: 0,
            local_prefixes: 0,
        }
    }
}

impl Routes {
    fn all(&self) -> &[Held] {
        match self {
            Self::None => &[],
            Self::One(held) => std::slice::from_ref(held),
            Self::Several(all) => all,
        }
    }

    fn push(&mut self, held: Held) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(held),
            Self::One(first) => Self::Several(Box::new([first, held])),
            Self::Several(all) => Self::Several(all.into_iter().chain([held]).collect()),
        }
    }

    /// Removes those that are `gone`.
    fn remove(&mut self, gone: impl Fn(&Held) -> bool) -> Vec<Held> {
        let (gone, kept): (Vec<Held>, Vec<Held>) = self.all().iter().partition(|held| gone(held));
        *self = match kept[..] {
            [] => Self::None,
            [held] => Self::One(held),
            _ => Self::Several(kept.into()),
        };
        gone
    }

    /// The one that the kernel takes for all packets, if that is clear.
    fn best(&self) -> Option<HeldTarget> {
        let all = self.all();
        let best = all.iter().min_by_key(|held| held.metric)?;
        let alike = all.iter().filter(|held| held.metric == best.metric).count();
        let is_clear = alike == 1 && all.iter().all(|held| held.tos == 0);
        Some(if is_clear { best.target } else { HeldTarget::Ask })
    }
}

impl Entry {
    fn is_empty(&self) -> bool {
        self.routes.all().is_empty() && self.host.is_none() && self.local == 0 && !self.is_unclear
    }

    /// The target of its routes, if it has any.
    fn target(&self) -> Option<HeldTarget> {
        if self.local > 0 || self.is_unclear {
            return Some(HeldTarget::Ask);
        }
        self.routes.best()
    }

    fn number(&self) -> Number {
        match self.target() {
            Some(HeldTarget::Hop(number)) => number,
            Some(HeldTarget::Ask) => Number::ASK,
            Some(HeldTarget::OnLink(_, _, number)) => self.host.unwrap_or(number),
            None => self.host.unwrap_or(Number::ASK),
        }
    }
}

impl<A: Address> Table<A> {
    /// Adds `route` to a table that takes the [place](Self::replace) of another one: nothing looks
    /// at what changes.
    pub(crate) fn list(&mut self, route: &Route, hops: &mut Hops) {
        let hold = |target| hops.hold(target, A::FAMILY, route.attributes());
        let held = (!route.is_local).then(|| held(route, hold));
        let entry = self.entry(route.prefix);
        match held {
            None => {
                let is_first = entry.local == 0;
                entry.local = entry.local.saturating_add(1);
                if is_first && hides_others(route.prefix, A::FAMILY) {
                    self.local_prefixes += 1;
                }
            }
            // It may be listed twice.
            Some(held) if entry.routes.all().contains(&held) => held.release(hops),
            Some(held) => entry.routes.push(held),
        }
    }

    /// Adds `route`, in the place of those of its metric and TOS if `replace`.
    pub(crate) fn add(&mut self, route: &Route, replace: bool, hops: &mut Hops) {
        self.change(route.prefix, hops, |table, hops| {
            let entry = table.entry(route.prefix);
            if route.is_local {
                entry.local =
                    if replace { entry.local.max(1) } else { entry.local.saturating_add(1) };
                return;
            }
            let held = held(route, |target| hops.hold(target, A::FAMILY, route.attributes()));
            let alike = |other: &Held| (other.metric, other.tos) == (held.metric, held.tos);
            let before: Vec<Held> = match replace {
                true => entry.routes.remove(alike),
                // A listing may have had it.
                false => entry.routes.remove(|other| *other == held),
            };
            // Of several the kernel replaces one, or all.
            let becomes_unclear = before.len() > 1 && replace;
            entry.routes.push(held);
            table.set_unclear(route.prefix, becomes_unclear);
            before.into_iter().for_each(|held| held.release(hops));
        });
    }

    /// Removes `route`.
    pub(crate) fn remove(&mut self, route: &Route, hops: &mut Hops) {
        self.change(route.prefix, hops, |table, hops| {
            let entry = table.entry(route.prefix);
            if route.is_local {
                entry.local = entry.local.saturating_sub(1);
                return;
            }
            let number = |target| hops.number_of(target, A::FAMILY, route.attributes());
            let removed = held(route, number);
            let gone = match entry.routes.all().iter().position(|held| *held == removed) {
                // One of several alike.
                Some(at) => {
                    let mut all = entry.routes.remove(|_| true);
                    let gone = all.remove(at);
                    all.into_iter().for_each(|held| entry.routes.push(held));
                    vec![gone]
                }
                None => {
                    // One of its next hops, or it is not the one that is known here.
                    let alike =
                        |held: &Held| (held.metric, held.tos) == (removed.metric, removed.tos);
                    let is_unclear = entry.routes.all().iter().any(alike);
                    table.set_unclear(route.prefix, is_unclear);
                    Vec::new()
                }
            };
            gone.into_iter().for_each(|held| held.release(hops));
        });
    }

    /// Follows that the host `address` on the link of `ifindex` is a known neighbour, or not.
    pub(crate) fn set_host(
        &mut self,
        ifindex: u32,
        address: IpAddr,
        is_known: bool,
        hops: &mut Hops,
    ) {
        let host = A::of(bits_of(address));
        let is_new = match is_known {
            true => self.hosts.insert((host, ifindex)),
            false => self.hosts.remove(&(host, ifindex)),
        };
        if is_new {
            self.follow_host(host, hops);
        }
    }

    /// The prefixes whose number changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<Prefix> {
        std::mem::take(&mut self.changed)
    }

    /// The number of the default route.
    pub(crate) fn default_route(&self) -> Number {
        self.entries.get(&(A::of(0), 0)).map_or(Number::ASK, Entry::number)
    }

    /// How many prefixes there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether a listing would make something clearer.
    pub(crate) fn is_unclear(&self) -> bool {
        self.unclear > 0
    }

    /// Whether the longest prefix is what the kernel takes.
    pub(crate) fn is_plain(&self) -> bool {
        self.local_prefixes == 0
    }

    /// Takes the place of `before`, whose hosts stay.
    pub(crate) fn replace(&mut self, mut before: Self, hops: &mut Hops) {
        self.hosts = std::mem::take(&mut before.hosts);
        before.release(hops);
        self.follow_hosts(Prefix::ALL, hops);
        self.changed.clear();
    }

    /// Refers to no next hop any more.
    pub(crate) fn release(self, hops: &mut Hops) {
        for entry in self.entries.into_values() {
            entry.routes.all().iter().for_each(|held| held.release(hops));
            entry.host.into_iter().for_each(|number| hops.release(number));
        }
    }

    /// Makes a change at `prefix`, and follows what comes of it.
    fn change(&mut self, prefix: Prefix, hops: &mut Hops, make: impl FnOnce(&mut Self, &mut Hops)) {
        let key = (A::of(prefix.bits), prefix.len);
        let state = |table: &Self| table.entries.get(&key).map(|it| (it.number(), it.target()));
        let before = state(self);
        let was_local = self.entries.get(&key).is_some_and(|entry| entry.local > 0);
        make(self, hops);
        let is_local = self.entries.get(&key).is_some_and(|entry| entry.local > 0);
        if is_local != was_local && hides_others(prefix, A::FAMILY) {
            self.local_prefixes =
                self.local_prefixes.saturating_add_signed(if is_local { 1 } else { -1 });
        }
        self.drop_empty(prefix);
        let after = state(self);
        if before.map(|(number, _)| number) != after.map(|(number, _)| number) {
            self.changed.push(prefix);
        }
        if before != after {
            self.follow_hosts(prefix, hops);
        }
    }

    /// The entry of `prefix`, which may be new.
    fn entry(&mut self, prefix: Prefix) -> &mut Entry {
        let lengths = &mut self.lengths;
        self.entries.entry((A::of(prefix.bits), prefix.len)).or_insert_with(|| {
            lengths[usize::from(prefix.len)] += 1;
            Entry::default()
        })
    }

    fn drop_empty(&mut self, prefix: Prefix) {
        let key = (A::of(prefix.bits), prefix.len);
        if self.entries.get(&key).is_some_and(Entry::is_empty) {
            self.entries.remove(&key);
            self.lengths[usize::from(prefix.len)] -= 1;
        }
    }

    fn set_unclear(&mut self, prefix: Prefix, is_unclear: bool) {
        let entry = self.entry(prefix);
        if is_unclear && !entry.is_unclear {
            entry.is_unclear = true;
            self.unclear += 1;
        }
    }

    /// Follows a change of what covers the hosts within `prefix`.
    fn follow_hosts(&mut self, prefix: Prefix, hops: &mut Hops) {
        let first = A::of(prefix.bits);
        let within = self.hosts.range((first, 0)..=(A::of(prefix.last()), u32::MAX));
        let mut within: Vec<A> = within.map(|(host, _)| *host).collect();
        within.dedup();
        within.into_iter().for_each(|host| self.follow_host(host, hops));
    }

    /// Gives `host` a number if its longest route leads to the link where it is known.
    fn follow_host(&mut self, host: A, hops: &mut Hops) {
        let prefix = Prefix { bits: host.bits(), len: A::FAMILY.bits() };
        let link = match self.covering(prefix).and_then(|(_, entry)| entry.target()) {
            Some(HeldTarget::OnLink(ifindex, attributes, _))
                if self.hosts.contains(&(host, ifindex)) =>
            {
                Some((ifindex, attributes))
            }
            _ => None,
        };
        let gateway = address_of(A::FAMILY, prefix.bits);
        let number = link.and_then(|(ifindex, attributes)| {
            let target = Target::Gateway { ifindex, gateway, mtu: 0 };
            hops.hold(target, A::FAMILY, attributes)
        });
        let is_there = self.entries.contains_key(&(host, prefix.len));
        if number.is_none() && !is_there {
            return;
        }
        let entry = self.entry(prefix);
        let before = is_there.then(|| entry.number());
        let had = std::mem::replace(&mut entry.host, number);
        let after = (!entry.is_empty()).then(|| entry.number());
        had.into_iter().for_each(|number| hops.release(number));
        self.drop_empty(prefix);
        if before != after {
            self.changed.push(prefix);
        }
    }

    /// The longest prefix with routes that covers all of `place`, and is no longer.
    fn covering(&self, place: Prefix) -> Option<(Prefix, &Entry)> {
        let lengths = (0..=place.len).rev().filter(|len| self.lengths[usize::from(*len)] > 0);
        lengths.map(|len| Prefix::new(place.bits, len)).find_map(|prefix| {
            let entry = self.entries.get(&(A::of(prefix.bits), prefix.len))?;
            entry.target().map(|_| (prefix, entry))
        })
    }
}

impl<A: Address> Source for Table<A> {
    fn prefixes(&self) -> usize {
        self.len()
    }

    fn number_of(&self, place: Prefix) -> Number {
        let lengths = (1..=place.len).rev().filter(|len| self.lengths[usize::from(*len)] > 0);
        let number = lengths.map(|len| Prefix::new(place.bits, len)).find_map(|prefix| {
            self.entries.get(&(A::of(prefix.bits), prefix.len)).map(Entry::number)
        });
        number.unwrap_or(Number::DEFAULT)
    }

    fn within(&self, place: Prefix) -> impl Iterator<Item = (Prefix, Number)> {
        let within =
            self.entries.range((A::of(place.bits), place.len + 1)..=(A::of(place.last()), u8::MAX));
        within.map(|((address, len), entry)| {
            (Prefix { bits: address.bits(), len: *len }, entry.number())
        })
    }
}

impl Held {
    fn release(&self, hops: &mut Hops) {
        if let HeldTarget::Hop(number) | HeldTarget::OnLink(.., number) = self.target {
            hops.release(number);
        }
    }
}

/// `route` as a table holds it; `number` gives its next hop's.
fn held(route: &Route, number: impl FnOnce(Target) -> Option<Number>) -> Held {
    let known = number(route.target);
    let target = match route.target {
        Target::OnLink { ifindex } => {
            HeldTarget::OnLink(ifindex, route.attributes(), known.unwrap_or(Number::ASK))
        }
        _ => known.map_or(HeldTarget::Ask, HeldTarget::Hop),
    };
    Held { metric: route.metric, tos: route.tos, target }
}

/// Whether a local prefix could hide longer ones that packets are routed by: not if it is one
/// address, nor if no router forwards to it, as to loopback and multicast.
fn hides_others(prefix: Prefix, family: Family) -> bool {
    let first = (prefix.bits >> 120) as u8;
    let is_martian = match family {
        Family::V4 => prefix.len >= 8 && (first == 0 || first == 127 || first >= 224),
        Family::V6 => prefix.len >= 8 && (first == 0xff || first == 0xfe),
    };
    prefix.len < family.bits() && !is_martian
}
