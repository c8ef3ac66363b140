//! Numbers in five columns, and times in readable units.

const UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

/// `value` in at most five columns with three significant digits: `999`, `1.23k`, `45.6M`.
pub(crate) fn short(value: f64) -> String {
    let mut value = value;
    let mut unit = 0;
    // 999.5 would be printed as 1000.
    while value.abs() >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = match value.abs() {
        v if unit == 0 && v.fract() == 0.0 => 0,
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}{}", UNITS[unit])
}

/// A share in percent: `0 %`, `7.3 %`, `99 %`.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let decimals = if percent.abs() < 9.95 && percent.fract() != 0.0 { 1 } else { 0 };
    format!("{percent:.decimals$} %")
}

/// Microseconds in at most five columns up to 10 s: `0us`, `250us`, `4.5ms`, `45ms`, `1.20s`.
pub(crate) fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..9_950 => format!("{:.1}ms", us as f64 / 1e3),
        9_950..999_500 => format!("{:.0}ms", us as f64 / 1e3),
        _ => format!("{:.2}s", us as f64 / 1e6),
    }
}

/// Seconds in the two largest units: `61 s` as `1 min 1 s`.
pub(crate) fn duration(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3_600 => format!("{} min {} s", s / 60, s % 60),
        3_600..86_400 => format!("{} h {} min", s / 3_600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (15.0, "15"),
            (0.25, "0.25"),
            (12.34, "12.3"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (1_234.0, "1.23k"),
            (99_960.0, "100k"),
            (99_312_000.0, "99.3M"),
            (1e12, "1.00T"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn times_are_said_in_the_units_that_matter() {
        assert_eq!(duration(59.9), "59 s");
        assert_eq!(duration(61.0), "1 min 1 s");
        assert_eq!(duration(3_660.0), "1 h 1 min");
        assert_eq!(duration(90_000.0), "1 d 1 h");
        assert_eq!([999, 4_500, 9_960].map(micros), ["999us", "4.5ms", "10ms"]);
        assert_eq!([45_300, 999_499, 999_500].map(micros), ["45ms", "999ms", "1.00s"]);
        assert_eq!([percent(0.0), percent(0.0734), percent(0.99)], ["0 %", "7.3 %", "99 %"]);
    }

    proptest! {
        #[test]
        fn every_counter_fits_five_columns_and_is_off_by_less_than_a_hundredth(count: u64) {
            let text = short(count as f64);
            prop_assert!(text.len() <= 5, "{text}");
            let digits = text.trim_end_matches(char::is_alphabetic);
            let unit = UNITS.iter().position(|unit| *unit == &text[digits.len()..]).unwrap();
            let back = digits.parse::<f64>().unwrap() * 1000f64.powi(unit as i32);
            prop_assert!((back - count as f64).abs() <= 0.01 * count as f64, "{text}");
        }
    }
}
