//! Values that `tc` takes, and that are surely not meant: `bandwidth 100`, `delay 10`.
//!
//! Their meaning stays that of `tc`: a bare rate is in bits per second, a bare time in
//! microseconds, a bare size in bytes, and `mbps` is megabytes per second. A command with such a
//! value gets a warning, one of each sort for a command or a whole file.
//!
//! The words alone are looked at, so this works for a file without loading it. It is no check:
//! words that are wrong get their complaint elsewhere.

use crate::lines::{lines, words};
use crate::number;
use crate::words::abbreviates;
use narrows_units::{Nanos, Rate};
use std::collections::BTreeMap;

/// Below this, a rate is not meant, whatever its unit: a full frame takes 12 seconds.
const SLOWEST: Rate = Rate::from_bits_per_sec(1_000);
/// Below this, a rate without a unit is not meant.
const SLOWEST_BARE: Rate = Rate::from_bits_per_sec(64_000);
/// Below this, a time without a unit is not meant.
const SHORTEST_BARE: Nanos = Nanos::from_millis(1);
/// Below this, a number of bytes without a unit is not meant: less than a frame.
const SMALLEST_BARE: u32 = 1_000;

/// The words before a rate, a time, and a size. Those of times that `tc` reads in seconds or
/// nanoseconds are not among them.
const RATES: [&str; 9] = [
    "bandwidth",
    "rate",
    "ceil",
    "peakrate",
    "maxrate",
    "defrate",
    "low_rate_threshold",
    "m1",
    "m2",
];
/// The rates of which 0 is not the usual word for none.
const NOT_ZERO: [&str; 4] = ["bandwidth", "rate", "ceil", "peakrate"];
const TIMES: [&str; 11] = [
    "latency",
    "delay",
    "rtt",
    "target",
    "interval",
    "ce_threshold",
    "horizon",
    "refill_delay",
    "sync",
    "d",
    "dmax",
];
const SIZES: [&str; 6] = ["burst", "buffer", "maxburst", "cburst", "memlimit", "memory_limit"];

/// A sort of values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Sort {
    NoLimit,
    SlowRate,
    ByteRate,
    ShortTime,
    SmallSize,
}

/// The warnings about a command, or about the commands of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Oddities {
    /// The first of each sort, and how many there are.
    found: BTreeMap<Sort, (String, usize)>,
}

impl Oddities {
    /// Looks at a command that was accepted. `place` is where it stands: ` (FILE:LINE)`, or empty.
    pub(crate) fn look(&mut self, words: &[impl AsRef<str>], place: impl Fn() -> String) {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        for (sort, what) in of_command(&words) {
            let (_, count) = self.found.entry(sort).or_insert_with(|| (what + &place(), 0));
            *count += 1;
        }
    }

    /// The warnings, one of each sort.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.found.values().map(|(first, count)| match count - 1 {
            0 => format!("Warning: {first}."),
            1 => format!("Warning: {first}; so is 1 more like it."),
            more => format!("Warning: {first}; so are {more} more like it."),
        })
    }

    /// The warnings as lines of text.
    pub(crate) fn text(&self) -> String {
        self.warnings().map(|warning| warning + "\n").collect()
    }
}

/// The warnings about the values in a policy file, which is called `name`. The file need not load.
pub fn warnings(text: &str, name: &str) -> Vec<String> {
    let mut oddities = Oddities::default();
    for line in lines(text) {
        if let Ok(words) = words(&line.text) {
            oddities.look(&words, || format!(" ({name}:{})", line.number));
        }
    }
    oddities.warnings().collect()
}

fn of_command(words: &[&str]) -> Vec<(Sort, String)> {
    let mut found = Vec::new();
    let is_change =
        |verb: &&str| ["add", "change", "replace"].iter().any(|full| abbreviates(verb, full));
    if !words.get(1).is_some_and(is_change) {
        return found;
    }
    let is_netem = words.contains(&"netem");
    // Its burst is a number of packets.
    let is_red = words.contains(&"red");
    // Their limit is in bytes; that of others in packets.
    let limits_bytes = is_red || words.iter().any(|word| matches!(*word, "bfifo" | "tbf"));
    let mut index = 2;
    while let Some(word) = words.get(index).copied() {
        index += 1;
        let Some(value) = words.get(index).copied() else { break };
        let is_delay = is_netem
            && (abbreviates(word, "delay")
                || abbreviates(word, "latency") && !abbreviates(word, "limit"));
        if word == "dev" {
            index += 1;
        } else if RATES.contains(&word) {
            found.extend(rate(word, value));
            index += 1;
        } else if TIMES.contains(&word) || is_delay {
            found.extend(time(word, value));
            // The jitter.
            let jitter = words.get(index + 1).filter(|_| is_delay);
            found.extend(jitter.and_then(|jitter| time("jitter", jitter)));
            index += 1;
        } else if SIZES.contains(&word) && !is_red || word == "limit" && limits_bytes {
            found.extend(size(word, value));
            index += 1;
        }
    }
    found
}

fn rate(word: &str, value: &str) -> Option<(Sort, String)> {
    let rate = number::rate(value)?;
    let bits = rate.bits_per_sec();
    let unit = unit(value);
    if rate.is_zero() && !NOT_ZERO.contains(&word) {
        return None;
    }
    if rate.is_zero() {
        // Less than a byte a second counts as nothing, too.
        return Some((
            Sort::NoLimit,
            format!("{word} {value} is no rate at all, so it limits nothing"),
        ));
    }
    if rate < SLOWEST || unit.is_empty() && rate < SLOWEST_BARE {
        let meant = if unit.is_empty() { "a unit, as kbit or mbit" } else { "a larger unit" };
        return Some((
            Sort::SlowRate,
            format!("{word} {value} is {bits} bit/s, which is surely not meant: give it {meant}"),
        ));
    }
    let is_bytes = unit.len() > 3 && unit.to_ascii_lowercase().ends_with("bps");
    is_bytes.then(|| {
        let number = &value[..value.len() - unit.len()];
        let prefix = &unit[..unit.len() - 3];
        let shown = crate::notation::rate(rate, crate::notation::Prefixes::Decimal);
        (
            Sort::ByteRate,
            format!(
                "{word} {value} is in bytes: {shown}. If bits were meant, write \
                 {number}{}bit",
                prefix.to_ascii_lowercase()
            ),
        )
    })
}

fn time(word: &str, value: &str) -> Option<(Sort, String)> {
    let time = number::time(value)?;
    let is_odd = unit(value).is_empty() && time != Nanos::ZERO && time < SHORTEST_BARE;
    let micros = time.0 / 1_000;
    is_odd.then(|| {
        let what = format!("{word} {value} is {micros} us: if ms are meant, write {value}ms");
        (Sort::ShortTime, what)
    })
}

fn size(word: &str, value: &str) -> Option<(Sort, String)> {
    let bytes = number::size(value.split('/').next()?)?;
    let is_odd = unit(value).is_empty() && (1..SMALLEST_BARE).contains(&bytes);
    is_odd.then(|| {
        let what = format!("{word} {value} is {bytes} bytes: if KiB are meant, write {value}k");
        (Sort::SmallSize, what)
    })
}

/// What is behind the number. A hexadecimal number or one with an exponent has no unit for this
/// purpose.
fn unit(value: &str) -> &str {
    let value = value.split('/').next().unwrap_or("");
    if value.starts_with("0x") {
        return "";
    }
    value.trim_start_matches(|letter: char| letter.is_ascii_digit() || "+-.".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(command: &str) -> Vec<String> {
        warnings(command, "p")
    }

    #[test]
    fn values_that_are_surely_not_meant_get_one_warning() {
        for (command, what) in [
            ("qdisc add dev a root cake bandwidth 100", "bandwidth 100 is 96 bit/s"),
            ("qdisc replace dev a root cake bandwidth 0", "bandwidth 0 is no rate at all"),
            ("qdisc add dev a root cake bandwidth 50 besteffort", "bandwidth 50 is 48 bit/s"),
            (
                "qdisc add dev a root netem delay 10",
                "delay 10 is 10 us: if ms are meant, write 10ms",
            ),
            ("qdisc add dev a root netem del 10ms 2", "jitter 2 is 2 us"),
            ("qdisc add dev a root netem lat 100", "lat 100 is 100 us"),
            ("qdisc add dev a root cake rtt 100", "rtt 100 is 100 us"),
            ("qdisc add dev a root fq_codel target 5", "target 5 is 5 us"),
            (
                "qdisc add dev a root tbf rate 100mbps burst 1m latency 20ms",
                "rate 100mbps is in bytes: 800Mbit",
            ),
            (
                "qdisc add dev a root tbf rate 1GBps burst 1m latency 20ms",
                "rate 1GBps is in bytes: 8Gbit",
            ),
            (
                "class add dev a parent 1: classid 1:1 htb rate 10Kbps",
                "If bits were meant, write 10kbit",
            ),
            (
                "class add dev a parent 1: classid 1:1 htb rate 10mbit ceil 64",
                "ceil 64 is 64 bit/s",
            ),
            (
                "class add dev a parent 1: classid 1:1 htb rate 10mbit burst 15",
                "burst 15 is 15 bytes",
            ),
            (
                "filter add dev a parent 1: matchall action police rate 1000 burst 10k",
                "rate 1000 is 1000 bit/s",
            ),
            ("qdisc add dev a root bfifo limit 100", "limit 100 is 100 bytes"),
            ("qdisc add dev a root tbf rate 1mbit burst 10k limit 500", "limit 500 is 500 bytes"),
            ("qdisc add dev a root fq maxrate 500bit", "maxrate 500bit is 496 bit/s"),
            ("class add dev a parent 1: classid 1:1 hfsc ls m2 10", "m2 10 is 8 bit/s"),
            ("class add dev a classid 1:1 hfsc rt d 10 m2 1mbit", "d 10 is 10 us"),
            (
                "class add dev a classid 1:1 hfsc rt umax 160 dmax 20 rate 64kbit",
                "dmax 20 is 20 us",
            ),
        ] {
            let said = said(command);
            assert_eq!(said.len(), 1, "{command}: {said:?}");
            assert!(said[0].contains(what) && said[0].contains(" (p:1)"), "{command}: {said:?}");
        }
    }

    #[test]
    fn values_as_they_are_written_get_none() {
        for command in [
            "qdisc add dev rate root cake bandwidth 100mbit rtt 50ms memlimit 32mb",
            "qdisc add dev a root tbf rate 1000000 burst 5000 latency 20000",
            "qdisc add dev a root tbf rate 125000bps burst 5k latency 0.5ms mtu 1600",
            "qdisc add dev a root netem delay 0 limit 10 rate 5kbit",
            "qdisc add dev a root fq maxrate 0 low_rate_threshold 0",
            "qdisc add dev a root netem delay 10ms 2ms loss 1%",
            "class add dev a parent 1: classid 1:1 hfsc rt m1 0 d 10ms m2 64kbit ls m1 1mbit d 5ms m2 0",
            "class add dev a parent 1: classid 1:1 hfsc rt umax 160 dmax 20ms rate 64kbit",
            "qdisc add dev a root pfifo limit 100",
            "qdisc add dev a root bfifo limit 1500",
            "qdisc add dev a root red limit 60k min 15k max 45k avpkt 500 burst 20",
            "qdisc del dev a root cake bandwidth 100",
            "qdisc show dev a",
            "qdisc",
            "qdisc add dev a root cake bandwidth",
            "qdisc add dev a root cake bandwidth fast",
        ] {
            assert_eq!(said(command), [""; 0], "{command}");
        }
    }

    #[test]
    fn a_file_gets_one_warning_of_each_sort() {
        let line = "class add dev a parent 1: classid 1:1 htb rate 1mbps burst 20\n";
        let said = said(&line.repeat(400));
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].ends_with("(p:1); so are 399 more like it."), "{said:?}");
    }
}
