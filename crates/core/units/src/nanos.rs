//! Time in nanoseconds.

#[cfg(debug_assertions)]
use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A point in time or a span of it, in nanoseconds.
///
/// Points are counted from an arbitrary epoch that all workers share (the data plane
/// uses `CLOCK_MONOTONIC`, the simulator starts at 0). 64 bits last 584 years.
/// Addition and subtraction saturate: a clock that seems to run backwards between
/// two cores yields a span of zero, never a huge one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(not(debug_assertions), derive(PartialOrd, Ord))]
pub struct Nanos(pub u64);

/// For the tests' profile, which does not inline the operators of a derived order: they are generic
/// functions of another crate, and took a third of the time of a simulation. In a release the
/// derived ones are faster: with these, `tbf` takes 13 % more instructions.
#[cfg(debug_assertions)]
impl Ord for Nanos {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

/// As for [`Ord`]: the tests' profile inlines this one.
#[cfg(debug_assertions)]
impl PartialOrd for Nanos {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    #[inline]
    fn lt(&self, other: &Self) -> bool {
        self.0 < other.0
    }

    #[inline]
    fn le(&self, other: &Self) -> bool {
        self.0 <= other.0
    }

    #[inline]
    fn gt(&self, other: &Self) -> bool {
        self.0 > other.0
    }

    #[inline]
    fn ge(&self, other: &Self) -> bool {
        self.0 >= other.0
    }
}

impl Nanos {
    /// The epoch, or no time at all.
    pub const ZERO: Self = Self(0);
    /// Later than anything: a deadline that never comes.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// A span of `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// A span of `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// This span in seconds, for display and division; not for scheduling.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The span from `earlier` to this point; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.since(other)
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 1_000 => write!(f, "{n} ns"),
            n if n < 1_000_000 => write!(f, "{} us", n as f64 / 1e3),
            n if n < 1_000_000_000 => write!(f, "{} ms", n as f64 / 1e6),
            n => write!(f, "{} s", n as f64 / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_runs_backwards_yields_no_time() {
        assert_eq!(Nanos(5) - Nanos(9), Nanos::ZERO);
    }

    #[test]
    fn never_stays_never() {
        assert_eq!(Nanos::MAX + Nanos::from_secs(1), Nanos::MAX);
    }

    #[test]
    fn spans_print_in_the_unit_that_reads_best() {
        assert_eq!(Nanos(999).to_string(), "999 ns");
        assert_eq!(Nanos::from_micros(200).to_string(), "200 us");
        assert_eq!(Nanos(1_500_000).to_string(), "1.5 ms");
        assert_eq!(Nanos::from_secs(2).to_string(), "2 s");
    }
}
