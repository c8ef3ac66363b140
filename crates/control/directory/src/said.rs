//! Words for people, and for `tc`.

use narrows_escape::is_hidden;
use narrows_units::Rate;

/// The text on one line, without hidden characters, and shortened if it is long.
pub fn printable(text: &str) -> String {
    const LONGEST: usize = 400;
    let clean = |letter: char| if is_hidden(letter) { ' ' } else { letter };
    let mut text: String = text.chars().map(clean).take(LONGEST + 1).collect();
    if text.chars().count() > LONGEST {
        text = text.chars().take(LONGEST).chain("…".chars()).collect();
    }
    text.trim_end().to_owned()
}

/// A rate as `tc` reads it, exact: `25mbit`.
pub fn rate_words(rate: Rate) -> String {
    match rate.bits_per_sec() {
        bits if bits == 0 || !bits.is_multiple_of(1_000) => format!("{bits}bit"),
        bits if bits.is_multiple_of(1_000_000_000) => format!("{}gbit", bits / 1_000_000_000),
        bits if bits.is_multiple_of(1_000_000) => format!("{}mbit", bits / 1_000_000),
        bits => format!("{}kbit", bits / 1_000),
    }
}

/// `50/10 Mbit/s`: rates downstream and upstream, in the largest unit that suits both.
pub(crate) fn rate_pair([down, up]: [Rate; 2]) -> String {
    let (unit, name) = match down.max(up).bits_per_sec() {
        0..1_000 => (1.0, "bit/s"),
        1_000..1_000_000 => (1e3, "kbit/s"),
        _ => (1e6, "Mbit/s"),
    };
    let number = |rate: Rate| (rate.bits_per_sec() as f64 / unit).to_string();
    format!("{}/{} {name}", number(down), number(up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_exact() {
        let words = |bits| rate_words(Rate::from_bits_per_sec(bits));
        assert_eq!([0, 500_000, 1_000_000_000].map(words), ["0bit", "500kbit", "1gbit"]);
        assert_eq!([1_250_000, 2_000_000, 1_001].map(words), ["1250kbit", "2mbit", "1001bit"]);
    }

    #[test]
    fn a_pair_has_one_unit() {
        let pair = |down, up| rate_pair([down, up].map(Rate::from_bits_per_sec));
        assert_eq!(pair(50_000_000, 10_000_000), "50/10 Mbit/s");
        assert_eq!(pair(2_500_000, 512_000), "2.5/0.512 Mbit/s");
        assert_eq!(pair(64_000, 1), "64/0.001 kbit/s");
    }
}
