//! Numbers with units, as an operator writes them.

use narrows_units::{Nanos, Rate};

/// The longest time: 400 days.
const TIME_MAX_S: f64 = 400.0 * 86_400.0;
/// The highest rate: 100 Tbit/s.
const RATE_MAX_BPS: f64 = 1e14;

/// A number that is finite and not negative, and what follows it.
fn number(word: &str) -> Option<(f64, &str)> {
    let end = word.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'));
    let (digits, unit) = word.split_at(end.unwrap_or(word.len()));
    let value = digits.parse::<f64>().ok()?;
    value.is_finite().then_some((value, unit))
}

/// `50ms`, `5m`, `1h`.
pub(crate) fn time(word: &str) -> Result<Nanos, String> {
    let wrong = || format!("\"{word}\" is no time: write 50ms, 30s, 5m, 1h or 2d");
    let (value, unit) = number(word).ok_or_else(wrong)?;
    let seconds = match unit {
        "us" => value / 1e6,
        "ms" => value / 1e3,
        "s" => value,
        "m" | "min" => value * 60.0,
        "h" => value * 3600.0,
        "d" => value * 86_400.0,
        _ => return Err(wrong()),
    };
    if seconds > TIME_MAX_S {
        return Err(format!("{word} is too long: at most 400d"));
    }
    Ok(Nanos((seconds * 1e9).round() as u64))
}

/// `10mbit`, as tc writes rates: a kbit is 1000 bits per second.
pub(crate) fn rate(word: &str) -> Result<Rate, String> {
    let wrong = || format!("\"{word}\" is no rate: write 500kbit, 10mbit or 1gbit");
    let (value, unit) = number(word).ok_or_else(wrong)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        "tbit" => 1e12,
        _ => return Err(wrong()),
    };
    let bps = value * factor;
    if bps > RATE_MAX_BPS {
        return Err(format!("{word} is too much: at most 100tbit"));
    }
    Ok(Rate::from_bits_per_sec(bps.round() as u64))
}

/// `2%`, as a share.
pub(crate) fn percent(word: &str) -> Result<f64, String> {
    let wrong = || format!("\"{word}\" is no percentage: write 2% or 0.5%");
    match number(word) {
        Some((value, "%")) if value <= 100.0 => Ok(value / 100.0),
        _ => Err(wrong()),
    }
}

/// `100/s`, or `100`.
pub(crate) fn per_second(word: &str) -> Result<f64, String> {
    match number(word) {
        Some((value, "" | "/s")) if value <= 1e12 => Ok(value),
        _ => Err(format!("\"{word}\" is no number per second: write 100/s")),
    }
}

/// A whole number.
pub(crate) fn count(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("\"{word}\" is no number of packets: write 0 or 100"))
}

/// A time in a fitting unit.
pub(crate) fn shown_ms(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 10_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1e3),
    }
}

/// A rate in a fitting unit.
pub(crate) fn shown_bps(bps: f64) -> String {
    match bps {
        bps if bps < 1e4 => format!("{bps:.0} bit/s"),
        bps if bps < 1e7 => format!("{:.1} kbit/s", bps / 1e3),
        bps if bps < 1e10 => format!("{:.1} Mbit/s", bps / 1e6),
        bps => format!("{:.1} Gbit/s", bps / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_that_operators_write() {
        assert_eq!(time("50ms"), Ok(Nanos::from_millis(50)));
        assert_eq!(time("5m"), Ok(Nanos::from_secs(300)));
        assert_eq!(time("1.5h"), Ok(Nanos::from_secs(5400)));
        assert_eq!(rate("10mbit"), Ok(Rate::from_bits_per_sec(10_000_000)));
        assert_eq!(rate("2.5Gbit"), Ok(Rate::from_bits_per_sec(2_500_000_000)));
        assert_eq!(percent("2%"), Ok(0.02));
        assert_eq!(per_second("100/s"), Ok(100.0));
    }

    #[test]
    fn others_are_refused_with_what_to_write() {
        for word in ["", "5", "5x", "-5m", "1e9s", "9999999d", "nan", "infs", ".", "٥m", "1..2s"] {
            assert!(time(word).is_err(), "{word}");
        }
        assert!(time("5").unwrap_err().contains("write 50ms"));
        for word in ["", "10", "10mb", "999999tbit", "-1mbit"] {
            assert!(rate(word).is_err(), "{word}");
        }
        assert!(percent("2").is_err() && percent("200%").is_err() && count("-1").is_err());
    }
}
