//! One shared limit: what all boxes said of it, and what this box has of it.

use crate::demand::Meter;
use crate::flows;
use crate::matching::{self, Loan};
use crate::message::Said;
use crate::shares::{self, Claim, GREEDY};
use narrows_snapshot::SharedLimit;
use std::collections::BTreeSet;

/// The part of its safe share that a box keeps when it is idle, so that a flow can begin: a 128th.
const FLOOR: u64 = 128;

impl Said {
    /// Whether shares should be divided anew: something was configured, or a demand or the number
    /// of flows differs by more than an eighth.
    pub(crate) fn is_other(&self, new: &Self) -> bool {
        let slack_bps = new.limit_bps / 1024;
        let tiers = self.demand.0.iter().zip(&new.demand.0);
        let demands = |(&old, &new): (&u64, &u64)| {
            (old == GREEDY) != (new == GREEDY) || old.abs_diff(new) > old.max(new) / 8 + slack_bps
        };
        let configured =
            |said: &Self| (said.limit_bps, said.safe_bps, said.claimed_bps, said.rejoins);
        configured(self) != configured(new) || self.flows.is_other(new.flows) || { tiers }
            .any(demands)
    }

    /// What of its safe share is that of boxes that are off.
    pub(crate) fn of_others_bps(&self) -> u64 {
        self.claimed_bps.min(self.safe_bps)
    }

    /// Whether what is in force or sent differs by more than a 16th, or the number of flows at all.
    pub(crate) fn moved(&self, new: &Self) -> bool {
        let differs = |old: u64, new: u64| old.abs_diff(new) > old.max(new) / 16;
        differs(self.in_force_bps, new.in_force_bps)
            || differs(self.sent_bps, new.sent_bps)
            || self.flows.moved(new.flows)
    }
}

/// What a box said of a limit, and the number of the report that said so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) said: Said,
    pub(crate) report: u64,
}

/// What is lent and borrowed of a limit, in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) lent_bps: u64,
    pub(crate) borrowed_bps: u64,
}

/// A shared limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limit {
    /// What boxes said, this one too, in order of their indices.
    pub(crate) known: Vec<(usize, Known)>,
    /// What the data plane here says of it, if it has it.
    pub(crate) own: Option<SharedLimit>,
    pub(crate) meter: Meter,
    /// What this agent, or an earlier one, ordered, as far as it is in force.
    pub(crate) in_force: Option<Parts>,
    /// What an earlier agent of this box may have lent, and until when.
    pub(crate) orphan: Option<(u64, u64)>,
    /// What this box may not use of its safe share, since boxes own more than the limit.
    pub(crate) withheld_bps: u64,
    /// What this box has of its claims on the shares of others; those that are given back, too.
    pub(crate) claimed_bps: u64,
    /// The peers to which something is lent.
    pub(crate) borrowers: BTreeSet<usize>,
    /// The peers from which something is borrowed.
    pub(crate) lenders: BTreeSet<usize>,
    /// The share of each live box, as last computed, in the same order.
    pub(crate) shares: Vec<(usize, u64)>,
    /// Whether they weighed by their flows.
    pub(crate) is_by_flow: bool,
    /// Whether the operator was told that boxes differ, or have too much.
    pub(crate) is_reported: bool,
}

/// How a limit is divided. Its memory is used again for the next one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Division {
    /// The live boxes.
    pub(crate) boxes: Vec<usize>,
    /// What each owns, as far as the limit allows.
    pub(crate) owned_bps: Vec<u64>,
    /// What each should have: what it demands, or what nobody else borrows of what it owns.
    pub(crate) share_bps: Vec<u64>,
    /// The loans that make it so, by the places of the boxes.
    pub(crate) loans: Vec<Loan>,
    /// The sum of the safe shares of all boxes, live or not.
    pub(crate) safe_sum_bps: u64,
    /// The limit: the smallest that a box has.
    pub(crate) limit_bps: u64,
    /// Whether boxes weigh by their flows.
    pub(crate) is_by_flow: bool,
    claims: Vec<Claim>,
    shares: shares::Room,
    matching: matching::Room,
}

impl Limit {
    /// What a box said last.
    pub(crate) fn of(&self, index: usize) -> Option<&Known> {
        let place = place(&self.known, index).ok()?;
        Some(&self.known[place].1)
    }

    /// What an earlier agent of this box may have lent.
    pub(crate) fn orphan_bps(&self) -> u64 {
        self.orphan.map_or(0, |(bps, _)| bps)
    }

    /// A box says this. Returns what it said before.
    pub(crate) fn say(&mut self, index: usize, known: Known) -> Option<Known> {
        match place(&self.known, index) {
            Ok(place) => Some(std::mem::replace(&mut self.known[place].1, known)),
            Err(place) => {
                self.known.insert(place, (index, known));
                None
            }
        }
    }

    /// Another agent speaks for a box, whose reports begin anew.
    pub(crate) fn begin(&mut self, index: usize) {
        if let Ok(place) = place(&self.known, index) {
            self.known[place].1.report = 0;
        }
    }

    /// A box no longer has the limit.
    pub(crate) fn forget(&mut self, index: usize) {
        self.known.retain(|said| said.0 != index);
    }

    /// The share that a live box should have.
    pub(crate) fn share_bps(&self, index: usize) -> Option<u64> {
        let place = place(&self.shares, index).ok()?;
        Some(self.shares[place].1)
    }

    /// Puts the division among the live boxes into `into`: weights and maxima by index. Flows weigh
    /// if all boxes can tell theirs to all (`has_flows`), and can count them.
    pub(crate) fn divide(
        &self,
        has_flows: bool,
        is_live: impl Fn(usize) -> bool,
        member: impl Fn(usize) -> (u32, Option<u64>),
        into: &mut Division,
    ) {
        let all = || self.known.iter().map(|(_, known)| &known.said);
        let limit_bps = all().map(|said| said.limit_bps).min().unwrap_or(0);
        // The safe share that a box has by the limit of all.
        let by_limit = |said: &Said| part(said.safe_bps, limit_bps, said.limit_bps);
        // What a box claims of another's share is not there twice.
        let claimed = |said: &Said| part(said.of_others_bps(), limit_bps, said.limit_bps);
        let claimed_bps = all().map(claimed);
        let safe_sum_bps = all().map(by_limit).fold(0, u64::saturating_add);
        let safe_sum_bps = claimed_bps.fold(safe_sum_bps, u64::saturating_sub);
        let own = |said: &Said| part(by_limit(said), limit_bps, safe_sum_bps.max(limit_bps));
        let live = || self.known.iter().filter(|(index, _)| is_live(*index));
        into.boxes.clear();
        into.boxes.extend(live().map(|(index, _)| *index));
        into.owned_bps.clear();
        into.owned_bps.extend(live().map(|(_, known)| own(&known.said)));
        let by_flow = flows::weights(live().map(|(_, known)| known.said.flows));
        let by_flow = by_flow.filter(|_| has_flows);
        into.is_by_flow = by_flow.is_some();
        let claim = |((index, known), &owned): (&(usize, Known), &u64)| {
            let (weight, most_bps) = member(*index);
            let flows = by_flow.as_ref().map_or(1, |by_flow| by_flow(known.said.flows));
            Claim {
                weight: u64::from(weight.max(1)) * u64::from(flows),
                owned_bps: owned,
                floor_bps: owned / FLOOR,
                // A box keeps what it owns, whatever others allow it.
                most_bps: most_bps.map_or(u64::MAX, |most| most.max(owned)),
                demand: known.said.demand,
            }
        };
        into.claims.clear();
        into.claims.extend(live().zip(&into.owned_bps).map(claim));
        let capacity_bps =
            into.owned_bps.iter().fold(0_u64, |sum, &owned| sum.saturating_add(owned));
        let needed_bps = into.shares.divide(capacity_bps, &into.claims);
        into.matching.find(&into.owned_bps, needed_bps, &mut into.loans);
        into.share_bps.clone_from(&into.owned_bps);
        for Loan { lender, borrower, bps } in &into.loans {
            into.share_bps[*lender] -= bps;
            into.share_bps[*borrower] += bps;
        }
        (into.safe_sum_bps, into.limit_bps) = (safe_sum_bps, limit_bps);
    }
}

/// Where a box is among `boxes`, which are in order, or where it would be. Of a limit that all
/// boxes share, box `i` is the `i`-th: to look there first touches one line of the cache, where a
/// search touches seven among a hundred boxes.
fn place<T>(boxes: &[(usize, T)], index: usize) -> Result<usize, usize> {
    match boxes.get(index) {
        Some(&(found, _)) if found == index => Ok(index),
        // No box is further back than its index.
        _ => boxes[..boxes.len().min(index)].binary_search_by_key(&index, |of| of.0),
    }
}

/// `bps` × `numerator` / `denominator`, where that is less.
pub(crate) fn part(bps: u64, numerator: u64, denominator: u64) -> u64 {
    if numerator >= denominator {
        return bps;
    }
    let part = u128::from(bps) * u128::from(numerator) / u128::from(denominator);
    u64::try_from(part).unwrap_or(bps)
}
