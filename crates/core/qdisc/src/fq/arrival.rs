//! A packet arrives: which band, which flow, and whether there is room.

use super::flow::Standing;
use super::{Beyond, Fq};
use crate::Verdict;
use narrows_packet::{DropReason, PacketId, Packets};
use narrows_units::Nanos;

impl Fq {
    /// Queues `id`, within all limits.
    pub(super) fn arrive(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        let headers = packets.headers(id);
        let (dscp, is_arp) = (headers.dscp, headers.is_arp);
        if is_arp {
            if self.control.backlog().packets >= self.config.limit {
                return self.discard(packets, id, DropReason::Limit);
            }
            self.queue_control(packets, id);
            return Verdict::Queued;
        }
        let band = self.bands.of(dscp);
        if self.bands.get_mut(band).packets() >= self.config.limit {
            self.counted.band_drops[usize::from(band)] += 1;
            return self.discard(packets, id, DropReason::Limit);
        }
        let horizon = now + self.config.horizon;
        if packets.meta(id).edt > horizon {
            if self.config.beyond == Beyond::Drop {
                self.counted.horizon_drops += 1;
                return self.discard(packets, id, DropReason::Horizon);
            }
            self.counted.horizon_caps += 1;
            packets.meta_mut(id).edt = horizon;
        }
        let flow = self.flow_of(packets, id, now);
        let queued = self.table.flows[flow as usize].queue.backlog().packets;
        if queued >= self.config.flow_limit {
            self.counted.flow_limit_drops += 1;
            return self.discard(packets, id, DropReason::FlowLimit);
        }
        if queued > packets.spare_frames() {
            return self.discard(packets, id, DropReason::NoFrame);
        }
        self.queue(packets, id, flow, band, now);
        Verdict::Queued
    }

    /// Queues `id` regardless of the limits.
    pub(super) fn take_in(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        let headers = packets.headers(id);
        let (dscp, is_arp) = (headers.dscp, headers.is_arp);
        if is_arp {
            self.queue_control(packets, id);
            return;
        }
        let flow = self.flow_of(packets, id, now);
        self.queue(packets, id, flow, self.bands.of(dscp), now);
    }

    /// The flow of a packet, which may be a new one.
    #[inline]
    fn flow_of(&mut self, packets: &Packets, id: PacketId, now: Nanos) -> u32 {
        let key = packets.headers(id).flow & self.config.orphan_mask;
        if let Some(flow) = self.table.flows.find(key) {
            return flow;
        }
        let before = self.table.collected();
        let flow = self.table.add(key, self.config.initial_quantum as i32, now);
        self.held.make_room(self.table.flows.capacity());
        self.counted.inactive_flows += 1;
        self.counted.inactive_flows -= (self.table.collected() - before) as u32;
        flow
    }

    /// Puts `id` at the end of `flow`.
    #[inline]
    fn queue(&mut self, packets: &mut Packets, id: PacketId, flow: u32, band: u8, now: Nanos) {
        let at = flow;
        let flow = &mut self.table.flows[at as usize];
        flow.band = band;
        if flow.queue.front().is_none() {
            self.counted.inactive_flows -= 1;
            // A silent flow earns no credit.
            flow.due = flow.due.max(now);
        }
        if flow.standing == Standing::Idle {
            if now.since(flow.idle_since) > self.config.refill_delay
                && flow.credit < self.config.quantum as i32
            {
                flow.credit = self.config.quantum as i32;
                flow.is_open = false;
            }
            flow.standing = Standing::Listed;
            self.table.wake(at);
            self.bands.get_mut(band).welcome(&mut self.table.flows, at);
        }
        let len = packets.len(id);
        self.table.flows[at as usize].queue.push_back(packets, id);
        self.bands.get_mut(band).count();
        self.backlog.packets += 1;
        self.backlog.bytes.0 += len.0;
    }

    fn queue_control(&mut self, packets: &mut Packets, id: PacketId) {
        self.backlog.packets += 1;
        self.backlog.bytes.0 += packets.len(id).0;
        self.counted.highprio += 1;
        self.control.push_back(packets, id);
    }

    #[cold]
    fn discard(&mut self, packets: &mut Packets, id: PacketId, reason: DropReason) -> Verdict {
        self.stats.drops += 1;
        packets.discard(id, reason);
        Verdict::Dropped
    }
}
