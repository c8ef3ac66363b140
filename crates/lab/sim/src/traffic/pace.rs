//! Time in fractions of a nanosecond, so that even intervals stay even.
//!
//! *Idea.* A full frame at 400 Gbit/s takes 30.28 ns, and rounding that is off by 1 %. Time is kept
//! in units of 2⁻⁶⁴ ns and so is the time that a byte takes. Then the next packet takes a
//! multiplication and an addition, without a division, and the error of the rate is below 2⁻⁶⁴ ns
//! per byte: a run would have to send 10¹⁹ bytes before a packet came at a wrong nanosecond because
//! of it.

use narrows_units::Nanos;

/// A point in time, or a span, in 2⁻⁶⁴ ns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Fine(u128);

const ONE: f64 = 18_446_744_073_709_551_616.0;

impl Fine {
    /// Later than anything.
    pub(crate) const MAX: Self = Self(u128::MAX);

    /// Rounded down.
    pub(crate) fn nanos(self) -> Nanos {
        Nanos((self.0 >> 64) as u64)
    }

    /// From nanoseconds.
    pub(crate) fn from_nanos_f64(nanos: f64) -> Self {
        Self((nanos * ONE) as u128)
    }

    /// Saturates.
    pub(crate) fn plus(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// From `earlier` to here; nothing if that is later.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl From<Nanos> for Fine {
    fn from(at: Nanos) -> Self {
        Self(u128::from(at.0) << 64)
    }
}

/// How long a unit (a byte, or a packet) takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace(Fine);

impl Pace {
    /// Bytes at `share` of `bits_per_sec`.
    pub(crate) fn of_rate(bits_per_sec: u64, share: Share) -> Self {
        let above = 8_000_000_000 * u128::from(share.of) * u128::from(share.among);
        let below = u128::from(bits_per_sec) * u128::from(share.part);
        if below == 0 {
            return Self(Fine::MAX);
        }
        // A long division with 32-bit digits, two of them behind the point.
        let (mut digits, mut rest) = ((above / below).min(u128::from(u64::MAX)), above % below);
        for _ in 0..2 {
            digits = (digits << 32) | ((rest << 32) / below);
            rest = (rest << 32) % below;
        }
        Self(Fine(digits))
    }

    /// One unit at each `interval`.
    pub(crate) fn of_interval(interval: Nanos) -> Self {
        Self(interval.into())
    }

    /// How long `units` take.
    pub(crate) fn time_for(self, units: Units) -> Fine {
        match units {
            Units::Whole(n) => Fine(self.0.0.saturating_mul(u128::from(n))),
            Units::Parts(n) => Fine((self.0.0 as f64 * n) as u128),
        }
    }

    /// How many units pass in `span`.
    pub(crate) fn units_in(self, span: Fine) -> Units {
        Units::Parts(span.0 as f64 / self.0.0 as f64)
    }
}

/// The condition for a flow's next packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Units {
    /// An exact number.
    Whole(u32),
    /// A random number, or the rest of one.
    Parts(f64),
}

/// A part of a rate: `part` of `of`, divided among this many flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    /// Below 2³³.
    pub(crate) part: u64,
    /// Below 2⁴⁰.
    pub(crate) of: u64,
    /// At least one.
    pub(crate) among: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_million_frames_take_as_long_as_the_rate_says(
            bits_per_sec in 10_000_000u64..400_000_000_000,
            len in 60u32..9216,
            among in 1u32..1000,
        ) {
            let share = Share { part: 3, of: 7, among };
            let pace = Pace::of_rate(bits_per_sec, share);
            let frame = pace.time_for(Units::Whole(len));
            let end = (0..1_000_000).fold(Fine(0), |at, _| at.plus(frame)).nanos();
            let exact = 1_000_000 * u128::from(len) * 8_000_000_000 * 7 * u128::from(among)
                / (u128::from(bits_per_sec) * 3);
            prop_assert!(exact.abs_diff(u128::from(end.0)) <= 1, "{} not {}", end.0, exact);
        }
    }

    #[test]
    fn the_rest_of_a_wait_continues_at_another_pace() {
        let slow = Pace::of_interval(Nanos(1000));
        let fast = Pace::of_interval(Nanos(10));
        let left = slow.units_in(Nanos(250).into());
        assert_eq!(left, Units::Parts(0.25));
        assert_eq!(fast.time_for(left), Fine::from_nanos_f64(2.5));
    }
}
