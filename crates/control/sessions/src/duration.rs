//! Times of minutes to days in configurations: `90s`, `15m`, `1h`, `30d`.

use narrows_units::Nanos;

/// What to write instead.
pub const HINT: &str = "a time is a whole number and a unit: s, m, h or d, as 15m";
/// A hundred years, above any use: sums of times do not overflow.
const SECONDS_MAX: u64 = 100 * 366 * 86_400;

/// The time in `word`, if it is one of at most a hundred years.
pub fn parse(word: &str) -> Option<Nanos> {
    let units = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400)];
    let (unit, seconds) = units.into_iter().find(|(unit, _)| word.ends_with(*unit))?;
    let digits = word.strip_suffix(unit)?;
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let total = digits.parse::<u64>().ok()?.checked_mul(seconds)?;
    (total <= SECONDS_MAX).then(|| Nanos(total * 1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_understood() {
        let seconds = |word| parse(word).map(|time| time.0 / 1_000_000_000);
        assert_eq!(seconds("90s"), Some(90));
        assert_eq!(seconds("15m"), Some(900));
        assert_eq!(seconds("2h"), Some(7_200));
        assert_eq!(seconds("1d"), Some(86_400));
    }

    #[test]
    fn other_words_are_no_times() {
        for word in
            ["", "s", "15", "1.5h", "-1s", "+1s", "99999999999999999999d", "9999999999h", "1w"]
        {
            assert_eq!(parse(word), None, "{word}");
        }
    }
}
