//! Drop reasons.

/// Why a packet was dropped. Every drop has exactly one reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The qdisc's limit was reached (tail drop).
    Limit,
    /// Its departure time would have been beyond the drop horizon (EDT).
    Horizon,
    /// It is longer than the bucket will ever hold, so it could never leave.
    TooLong,
    /// No free frame to queue the packet in, or fewer than its flow has queued already.
    NoFrame,
    /// The TX ring was full and the port has no queue (`noqueue`).
    RingFull,
    /// The kernel delivered a frame that cannot be a packet: too short, or with more fragments than
    /// the port may send.
    Malformed,
    /// Its interface went away while it was queued.
    PortGone,
    /// Active queue management: its flow's delay was too long for too long, the flow does not
    /// respond, or the queue was too long on average (`red`).
    Aqm,
    /// A later acknowledgement of the same connection supersedes it (`ack-filter`).
    Acknowledged,
    /// Its flow had reached its limit of queued packets.
    FlowLimit,
    /// Its worker was silent for so long that the worker's frames took another way meanwhile.
    Stalled,
    /// On purpose: `netem` emulates a path that loses packets.
    Loss,
    /// No filter assigns it to a class, and its qdisc has no default class (`drr`, `hfsc`).
    Unclassified,
    /// The class in which it was queued was deleted.
    ClassGone,
    /// A filter's action dropped it (`action drop`, a policer).
    Filter,
    /// A balancer's service has no server for it, or none that can be reached.
    NoServer,
    /// Its TTL or hop limit was used up on the way to a balancer's server.
    Ttl,
    /// The queue to the CPU that was to receive it was full (`--rps`).
    CpuBusy,
    /// A user's own program dropped it (`--front`).
    Front,
    /// A user's own program failed, or gave no verdict of XDP (`--front`).
    FrontAborted,
}

impl DropReason {
    /// All reasons, in the order in which they are shown.
    pub const ALL: [Self; 20] = [
        Self::Limit,
        Self::Horizon,
        Self::TooLong,
        Self::NoFrame,
        Self::RingFull,
        Self::Malformed,
        Self::PortGone,
        Self::Aqm,
        Self::Acknowledged,
        Self::FlowLimit,
        Self::Stalled,
        Self::Loss,
        Self::Unclassified,
        Self::ClassGone,
        Self::Filter,
        Self::NoServer,
        Self::Ttl,
        Self::CpuBusy,
        Self::Front,
        Self::FrontAborted,
    ];

    /// The name under which the counter is shown, in text and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Horizon => "horizon",
            Self::TooLong => "too_long",
            Self::NoFrame => "no_frame",
            Self::RingFull => "ring_full",
            Self::Malformed => "malformed",
            Self::PortGone => "port_gone",
            Self::Aqm => "aqm",
            Self::Acknowledged => "acknowledged",
            Self::FlowLimit => "flow_limit",
            Self::Stalled => "stalled",
            Self::Loss => "loss",
            Self::Unclassified => "unclassified",
            Self::ClassGone => "class_gone",
            Self::Filter => "filter",
            Self::NoServer => "no_server",
            Self::Ttl => "ttl",
            Self::CpuBusy => "cpu_busy",
            Self::Front => "front",
            Self::FrontAborted => "front_aborted",
        }
    }
}

/// Packets dropped, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DropCounters([u64; DropReason::ALL.len()]);

impl DropCounters {
    /// Packets dropped for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Counts `packets` more for `reason`.
    pub fn add(&mut self, reason: DropReason, packets: u64) {
        self.0[reason as usize] += packets;
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// Packets dropped, for all reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Each reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.into_iter().map(|reason| (reason, self.get(reason)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_for_bpftrace_names_every_reason_by_its_number() {
        let script = include_str!("../../../../examples/bpftrace/delays.bt");
        for (number, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(number, reason as usize);
            let named = format!("@reason[{number}] = \"{}\";", reason.name());
            assert!(script.contains(&named), "the script lacks {named}");
        }
        assert_eq!(script.matches("@reason[").count(), DropReason::ALL.len() + 1);
    }

    #[test]
    fn every_reason_has_a_counter_and_a_name_of_its_own() {
        let mut counters = DropCounters::default();
        for (place, reason) in DropReason::ALL.into_iter().enumerate() {
            counters.add(reason, 1 << place);
        }
        for (place, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(counters.get(reason), 1 << place);
        }
        let names: std::collections::BTreeSet<_> =
            DropReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), DropReason::ALL.len());
    }
}
