//! Departure: which flow is next, and what CoDel decides about its packet.

use super::FqCodel;
use super::flow::Standing;
use crate::codel::Fate;
use narrows_cpu::prefetch;
use narrows_packet::{DropReason, PacketId, Packets};
use narrows_units::Nanos;

impl FqCodel {
    /// Takes out the packet that leaves next at `now`, and drops those before it that CoDel
    /// signals.
    #[inline]
    pub(super) fn depart(&mut self, packets: &mut Packets, now: Nanos) -> Option<PacketId> {
        self.relax();
        loop {
            let place = self.turn()?;
            let flow = &mut self.flows[place as usize];
            if flow.deficit <= 0 {
                flow.deficit += self.config.quantum as i32;
                self.line_up(place);
                continue;
            }
            let Some(id) = self.release(packets, place, now) else {
                self.retire(place);
                continue;
            };
            let flow = &mut self.flows[place as usize];
            flow.deficit = flow.deficit.saturating_sub_unsigned(packets.meta(id).len.0);
            packets.prefetch(flow.queue.front());
            self.sent(packets, id);
            return Some(id);
        }
    }

    /// The next flow: a new one, or else an old one.
    #[inline]
    fn turn(&self) -> Option<u32> {
        self.new.front().or(self.old.front())
    }

    /// The current flow, at `place`, waits for its next turn, behind the old flows.
    #[inline]
    fn line_up(&mut self, place: u32) {
        self.end_turn(place);
        self.flows[place as usize].standing = Standing::Old;
        self.counted.old_flows_len += 1;
        self.old.push_back(&mut self.flows, place);
    }

    /// The current flow, at `place`, has no packets any more.
    #[inline]
    fn end_turn(&mut self, place: u32) {
        if self.flows[place as usize].standing == Standing::New {
            self.new.pop_front(&mut self.flows);
            self.counted.new_flows_len -= 1;
        } else {
            self.old.pop_front(&mut self.flows);
            self.counted.old_flows_len -= 1;
        }
    }

    /// The current flow, at `place`, has no packets. A new flow waits for one more turn among the
    /// old ones, so that it does not count as new repeatedly and starve them.
    #[inline]
    fn retire(&mut self, place: u32) {
        let is_new = self.flows[place as usize].standing == Standing::New;
        if is_new && !self.old.is_empty() {
            self.line_up(place);
            return;
        }
        self.end_turn(place);
        self.flows[place as usize].standing = Standing::Idle;
    }

    /// The packet that the flow at `place` sends, if any.
    #[inline]
    fn release(&mut self, packets: &mut Packets, place: u32, now: Nanos) -> Option<PacketId> {
        loop {
            let Some(id) = self.pop(packets, place) else {
                self.flows[place as usize].codel.ran_empty();
                return None;
            };
            let codel = &mut self.flows[place as usize].codel;
            // As in Linux, the backlog of all flows counts.
            let behind = self.backlog.bytes;
            match self.aqm.judge(packets, id, codel, behind, now, &mut self.signals) {
                Fate::Leaves => return Some(id),
                Fate::Dropped => self.discard(packets, id, DropReason::Aqm),
            }
        }
    }

    /// Takes out the first packet of the flow at `place`.
    #[inline]
    pub(super) fn pop(&mut self, packets: &mut Packets, place: u32) -> Option<PacketId> {
        let id = self.flows[place as usize].queue.pop_front(packets)?;
        let len = packets.len(id);
        self.backlog.packets -= 1;
        self.backlog.bytes.0 -= len.0;
        self.memory -= packets.memory_for(len).0;
        if self.lengths.is_live() {
            self.lengths.changed(&mut self.flows, place);
        }
        Some(id)
    }

    /// Takes out a packet of the current flow.
    pub(super) fn drain_one(&mut self, packets: &mut Packets) -> Option<PacketId> {
        loop {
            let place = self.turn()?;
            if let Some(id) = self.pop(packets, place) {
                return Some(id);
            }
            self.end_turn(place);
            self.flows[place as usize].standing = Standing::Idle;
        }
    }

    /// Prefetches the most likely flow of `key`.
    #[inline]
    pub(super) fn prefetch(&self, key: u32) {
        if let Some(flow) = self.flows.guess(key) {
            prefetch(flow);
        }
    }
}
