//! Rates.

/// A rate in kilobits per second, from megabits; none if it is not a rate.
pub(crate) fn kbit(mbit: f64) -> Option<u64> {
    /// 100 Tbit/s; more is a wrong unit.
    const MBIT_MAX: f64 = 1e8;
    let sound = mbit.is_finite() && (0.0..=MBIT_MAX).contains(&mbit);
    sound.then(|| (mbit * 1000.0).round() as u64)
}

/// A rate of `kbit` kilobits per second, as `tc` reads it.
pub(crate) fn rate(kbit: u64) -> String {
    match kbit {
        0 => "0bit".to_owned(),
        _ if kbit.is_multiple_of(1_000_000) => format!("{}gbit", kbit / 1_000_000),
        _ if kbit.is_multiple_of(1_000) => format!("{}mbit", kbit / 1_000),
        _ => format!("{kbit}kbit"),
    }
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
