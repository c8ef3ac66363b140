//! A head's time has come: whether it leaves, or is dropped and the next one leaves instead. And
//! what happens to heads whose times were computed from terms that no longer apply.

use super::super::stamp::Moment;
use super::super::{Calendar, Slot};
use super::Queues;
use super::flow::Flow;
use narrows_packet::{DropReason, PaceId, PacketId, Packets};
use narrows_units::Nanos;

impl<C: Calendar> Queues<C> {
    /// `head` is due. Returns the packet that leaves: it, or one behind it, or none for now.
    #[inline]
    pub(super) fn release(
        &mut self,
        packets: &mut Packets,
        head: PacketId,
        now: Nanos,
    ) -> Option<PacketId> {
        // A head's flow is not at rest, and so never forgotten.
        let at = self.table.flows.find(self.key(packets, head))?;
        let flow = &mut self.table.flows[at as usize];
        let meta = packets.meta(head);
        let sojourn = now.since(meta.arrival);
        let behind = flow.queue.backlog().bytes.0;
        let leaves = if flow.codel.signals(&self.codel, sojourn, behind, now) {
            self.signal(packets, at, head, now)?
        } else {
            head
        };
        self.account.left(packets, leaves);
        self.follow(packets, at, now);
        Some(leaves)
    }

    /// CoDel signals with `head`, the head of the flow `at`: it is marked, or dropped together with
    /// as many behind it as necessary. Returns the packet that leaves now, if any.
    #[cold]
    fn signal(
        &mut self,
        packets: &mut Packets,
        at: u32,
        mut head: PacketId,
        now: Nanos,
    ) -> Option<PacketId> {
        loop {
            if self.ecn && packets.headers(head).ecn.is_capable() {
                packets.meta_mut(head).rewrite.mark();
                self.signals.marks += 1;
                return Some(head);
            }
            let flow = &mut self.table.flows[at as usize];
            let Some(next) = flow.queue.pop_front(packets) else { return Some(head) };
            let in_its_stead = flow.departure.at();
            flow.unstamp();
            self.account.left(packets, head);
            self.signals.drops += 1;
            self.account.dropped(packets, head, DropReason::Aqm);
            if self.lengths.is_live() {
                self.lengths.changed(&mut self.table.flows, at);
            }
            head = next;
            let arrival = packets.meta(head).arrival;
            let since = in_its_stead.max(Moment::at(arrival));
            let leaves = self.stamp(packets, at, head, since);
            let flow = &mut self.table.flows[at as usize];
            if leaves.max(flow.slot) > now {
                // The new head is longer than the dropped packet, and too long for the slot.
                self.insert(packets, at, head, leaves, now);
                return None;
            }
            flow.settle(leaves.max(flow.slot));
            let sojourn = now.since(arrival);
            let behind = flow.queue.backlog().bytes.0;
            if !flow.codel.signals(&self.codel, sojourn, behind, now) {
                return Some(head);
            }
        }
    }

    /// What leaves next at `now`.
    #[inline]
    pub(super) fn take(&mut self, packets: &mut Packets, now: Nanos) -> Option<PacketId> {
        loop {
            let head = self.calendar.pop(packets, now)?;
            let leaves = self.release(packets, head, now);
            if leaves.is_some() {
                return leaves;
            }
        }
    }

    /// Called first in each operation: if parameters have changed, or rates that filters give,
    /// heads get new times.
    #[inline]
    pub(super) fn refresh(&mut self, packets: &mut Packets, now: Nanos) {
        if !self.paces.is(packets.paces()) {
            self.follow_paces(packets, now);
        }
        if self.is_outdated {
            self.is_outdated = false;
            self.stamp_anew(packets, now, &|_, _| true);
        }
    }

    /// Follows rates that filters give: heads of flows whose rates have changed get new times.
    #[cold]
    fn follow_paces(&mut self, packets: &mut Packets, now: Nanos) {
        self.settle_up(now);
        let next = packets.paces().clone();
        let before = std::mem::replace(&mut self.paces, next.clone());
        if !self.is_outdated {
            self.stamp_anew(packets, now, &|flow, head| {
                [flow.before.pace, head].into_iter().any(|pace| next.differs_from(&before, pace))
            });
        }
    }

    /// Heads get new times where `is_outdated` holds for the flow and the number of the head's own
    /// rate. Time that a flow has waited under the old parameters is not compensated.
    #[cold]
    fn stamp_anew(
        &mut self,
        packets: &mut Packets,
        now: Nanos,
        is_outdated: &dyn Fn(&Flow, PaceId) -> bool,
    ) {
        let empty = (self.make)(&self.config);
        let mut before = std::mem::replace(&mut self.calendar, empty);
        // The present departures may already contain two frames of a flow.
        let later = Moment::at(now + Nanos(1));
        while let Some(head) = before.drain(packets) {
            let Some(at) = self.table.flows.find(self.key(packets, head)) else { continue };
            let flow = &mut self.table.flows[at as usize];
            if !is_outdated(flow, packets.headers(head).pace) {
                let slot = Slot::exactly(packets.meta(head).edt);
                self.calendar.insert(packets, head, slot, now);
                continue;
            }
            flow.unstamp();
            flow.slot = flow.slot.min(now);
            let leaves = self.stamp(packets, at, head, later);
            self.insert(packets, at, head, leaves, now);
        }
    }
}
