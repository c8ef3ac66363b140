//! When one flow sends on one queue.
//!
//! *Idea.* A slot is a place on a queue that flows take turns in. It counts the units (bytes,
//! or packets) that its rate has earned; when they pay for the last packet, the next one comes. A
//! flow that leaves, or a new rate, leaves the count as it is: so the bytes sent from a slot are
//! within a packet of the integral of its rates, however often these change.

use crate::setup::Kind;
use crate::traffic::pace::{Fine, Pace, Units};
use crate::traffic::seed::exponential;
use crate::traffic::sizes::Sizes;
use narrows_units::Nanos;
use rand::RngExt;
use rand_pcg::Pcg64;

/// The parameters that all slots of a group share.
pub(crate) struct Sending {
    pub(crate) kind: Kind,
    pub(crate) sizes: Sizes,
}

/// A place on a queue.
pub(crate) struct Slot {
    /// By number in its group; none while the place is empty.
    pub(crate) flow: Option<u32>,
    /// When its next packet comes. Means nothing while the place is empty.
    at: Fine,
    /// The rest of the wait; only meaningful while the place is empty.
    left: Units,
    pace: Pace,
    /// On, the last time or the next.
    on: (Fine, Fine),
}

impl Sending {
    /// An empty place, somewhere between two packets.
    pub(crate) fn empty_slot(&self, now: Fine, pace: Pace, chance: &mut Pcg64) -> Slot {
        let phase: f64 = chance.random();
        let left = match self.kind {
            Kind::Poisson(_) => self.wait(0, chance),
            Kind::Ping { .. } => Units::Parts(phase),
            _ => Units::Parts(phase * f64::from(self.sizes.draw(chance))),
        };
        Slot { flow: None, at: now, left, pace, on: self.first_on(now, chance) }
    }

    /// `flow` takes the empty `slot`, at `pace`.
    pub(crate) fn enter(
        &self,
        slot: &mut Slot,
        flow: u32,
        pace: Pace,
        now: Fine,
        chance: &mut Pcg64,
    ) {
        while slot.on.1 <= now {
            slot.on = self.next_on(slot.on.1, chance);
        }
        slot.flow = Some(flow);
        slot.pace = pace;
        slot.at = now.max(slot.on.0).plus(pace.time_for(slot.left));
        self.skip_off(slot, chance);
    }

    /// The flow in `slot` sends: says how long its packet is.
    pub(crate) fn send(&self, slot: &mut Slot, chance: &mut Pcg64) -> u32 {
        let len = self.sizes.draw(chance);
        slot.at = slot.at.plus(slot.pace.time_for(self.wait(len, chance)));
        self.skip_off(slot, chance);
        len
    }

    /// How long to wait after a packet of `len` bytes.
    fn wait(&self, len: u32, chance: &mut Pcg64) -> Units {
        match self.kind {
            Kind::Uneven(_) => Units::Parts(f64::from(len) * chance.random_range(0.5..1.5)),
            Kind::Poisson(_) => Units::Parts(exponential(chance) * self.sizes.mean()),
            Kind::Ping { .. } => Units::Whole(1),
            _ => Units::Whole(len),
        }
    }

    /// Off times do not count as waiting.
    fn skip_off(&self, slot: &mut Slot, chance: &mut Pcg64) {
        while slot.at > slot.on.1 {
            let over = slot.at.since(slot.on.1);
            slot.on = self.next_on(slot.on.1, chance);
            slot.at = slot.on.0.plus(over);
        }
    }

    fn first_on(&self, now: Fine, chance: &mut Pcg64) -> (Fine, Fine) {
        let Kind::OnOff { on, off, .. } = self.kind else { return (now, Fine::MAX) };
        let is_on = chance.random::<f64>() * (on + off).0 as f64 <= on.0 as f64;
        if is_on { (now, now.plus(around(on, chance))) } else { self.next_on(now, chance) }
    }

    fn next_on(&self, after: Fine, chance: &mut Pcg64) -> (Fine, Fine) {
        let Kind::OnOff { on, off, .. } = self.kind else { return (after, Fine::MAX) };
        let from = after.plus(around(off, chance));
        (from, from.plus(around(on, chance)))
    }
}

impl Slot {
    /// Its flow leaves.
    pub(crate) fn leave(&mut self, now: Fine) {
        if self.flow.take().is_some() {
            self.left = self.pace.units_in(self.at.since(now.max(self.on.0)));
        }
    }

    /// When its next packet comes.
    pub(crate) fn at(&self) -> Nanos {
        self.at.nanos()
    }
}

/// An exponential span of this mean.
fn around(mean: Nanos, chance: &mut Pcg64) -> Fine {
    Fine::from_nanos_f64(exponential(chance) * mean.0 as f64)
}
