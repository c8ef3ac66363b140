//! Numbers as `tc` prints them: rounded for readability. Not for saving, see [`crate::save`].

use narrows_units::Rate;

/// The base of the prefixes of rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Prefixes {
    /// By thousands: `Kbit`.
    #[default]
    Decimal,
    /// By 1024: `Kibit` (`tc -iec`).
    Binary,
}

/// A rate in the largest unit that divides it, or the largest that leaves four digits.
pub(crate) fn rate(rate: Rate, prefixes: Prefixes) -> String {
    const UNITS: [&str; 5] = ["", "K", "M", "G", "T"];
    let (base, infix) = match prefixes {
        Prefixes::Decimal => (1_000, ""),
        Prefixes::Binary => (1_024, "i"),
    };
    let mut value = rate.bytes_per_sec().saturating_mul(8);
    let mut unit = 0;
    while unit + 1 < UNITS.len()
        && value >= base
        && (value.is_multiple_of(base) || value >= base * base)
    {
        value /= base;
        unit += 1;
    }
    let infix = if unit > 0 { infix } else { "" };
    format!("{value}{}{infix}bit", UNITS[unit])
}

/// A size in KiB or MiB if it is close to a whole number of them, otherwise in bytes.
pub(crate) fn size(bytes: u64) -> String {
    const K: f64 = 1024.0;
    const M: f64 = 1024.0 * K;
    let value = bytes as f64;
    let near = |unit: f64, tolerance: f64| {
        let whole = (value / unit).round_ties_even();
        (value >= unit && (unit * whole - value).abs() < tolerance).then_some(whole)
    };
    if let Some(whole) = near(M, 1024.0) {
        format!("{}Mb", significant(whole, 6))
    } else if let Some(whole) = near(K, 16.0) {
        format!("{}Kb", significant(whole, 6))
    } else {
        format!("{bytes}b")
    }
}

/// A time, given in microseconds, with three digits.
pub(crate) fn time(micros: u64) -> String {
    let value = micros as f64;
    if micros >= 1_000_000 {
        format!("{}s", significant(value / 1e6, 3))
    } else if micros >= 1_000 {
        format!("{}ms", significant(value / 1e3, 3))
    } else {
        format!("{micros}us")
    }
}

/// A time, given in nanoseconds, with three digits.
pub(crate) fn nanos(nanos: u64) -> String {
    let value = nanos as f64;
    if nanos >= 1_000_000_000 {
        format!("{}s", significant(value / 1e9, 3))
    } else if nanos >= 1_000_000 {
        format!("{}ms", significant(value / 1e6, 3))
    } else if nanos >= 1_000 {
        format!("{}us", significant(value / 1e3, 3))
    } else {
        format!("{nanos}ns")
    }
}

/// C's `%g`.
pub(crate) fn general(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { significant(value, 6) }
}

/// C's `%.{digits}g`.
fn significant(value: f64, digits: usize) -> String {
    // Rounding may carry into another digit, so the exponent is taken after rounding.
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_trailing_zeros(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    without_trailing_zeros(&format!("{value:.decimals$}")).to_owned()
}

fn without_trailing_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_keep_the_unit_that_loses_nothing_or_little() {
        let print = |bits| rate(Rate::from_bits_per_sec(bits), Prefixes::Decimal);
        assert_eq!(print(8), "8bit");
        assert_eq!(print(64_000), "64Kbit");
        assert_eq!(print(1_024), "1024bit");
        assert_eq!(print(7_777_776), "7777Kbit");
        assert_eq!(print(1_000_000_000), "1Gbit");
        assert_eq!(print(1_000_000_000_000_000_000), "1000000Tbit");
    }

    #[test]
    fn rates_may_count_by_1024() {
        let print = |bits| rate(Rate::from_bits_per_sec(bits), Prefixes::Binary);
        assert_eq!(print(1_000_000), "1000000bit");
        assert_eq!(print(1_048_576), "1Mibit");
        assert_eq!(print(1_234_560), "1205Kibit");
        assert_eq!(print(8), "8bit");
    }

    #[test]
    fn sizes_near_a_unit_are_printed_in_it() {
        assert_eq!(size(0), "0b");
        assert_eq!(size(1540), "1540b");
        assert_eq!(size(2048), "2Kb");
        assert_eq!(size(32_750), "32750b");
        assert_eq!(size(32_760), "32Kb");
        assert_eq!(size(1_048_576), "1Mb");
        assert_eq!(size(1_049_000), "1Mb");
        assert_eq!(size(1_514_000), "1514000b");
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(time(0), "0us");
        assert_eq!(time(999), "999us");
        assert_eq!(time(1_496), "1.5ms");
        assert_eq!(time(50_000), "50ms");
        assert_eq!(time(99_428), "99.4ms");
        assert_eq!(time(999_999), "1e+03ms");
        assert_eq!(time(1_000_000), "1s");
        assert_eq!(time(4_294_000_000), "4.29e+03s");
    }
}
