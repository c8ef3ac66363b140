//! Converts the program's counters into the figures of qdiscs and classes.

use crate::Numbers;
use narrows_bpf::tree::{Seat, Totals};
use narrows_policy::{Key, NodeStats, Plan};
use narrows_qdisc::htb::{Figures, LeafFigures};
use narrows_qdisc::{Config, Detail, Stats};
use std::collections::BTreeMap;

/// The counters of a port's program.
pub struct Counted {
    /// Everything that was to leave there since its root qdisc was installed.
    pub totals: Totals,
    /// By the numbers of classes; 0 is what had none.
    pub seats: BTreeMap<u32, Seat>,
}

/// The figures of every qdisc of `plan`, whose classes have `numbers`.
pub fn figures(plan: &Plan, numbers: &Numbers, counted: &Counted) -> Vec<NodeStats> {
    let leaves = leaves(plan, numbers);
    let seat = |number: u32| counted.seats.get(&number).copied().unwrap_or_default();
    let stats_of = |key: Key| {
        let node = plan.nodes.get(&key);
        let mut stats = match leaves.iter().find(|leaf| leaf.queue == Some(key)) {
            Some(leaf) => stats(&seat(leaf.number)),
            None => of_all(&counted.totals),
        };
        if let (Some(Config::Htb(_)), Some(handle)) = (node.map(|node| &*node.config), key.handle) {
            let of_htb = leaves.iter().filter(|leaf| leaf.qdisc == handle);
            let leaves = of_htb.map(|leaf| (leaf.id, leaf_figures(&seat(leaf.number)))).collect();
            let direct_packets = seat(0).own_packets;
            stats.detail = Some(Detail::Htb(Box::new(Figures { direct_packets, leaves })));
        }
        NodeStats { parent: key.parent, handle: key.handle, stats }
    };
    plan.keys().into_iter().map(stats_of).collect()
}

/// A leaf class.
struct Leaf {
    qdisc: narrows_policy::Handle,
    id: u32,
    number: u32,
    /// The qdisc in it.
    queue: Option<Key>,
}

fn leaves(plan: &Plan, numbers: &Numbers) -> Vec<Leaf> {
    let mut all = Vec::new();
    for (key, node) in &plan.nodes {
        let Some(qdisc) = key.handle else { continue };
        // A qdisc that is one class.
        if let Some(number) = numbers.get((qdisc, 0)) {
            all.push(Leaf { qdisc, id: 0, number, queue: node.children.first().copied() });
        }
        for (&id, class) in plan.classes.get(&qdisc).into_iter().flatten() {
            if let (Some(number), Some(queue)) = (numbers.get((qdisc, id)), class.leaf) {
                all.push(Leaf { qdisc, id, number, queue: Some(queue) });
            }
        }
    }
    all
}

fn stats(seat: &Seat) -> Stats {
    Stats {
        sent_bytes: seat.bytes,
        sent_packets: seat.own_packets + seat.borrowed_packets,
        drops: seat.aqm_drops + seat.limit_drops,
        ..Stats::default()
    }
}

fn of_all(totals: &Totals) -> Stats {
    let Totals { limit_drops, aqm_drops, unclassified_drops, port_gone_drops, .. } = *totals;
    Stats {
        sent_bytes: totals.sent_bytes,
        sent_packets: totals.sent_packets,
        drops: limit_drops + aqm_drops + unclassified_drops + port_gone_drops,
        overlimits: limit_drops + aqm_drops,
        ..Stats::default()
    }
}

fn leaf_figures(seat: &Seat) -> LeafFigures {
    let mut figures = LeafFigures {
        sent_bytes: seat.bytes,
        sent_packets: seat.own_packets + seat.borrowed_packets,
        drops: seat.aqm_drops + seat.limit_drops,
        overlimits: seat.aqm_drops + seat.limit_drops + seat.marked,
        ..LeafFigures::default()
    };
    // Counted at the parent: the program does not report the lender.
    figures.granted[..2].copy_from_slice(&[seat.own_packets, seat.borrowed_packets]);
    figures
}
