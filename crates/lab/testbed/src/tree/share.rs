//! Offered, due and delivered rate of each class in one phase.

use super::SETTLING;
use super::arrivals::rates;
use super::load::{Event, Sent};
use super::phase::Phase;
use super::provider::{self, LEAVES, Node};
use crate::spread::Spread;
use narrows_coordination::Fluid;
use narrows_units::Nanos;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// A class's rate in a phase, in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The rate that its sender should offer.
    pub wanted_bps: f64,
    /// Its offered load.
    pub asked_bps: f64,
    /// The rate due by HTB's rules for that offer.
    pub due_bps: f64,
    /// The delivered rate.
    pub delivered_bps: f64,
}

impl Share {
    /// The deviation of the delivered from the due rate, in percent of it; `None` if nothing is
    /// due.
    pub fn off_percent(&self) -> Option<f64> {
        (self.due_bps > 0.0).then(|| (self.delivered_bps / self.due_bps - 1.0) * 100.0)
    }
}

/// How long the windows are over which medians are taken, or a little more.
const WINDOW: Duration = Duration::from_millis(500);

/// The shares of all `nodes` in the phase with this number: medians over its windows, so that what
/// a busy machine does in some of them counts for nothing.
pub(super) fn shares(
    nodes: &[Node],
    (number, phase): (usize, &Phase),
    length: Duration,
    sent: &Sent,
    arrived: &[Event],
) -> Vec<Share> {
    let nanos = |duration: Duration| Nanos(duration.as_nanos() as u64);
    let begins = sent.began + nanos(length * number as u32);
    let first = begins + nanos(SETTLING);
    let measured = length.saturating_sub(SETTLING);
    let windows = (measured.as_nanos() / WINDOW.as_nanos()).max(1) as u32;
    let edge = |number: u32| first + nanos(measured * number / windows);
    let rates_of = |frames: &[Event]| -> Vec<[f64; LEAVES]> {
        (0..windows).map(|number| rates(frames, edge(number), edge(number + 1))).collect()
    };
    of_rates(nodes, &phase.asked_by_leaf(), &rates_of(&sent.frames), &rates_of(arrived))
}

/// The shares from the rates of all leaves in each window.
pub(super) fn of_rates(
    nodes: &[Node],
    wanted: &[f64; LEAVES],
    asked: &[[f64; LEAVES]],
    delivered: &[[f64; LEAVES]],
) -> Vec<Share> {
    let of = |node: &Node, of_leaf: &[f64; LEAVES]| -> f64 {
        let is_below = |leaf: &&Node| is_within(nodes, leaf, node.id);
        nodes.iter().filter(is_below).filter_map(|leaf| Some(of_leaf[leaf.leaf?])).sum()
    };
    let median = |node: &Node, windows: &[[f64; LEAVES]]| {
        let spread = Spread::of(windows.iter().map(|of_leaf| of(node, of_leaf)));
        spread.map_or(0.0, |spread| spread.median)
    };
    let classes = provider::classes(nodes);
    let leaves = nodes.iter().filter(|node| node.leaf.is_some());
    let demands: BTreeMap<u32, f64> = leaves.map(|leaf| (leaf.id, median(leaf, asked))).collect();
    let fluid = Fluid::of(&classes, &demands);
    let share = |node: &Node| Share {
        wanted_bps: of(node, wanted),
        asked_bps: median(node, asked),
        due_bps: fluid.passes(node.id),
        delivered_bps: median(node, delivered),
    };
    nodes.iter().map(share).collect()
}

/// Whether `node` is the class `id` or below it.
fn is_within(nodes: &[Node], node: &Node, id: u32) -> bool {
    let parent = |node: &&Node| nodes.iter().find(|parent| Some(parent.id) == node.class.parent);
    std::iter::successors(Some(node), parent).any(|node| node.id == id)
}

#[cfg(test)]
mod tests {
    use super::super::phase::PHASES;
    use super::*;

    /// The due rate of the class `name` in a phase with ideal senders, in Mbit/s.
    fn due(phase: &str, name: &str) -> f64 {
        let nodes = provider::nodes();
        let phase = PHASES.iter().find(|known| known.name == phase).unwrap();
        let asked = phase.asked_by_leaf();
        let shares = of_rates(&nodes, &asked, &[asked], &[[0.0; LEAVES]]);
        let node = nodes.iter().position(|node| node.name == name).unwrap();
        shares[node].due_bps / 1e6
    }

    #[track_caller]
    fn assert_due(phase: &str, name: &str, mbit: f64) {
        let due = due(phase, name);
        assert!((due - mbit).abs() < 0.01, "{name}, {phase}: {due} and not {mbit} Mbit/s");
    }

    #[test]
    fn each_phase_has_its_purpose() {
        // No class lacks anything.
        assert_due("morning", "link", 6.0 * 4.8);
        // The whole link; the worse priority gets its assured rate.
        assert_due("evening", "link", 80.0);
        assert_due("evening", "south-3 bulk", 3.0);
        // Bulk classes get what their subscribers' web classes leave, and share the rest by their
        // quanta.
        assert_due("south sleeps", "north-3 web", 4.0);
        assert_due("south sleeps", "link", 80.0);
        assert_due("south sleeps", "north-1 bulk", 9.2 + 19.0);
        assert_due("south sleeps", "north-2 bulk", 9.2 + 9.5);
        // One web is limited by its subscriber's ceiling only.
        assert_due("download", "north-2", 40.0);
        assert_due("download", "north-2 bulk", 4.0);
        assert_due("download", "link", 80.0);
        // A site is limited by its own.
        assert_due("south alone", "south", 50.0);
        assert_due("south alone", "south-1", 50.0 / 3.0);
    }

    #[test]
    fn an_inner_class_s_rate_is_the_sum_of_its_leaves() {
        let nodes = provider::nodes();
        let ones = [1.0; LEAVES];
        let shares = of_rates(&nodes, &ones, &[ones], &[[0.0; LEAVES], ones, ones]);
        let delivered = |name: &str| {
            let node = nodes.iter().position(|node| node.name == name).unwrap();
            shares[node].delivered_bps
        };
        assert_eq!(delivered("link"), 18.0);
        assert_eq!(delivered("south"), 9.0);
        assert_eq!(delivered("north-2"), 3.0);
        assert_eq!(delivered("south-1 call"), 1.0);
    }

    #[test]
    fn a_share_s_error_is_relative_to_its_due_rate() {
        let share = Share { wanted_bps: 9.0, asked_bps: 9.0, due_bps: 8.0, delivered_bps: 7.0 };
        assert_eq!(share.off_percent(), Some(-12.5));
        assert_eq!(Share { due_bps: 0.0, ..share }.off_percent(), None);
    }
}
