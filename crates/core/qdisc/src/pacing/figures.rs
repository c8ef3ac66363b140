//! Statistics of a pacing qdisc, in addition to those of every qdisc.

use narrows_units::Bytes;

/// The figures of one instance, or of several together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Flows that are remembered: those with packets, and those whose next packet would have to
    /// wait; others until there is a reason to look.
    pub flows: u32,
    /// Flows with packets.
    pub throttled_flows: u32,
    /// Packets that had to wait for their time.
    pub throttled: u64,
    /// Packets dropped because their flow had too many queued.
    pub flow_limit_drops: u64,
    /// Packets dropped because their time lay beyond the horizon.
    pub horizon_drops: u64,
    /// Packets that leave at the horizon although their time is later.
    pub horizon_caps: u64,
    /// Returned packets that reported congestion towards their senders.
    pub congestion: u64,
    /// What queue management has done, if there is any.
    pub codel: Option<Signals>,
    /// Memory of the instance itself: flows and what holds packets, untouched parts included.
    pub memory: Bytes,
}

impl Figures {
    /// Adds the figures of the instance of another queue.
    pub fn merge(&mut self, other: &Self) {
        self.flows += other.flows;
        self.throttled_flows += other.throttled_flows;
        self.throttled += other.throttled;
        self.flow_limit_drops += other.flow_limit_drops;
        self.horizon_drops += other.horizon_drops;
        self.horizon_caps += other.horizon_caps;
        self.congestion += other.congestion;
        self.memory += other.memory;
        if let Some(theirs) = other.codel {
            let ours = self.codel.get_or_insert_default();
            ours.drops += theirs.drops;
            ours.marks += theirs.marks;
            ours.overlimit += theirs.overlimit;
        }
    }
}

/// What queue management has done, and what has been done where there were too many packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Signals {
    /// Packets that were dropped as a signal.
    pub drops: u64,
    /// Packets that were marked instead.
    pub marks: u64,
    /// Packets of the longest queues that were dropped because there were too many in all.
    pub overlimit: u64,
}
