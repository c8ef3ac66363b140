//! What can be seen of a fleet from one box.

use crate::agent::Agent;
use crate::limit::Limit;
use serde::{Deserialize, Serialize};

/// A fleet as one agent sees it. Rates are in bits per second.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FleetView {
    /// The name of this box.
    pub me: String,
    /// All boxes, in order of their names.
    pub boxes: Vec<BoxView>,
    /// The limits that this box shares, in order of their names.
    pub limits: Vec<LimitView>,
}

/// A box.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BoxView {
    /// Its name.
    pub name: String,
    /// Whether it was heard within a lease. This box always is.
    pub is_heard: bool,
    /// How many milliseconds ago it was last heard; none if never.
    pub heard_ms_ago: Option<u64>,
    /// What is left of the lease of what this box borrowed from it, in milliseconds.
    pub lease_left_ms: Option<u64>,
    /// If an operator said here that it is off: `waits` until all others answered that they do not
    /// claim its share, `claimed` while this box has it, `returns` while it is given back.
    #[serde(default)]
    pub off: Option<String>,
}

/// A shared limit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LimitView {
    /// Its name.
    pub name: String,
    /// The port and the place where this box has it.
    pub port: String,
    /// A qdisc (`1:`) or a class (`1:10`).
    pub at: String,
    /// The rate of all boxes together: the smallest that a box has.
    pub limit_bps: u64,
    /// This box's safe share.
    pub safe_bps: u64,
    /// What this box has of the shares of boxes that are off.
    #[serde(default)]
    pub claimed_bps: u64,
    /// Whether this box waits, since its start, until all others said that they do not claim its
    /// share.
    #[serde(default)]
    pub is_held_back: bool,
    /// What is in force here.
    pub in_force_bps: u64,
    /// What was sent here, lately.
    pub sent_bps: u64,
    /// To whom how much is lent.
    pub lent: Vec<Part>,
    /// From whom how much is borrowed.
    pub borrowed: Vec<Part>,
    /// What each box that shares it said last.
    pub boxes: Vec<SharerView>,
    /// The sum of what is in force: as last told by the boxes that are heard, and the safe shares
    /// of those that are silent.
    pub sum_bps: u64,
}

/// A part that one box has of another's share.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// The other box.
    pub name: String,
    /// How much.
    pub bps: u64,
}

/// What a box said of a limit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SharerView {
    /// The box.
    pub name: String,
    /// Whether it is heard.
    pub is_heard: bool,
    /// Its demand; none if the limit holds it back, so that its demand is unknown.
    pub demand_bps: Option<u64>,
    /// The share that it should have, as this box computes it; none if it is silent.
    pub share_bps: Option<u64>,
    /// What is in force there.
    pub in_force_bps: u64,
    /// What was sent there.
    pub sent_bps: u64,
}

impl Agent {
    /// What can be seen at `now`.
    pub fn view(&self, now: u64) -> FleetView {
        let boxes = self.peers.iter().enumerate().map(|(index, peer)| {
            let is_me = index == self.me;
            let ms_since = |time: u64| now.saturating_sub(time) / 1_000_000;
            BoxView {
                name: peer.member.name.clone(),
                is_heard: is_me || peer.is_live,
                heard_ms_ago: if is_me { Some(0) } else { peer.heard_ns.map(ms_since) },
                lease_left_ms: peer
                    .borrower
                    .valid_until()
                    .map(|until| until.saturating_sub(now) / 1_000_000),
                off: self.claims.get(index).map(|held| held.stage.word().to_owned()),
            }
        });
        let mut limits: Vec<LimitView> =
            self.limits.iter().filter_map(|(name, limit)| self.limit_view(name, limit)).collect();
        limits.sort_by(|a, b| a.name.cmp(&b.name));
        FleetView { me: self.settings.me.clone(), boxes: boxes.collect(), limits }
    }

    fn limit_view(&self, name: &str, limit: &Limit) -> Option<LimitView> {
        let own = limit.own.as_ref()?;
        let part = |index: usize, bps: u64| {
            (bps > 0).then(|| Part { name: self.peers[index].member.name.clone(), bps })
        };
        let lent = limit.borrowers.iter();
        let lent = lent.filter_map(|&index| part(index, self.peers[index].lender.lent_bps(name)));
        let borrowed = limit.lenders.iter();
        let borrowed =
            borrowed.filter_map(|&index| part(index, self.peers[index].borrower.held_bps(name)));
        let boxes: Vec<SharerView> = limit
            .known
            .iter()
            .map(|&(index, known)| {
                let said = known.said;
                let is_heard = index == self.me || self.peers[index].is_live;
                let in_force_bps = match (index == self.me, is_heard) {
                    (true, _) => own.in_force_bps,
                    (false, true) => said.in_force_bps,
                    (false, false) => said.safe_bps,
                };
                SharerView {
                    name: self.peers[index].member.name.clone(),
                    is_heard,
                    demand_bps: (!said.demand.is_greedy()).then(|| said.demand.total_bps()),
                    share_bps: limit.share_bps(index),
                    in_force_bps,
                    sent_bps: said.sent_bps,
                }
            })
            .collect();
        let claimed = limit.known.iter().map(|(_, known)| known.said.of_others_bps());
        Some(LimitView {
            name: name.to_owned(),
            port: own.port.to_string(),
            at: own.at.to_string(),
            limit_bps: limit
                .known
                .iter()
                .map(|(_, known)| known.said.limit_bps)
                .min()
                .unwrap_or(own.limit_bps),
            safe_bps: own.safe_bps,
            claimed_bps: limit.claimed_bps,
            is_held_back: self.held_back.contains(name),
            in_force_bps: own.in_force_bps,
            sent_bps: limit.meter.sent_bps(),
            lent: lent.collect(),
            borrowed: borrowed.collect(),
            // Of a box that is off, another one has what it claims.
            sum_bps: boxes
                .iter()
                .fold(0, |sum: u64, sharer| sum.saturating_add(sharer.in_force_bps))
                .saturating_sub(claimed.fold(0, u64::saturating_add)),
            boxes,
        })
    }
}
