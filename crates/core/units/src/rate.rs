//! Rates in bits per second.

use crate::{Bytes, Nanos};
use std::fmt;

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// A rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

impl Rate {
    /// A rate of `bps` bits per second.
    pub const fn from_bits_per_sec(bps: u64) -> Self {
        Self(bps)
    }

    /// A rate of `bytes` bytes per second, the unit in which the kernel's qdiscs and
    /// `tc`'s JSON keep rates. Saturates.
    pub const fn from_bytes_per_sec(bytes: u64) -> Self {
        Self(bytes.saturating_mul(8))
    }

    /// The rate at which `bytes` pass in `span`; zero if no time passed.
    pub fn of(bytes: Bytes, span: Nanos) -> Self {
        if span == Nanos::ZERO {
            return Self(0);
        }
        let bps = u128::from(bytes.0) * 8 * NANOS_PER_SEC / u128::from(span.0);
        Self(u64::try_from(bps).unwrap_or(u64::MAX))
    }

    /// In bits per second.
    pub const fn bits_per_sec(self) -> u64 {
        self.0
    }

    /// In whole bytes per second, rounded down.
    pub const fn bytes_per_sec(self) -> u64 {
        self.0 / 8
    }

    /// Whether nothing may pass at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The least time in which `bytes` may pass, rounded up so that a packet that waits for it is
    /// never early. [`Nanos::MAX`] at a rate of zero.
    pub fn time_for(self, bytes: Bytes) -> Nanos {
        if self.0 == 0 {
            return Nanos::MAX;
        }
        // A 64-bit division is several times faster, and enough below 2 GB.
        if let Some(units) = bytes.0.checked_mul(8 * NANOS_PER_SEC as u64) {
            return Nanos(units.div_ceil(self.0));
        }
        let nanos = (u128::from(bytes.0) * 8 * NANOS_PER_SEC).div_ceil(u128::from(self.0));
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The bytes that may pass in `span`, rounded down. Saturates.
    pub fn bytes_in(self, span: Nanos) -> Bytes {
        if let Some(units) = self.0.checked_mul(span.0) {
            return Bytes(units / (8 * NANOS_PER_SEC as u64));
        }
        let bytes = u128::from(self.0) * u128::from(span.0) / (8 * NANOS_PER_SEC);
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            r if r >= 1_000_000_000 => write!(f, "{} Gbit/s", r as f64 / 1e9),
            r if r >= 1_000_000 => write!(f, "{} Mbit/s", r as f64 / 1e6),
            r if r >= 1_000 => write!(f, "{} kbit/s", r as f64 / 1e3),
            r => write!(f, "{r} bit/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_frame_at_a_gigabit_takes_twelve_microseconds() {
        let rate = Rate::from_bits_per_sec(1_000_000_000);
        assert_eq!(rate.time_for(Bytes(1500)), Nanos::from_micros(12));
    }

    #[test]
    fn waiting_times_round_up_and_allowances_round_down() {
        let rate = Rate::from_bits_per_sec(3);
        assert_eq!(rate.time_for(Bytes(1)), Nanos(2_666_666_667));
        assert_eq!(rate.bytes_in(Nanos(2_666_666_666)), Bytes(0));
    }

    #[test]
    fn nothing_passes_at_no_rate() {
        assert_eq!(Rate::default().time_for(Bytes(1)), Nanos::MAX);
        assert_eq!(Rate::default().bytes_in(Nanos::MAX), Bytes(0));
    }

    #[test]
    fn extremes_saturate_instead_of_wrapping() {
        let rate = Rate::from_bits_per_sec(u64::MAX);
        assert_eq!(Rate::from_bits_per_sec(1).time_for(Bytes(u64::MAX)), Nanos::MAX);
        assert_eq!(rate.bytes_in(Nanos::MAX), Bytes(u64::MAX));
        assert_eq!(Rate::from_bytes_per_sec(u64::MAX), rate);
    }

    #[test]
    fn rates_print_as_people_say_them() {
        assert_eq!(Rate::from_bits_per_sec(2_500_000_000).to_string(), "2.5 Gbit/s");
        assert_eq!(Rate::from_bits_per_sec(64_000).to_string(), "64 kbit/s");
    }
}
