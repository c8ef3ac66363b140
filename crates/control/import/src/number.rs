//! Rates.

use narrows_units::Rate;

/// A rate in kilobits per second, from megabits; none if it is not a rate.
pub(crate) fn kbit(mbit: f64) -> Option<u64> {
    /// 100 Tbit/s; more is a wrong unit.
    const MBIT_MAX: f64 = 1e8;
    let sound = mbit.is_finite() && (0.0..=MBIT_MAX).contains(&mbit);
    sound.then(|| (mbit * 1000.0).round() as u64)
}

/// A rate of `kbit` kilobits per second, as `tc` reads it.
pub(crate) fn rate(kbit: u64) -> String {
    narrows_directory::rate_words(of_kbit(kbit))
}

/// A rate of `kbit` kilobits per second.
pub(crate) fn of_kbit(kbit: u64) -> Rate {
    Rate::from_bits_per_sec(kbit.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_exact_to_a_kilobit() {
        assert_eq!(kbit(0.5).map(rate).as_deref(), Some("500kbit"));
        assert_eq!(kbit(1000.0).map(rate).as_deref(), Some("1gbit"));
        assert_eq!(kbit(1.25).map(rate).as_deref(), Some("1250kbit"));
        assert_eq!(kbit(f64::NAN), None);
        assert_eq!(kbit(-1.0), None);
        assert_eq!(kbit(1e300), None);
    }
}
