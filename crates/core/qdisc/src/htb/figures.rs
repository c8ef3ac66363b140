//! What an `htb` and its classes count on one queue.

use super::DEPTH_MAX;
use crate::hfsc::Service;
use crate::qdisc::both;
use narrows_packet::Backlog;
use narrows_units::Spread;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Statistics of `htb` only.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Packets that left without a class.
    pub direct_packets: u64,
    /// The leaf classes for which this queue has ever sent, by their number.
    pub leaves: BTreeMap<u32, LeafFigures>,
}

/// What is read often of a leaf class on one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassCount {
    /// Its number.
    pub class: u32,
    /// Frame bytes that left.
    pub sent_bytes: u64,
    /// Packets dropped.
    pub drops: u64,
    /// The backlog.
    pub backlog: Backlog,
    /// The flows that take turns there, if its qdisc tells them apart.
    pub flows: Option<u32>,
}

/// Statistics of a leaf class.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeafFigures {
    /// Frame bytes that left.
    pub sent_bytes: u64,
    /// Packets that left.
    pub sent_packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// How often it had packets but was not allowed to send.
    pub overlimits: u64,
    /// The backlog.
    pub backlog: Backlog,
    /// The flows that take turns there, if its qdisc tells them apart.
    pub flows: Option<u32>,
    /// Packets by lender: its distance from the leaf in classes, 0 for the leaf itself.
    pub granted: [u64; DEPTH_MAX],
    /// The credit at the rate and at the ceiling, in nanoseconds: of the class first, and then of
    /// those above it. Queues differ only by the moment at which each looked.
    pub tokens: Vec<[i64; 2]>,
    /// What the class has had, and then those above it, where classes have service curves. Queues
    /// differ only by the moment at which each looked.
    pub service: Vec<Service>,
    /// The delays of sent packets.
    pub delays: Spread,
}

impl Figures {
    /// Adds those of another queue.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.direct_packets += other.direct_packets;
        for (class, theirs) in &other.leaves {
            match self.leaves.entry(*class) {
                Entry::Occupied(mut ours) => ours.get_mut().merge(theirs),
                Entry::Vacant(none) => drop(none.insert(theirs.clone())),
            }
        }
    }
}

impl LeafFigures {
    fn merge(&mut self, other: &Self) {
        self.sent_bytes += other.sent_bytes;
        self.sent_packets += other.sent_packets;
        self.drops += other.drops;
        self.overlimits += other.overlimits;
        self.backlog += other.backlog;
        self.flows = both(self.flows, other.flows);
        for (ours, theirs) in self.granted.iter_mut().zip(other.granted) {
            *ours += theirs;
        }
        self.tokens.clone_from(&other.tokens);
        self.service.clone_from(&other.service);
        self.delays.merge(&other.delays);
    }
}
