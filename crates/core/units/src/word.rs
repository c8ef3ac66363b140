//! Numbers with units, as `tc` writes them: `1.5mbit`.
//!
//! A number is what C's `strtod` accepts at the beginning of a word. The rest of the word is its
//! unit, in upper or lower case.
//!
//! Source: `tc(8)`, section "Parameters".

use crate::Rate;

/// Bits per unit, `i` for the powers of 1024.
const RATE_UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("bit", 1.0),
    ("kibit", 1024.0),
    ("kbit", 1e3),
    ("mibit", 1048576.0),
    ("mbit", 1e6),
    ("gibit", 1073741824.0),
    ("gbit", 1e9),
    ("tibit", 1099511627776.0),
    ("tbit", 1e12),
    ("bps", 8.0),
    ("kibps", 8.0 * 1024.0),
    ("kbps", 8e3),
    ("mibps", 8.0 * 1048576.0),
    ("mbps", 8e6),
    ("gibps", 8.0 * 1073741824.0),
    ("gbps", 8e9),
    ("tibps", 8.0 * 1099511627776.0),
    ("tbps", 8e12),
];

/// A rate, in whole bytes per second. `None` if it is none, or too high.
pub fn rate(word: &str) -> Option<Rate> {
    let bytes = scaled(word, RATE_UNITS)? / 8.0;
    // Above this, bits per second would overflow.
    (bytes < (u64::MAX / 8) as f64).then(|| Rate::from_bytes_per_sec(bytes as u64))
}

/// The number at the beginning of `word` times the scale of its unit, one of `units`. Never
/// negative. `None` if there is no number, or no such unit.
pub fn scaled(word: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = leading_number(word)?;
    let (_, scale) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let value = number * scale;
    (value.is_finite() && !value.is_sign_negative()).then_some(value)
}

/// The number at the beginning of `word`, and the rest. What `strtod` accepts: a decimal number
/// with fraction and exponent, or a hexadecimal one. Infinity and NaN are not accepted here.
pub fn leading_number(word: &str) -> Option<(f64, &str)> {
    let unsigned = word.strip_prefix('+').unwrap_or(word);
    if let Some(hexadecimal) = unsigned.strip_prefix("0x").or(unsigned.strip_prefix("0X"))
        && let Some(found) = leading_hexadecimal(hexadecimal)
    {
        return Some(found);
    }
    let whole = digits(unsigned, u8::is_ascii_digit);
    let mut end = whole;
    let mut fraction = 0;
    if unsigned[end..].starts_with('.') {
        fraction = digits(&unsigned[end + 1..], u8::is_ascii_digit);
        end += 1 + fraction;
    }
    if whole + fraction == 0 {
        return None;
    }
    end += exponent(&unsigned[end..], ['e', 'E']);
    let number = unsigned[..end].parse().ok()?;
    Some((number, &unsigned[end..]))
}

/// The number after `0x`: digits, and an optional `p` with a power of two.
fn leading_hexadecimal(word: &str) -> Option<(f64, &str)> {
    let mut end = digits(word, u8::is_ascii_hexdigit);
    if end == 0 {
        return None;
    }
    let value = word[..end]
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .fold(0.0, |value, digit| value * 16.0 + f64::from(digit));
    let power = exponent(&word[end..], ['p', 'P']);
    let scale = match power {
        0 => 1.0,
        _ => word[end + 1..end + power].parse::<f64>().ok()?.exp2(),
    };
    end += power;
    Some((value * scale, &word[end..]))
}

/// The length of an exponent at the beginning of `word`; 0 if a letter is not followed by a number
/// and so belongs to the unit.
fn exponent(word: &str, letters: [char; 2]) -> usize {
    let Some(behind) = word.strip_prefix(letters) else { return 0 };
    let sign = usize::from(behind.starts_with(['+', '-']));
    match digits(&behind[sign..], u8::is_ascii_digit) {
        0 => 0,
        digits => 1 + sign + digits,
    }
}

/// How many bytes at the beginning of `word` are such digits.
fn digits(word: &str, is_digit: fn(&u8) -> bool) -> usize {
    word.bytes().take_while(is_digit).count()
}
