//! Numbers as `tc` writes them: `1.5mbit`, `32k`, `5ms`, `8001:`.
//!
//! A number and its unit are as in [`narrows_units::word`]. Rates count in 1000s and are stored in
//! whole bytes per second; sizes count in 1024s. Negative, infinite and overlong values, which wrap
//! around in `tc`, are refused.

use narrows_policy::{ClassId, Handle, Parent};
use narrows_units::word::{self, leading_number, scaled};
use narrows_units::{Bytes, Nanos, Rate};

/// Bytes per unit.
const SIZE_UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("b", 1.0),
    ("k", 1024.0),
    ("kb", 1024.0),
    ("m", 1048576.0),
    ("mb", 1048576.0),
    ("g", 1073741824.0),
    ("gb", 1073741824.0),
    ("kbit", 128.0),
    ("mbit", 131072.0),
    ("gbit", 134217728.0),
];

/// Microseconds per unit.
const TIME_UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("us", 1.0),
    ("usec", 1.0),
    ("usecs", 1.0),
    ("ms", 1e3),
    ("msec", 1e3),
    ("msecs", 1e3),
    ("s", 1e6),
    ("sec", 1e6),
    ("secs", 1e6),
];

/// Nanoseconds per unit, for times that `tc` stores in nanoseconds.
const NANO_UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("ns", 1.0),
    ("nsec", 1.0),
    ("nsecs", 1.0),
    ("us", 1e3),
    ("usec", 1e3),
    ("usecs", 1e3),
    ("ms", 1e6),
    ("msec", 1e6),
    ("msecs", 1e6),
    ("s", 1e9),
    ("sec", 1e9),
    ("secs", 1e9),
];

/// The hint after a word that is not a rate.
pub const RATE_HINT: &str = "a rate is a number and a unit: bit, kbit, mbit, gbit, or bps, kbps, mbps for bytes, as 100mbit";
/// The hint after a word that is not a size.
pub const SIZE_HINT: &str =
    "a size is a number and a unit: b, k, m, kbit, mbit, below 4 GiB, as 32k";
/// The hint after a word that is not a time.
pub const TIME_HINT: &str = "a time is a number and a unit: us, ms, s, below 4295 s, as 5ms";

/// A rate, in whole bytes per second.
pub fn rate(word: &str) -> Option<Rate> {
    word::rate(word)
}

/// A size in bytes, less than 4 GiB as in the kernel.
pub fn size(word: &str) -> Option<u32> {
    let bytes = scaled(word, SIZE_UNITS)?;
    if bytes.floor() > f64::from(u32::MAX) {
        return None;
    }
    Some(bytes as u32)
}

/// A size with an optional `/` and cell size, which must be a power of two. The kernel no longer
/// uses cells; the notation is still accepted.
pub(crate) fn size_and_cell(word: &str) -> Option<Bytes> {
    let (bytes, cell) = match word.split_once('/') {
        Some((bytes, cell)) => (bytes, Some(cell)),
        None => (word, None),
    };
    if let Some(cell) = cell {
        let cell = match cell.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => cell.parse::<u32>(),
        };
        if !cell.ok()?.is_power_of_two() {
            return None;
        }
    }
    size(bytes).map(|bytes| Bytes(u64::from(bytes)))
}

/// A time in whole microseconds.
pub fn time(word: &str) -> Option<Nanos> {
    let micros = scaled(word, TIME_UNITS)?;
    if micros.floor() > f64::from(u32::MAX) {
        return None;
    }
    Some(Nanos::from_micros(micros as u64))
}

/// A time in whole nanoseconds, less than 4.3 s as in the kernel.
pub(crate) fn nanos(word: &str) -> Option<Nanos> {
    let nanos = scaled(word, NANO_UNITS)?;
    if nanos.floor() > f64::from(u32::MAX) {
        return None;
    }
    Some(Nanos(nanos as u64))
}

/// A number without a unit, up to 65535.
pub(crate) fn short(word: &str) -> Option<u16> {
    if word.starts_with('+') { None } else { word.parse().ok() }
}

/// A percentage, with or without `%`, as a fraction.
pub(crate) fn percent(word: &str) -> Option<f64> {
    let (number, unit) = leading_number(word)?;
    let share = number / 100.0;
    (matches!(unit, "" | "%") && (0.0..=1.0).contains(&share)).then_some(share)
}

/// A bit mask: a number without a unit, hexadecimal after `0x`, octal after `0`. As in C, a plus
/// may stand before it.
pub(crate) fn mask(word: &str) -> Option<u32> {
    let word = word.strip_prefix('+').unwrap_or(word);
    let (digits, radix) = match word.strip_prefix("0x").or(word.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if word.len() > 1 && word.starts_with('0') => (word, 8),
        None => (word, 10),
    };
    let all_digits = digits.chars().all(|letter| letter.is_digit(radix));
    if all_digits { u32::from_str_radix(digits, radix).ok() } else { None }
}

/// A number without a unit that may be negative, in any base.
pub(crate) fn integer(word: &str) -> Option<i32> {
    match word.strip_prefix('-') {
        Some(digits) if digits.starts_with('+') => None,
        Some(digits) => i32::try_from(-i64::from(mask(digits)?)).ok(),
        None => i32::try_from(mask(word)?).ok(),
    }
}

/// The largest number of a qdisc, and of a class.
const WIDEST: u32 = 0x7fff_ffff;

/// The handle of a qdisc: hexadecimal, with anything after a colon; the inner `None` for `none` and
/// `0:`. Numbers above ffff are an extension of Narrows.
pub(crate) fn handle(word: &str) -> Option<Option<Handle>> {
    if word == "none" {
        return Some(None);
    }
    let major = word.split_once(':').map_or(word, |(major, _)| major);
    Some(Handle::new(wide_hexadecimal(major)?))
}

/// The place of a qdisc: `root`, `MAJOR:`, `MAJOR:MINOR`, or both as one number; the inner `None`
/// for `none` and 0. Numbers above ffff before or after a colon are an extension of Narrows. As in
/// `tc`, of a longer number without a colon the last eight digits count.
pub fn parent(word: &str) -> Option<Option<Parent>> {
    const ROOT: (u32, u32) = (0xffff, 0xffff);
    let (major, minor) = match word {
        "root" => ROOT,
        "none" => (0, 0),
        _ => match word.split_once(':') {
            None => {
                let both = last_eight_digits(word)?;
                (both >> 16, both & 0xffff)
            }
            Some((major, minor)) => {
                let part = |digits: &str| match digits {
                    "" => Some(0),
                    digits => wide_hexadecimal(digits),
                };
                (part(major)?, part(minor)?)
            }
        },
    };
    Some(match (major, minor) {
        (0, 0) => None,
        ROOT => Some(Parent::Root),
        (major, minor) => Some(Parent::Class(ClassId { major, minor })),
    })
}

/// The number that the last eight hexadecimal digits are.
fn last_eight_digits(word: &str) -> Option<u32> {
    let digits = word.strip_prefix("0x").or(word.strip_prefix("0X")).unwrap_or(word);
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let last = digits.get(digits.len().saturating_sub(8)..).filter(|_| all_digits)?;
    u32::from_str_radix(last, 16).ok()
}

/// The number of a qdisc or of a class.
fn wide_hexadecimal(digits: &str) -> Option<u32> {
    long_hexadecimal(digits).filter(|number| *number <= WIDEST)
}

fn long_hexadecimal(word: &str) -> Option<u32> {
    let digits = word.strip_prefix("0x").or(word.strip_prefix("0X")).unwrap_or(word);
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if all_digits { u32::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(word: &str) -> Option<u64> {
        rate(word).map(Rate::bits_per_sec)
    }

    #[test]
    fn rates_count_in_thousands_and_bytes_in_eights() {
        assert_eq!(bits("1mbit"), Some(1_000_000));
        assert_eq!(bits("1MBit"), Some(1_000_000));
        assert_eq!(bits("1Mibit"), Some(1_048_576));
        assert_eq!(bits("1kbps"), Some(8_000));
        assert_eq!(bits("1.5gbit"), Some(1_500_000_000));
        assert_eq!(bits("64000"), Some(64_000));
    }

    #[test]
    fn rates_are_whole_bytes_per_second() {
        assert_eq!(bits("7777777"), Some(7_777_776));
        assert_eq!(bits("4bit"), Some(0));
    }

    #[test]
    fn sizes_count_in_1024s() {
        assert_eq!(size("32k"), Some(32_768));
        assert_eq!(size("1mb"), Some(1_048_576));
        assert_eq!(size("8kbit"), Some(1_024));
        assert_eq!(size("1.5k"), Some(1_536));
        assert_eq!(size("4294967295"), Some(u32::MAX));
        assert_eq!(size("4g"), None);
    }

    #[test]
    fn a_time_without_a_unit_is_in_microseconds() {
        assert_eq!(time("999"), Some(Nanos::from_micros(999)));
        assert_eq!(time("5ms"), Some(Nanos::from_millis(5)));
        assert_eq!(time("1.5s"), Some(Nanos::from_millis(1500)));
        assert_eq!(time("4295s"), None);
        assert_eq!(time("5ns"), None);
    }

    #[test]
    fn some_times_without_a_unit_are_in_nanoseconds() {
        assert_eq!(nanos("999"), Some(Nanos(999)));
        assert_eq!(nanos("10us"), Some(Nanos::from_micros(10)));
        assert_eq!(nanos("1.5MS"), Some(Nanos::from_micros(1500)));
        assert_eq!(nanos("4294967295ns"), Some(Nanos(u64::from(u32::MAX))));
        assert_eq!(nanos("4.3s"), None);
    }

    #[test]
    fn numbers_are_read_as_strtod_reads_them() {
        assert_eq!(bits("1e3kbit"), Some(1_000_000));
        assert_eq!(bits("1e-3gbit"), Some(1_000_000));
        assert_eq!(bits(".5mbit"), Some(500_000));
        assert_eq!(bits("5.mbit"), Some(5_000_000));
        assert_eq!(bits("+5mbit"), Some(5_000_000));
        assert_eq!(bits("0x100mbit"), Some(256_000_000));
        assert_eq!(bits("0x1p4mbit"), Some(16_000_000));
        assert_eq!(bits("1ebit"), None);
        assert_eq!(bits("mbit"), None);
        assert_eq!(bits("."), None);
        assert_eq!(bits("0x"), None);
        assert_eq!(bits(""), None);
    }

    #[test]
    fn values_that_wrap_in_tc_are_refused() {
        for word in ["-1mbit", "nan", "infbit", "1e30gbit", "1e400", "10%", "0x1p9999bit"] {
            assert_eq!(bits(word), None, "{word}");
        }
        assert_eq!(size("-5k"), None);
        assert_eq!(time("-5ms"), None);
    }

    #[test]
    fn a_percentage_is_between_none_and_all() {
        for (word, expected) in [("1%", 0.01), ("0.5", 0.005), ("100%", 1.0), ("1e1%", 0.1)] {
            assert_eq!(percent(word), Some(expected), "{word}");
        }
        for word in ["101%", "-1%", "1%%", "one", "", "nan%"] {
            assert_eq!(percent(word), None, "{word}");
        }
    }

    #[test]
    fn an_integer_has_a_base_and_no_unit() {
        assert_eq!(
            [integer("-14"), integer("20"), integer("-0x10")],
            [Some(-14), Some(20), Some(-16)]
        );
        assert_eq!([integer("1b"), integer("-"), integer("08"), integer("-+1")], [None; 4]);
    }

    #[test]
    fn a_cell_is_a_power_of_two() {
        assert_eq!(size_and_cell("5k/8"), Some(Bytes(5120)));
        assert_eq!(size_and_cell("5k/0x8"), Some(Bytes(5120)));
        for word in ["5k/3", "5k/", "5k/8/8", "5k/0", "5k/-8"] {
            assert_eq!(size_and_cell(word), None, "{word}");
        }
    }

    #[test]
    fn a_mask_is_written_as_in_c() {
        assert_eq!(mask("0xff00"), Some(0xff00));
        assert_eq!(mask("010"), Some(8));
        assert_eq!(mask("10"), Some(10));
        assert_eq!(mask("0"), Some(0));
        assert_eq!(mask("+5"), Some(5));
        for word in ["", "0x", "-1", "++1", "08", "4294967296", "ff"] {
            assert_eq!(mask(word), None, "{word}");
        }
    }

    #[test]
    fn handles_are_hexadecimal_and_their_minor_is_ignored() {
        let eight = Handle::new(0x8001);
        assert_eq!(handle("8001:"), Some(eight));
        assert_eq!(handle("8001"), Some(eight));
        assert_eq!(handle("8001:zz"), Some(eight));
        assert_eq!(handle("0x10:"), Some(Handle::new(16)));
        assert_eq!(handle("0:"), Some(None));
        assert_eq!(handle("none"), Some(None));
        assert_eq!(handle("1abcd:"), Some(Handle::new(0x1_abcd)), "where the kernel ends");
        for word in ["80000000:", "xx", ":", "-1:", "1x:", "root", ""] {
            assert_eq!(handle(word), None, "{word}");
        }
    }

    #[test]
    fn parents_are_major_and_minor() {
        let class = |major, minor| Some(Some(Parent::Class(ClassId { major, minor })));
        assert_eq!(parent("1:a"), class(1, 10));
        assert_eq!(parent("1:"), class(1, 0));
        assert_eq!(parent(":1"), class(0, 1));
        assert_eq!(parent("10001"), class(1, 1));
        assert_eq!(parent("root"), Some(Some(Parent::Root)));
        assert_eq!(parent("none"), Some(None));
        assert_eq!(parent("ffff:ffff"), Some(Some(Parent::Root)));
        assert_eq!(parent("12345:1abcd"), class(0x1_2345, 0x1_abcd), "where the kernel ends");
        for word in ["1:1:1", "1:80000000", "-1:1", "xx", "1:+1"] {
            assert_eq!(parent(word), None, "{word}");
        }
    }
}
