//! What decides when a packet may leave: nothing, a private clock, or a meter at a shared limit.
//!
//! A meter needs a packet's cost before it grants, and which packet leaves may change until the
//! last moment: a sparse flow's packet arrives, or queue management drops the chosen one. So a
//! grant is kept here as *paid*, for whichever packet leaves next.
//!
//! Dropped packets that count as sent (`ingress`) are paid for by those that leave, each up to half
//! as much again: under any drops, at least two thirds of the rate remain, as with the clock.

use super::clock::Clock;
use crate::{Meter, Share, Take, Weight};
use narrows_packet::Backlog;
use narrows_units::{Bytes, Nanos, Rate};

/// The most that dropped packets may still cost others, in multiples of the longest packet.
const DEBT_MAX: u64 = 1 << 20;

/// What keeps the rate of an instance.
pub(super) enum Limiter {
    /// There are no siblings.
    Own(Clock),
    /// There are.
    Shared(Shared),
    /// There is no rate.
    Unlimited,
}

pub(super) struct Shared {
    meter: Box<dyn Meter>,
    /// Granted, and not used.
    paid: u64,
    /// The cost of dropped packets that is not yet paid.
    debt: u64,
    /// The last value that the meter was given.
    yields: bool,
}

impl Limiter {
    pub(super) fn new(rate: Option<Rate>, meter: Option<Box<dyn Meter>>) -> Self {
        match (rate, meter) {
            (None, _) => Self::Unlimited,
            (Some(rate), None) => Self::Own(Clock::new(rate)),
            (Some(_), Some(meter)) => Self::Shared(Shared::new(meter)),
        }
    }

    /// Whether no other queue shares the limit.
    pub(super) fn is_own(&self) -> bool {
        !matches!(self, Self::Shared(_))
    }

    /// Applies `rate` from `now` on. The instance does not set a shared limit.
    pub(super) fn set_rate(&mut self, rate: Rate, now: Nanos) {
        match self {
            Self::Unlimited => {
                *self = Self::Own(Clock::new(rate));
                self.awake(now);
            }
            Self::Own(clock) => clock.set_rate(rate, now),
            Self::Shared(_) => {}
        }
    }

    /// A packet arrives at an empty queue.
    #[inline]
    pub(super) fn awake(&mut self, now: Nanos) {
        if let Self::Own(clock) = self {
            clock.awake(now);
        }
    }

    /// Whether a packet that is charged `charge` may leave at `now`. If there are other queues, a
    /// packet that is not urgent yields to urgent ones.
    ///
    /// # Errors
    /// When it, or a shorter one, may leave.
    #[inline]
    pub(super) fn may_leave(
        &mut self,
        charge: u32,
        is_urgent: impl FnOnce() -> bool,
        now: Nanos,
    ) -> Result<(), Nanos> {
        match self {
            Self::Own(clock) => clock.may_leave(now),
            Self::Shared(shared) => shared.pay(u64::from(charge), !is_urgent(), now),
            Self::Unlimited => Ok(()),
        }
    }

    /// Counts a departure.
    #[inline]
    pub(super) fn sent(&mut self, charge: u32, now: Nanos) {
        match self {
            Self::Own(clock) => clock.sent(charge, now),
            Self::Shared(shared) => shared.sent(u64::from(charge)),
            Self::Unlimited => {}
        }
    }

    /// Counts bytes that left elsewhere.
    pub(super) fn owe(&mut self, bytes: Bytes, now: Nanos) {
        match self {
            Self::Own(clock) => clock.owe(bytes, now),
            Self::Shared(shared) => shared.meter.owe(bytes, now),
            Self::Unlimited => {}
        }
    }

    /// One was dropped that counts as sent.
    pub(super) fn dropped(&mut self, charge: u32) {
        match self {
            Self::Unlimited => {}
            Self::Own(clock) => clock.dropped(charge),
            Self::Shared(shared) => {
                shared.debt = (shared.debt + u64::from(charge)).min(DEBT_MAX);
            }
        }
    }

    /// The queue overflows.
    pub(super) fn overflowed(&mut self) {
        if let Self::Shared(shared) = self {
            shared.meter.overflowed();
        }
    }

    /// The part of the burst that stores this meter's unused credit; `None` without siblings.
    pub(super) fn part_of_burst(&self) -> Option<Share> {
        match self {
            Self::Shared(shared) => Some(shared.meter.part_of_burst()),
            _ => None,
        }
    }

    /// Whether a packet that is charged `charge` could never leave.
    #[inline]
    pub(super) fn is_too_long(&self, charge: u32) -> bool {
        match self {
            Self::Shared(shared) => Bytes(u64::from(charge)) > shared.meter.longest(),
            _ => false,
        }
    }
}

impl Shared {
    fn new(meter: Box<dyn Meter>) -> Self {
        Self { meter, paid: 0, debt: 0, yields: false }
    }

    #[inline(never)]
    fn pay(&mut self, charge: u64, yields: bool, now: Nanos) -> Result<(), Nanos> {
        let cost = charge + self.debt.min(charge / 2);
        if self.paid >= cost {
            return Ok(());
        }
        if self.yields != yields {
            self.yields = yields;
            self.meter.yields(yields);
        }
        // An oversized packet that was accepted pays as much as possible.
        let rest = Bytes(cost - self.paid).min(self.meter.longest());
        match self.meter.take(rest, Nanos::ZERO, now) {
            Take::Granted => {
                self.paid = cost;
                Ok(())
            }
            Take::Wait(when) => Err(when),
        }
    }

    #[inline(never)]
    fn sent(&mut self, charge: u64) {
        let repaid = self.debt.min(charge / 2);
        self.debt -= repaid;
        self.paid = self.paid.saturating_sub(charge + repaid);
    }

    pub(super) fn report(&mut self, backlog: Backlog, now: Nanos) {
        self.meter.report(backlog, now);
    }

    pub(super) fn share(&self) -> Share {
        self.meter.share()
    }

    pub(super) fn weigh(&mut self, weight: Weight) {
        self.meter.weigh(weight);
    }
}
