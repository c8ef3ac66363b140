//! What a data plane has in force: safe share − lent + borrowed, as `narrows_snapshot::fleet` says.

use compact_str::CompactString;
use narrows_snapshot::{FLEET_FLOOR, FLEET_HOLD_NS, FleetFacts, FleetOrder, SharedLimit};
use std::collections::BTreeMap;

/// A shared limit at one box. Traffic is a fluid of the demanded rate.
#[derive(Clone, Debug)]
pub struct Local {
    /// The limit, the safe share and the parts, in bits per second.
    limit_bps: u64,
    safe_bps: u64,
    lent_bps: u64,
    borrowed_bps: u64,
    unset_since_ns: Option<u64>,
    /// What wants to pass.
    pub(crate) demand_bps: u64,
    /// What passed, in bits × 1e9.
    sent: u128,
    changed: u64,
}

/// A data plane. Times are those of its box's clock.
#[derive(Clone, Debug)]
pub struct DataPlane {
    pub(crate) limits: BTreeMap<CompactString, Local>,
    deadline_ns: u64,
    cursor: u64,
}

impl Local {
    /// A limit that is new at `now`.
    pub(crate) fn new(now: u64, limit_bps: u64, safe_bps: u64) -> Self {
        Self {
            limit_bps,
            safe_bps,
            lent_bps: safe_bps - safe_bps / FLEET_FLOOR,
            borrowed_bps: 0,
            unset_since_ns: Some(now),
            demand_bps: 0,
            sent: 0,
            changed: 0,
        }
    }

    /// What is in force at `now`, with orders that hold until the deadline.
    fn in_force_bps(&self, now: u64, deadline_ns: u64) -> u64 {
        let deadline_ns = self.unset_since_ns.unwrap_or(deadline_ns);
        if now >= deadline_ns.saturating_add(FLEET_HOLD_NS) {
            self.safe_bps
        } else if now >= deadline_ns {
            self.safe_bps.saturating_sub(self.lent_bps)
        } else {
            self.safe_bps.saturating_sub(self.lent_bps) + self.borrowed_bps
        }
    }

    /// What passes.
    fn rate_bps(&self, now: u64, deadline_ns: u64) -> u64 {
        self.demand_bps.min(self.in_force_bps(now, deadline_ns))
    }
}

impl DataPlane {
    /// One without limits.
    pub(crate) fn new() -> Self {
        Self { limits: BTreeMap::new(), deadline_ns: 0, cursor: 1 }
    }

    /// It starts again, with the same policy and the same traffic: what was ordered is forgotten.
    pub(crate) fn restart(&mut self, now: u64) {
        self.deadline_ns = 0;
        self.cursor = 1;
        for limit in self.limits.values_mut() {
            let demand_bps = limit.demand_bps;
            *limit = Local { demand_bps, ..Local::new(now, limit.limit_bps, limit.safe_bps) };
        }
    }

    /// What is in force of a limit.
    pub fn in_force_bps(&self, now: u64, name: &str) -> u64 {
        self.limits.get(name).map_or(0, |limit| limit.in_force_bps(now, self.deadline_ns))
    }

    /// What passes of a limit.
    pub fn rate_bps(&self, now: u64, name: &str) -> u64 {
        self.limits.get(name).map_or(0, |limit| limit.rate_bps(now, self.deadline_ns))
    }

    /// When what is in force next changes by itself.
    pub(crate) fn next_change(&self, now: u64) -> Option<u64> {
        let unset = self.limits.values().filter_map(|limit| limit.unset_since_ns);
        let times = unset
            .chain([self.deadline_ns])
            .flat_map(|time| [time, time.saturating_add(FLEET_HOLD_NS)]);
        times.filter(|&time| time > now).min()
    }

    /// Traffic passes for `elapsed_ns`, at the rates of `now`.
    pub(crate) fn pass(&mut self, now: u64, elapsed_ns: u64) {
        for limit in self.limits.values_mut() {
            let bps = limit.rate_bps(now, self.deadline_ns);
            limit.sent += u128::from(bps) * u128::from(elapsed_ns);
        }
    }

    /// An order arrives.
    pub(crate) fn order(&mut self, now: u64, order: &FleetOrder) -> FleetFacts {
        if order.deadline_ns > now {
            self.deadline_ns = order.deadline_ns;
            for share in &order.shares {
                if let Some(limit) = self.limits.get_mut(&share.name) {
                    limit.lent_bps = share.lent_bps;
                    limit.borrowed_bps = share.borrowed_bps;
                    limit.unset_since_ns = None;
                    limit.changed = self.cursor + 1;
                }
            }
        }
        self.cursor += 1;
        let since = if order.since >= self.cursor { 0 } else { order.since };
        let deadline_ns = self.deadline_ns;
        let changed = self.limits.iter().filter(|(_, limit)| {
            since == 0 || limit.changed > since || limit.rate_bps(now, deadline_ns) > 0
        });
        let limits = changed.map(|(name, limit)| limit.facts(now, name, deadline_ns)).collect();
        FleetFacts { now_ns: now, deadline_ns, cursor: self.cursor, limits, gone: Vec::new() }
    }
}

impl Local {
    fn facts(&self, now: u64, name: &CompactString, deadline_ns: u64) -> SharedLimit {
        let in_force_bps = self.in_force_bps(now, deadline_ns);
        SharedLimit {
            name: name.clone(),
            port: "port".into(),
            at: "1:".into(),
            limit_bps: self.limit_bps,
            safe_bps: self.safe_bps,
            lent_bps: self.lent_bps,
            borrowed_bps: self.borrowed_bps,
            in_force_bps,
            unset_since_ns: self.unset_since_ns,
            sent_bytes: u64::try_from(self.sent / 8_000_000_000).unwrap_or(u64::MAX),
            // What is demanded and does not pass waits.
            backlog_bytes: u64::from(self.demand_bps > in_force_bps) * 1_500,
            ..SharedLimit::default()
        }
    }
}
