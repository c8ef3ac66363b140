//! `fq`, as a worker uses it: a whole qdisc, with a departure time on every packet.
//!
//! So it does more than hold packets: it looks up a packet's flow, serves flows in turn and counts.
//! It is sized so that no flows share a queue, and has Linux's timer slack. Only a rate of its own
//! is not used, because its packets have departure times.

use super::subject::Holder;
use narrows_packet::{Batch, PacketId, Packets};
use narrows_qdisc::pacing::Slot;
use narrows_qdisc::{Config, Qdisc, Spec, fq};
use narrows_units::Nanos;

/// `fq`'s memory per bucket and per flow.
const BUCKET: usize = 4;
const FLOW: usize = 80;

/// The qdisc and its memory.
pub(super) struct Fair {
    qdisc: Box<dyn Qdisc>,
    memory: usize,
}

impl Fair {
    /// An empty one for `flows` flows.
    pub(super) fn new(flows: u32) -> Self {
        let buckets = flows.next_power_of_two().min(fq::BUCKETS_MAX);
        let config = fq::Config {
            limit: u32::MAX,
            flow_limit: u32::MAX,
            orphan_mask: u32::MAX,
            buckets,
            ..fq::Config::default()
        };
        let spec = Spec::new(Config::Fq(config));
        let memory = buckets as usize * BUCKET + flows.next_power_of_two() as usize * FLOW;
        Self { qdisc: spec.build(), memory }
    }
}

impl Holder for Fair {
    #[inline]
    fn insert(&mut self, packets: &mut Packets, id: PacketId, slot: Slot, now: Nanos) -> Nanos {
        packets.meta_mut(id).edt = slot.at;
        self.qdisc.enqueue(packets, id, now);
        slot.at
    }

    #[inline]
    fn release(&mut self, packets: &mut Packets, now: Nanos, left: &mut Batch) {
        self.qdisc.dequeue(packets, now, left);
    }

    fn memory(&self) -> usize {
        self.memory
    }
}
