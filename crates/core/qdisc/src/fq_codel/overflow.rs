//! Too many packets, or too much memory: who loses some.
//!
//! The flow with most bytes loses from its head, as many as `drop_batch` and no more than half of
//! its bytes, at least one: looking for it is dear, and where one packet is too many others follow.

use super::FqCodel;
use narrows_packet::{DropReason, Packets};

/// Lists by length are given up when this share of the limits is free again.
const RELIEF: u32 = 4;

impl FqCodel {
    /// Whether more is queued than may be.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.backlog.packets > self.config.limit || self.is_over_memory()
    }

    fn is_over_memory(&self) -> bool {
        self.memory > self.config.memory_limit.0
    }

    /// Drops packets of the flow with most bytes.
    #[cold]
    pub(super) fn drop_batch(&mut self, packets: &mut Packets) {
        let is_over_memory = self.is_over_memory();
        if !self.lengths.is_live() {
            self.lengths.begin(&mut self.flows);
        }
        let Some(place) = self.lengths.longest() else { return };
        let half = self.flows[place as usize].queue.backlog().bytes.0 / 2;
        let (mut dropped, mut bytes) = (0, 0);
        while let Some(id) = self.pop(packets, place) {
            dropped += 1;
            bytes += packets.len(id).0;
            self.discard(packets, id, DropReason::Limit);
            if dropped >= self.config.drop_batch || bytes >= half {
                break;
            }
        }
        self.flows[place as usize].codel.add(dropped);
        self.counted.drop_overlimit += u64::from(dropped);
        if is_over_memory {
            self.counted.drop_overmemory += u64::from(dropped);
        }
    }

    /// Called now and then: drops the lists by length when there is room again.
    #[inline]
    pub(super) fn relax(&mut self) {
        if self.lengths.is_live() {
            self.end_lists();
        }
    }

    #[cold]
    fn end_lists(&mut self) {
        let limit = self.config.limit - self.config.limit / RELIEF;
        let memory = self.config.memory_limit.0 - self.config.memory_limit.0 / u64::from(RELIEF);
        if self.backlog.packets <= limit && self.memory <= memory {
            self.lengths.end(&mut self.flows);
        }
    }
}
