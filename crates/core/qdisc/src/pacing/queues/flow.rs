//! One flow: its queue, its times, its queue management. Two cache lines, of which packets that
//! wait behind others need the first.

use super::super::stamp::{Moment, Terms};
use crate::codel::Codel;
use crate::flow_table::NONE;
use crate::lengths::{Measured, Neighbours, UNLISTED};
use narrows_packet::{Fifo, PaceId};
use narrows_units::Nanos;

/// When a packet may leave, exact to 2^-32 ns, and the number of its own rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    nanos: u64,
    fraction: u32,
    pub(super) pace: PaceId,
}

impl Stamp {
    const NONE: Self = Self { nanos: 0, fraction: 0, pace: PaceId::NONE };

    #[inline]
    fn new(at: Moment, pace: PaceId) -> Self {
        Self { nanos: at.nanos, fraction: at.fraction, pace }
    }

    #[inline]
    pub(super) fn at(&self) -> Moment {
        Moment { nanos: self.nanos, fraction: self.fraction }
    }
}

/// A flow. Its first packet, the *head*, is in the calendar.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Flow {
    /// What stands behind the head.
    pub(super) queue: Fifo,
    /// When the head may leave; without one, when the last packet was allowed to.
    pub(super) departure: Stamp,
    /// How long that packet is.
    pub(super) len: u32,
    /// How long the one before the head was.
    pub(super) before_len: u32,
    /// Bytes that leave in `slot`.
    pub(super) bytes: u32,
    /// Its key.
    pub(super) key: u32,
    /// The next flow in its bucket, or the next free place.
    pub(super) chain: u32,
    /// Whether it has a head, and so packets.
    pub(super) stands: bool,
    /// In which list of [`Lengths`](crate::lengths::Lengths) it is, if in any.
    pub(super) class: u8,
    /// When that packet leaves, rounded up.
    pub(super) slot: Nanos,
    /// When the one before the head might leave.
    pub(super) before: Stamp,
    /// Its neighbours in that list.
    pub(super) neighbours: Neighbours,
    pub(super) codel: Codel,
}

/// A packet that becomes the first of its flow.
#[derive(Clone, Copy)]
pub(super) struct Head {
    /// The terms for it.
    pub(super) terms: Terms,
    pub(super) len: u32,
    /// The number of its own rate.
    pub(super) pace: PaceId,
}

impl Flow {
    pub(super) const fn new(key: u32) -> Self {
        Self {
            queue: Fifo::new(),
            departure: Stamp::NONE,
            len: 0,
            before_len: 0,
            bytes: 0,
            key,
            chain: NONE,
            stands: false,
            class: UNLISTED,
            slot: Nanos::ZERO,
            before: Stamp::NONE,
            neighbours: Neighbours::NONE,
            codel: Codel::new(),
        }
    }

    /// Packets that are queued.
    #[inline]
    pub(super) const fn queued(&self) -> u32 {
        self.queue.backlog().packets + self.stands as u32
    }

    /// When a packet behind all queued ones may leave, if all have the rate of the last that was
    /// stamped, which `terms` are for.
    #[inline]
    pub(super) fn end(&self, terms: &Terms) -> Moment {
        let ahead = self.queue.backlog().bytes.0 + u64::from(self.len);
        terms.after(self.departure.at(), u32::try_from(ahead).unwrap_or(u32::MAX))
    }

    /// Gives the next packet, `next`, its time, if `last` are the terms for the one before: no
    /// earlier than `since`, and no later than `latest` whatever the rate.
    #[inline]
    pub(super) fn stamp(
        &mut self,
        last: &Terms,
        next: &Head,
        since: Moment,
        latest: Nanos,
    ) -> bool {
        let Head { terms, len, pace } = *next;
        // A late packet earns no credit for the time since.
        let mut departure = last.after(self.departure.at(), self.len).max(since);
        if departure.rounded_up() <= self.slot && self.bytes.saturating_add(len) > terms.allowance {
            // A packet that is too much for the slot goes behind it, as if it had been queued
            // there.
            let behind = terms.after(Moment::at(self.slot), len);
            departure = behind.max(Moment::at(self.slot + Nanos(1)));
        }
        let is_capped = departure.rounded_up() > latest;
        if is_capped {
            departure = Moment::at(latest).max(since);
        }
        (self.before, self.before_len) = (self.departure, self.len);
        (self.departure, self.len) = (Stamp::new(departure, pace), len);
        is_capped
    }

    /// The head leaves at `slot`, or has.
    #[inline]
    pub(super) fn settle(&mut self, slot: Nanos) {
        self.bytes = if slot == self.slot { self.bytes.saturating_add(self.len) } else { self.len };
        self.slot = slot;
    }

    /// Undoes [`Flow::stamp`] and [`Flow::settle`]: the head does not leave.
    #[inline]
    pub(super) fn unstamp(&mut self) {
        self.bytes -= self.len;
        (self.departure, self.len) = (self.before, self.before_len);
    }

    /// Forgets what it has sent, if its next packet might leave at `now` by `terms`, those for the
    /// last one.
    pub(super) fn settle_up(&mut self, terms: &Terms, now: Nanos) {
        if !self.stands && self.end(terms) <= Moment::at(now) {
            (self.departure, self.len) = (Stamp::NONE, 0);
        }
    }

    /// Whether nothing would be lost if it were forgotten at `now`.
    pub(super) fn is_at_rest(
        &self,
        terms: &Terms,
        codel: &crate::codel::Terms,
        now: Nanos,
    ) -> bool {
        !self.stands
            && self.slot < now
            && self.end(terms) <= Moment::at(now)
            && self.codel.is_at_rest(codel, now)
    }
}

impl Measured for Flow {
    /// What stands behind the head.
    #[inline]
    fn length(&self) -> u64 {
        self.queue.backlog().bytes.0
    }

    #[inline]
    fn class(&mut self) -> &mut u8 {
        &mut self.class
    }

    #[inline]
    fn neighbours(&mut self) -> &mut Neighbours {
        &mut self.neighbours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_fits_two_cache_lines_and_waiting_needs_one() {
        assert_eq!(size_of::<Flow>(), 128);
        assert!(std::mem::offset_of!(Flow, slot) >= 64 && std::mem::offset_of!(Flow, class) < 64);
    }
}
