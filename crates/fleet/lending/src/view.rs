//! What can be seen of a fleet from one box.

use crate::agent::Agent;
use crate::flows::{Flows, ONE_FLOW};
use crate::limit::{Known, Limit};
use narrows_snapshot::fleet_agent::{BoxView, FleetView, LimitView, Part, SharerView};

impl Agent {
    /// What can be seen at `now`.
    pub fn view(&self, now: u64) -> FleetView {
        self.view_of(now, self.shared().collect(), 0)
    }

    /// The same, with only the limits of which all boxes together send most, and so many of them
    /// that they have at most `rows` boxes between them. One is always there.
    pub fn view_of_busiest(&self, now: u64, rows: usize) -> FleetView {
        let sent = |limit: &Limit| {
            let each = limit.known.iter().map(|(_, known)| known.said.sent_bps);
            each.fold(0, u64::saturating_add)
        };
        let mut all: Vec<(u64, &str, &Limit)> =
            self.shared().map(|(name, limit)| (sent(limit), name, limit)).collect();
        all.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let kept = FleetView::fitting(rows, all.iter().map(|(.., limit)| limit.known.len()));
        let left_out = all.len() - kept;
        let busiest = all.into_iter().take(kept).map(|(_, name, limit)| (name, limit));
        self.view_of(now, busiest.collect(), left_out)
    }

    /// The limits that this box has.
    fn shared(&self) -> impl Iterator<Item = (&str, &Limit)> {
        let limits = self.limits.iter().map(|(name, limit)| (name.as_str(), limit));
        limits.filter(|(_, limit)| limit.own.is_some())
    }

    fn view_of(&self, now: u64, limits: Vec<(&str, &Limit)>, limits_left_out: usize) -> FleetView {
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
        let me = self.settings.me.clone();
        FleetView { me, boxes: boxes.collect(), limits: self.limit_views(limits), limits_left_out }
    }

    fn limit_views(&self, limits: Vec<(&str, &Limit)>) -> Vec<LimitView> {
        let mut limits: Vec<LimitView> =
            limits.iter().filter_map(|(name, limit)| self.limit_view(name, limit)).collect();
        limits.sort_by(|a, b| a.name.cmp(&b.name));
        limits
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
                    flows: match said.flows {
                        Flows::Counted(flows) => Some(f64::from(flows) / f64::from(ONE_FLOW)),
                        Flows::Unknown | Flows::Free => None,
                    },
                }
            })
            .collect();
        let claimed = limit.known.iter().map(|(_, known)| known.said.of_others_bps());
        // What this box has borrowed, its lenders have not in force any more, though each of them
        // may tell so a second later.
        let lends = |(index, known): &&(usize, Known)| {
            let is_heard = *index != self.me && self.peers[*index].is_live;
            is_heard && known.said.in_force_bps <= known.said.safe_bps
        };
        let unused = limit.known.iter().filter(lends);
        let unused_bps = unused
            .map(|(_, known)| known.said.safe_bps - known.said.in_force_bps)
            .fold(0, u64::saturating_add);
        let told_late_bps = own.borrowed_bps.saturating_sub(unused_bps);
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
            is_by_flow: limit.is_by_flow,
            // Of a box that is off, another one has what it claims.
            sum_bps: boxes
                .iter()
                .fold(0, |sum: u64, sharer| sum.saturating_add(sharer.in_force_bps))
                .saturating_sub(claimed.fold(0, u64::saturating_add))
                .saturating_sub(told_late_bps),
            boxes,
        })
    }
}
