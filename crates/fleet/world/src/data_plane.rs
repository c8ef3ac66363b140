//! A data plane: what the product's [`Shares`] have in force, and a fluid for traffic.
//!
//! What is in force is the product's own code. Modelled are counters, and the cursor by which an
//! agent is told what changed.

use compact_str::CompactString;
use narrows_policy::{FleetLimit, FleetName, FleetPlace, Handle};
use narrows_shares::Shares;
use narrows_snapshot::{FleetFacts, FleetOrder, SharedLimit};
use narrows_units::Rate;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

/// The part of its time in which a flow that fills its share has something queued.
const IN_TURNS: f64 = 0.8;

/// Of more flows than this, that part takes turns at any moment.
const MANY: u32 = 1_000;

/// A shared limit at one box. Traffic is a fluid of the demanded rate.
#[derive(Clone, Debug)]
struct Local {
    name: FleetName,
    limit: FleetLimit,
    demand_bps: u64,
    /// The flows that demand it, if they are counted.
    flows: Option<u32>,
    /// What is in force and what passes, since `since_ns`.
    now: Rates,
    since_ns: u64,
    /// What passed until then, in bits × 1e9.
    sent: u128,
    /// The cursor of the last change.
    changed: u64,
}

/// What is in force of a limit at a box, what passes and what would, in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) in_force_bps: u64,
    pub(crate) passes_bps: u64,
    pub(crate) demand_bps: u64,
    /// What would pass of the safe share.
    pub(crate) divided_bps: u64,
}

/// A data plane. Times are those of its box's clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct DataPlane {
    shares: Shares,
    limits: BTreeMap<CompactString, Local>,
    /// Limits with traffic.
    active: BTreeSet<CompactString>,
    /// The last changes of limits, by cursor.
    changes: BTreeSet<(u64, CompactString)>,
    cursor: u64,
    /// Whether its box has no power: nothing passes.
    is_off: bool,
}

/// A limit whose rates changed: its name, the rates before and after.
pub(crate) type Changed = (CompactString, Rates, Rates);

impl Local {
    /// Traffic passes until now.
    fn pass(&mut self, now: u64) {
        let elapsed = u128::from(now.saturating_sub(self.since_ns));
        self.sent += u128::from(self.now.passes_bps) * elapsed;
        self.since_ns = now;
    }

    fn sent_bytes(&self) -> u64 {
        u64::try_from(self.sent / 8_000_000_000).unwrap_or(u64::MAX)
    }
}

/// How many of `flows` take turns at a moment: TCP lets a queue run empty now and then.
fn in_turns(flows: u32, random: &mut Pcg64Mcg) -> u32 {
    if flows > MANY {
        return (f64::from(flows) * IN_TURNS) as u32;
    }
    (0..flows).map(|_| u32::from(random.random_bool(IN_TURNS))).sum()
}

impl DataPlane {
    /// A limit is new at `now`. A name that no policy can have is passed over.
    pub(crate) fn add(&mut self, now: u64, place: crate::Place) -> Changed {
        let (Some(name), Some(qdisc)) = (FleetName::new(&place.name), Handle::new(1)) else {
            return (place.name, Rates::default(), Rates::default());
        };
        let limit = FleetLimit {
            place: FleetPlace::Qdisc(qdisc),
            within: None,
            limit: Rate::from_bits_per_sec(place.limit_bps),
            safe: Rate::from_bits_per_sec(place.safe_bps),
            assured: Rate::default(),
            prio: 0,
            rejoins: place.rejoins,
            by_box: false,
        };
        self.shares.add(&name, now);
        self.shares.set_rejoins(&name, place.rejoins);
        let local = Local {
            name,
            limit,
            demand_bps: 0,
            flows: None,
            now: Rates::default(),
            since_ns: now,
            sent: 0,
            changed: 0,
        };
        self.limits.insert(place.name.clone(), local);
        self.refresh(now, &place.name)
    }

    /// It starts again, with the same policy and the same traffic: what was ordered is forgotten.
    pub(crate) fn restart(&mut self, now: u64) -> Vec<Changed> {
        let before = std::mem::take(self);
        let mut changed = Vec::new();
        for (name, old) in before.limits {
            let place = crate::Place {
                name: name.clone(),
                limit_bps: old.limit.limit.bits_per_sec(),
                safe_bps: old.limit.safe.bits_per_sec(),
                rejoins: old.limit.rejoins,
            };
            let (_, _, _) = self.add(now, place);
            self.set_flows(&name, old.flows);
            let (_, _, after) = self.demand(now, &name, old.demand_bps);
            changed.push((name, old.now, after));
        }
        changed
    }

    /// Its box loses power: nothing passes until it [starts again](DataPlane::restart).
    pub(crate) fn power_off(&mut self, now: u64) -> Vec<Changed> {
        self.is_off = true;
        self.refresh_all(now)
    }

    /// What is in force and passes, as of the last change.
    pub(crate) fn rates(&self, name: &str) -> Rates {
        self.limits.get(name).map_or_else(Rates::default, |limit| limit.now)
    }

    /// When what is in force next changes by itself.
    pub(crate) fn next_change(&self) -> Option<u64> {
        self.shares.next_end().filter(|_| !self.is_off)
    }

    /// The rates of a limit are those of now.
    fn refresh(&mut self, now: u64, name: &CompactString) -> Changed {
        let Some(limit) = self.limits.get_mut(name) else {
            return (name.clone(), Rates::default(), Rates::default());
        };
        limit.pass(now);
        let before = limit.now;
        limit.now = if self.is_off {
            Rates::default()
        } else {
            let in_force_bps = self.shares.in_force(&limit.name, &limit.limit).bits_per_sec();
            Rates {
                in_force_bps,
                passes_bps: limit.demand_bps.min(in_force_bps),
                demand_bps: limit.demand_bps,
                divided_bps: limit.demand_bps.min(limit.limit.safe.bits_per_sec()),
            }
        };
        if limit.now.passes_bps > 0 {
            self.active.insert(name.clone());
        } else if self.active.remove(name) {
            // What was sent until now is a change.
            let at = self.cursor + 1;
            self.change(name, at);
        }
        let after = self.rates(name);
        (name.clone(), before, after)
    }

    /// Records that a limit changes at this cursor.
    fn change(&mut self, name: &CompactString, at: u64) {
        let Some(limit) = self.limits.get_mut(name) else { return };
        self.changes.remove(&(limit.changed, name.clone()));
        limit.changed = at;
        self.changes.insert((at, name.clone()));
    }

    /// What has run out falls back, and all rates are those of now.
    pub(crate) fn refresh_all(&mut self, now: u64) -> Vec<Changed> {
        for name in self.shares.advance(now) {
            self.change(&name.as_str().into(), self.cursor + 1);
        }
        let names: Vec<CompactString> = self.limits.keys().cloned().collect();
        names.iter().map(|name| self.refresh(now, name)).collect()
    }

    /// A demand changes.
    pub(crate) fn demand(&mut self, now: u64, name: &CompactString, bps: u64) -> Changed {
        if let Some(limit) = self.limits.get_mut(name) {
            limit.demand_bps = bps;
        }
        self.refresh(now, name)
    }

    /// The flows of a demand change. None means that they are not counted.
    pub(crate) fn set_flows(&mut self, name: &CompactString, flows: Option<u32>) {
        if let Some(limit) = self.limits.get_mut(name) {
            limit.flows = flows;
        }
    }

    /// What passed a limit until `now`.
    pub(crate) fn sent_bytes(&mut self, now: u64, name: &str) -> u64 {
        let Some(limit) = self.limits.get_mut(name) else { return 0 };
        limit.pass(now);
        limit.sent_bytes()
    }

    /// An order arrives.
    pub(crate) fn order(
        &mut self,
        now: u64,
        order: &FleetOrder,
        random: &mut Pcg64Mcg,
    ) -> (FleetFacts, Vec<Changed>) {
        let over = self.shares.advance(now);
        self.cursor += 1;
        let ordered = self.shares.order(order, now);
        let names: BTreeSet<CompactString> =
            over.iter().chain(&ordered).map(|name| name.as_str().into()).collect();
        for name in &names {
            self.change(name, self.cursor);
        }
        let changed = names.iter().map(|name| self.refresh(now, name)).collect();
        let facts = self.facts(now, order.since, random);
        (facts, changed)
    }

    fn facts(&mut self, now: u64, since: u64, random: &mut Pcg64Mcg) -> FleetFacts {
        let names: BTreeSet<CompactString> = if since == 0 || since >= self.cursor {
            self.limits.keys().cloned().collect()
        } else {
            let changes = self.changes.range((since + 1, CompactString::default())..);
            changes.map(|(_, name)| name.clone()).chain(self.active.iter().cloned()).collect()
        };
        let limits = names.iter().filter_map(|name| {
            let limit = self.limits.get_mut(name)?;
            limit.pass(now);
            let part = self.shares.part(name)?;
            Some(SharedLimit {
                name: name.clone(),
                port: "port".into(),
                at: "1:".into(),
                limit_bps: limit.limit.limit.bits_per_sec(),
                safe_bps: limit.limit.safe.bits_per_sec(),
                lent_bps: part.lent(limit.limit.safe),
                borrowed_bps: part.borrowed(),
                in_force_bps: limit.now.in_force_bps,
                unset_since_ns: part.unset_since(),
                rejoins: limit.limit.rejoins,
                sent_bytes: limit.sent_bytes(),
                // What is demanded and does not pass waits.
                backlog_bytes: u64::from(limit.demand_bps > limit.now.in_force_bps) * 1_500,
                flows: limit.flows.map(|flows| in_turns(flows, random)),
                ..SharedLimit::default()
            })
        });
        let limits = limits.collect();
        let (deadline_ns, cursor) = (self.shares.deadline(), self.cursor);
        FleetFacts { now_ns: now, deadline_ns, cursor, limits, gone: Vec::new() }
    }
}
