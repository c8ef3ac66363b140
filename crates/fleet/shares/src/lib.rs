//! How much of each shared limit this box has: its safe share, less what it lent, and what it
//! borrowed.
//!
//! *Idea.* An agent orders what is lent and borrowed, until a deadline. In force is *safe share −
//! lent + borrowed*. When the agent is silent the shares fall back by themselves: at the deadline
//! what is borrowed is void, and [`FLEET_HOLD_NS`] later nothing is lent any more, because then
//! each loan has ended where it went. A limit that is new here may have been lent by an agent
//! earlier. So it begins as if all but a part in [`FLEET_FLOOR`] were lent at the deadline: that
//! part is in force until an agent says more, or the hold has passed. The share of a box that was
//! off may be another box's by now: a limit that *rejoins* has that part until an agent says more,
//! however long that is.
//!
//! *Principles.* No clock and no policy in here: the time and the rates are arguments. A copy costs
//! a few pointers, so a planner on another thread takes one along.
//!
//! *Non-goals.* Whether the shares of all boxes add up to the limit: the agents see to it.

use imbl::{OrdMap, OrdSet};
use narrows_policy::{FLEET_LEAST, FleetLimit, FleetName};
use narrows_snapshot::{FLEET_FLOOR, FLEET_HOLD_NS, FleetOrder};
use narrows_units::Rate;
use serde::{Deserialize, Serialize};

/// The parts of all shared limits.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    parts: OrdMap<FleetName, Part>,
    /// Those at the floor that leave it by themselves, by when they came.
    at_floor: OrdSet<(u64, FleetName)>,
    /// Until when the agent's orders hold; 0 if none has spoken.
    deadline: u64,
    /// What of the orders is still in force.
    held: Held,
}

/// What of the agent's orders is still in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Held {
    /// Nothing: no agent has spoken, or none since the hold has passed.
    #[default]
    Nothing,
    /// What is lent.
    Loans,
    /// All.
    All,
}

/// The part of one shared limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// What other boxes have, in bits per second.
    lent: u64,
    /// What this box has of others.
    borrowed: u64,
    /// Since when it is here, if no agent has set it.
    unset_since: Option<u64>,
    /// Whether nothing but the floor is in force, because it is new.
    at_floor: bool,
    /// Whether it leaves the floor by an agent's word only.
    rejoins: bool,
}

/// The parts as another process gets them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SharesState {
    deadline: u64,
    held: Held,
    parts: Vec<(String, Part)>,
}

impl Part {
    /// What is lent of the safe share `safe`, in bits per second.
    pub fn lent(&self, safe: Rate) -> u64 {
        let safe = safe.bits_per_sec();
        if self.at_floor { safe - safe / FLEET_FLOOR } else { self.lent }
    }

    /// What is borrowed, in bits per second.
    pub fn borrowed(&self) -> u64 {
        self.borrowed
    }

    /// Since when it is here, if no agent has set it.
    pub fn unset_since(&self) -> Option<u64> {
        self.unset_since
    }

    /// Why that much is in force.
    pub fn because(&self, held: Held) -> Because {
        match held {
            _ if self.at_floor => Because::Start,
            Held::All if self.unset_since.is_none() => Because::Agent,
            _ => Because::Alone,
        }
    }

    /// The rate in force.
    fn in_force(&self, limit: &FleetLimit) -> Rate {
        let own = limit.safe.bits_per_sec().saturating_sub(self.lent(limit.safe));
        let rate = Rate::from_bits_per_sec(own.saturating_add(self.borrowed));
        rate.min(limit.limit).max(FLEET_LEAST)
    }
}

/// Why a rate is in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Because {
    /// An agent says so.
    Agent,
    /// No agent has spoken for too long.
    Alone,
    /// The limit is new here, and no agent has spoken since.
    Start,
}

impl Because {
    /// As views name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Alone => "alone",
            Self::Start => "start",
        }
    }
}

impl Shares {
    /// The rate in force of `name`, which is `limit`. One that is not here yet is at the floor.
    pub fn in_force(&self, name: &FleetName, limit: &FleetLimit) -> Rate {
        let new = Part { at_floor: true, ..Part::default() };
        self.parts.get(name).unwrap_or(&new).in_force(limit)
    }

    /// The part of `name`.
    pub fn part(&self, name: &str) -> Option<&Part> {
        self.parts.get(name)
    }

    /// Until when the agent's orders hold; 0 if none has spoken.
    pub fn deadline(&self) -> u64 {
        self.deadline
    }

    /// What of them is still in force.
    pub fn held(&self) -> Held {
        self.held
    }

    /// Adds `name`, which is new here `now`.
    pub fn add(&mut self, name: &FleetName, now: u64) {
        if !self.parts.contains_key(name) {
            let part = Part { unset_since: Some(now), at_floor: true, ..Part::default() };
            self.parts.insert(name.clone(), part);
            self.at_floor.insert((now, name.clone()));
        }
    }

    /// Has `name` leave the floor by an agent's word only, or after the hold, too. Once it has left
    /// the floor, this means nothing until it is new again.
    pub fn set_rejoins(&mut self, name: &FleetName, rejoins: bool) {
        let Some(part) = self.parts.get_mut(name) else { return };
        part.rejoins = rejoins;
        let since = part.unset_since.filter(|_| part.at_floor);
        match since {
            Some(since) if rejoins => drop(self.at_floor.remove(&(since, name.clone()))),
            Some(since) => drop(self.at_floor.insert((since, name.clone()))),
            None => {}
        }
    }

    /// Forgets `name`.
    pub fn remove(&mut self, name: &FleetName) {
        let part = self.parts.remove(name);
        self.leave_floor(name, part.as_ref());
    }

    fn leave_floor(&mut self, name: &FleetName, part: Option<&Part>) {
        if let Some(since) = part.filter(|part| part.at_floor).and_then(|part| part.unset_since) {
            self.at_floor.remove(&(since, name.clone()));
        }
    }

    /// Takes `order` at the time `now`, which is not before the last [`Shares::advance`]. Returns
    /// the names whose parts have changed. An order that is too late changes nothing.
    pub fn order(&mut self, order: &FleetOrder, now: u64) -> Vec<FleetName> {
        if order.deadline_ns <= now {
            return Vec::new();
        }
        self.deadline = order.deadline_ns;
        self.held = Held::All;
        let mut changed = Vec::new();
        for share in &order.shares {
            let Some((name, part)) = self.parts.get_key_value(share.name.as_str()) else {
                continue;
            };
            let (name, before) = (name.clone(), *part);
            let (lent, borrowed) = (share.lent_bps, share.borrowed_bps);
            let next = Part { lent, borrowed, unset_since: None, at_floor: false, ..before };
            if next != before {
                self.leave_floor(&name, Some(&before));
                self.parts.insert(name.clone(), next);
                changed.push(name);
            }
        }
        changed
    }

    /// Lets what has run out at `now` fall back. Returns the names whose parts have changed.
    pub fn advance(&mut self, now: u64) -> Vec<FleetName> {
        let mut changed = Vec::new();
        while let Some((since, name)) = self.at_floor.get_min().cloned()
            && since.saturating_add(FLEET_HOLD_NS) <= now
        {
            self.at_floor.remove_min();
            if let Some(part) = self.parts.get_mut(&name) {
                part.at_floor = false;
            }
            changed.push(name);
        }
        if self.held == Held::All && self.deadline <= now {
            self.held = Held::Loans;
            self.fall_back(|part| Part { borrowed: 0, ..part }, &mut changed);
        }
        if self.held == Held::Loans && self.deadline.saturating_add(FLEET_HOLD_NS) <= now {
            self.held = Held::Nothing;
            self.fall_back(|part| Part { lent: 0, ..part }, &mut changed);
        }
        changed
    }

    fn fall_back(&mut self, to: impl Fn(Part) -> Part, changed: &mut Vec<FleetName>) {
        let before = self.parts.iter().filter(|(_, part)| to(**part) != **part);
        let names: Vec<FleetName> = before.map(|(name, _)| name.clone()).collect();
        for name in &names {
            if let Some(part) = self.parts.get_mut(name) {
                *part = to(*part);
            }
        }
        changed.extend(names);
    }

    /// When something runs out next.
    pub fn next_end(&self) -> Option<u64> {
        let floor = self.at_floor.get_min().map(|(since, _)| since.saturating_add(FLEET_HOLD_NS));
        let orders = match self.held {
            Held::Nothing => None,
            Held::Loans => Some(self.deadline.saturating_add(FLEET_HOLD_NS)),
            Held::All => Some(self.deadline),
        };
        floor.into_iter().chain(orders).min()
    }

    /// The parts for another process.
    pub fn state(&self) -> SharesState {
        let parts = self.parts.iter().map(|(name, part)| (name.to_string(), *part)).collect();
        SharesState { deadline: self.deadline, held: self.held, parts }
    }

    /// Takes over the parts of another process, of those names that are here. Returns the names
    /// whose parts have changed.
    pub fn take_over(&mut self, state: SharesState) -> Vec<FleetName> {
        let SharesState { deadline, held, parts } = state;
        (self.deadline, self.held) = (deadline, held);
        let mut changed = Vec::new();
        for (name, next) in parts {
            let Some((name, before)) = self.parts.get_key_value(name.as_str()) else { continue };
            let (name, before) = (name.clone(), *before);
            if next == before {
                continue;
            }
            self.leave_floor(&name, Some(&before));
            if let Some(since) = next.unset_since.filter(|_| next.at_floor && !next.rejoins) {
                self.at_floor.insert((since, name.clone()));
            }
            self.parts.insert(name.clone(), next);
            changed.push(name);
        }
        changed
    }
}

#[cfg(test)]
mod tests;
