//! A higher rate acts on what waits, too: all of it gets new times, in the same order.
//!
//! At the old rate a flow's packets may wait until the horizon, and arrivals would wait behind
//! them. A lower rate does not change times that were given.
//!
//! Cost: O(packets), once for each change.

use super::super::Calendar;
use super::super::stamp::Moment;
use super::Pacer;
use narrows_packet::{Fifo, Packets};
use narrows_units::Nanos;

impl<C: Calendar> Pacer<C> {
    /// Gives waiting packets new times, if their rate has risen since.
    #[inline]
    pub(super) fn refresh(&mut self, packets: &mut Packets, now: Nanos) {
        if self.is_outdated {
            self.stamp_anew(packets, now);
        }
    }

    #[cold]
    fn stamp_anew(&mut self, packets: &mut Packets, now: Nanos) {
        self.is_outdated = false;
        // The last frame is paid for once its time has passed.
        let paid = self.terms.after(Moment::at(now), self.config.frame);
        let mut waiting = Fifo::new();
        while let Some(id) = self.take_back(packets) {
            let began = Moment::at(packets.meta(id).edt);
            self.flows.get(self.config.key.of(packets, id), now).hasten(began);
            self.leave(packets, id);
            waiting.push_back(packets, id);
        }
        self.flows.hasten(paid, now);
        self.calendar = (self.make)(&self.config);
        if let Some(bundles) = &mut self.bundles {
            bundles.begin_anew();
        }
        let throttled = self.account.figures.throttled;
        while let Some(id) = waiting.pop_front(packets) {
            let held = self.hold(packets, id, now, false);
            debug_assert_eq!(held, Ok(()), "only limits could say no");
        }
        // They are the same packets.
        self.account.figures.throttled = throttled;
    }
}
