//! A higher rate acts on what waits, too: packets get new times, in the same order.
//!
//! At the old rate a flow's packets may wait until the horizon, and arrivals would wait behind
//! them. A lower rate does not change times that were given.
//!
//! *Which packets.* All, if `maxrate` rises. If rates rise that filters give, those of the flows
//! that have one of them; all others keep their times, to the nanosecond, however often rates of
//! others change.
//!
//! With a second rate, of hosts or connections, all packets get new times in both cases.
//!
//! *What a flow has sent* it pays for once: its first packet leaves no later than a frame takes at
//! its new rate. A flow without packets has no rate that is known here: it gets that bound only
//! if `maxrate` rises.
//!
//! Cost: O(packets), once for each change; and O(flows), if `maxrate` rises.

use super::super::stamp::Moment;
use super::super::{Calendar, Slot};
use super::Pacer;
use narrows_packet::{Fifo, PacketId, Packets};
use narrows_units::Nanos;
use std::collections::HashSet;

impl<C: Calendar> Pacer<C> {
    /// Gives waiting packets new times, if `maxrate` has risen since.
    #[inline]
    pub(super) fn refresh(&mut self, packets: &mut Packets, now: Nanos) {
        if self.is_outdated {
            self.renew(packets, now, &|_, _| true);
        }
    }

    /// Refreshes flows also if rates have risen that filters give. Called once for each batch.
    #[inline]
    pub(super) fn refresh_all(&mut self, packets: &mut Packets, now: Nanos) {
        if !self.paces.is(packets.paces()) {
            self.follow_paces(packets, now);
        }
        self.refresh(packets, now);
    }

    #[cold]
    fn follow_paces(&mut self, packets: &mut Packets, now: Nanos) {
        let next = packets.paces().clone();
        let before = std::mem::replace(&mut self.paces, next);
        if self.is_outdated || self.account.backlog().is_empty() {
            return;
        }
        if self.beside.is_some() {
            // Its clock has counted all packets, and cannot count some of them again.
            self.is_outdated = true;
            return;
        }
        self.renew(packets, now, &|packets, id| {
            packets.paces().is_raised_since(&before, packets.headers(id).pace)
        });
    }

    /// Gives new times to the packets of all flows that have one for which `is_outdated` holds.
    #[cold]
    fn renew(
        &mut self,
        packets: &mut Packets,
        now: Nanos,
        is_outdated: &dyn Fn(&Packets, PacketId) -> bool,
    ) {
        if std::mem::take(&mut self.is_outdated) {
            // The last frame is paid for once its time has passed.
            self.flows.bring_idle_forward(self.terms.after(Moment::at(now), self.config.frame));
            if let Some(beside) = &mut self.beside {
                beside.bring_forward(&self.config, now);
            }
        }
        let (mut waiting, mut outdated) = (Fifo::new(), HashSet::new());
        while let Some(id) = self.take_back(packets) {
            if is_outdated(packets, id) {
                outdated.insert(self.key(packets, id));
            }
            waiting.push_back(packets, id);
        }
        self.calendar = (self.make)(&self.config);
        if let Some(bundles) = &mut self.bundles {
            bundles.begin_anew();
        }
        let mut again = Fifo::new();
        for _ in 0..waiting.backlog().packets {
            let Some(id) = waiting.pop_front(packets) else { break };
            let at = packets.meta(id).edt;
            if outdated.contains(&self.key(packets, id)) {
                self.leave(packets, id);
                packets.meta_mut(id).edt = at;
                again.push_back(packets, id);
            } else {
                self.calendar.insert(packets, id, Slot::exactly(at), now);
            }
        }
        let throttled = self.account.figures.throttled;
        while let Some(id) = again.pop_front(packets) {
            self.begin(packets, id, now);
            let held = self.hold(packets, id, now, false);
            debug_assert_eq!(held, Ok(()), "only limits could say no");
        }
        // They are the same packets.
        self.account.figures.throttled = throttled;
    }

    /// If `id` is the first of its flow that waits, the flow begins with it.
    fn begin(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        let slowed = packets.pace(id).and_then(|own| self.terms.slowed(&own, &self.config));
        let paid = slowed.unwrap_or(self.terms).after(Moment::at(now), self.config.frame);
        let began = Moment::at(packets.meta(id).edt);
        let key = self.key(packets, id);
        let flow = self.flows.get(key, now);
        if flow.queued() == 0 {
            flow.bring_forward(began.min(paid));
            flow.slot = flow.slot.min(now);
        }
    }
}
