//! The shaper of an instance without siblings: a virtual clock.
//!
//! The clock says when the next packet may leave. Each packet moves it on by the time that it takes
//! at the rate. There is no burst to configure: a clock that fell behind while packets were queued
//! (the worker came late) catches up; one that fell behind while there were none starts over.
//!
//! If dropped packets count as sent (`ingress`), they move the clock, too. A second clock, moved
//! only by sent packets and by half as much again, guarantees at least two thirds of the rate under
//! any drops.
//!
//! Source: "Piece of CAKE", section III-D (deficit-mode shaper).
//!
//! Cost: a multiplication a packet.

use crate::OWED_MAX;
use narrows_units::{Bytes, Nanos, Rate};

/// Parts of a nanosecond that are kept, so that rounding is never seen: 2^32.
const FRACTION: u32 = 32;

/// How long a byte takes, in 2^-32 ns: right to one part in a hundred million at 400 Gbit/s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PerByte(u64);

impl PerByte {
    /// At `rate`, at least 8 bit/s.
    pub(super) fn at(rate: Rate) -> Self {
        let bits = u128::from(rate.bits_per_sec().max(8));
        Self(u64::try_from((8_000_000_000u128 << FRACTION) / bits).unwrap_or(u64::MAX))
    }

    /// The time of `charge` bytes.
    #[inline]
    pub(super) fn time(self, charge: u32) -> Nanos {
        Nanos((self.fine(charge) >> FRACTION) as u64)
    }

    #[inline]
    fn fine(self, charge: u32) -> u128 {
        u128::from(self.0) * u128::from(charge)
    }

    /// Converts `time` from the longer byte time `before` to the present one; rounded up.
    fn instead_of(self, before: Self, time: Nanos) -> Nanos {
        let scaled = u128::from(time.0) * u128::from(self.0);
        Nanos(scaled.div_ceil(u128::from(before.0.max(1))) as u64)
    }
}

/// The clock.
pub(super) struct Clock {
    per_byte: PerByte,
    /// When the next packet may leave, and 2^-32 ns beyond that.
    next: Nanos,
    fraction: u32,
    /// When one may leave regardless of drops.
    failsafe: Nanos,
}

impl Clock {
    pub(super) fn new(rate: Rate) -> Self {
        let (next, failsafe) = (Nanos::ZERO, Nanos::ZERO);
        Self { per_byte: PerByte::at(rate), next, fraction: 0, failsafe }
    }

    /// Applies `rate` from `now` on. Bookings are bytes: at a higher rate they take less time. At a
    /// lower rate no packet waits longer for those that had left before.
    pub(super) fn set_rate(&mut self, rate: Rate, now: Nanos) {
        let before = std::mem::replace(&mut self.per_byte, PerByte::at(rate));
        if self.per_byte.0 < before.0 {
            self.next = now.min(self.next) + self.per_byte.instead_of(before, self.next.since(now));
            let failsafe = self.per_byte.instead_of(before, self.failsafe.since(now));
            self.failsafe = now.min(self.failsafe) + failsafe;
        }
    }

    /// Counts bytes that left elsewhere, from where the clock stands; but nothing waits longer than
    /// [`OWED_MAX`] for them.
    pub(super) fn owe(&mut self, bytes: Bytes, now: Nanos) {
        let span = self.per_byte.time(u32::try_from(bytes.0).unwrap_or(u32::MAX));
        let latest = now + OWED_MAX;
        for clock in [&mut self.next, &mut self.failsafe] {
            *clock = (*clock + span).min(latest.max(*clock));
        }
    }

    /// The first packet after an idle time arrives.
    #[inline]
    pub(super) fn awake(&mut self, now: Nanos) {
        if self.next < now {
            self.next = now;
            self.failsafe = now;
            self.fraction = 0;
        }
    }

    /// Whether a packet may leave at `now`.
    ///
    /// # Errors
    /// When one may.
    #[inline]
    pub(super) fn may_leave(&self, now: Nanos) -> Result<(), Nanos> {
        if self.next <= now { Ok(()) } else { self.may_leave_late(now) }
    }

    /// Whether a packet may leave at `now`, while dropped packets are not yet compensated. Usually
    /// called once per batch.
    #[cold]
    fn may_leave_late(&self, now: Nanos) -> Result<(), Nanos> {
        if self.failsafe <= now { Ok(()) } else { Err(self.next.min(self.failsafe)) }
    }

    /// A packet that is charged `charge` leaves at `now`.
    #[inline]
    pub(super) fn sent(&mut self, charge: u32, now: Nanos) {
        let time = self.take(charge);
        self.failsafe = Nanos(now.0 + time.0 + time.0 / 2);
    }

    /// Counts a dropped packet as sent.
    pub(super) fn dropped(&mut self, charge: u32) {
        self.take(charge);
    }

    /// Advances by the time of `charge`.
    #[inline]
    fn take(&mut self, charge: u32) -> Nanos {
        let time = self.per_byte.fine(charge) + u128::from(self.fraction);
        self.fraction = time as u32;
        let time = Nanos((time >> FRACTION) as u64);
        self.next += time;
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: Rate = Rate::from_bits_per_sec(1_000_000_000);
    const PACKET: u32 = 1250;
    const TIME: Nanos = Nanos::from_micros(10);

    /// Sends packets that may leave at `now`. Returns their number.
    fn send(clock: &mut Clock, now: Nanos) -> u32 {
        let mut sent = 0;
        while clock.may_leave(now).is_ok() {
            clock.sent(PACKET, now);
            sent += 1;
        }
        sent
    }

    #[test]
    fn packets_leave_one_by_one_after_a_pause_however_long() {
        let mut clock = Clock::new(GIGABIT);
        for start in [1_000, 500_000] {
            let start = Nanos::from_micros(start);
            clock.awake(start);
            assert_eq!(send(&mut clock, start), 1);
            assert_eq!(clock.may_leave(start), Err(start + TIME));
            assert_eq!(send(&mut clock, start + TIME), 1);
        }
    }

    #[test]
    fn bookings_shrink_at_a_higher_rate_and_do_not_grow_at_a_lower_one() {
        let now = Nanos::from_secs(1);
        let mut clock = Clock::new(Rate::from_bits_per_sec(8));
        clock.awake(now);
        assert_eq!(send(&mut clock, now), 1);
        assert_eq!(clock.may_leave(now), Err(now + Nanos::from_secs(u64::from(PACKET))));
        clock.set_rate(GIGABIT, now);
        assert_eq!(clock.may_leave(now), Err(now + TIME));
        clock.set_rate(Rate::from_bits_per_sec(8), now);
        assert_eq!(clock.may_leave(now), Err(now + TIME));
    }

    #[test]
    fn bytes_that_left_elsewhere_take_time_unless_nothing_waited_meanwhile() {
        let now = Nanos::from_secs(1);
        let mut clock = Clock::new(GIGABIT);
        clock.awake(now);
        assert_eq!(send(&mut clock, now), 1);
        clock.owe(Bytes(u64::from(PACKET) * 5), now);
        assert_eq!(clock.may_leave(now), Err(now + Nanos(TIME.0 * 6)));
        clock.owe(Bytes(u64::MAX), now);
        assert_eq!(clock.may_leave(now), Err(now + OWED_MAX));
        // After a pause in which they could leave.
        let later = now + Nanos::from_secs(1);
        clock.owe(Bytes(u64::from(PACKET)), later);
        clock.awake(later);
        assert_eq!(clock.may_leave(later), Ok(()));
    }

    #[test]
    fn a_late_worker_catches_up() {
        let mut clock = Clock::new(GIGABIT);
        clock.awake(Nanos::from_secs(1));
        assert_eq!(send(&mut clock, Nanos::from_secs(1)), 1);
        assert_eq!(send(&mut clock, Nanos::from_secs(1) + Nanos(TIME.0 * 9)), 9);
    }

    #[test]
    fn nothing_is_lost_to_rounding_in_a_million_packets() {
        let mut clock = Clock::new(Rate::from_bits_per_sec(3_333_333_333));
        clock.awake(Nanos::ZERO);
        let time =
            Rate::from_bits_per_sec(3_333_333_333).time_for(narrows_units::Bytes(61 * 1_000_000));
        for _ in 0..1_000_000 {
            clock.sent(61, Nanos::ZERO);
        }
        assert!(clock.next.0.abs_diff(time.0) < 10, "{:?}", clock.next);
    }

    #[test]
    fn dropped_packets_take_time_but_never_more_than_a_third() {
        let mut clock = Clock::new(GIGABIT);
        let mut now = Nanos::ZERO;
        clock.awake(now);
        let mut sent = 0;
        while now < Nanos::from_millis(9) {
            match clock.may_leave(now) {
                Ok(()) => {
                    clock.dropped(1_000_000);
                    clock.sent(PACKET, now);
                    sent += 1;
                }
                Err(when) => now = when,
            }
        }
        // 900 would fit.
        assert!((599..=601).contains(&sent), "{sent}");
    }
}
