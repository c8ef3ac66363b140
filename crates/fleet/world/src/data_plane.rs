//! What a data plane has in force: safe share − lent + borrowed, as `narrows_snapshot::fleet` says.

use compact_str::CompactString;
use narrows_snapshot::{FLEET_FLOOR, FLEET_HOLD_NS, FleetFacts, FleetOrder, SharedLimit};
use std::collections::{BTreeMap, BTreeSet};

/// A shared limit at one box. Traffic is a fluid of the demanded rate.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    /// The limit, the safe share and the parts, in bits per second.
    limit_bps: u64,
    safe_bps: u64,
    lent_bps: u64,
    borrowed_bps: u64,
    unset_since_ns: Option<u64>,
    demand_bps: u64,
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
    limits: BTreeMap<CompactString, Local>,
    /// Limits that no agent set, by the time since when.
    unset: BTreeSet<(u64, CompactString)>,
    /// Limits with traffic.
    active: BTreeSet<CompactString>,
    /// The last changes of limits, by cursor.
    changes: BTreeSet<(u64, CompactString)>,
    deadline_ns: u64,
    cursor: u64,
}

/// A limit whose rates changed: its name, the rates before and after.
pub(crate) type Changed = (CompactString, Rates, Rates);

impl Local {
    fn rates(&self, now: u64, deadline_ns: u64) -> Rates {
        let deadline_ns = self.unset_since_ns.unwrap_or(deadline_ns);
        let in_force_bps = if now >= deadline_ns.saturating_add(FLEET_HOLD_NS) {
            self.safe_bps
        } else if now >= deadline_ns {
            self.safe_bps.saturating_sub(self.lent_bps)
        } else {
            self.safe_bps.saturating_sub(self.lent_bps) + self.borrowed_bps
        };
        let passes_bps = self.demand_bps.min(in_force_bps);
        let divided_bps = self.demand_bps.min(self.safe_bps);
        Rates { in_force_bps, passes_bps, demand_bps: self.demand_bps, divided_bps }
    }

    /// Traffic passes until now.
    fn pass(&mut self, now: u64) {
        let elapsed = u128::from(now.saturating_sub(self.since_ns));
        self.sent += u128::from(self.now.passes_bps) * elapsed;
        self.since_ns = now;
    }
}

impl DataPlane {
    /// A limit is new at `now`.
    pub(crate) fn add(
        &mut self,
        now: u64,
        name: CompactString,
        limit_bps: u64,
        safe_bps: u64,
    ) -> Changed {
        let local = Local {
            limit_bps,
            safe_bps,
            lent_bps: safe_bps - safe_bps / FLEET_FLOOR,
            borrowed_bps: 0,
            unset_since_ns: Some(now),
            demand_bps: 0,
            now: Rates::default(),
            since_ns: now,
            sent: 0,
            changed: 0,
        };
        self.limits.insert(name.clone(), local);
        self.unset.insert((now, name.clone()));
        self.refresh(now, &name)
    }

    /// It starts again, with the same policy and the same traffic: what was ordered is forgotten.
    pub(crate) fn restart(&mut self, now: u64) -> Vec<Changed> {
        let before = std::mem::take(self);
        let mut changed = Vec::new();
        for (name, old) in before.limits {
            let (_, _, _) = self.add(now, name.clone(), old.limit_bps, old.safe_bps);
            let (_, _, after) = self.demand(now, &name, old.demand_bps);
            changed.push((name, old.now, after));
        }
        changed
    }

    /// What is in force and passes, as of the last change.
    pub(crate) fn rates(&self, name: &str) -> Rates {
        self.limits.get(name).map_or_else(Rates::default, |limit| limit.now)
    }

    /// When what is in force next changes by itself.
    pub(crate) fn next_change(&self, now: u64) -> Option<u64> {
        let unset = self.unset.first().map(|(time, _)| *time);
        let times = unset.into_iter().chain([self.deadline_ns]);
        let times = times.flat_map(|time| [time, time.saturating_add(FLEET_HOLD_NS)]);
        times.filter(|&time| time > now).min()
    }

    /// The rates of a limit are those of now.
    fn refresh(&mut self, now: u64, name: &CompactString) -> Changed {
        let deadline_ns = self.deadline_ns;
        let Some(limit) = self.limits.get_mut(name) else {
            return (name.clone(), Rates::default(), Rates::default());
        };
        limit.pass(now);
        let before = limit.now;
        limit.now = limit.rates(now, deadline_ns);
        if limit.now.passes_bps > 0 {
            self.active.insert(name.clone());
        } else if self.active.remove(name) {
            // What was sent until now is a change.
            self.changes.remove(&(limit.changed, name.clone()));
            limit.changed = self.cursor + 1;
            self.changes.insert((limit.changed, name.clone()));
        }
        (name.clone(), before, limit.now)
    }

    /// Forgets what has run out: first what is borrowed, then what is lent.
    fn fall_back(&mut self, now: u64) {
        for (name, limit) in &mut self.limits {
            let deadline_ns = limit.unset_since_ns.unwrap_or(self.deadline_ns);
            let before = (limit.lent_bps, limit.borrowed_bps);
            if now >= deadline_ns {
                limit.borrowed_bps = 0;
            }
            if now >= deadline_ns.saturating_add(FLEET_HOLD_NS) {
                limit.lent_bps = 0;
            }
            if before != (limit.lent_bps, limit.borrowed_bps) {
                self.changes.remove(&(limit.changed, name.clone()));
                limit.changed = self.cursor + 1;
                self.changes.insert((limit.changed, name.clone()));
            }
        }
    }

    /// All rates are those of now.
    pub(crate) fn refresh_all(&mut self, now: u64) -> Vec<Changed> {
        let names: Vec<CompactString> = self.limits.keys().cloned().collect();
        let over = |(time, _): &(u64, CompactString)| time.saturating_add(FLEET_HOLD_NS) <= now;
        self.unset.retain(|unset| !over(unset));
        self.fall_back(now);
        names.iter().map(|name| self.refresh(now, name)).collect()
    }

    /// A demand changes.
    pub(crate) fn demand(&mut self, now: u64, name: &CompactString, bps: u64) -> Changed {
        if let Some(limit) = self.limits.get_mut(name) {
            limit.demand_bps = bps;
        }
        self.refresh(now, name)
    }

    /// An order arrives.
    pub(crate) fn order(&mut self, now: u64, order: &FleetOrder) -> (FleetFacts, Vec<Changed>) {
        let mut changed = Vec::new();
        self.cursor += 1;
        if order.deadline_ns > now {
            let was_over = now >= self.deadline_ns;
            if was_over {
                self.fall_back(now);
            }
            self.deadline_ns = order.deadline_ns;
            for share in &order.shares {
                let Some(limit) = self.limits.get_mut(&share.name) else { continue };
                limit.lent_bps = share.lent_bps;
                limit.borrowed_bps = share.borrowed_bps;
                if let Some(since) = limit.unset_since_ns.take() {
                    self.unset.remove(&(since, share.name.clone()));
                }
                self.changes.remove(&(limit.changed, share.name.clone()));
                limit.changed = self.cursor;
                self.changes.insert((limit.changed, share.name.clone()));
                changed.push(self.refresh(now, &share.name));
            }
            if was_over {
                changed.extend(self.refresh_all(now));
            }
        }
        let facts = self.facts(now, order.since);
        (facts, changed)
    }

    fn facts(&mut self, now: u64, since: u64) -> FleetFacts {
        let names: BTreeSet<CompactString> = if since == 0 || since >= self.cursor {
            self.limits.keys().cloned().collect()
        } else {
            let changes = self.changes.range((since + 1, CompactString::default())..);
            changes.map(|(_, name)| name.clone()).chain(self.active.iter().cloned()).collect()
        };
        let limits = names.iter().filter_map(|name| {
            let limit = self.limits.get_mut(name)?;
            limit.pass(now);
            Some(SharedLimit {
                name: name.clone(),
                port: "port".into(),
                at: "1:".into(),
                limit_bps: limit.limit_bps,
                safe_bps: limit.safe_bps,
                lent_bps: limit.lent_bps,
                borrowed_bps: limit.borrowed_bps,
                in_force_bps: limit.now.in_force_bps,
                unset_since_ns: limit.unset_since_ns,
                sent_bytes: u64::try_from(limit.sent / 8_000_000_000).unwrap_or(u64::MAX),
                // What is demanded and does not pass waits.
                backlog_bytes: u64::from(limit.demand_bps > limit.now.in_force_bps) * 1_500,
                ..SharedLimit::default()
            })
        });
        let limits = limits.collect();
        let (deadline_ns, cursor) = (self.deadline_ns, self.cursor);
        FleetFacts { now_ns: now, deadline_ns, cursor, limits, gone: Vec::new() }
    }
}
