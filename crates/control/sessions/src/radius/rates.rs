//! Rates in the words of vendors.
//!
//! *Idea.* An attribute becomes [`Speeds`]: ceilings and assured rates, downstream and upstream as
//! the subscriber sees them. Vendors name directions as the NAS sees them: MikroTik's "rx" is what
//! the NAS receives, so the subscriber's upload.
//!
//! *Source.* `Mikrotik-Rate-Limit`: MikroTik's RouterOS manual, "RADIUS Client". WISPr: Wi-Fi
//! Alliance, "Best Current Practices for WISP Roaming", annex B.
//!
//! *Non-goals.* Bursts: a class has one ceiling. MikroTik's burst rate, threshold and time, and its
//! priority, are checked and not used.

use narrows_units::Rate;

/// The most text of a rate that is looked at. The longest with all six words has about 100 bytes.
const TEXT_MAX: usize = 200;
/// MikroTik's priorities of queues.
const PRIORITIES: std::ops::RangeInclusive<u8> = 1..=8;

/// Downstream.
pub const DOWN: usize = 0;
/// Upstream.
pub const UP: usize = 1;

/// Rates of a session, downstream and upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Speeds {
    /// The most; none if nothing limits it.
    pub ceiling: [Option<Rate>; 2],
    /// The assured rate; zero if nothing is assured.
    pub assured: [Rate; 2],
}

/// The rates in a `Mikrotik-Rate-Limit`:
/// `rx[/tx] [burst-rx[/burst-tx] [threshold [time [priority [min-rx[/min-tx]]]]]]`.
///
/// A word without `/` is for both directions. A rate of 0 is no limit.
///
/// # Errors
/// With a sentence that says which word is wrong.
pub fn mikrotik(text: &str) -> Result<Speeds, String> {
    if text.len() > TEXT_MAX {
        return Err(format!("it has more than {TEXT_MAX} bytes"));
    }
    let mut words = text.split_ascii_whitespace();
    let Some(limit) = words.next() else { return Err("it is empty".to_owned()) };
    let [up, down] = pair(limit, rate)?;
    for _ in 0..2 {
        words.next().map(|word| pair(word, rate)).transpose()?;
    }
    words.next().map(|word| pair(word, seconds)).transpose()?;
    words.next().map(|word| pair(word, priority)).transpose()?;
    let [assured_up, assured_down] =
        words.next().map(|word| pair(word, rate)).transpose()?.unwrap_or_default();
    if let Some(word) = words.next() {
        return Err(format!("{word:?} is one word too many: it has at most six"));
    }
    let limit = |rate: Rate| (!rate.is_zero()).then_some(rate);
    Ok(Speeds { ceiling: [limit(down), limit(up)], assured: [assured_down, assured_up] })
}

/// What is before and behind a `/`, or twice the same.
fn pair<T: Copy>(word: &str, read: fn(&str) -> Result<T, String>) -> Result<[T; 2], String> {
    match word.split_once('/') {
        Some((first, second)) => Ok([read(first)?, read(second)?]),
        None => read(word).map(|value| [value; 2]),
    }
}

/// A number of bits per second with `k`, `M` or `G` for thousands, millions and milliards.
fn rate(word: &str) -> Result<Rate, String> {
    let wrong = || format!("{word:?} is no rate: a number of bit/s, perhaps with k, M or G");
    let (digits, unit) = match word.as_bytes().last() {
        Some(b'k' | b'K') => (&word[..word.len() - 1], 1_000),
        Some(b'M' | b'm') => (&word[..word.len() - 1], 1_000_000),
        Some(b'G' | b'g') => (&word[..word.len() - 1], 1_000_000_000),
        _ => (word, 1_u64),
    };
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong());
    }
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    number.map(Rate::from_bits_per_sec).ok_or_else(wrong)
}

fn seconds(word: &str) -> Result<(), String> {
    let digits = word.strip_suffix('s').unwrap_or(word);
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then_some(()).ok_or_else(|| format!("{word:?} is no time: a number of seconds"))
}

fn priority(word: &str) -> Result<(), String> {
    let number = word.parse::<u8>().ok().filter(|number| PRIORITIES.contains(number));
    number.map(|_| ()).ok_or_else(|| format!("{word:?} is no priority: 1 to 8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const M: u64 = 1_000_000;

    fn speeds(ceiling: [u64; 2], assured: [u64; 2]) -> Speeds {
        let limit = |bps: u64| (bps > 0).then(|| Rate::from_bits_per_sec(bps));
        Speeds { ceiling: ceiling.map(limit), assured: assured.map(Rate::from_bits_per_sec) }
    }

    #[test]
    fn what_the_nas_receives_is_the_upload() {
        assert_eq!(mikrotik("10M/50M"), Ok(speeds([50 * M, 10 * M], [0, 0])));
    }

    #[test]
    fn one_rate_is_for_both_directions() {
        assert_eq!(mikrotik("512k"), Ok(speeds([512_000; 2], [0, 0])));
        assert_eq!(mikrotik("1G"), Ok(speeds([1000 * M; 2], [0, 0])));
    }

    #[test]
    fn the_sixth_word_is_what_is_assured() {
        let text = "64k/128k 256k/512k 80k/90k 40/50 8 16k/32k";
        assert_eq!(mikrotik(text), Ok(speeds([128_000, 64_000], [32_000, 16_000])));
    }

    #[test]
    fn bursts_and_priorities_are_checked_and_change_nothing() {
        let plain = mikrotik("5M/10M");
        assert_eq!(mikrotik("5M/10M 10M/20M"), plain);
        assert_eq!(mikrotik("5M/10M 10M/20M 4M/8M"), plain);
        assert_eq!(mikrotik("5M/10M 10M/20M 4M/8M 8s/8s"), plain);
        assert_eq!(mikrotik("5M/10M 0/0 0/0 0/0 8"), plain);
        assert_eq!(mikrotik("5M/10M 0/0 0/0 0/0 8/8"), plain);
    }

    #[test]
    fn zero_is_no_limit() {
        assert_eq!(mikrotik("0/20M"), Ok(speeds([20 * M, 0], [0, 0])));
    }

    #[test]
    fn other_words_are_refused_with_the_word() {
        let wrong = [
            "",
            "fast",
            "10M/",
            "/10M",
            "10M/50M/1M",
            "1.5M",
            "-1",
            "+1",
            "10MM",
            "M",
            "99999999999999999999",
            "99999999999G",
            "1M 1M 1M x",
            "1M 1M 1M 1 9",
            "1M 1M 1M 1 8 1M 1M",
        ];
        for text in wrong {
            let why = mikrotik(text).unwrap_err();
            assert!(!why.is_empty(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = mikrotik(&text);
        }

        #[test]
        fn no_words_panic(text in "[0-9kMG/ s]{0,60}") {
            let _ = mikrotik(&text);
        }
    }
}
