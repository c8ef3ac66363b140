//! What an instance has done and holds, beyond what every qdisc tells: `struct
//! tc_fq_codel_qd_stats`.

use crate::codel::Signals;

/// The figures of one instance, or of several together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// CoDel's statistics, all flows together.
    pub signals: Signals,
    /// Packets dropped because there were too many, or took too much memory.
    pub drop_overlimit: u64,
    /// Those of them that took too much memory.
    pub drop_overmemory: u64,
    /// How often an empty flow got packets.
    pub new_flow_count: u64,
    /// Flows that have just got packets.
    pub new_flows_len: u32,
    /// Old flows.
    pub old_flows_len: u32,
    /// The memory of what is queued, in bytes.
    pub memory_used: u64,
}

impl Figures {
    /// Adds the figures of the instance of another queue.
    pub fn merge(&mut self, other: &Self) {
        self.signals.merge(&other.signals);
        self.drop_overlimit += other.drop_overlimit;
        self.drop_overmemory += other.drop_overmemory;
        self.new_flow_count += other.new_flow_count;
        self.new_flows_len += other.new_flows_len;
        self.old_flows_len += other.old_flows_len;
        self.memory_used += other.memory_used;
    }
}
