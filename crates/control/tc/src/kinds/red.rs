//! `red`: the words of `tc-red(8)`. As in `tc`, none of them may be abbreviated.

use super::legal::legal;
use crate::complaint::Complaint;
use crate::render::{Json, Line};
use crate::words::Words;
use crate::{notation, number};
use narrows_policy::Params;
use narrows_qdisc::red::{Config, Figures, Unfit};
use narrows_units::Rate;
use std::fmt::Write;

const USAGE: &str = "Usage: ... red limit BYTES [ min BYTES ] [ max BYTES ] avpkt BYTES
               [ burst PACKETS ] [ adaptive ] [ probability PROBABILITY ]
               [ bandwidth RATE ] [ ecn ] [ harddrop ] [ nodrop ]";

/// The probability that `tc` assumes.
const PROBABILITY: f64 = 0.02;
/// The rate that `tc` assumes.
const BANDWIDTH: Rate = Rate::from_bits_per_sec(10_000_000);
/// From so many bits on, `tc` warns of the average.
const SLOW: u8 = 10;

pub(super) fn parse(mut words: Words) -> Result<Params, Complaint> {
    let mut config = Config {
        limit: 0,
        min: 0,
        max: 0,
        avpkt: 0,
        burst: 0,
        bandwidth: Rate::default(),
        probability: Config::probability_of(PROBABILITY),
        ecn: false,
        harddrop: false,
        nodrop: false,
        adaptive: false,
        stream: 0,
    };
    while let Some(word) = words.next() {
        match word {
            "limit" => config.limit = size(word, &mut words, "400k")?,
            "min" => config.min = size(word, &mut words, "30k")?,
            "max" => config.max = size(word, &mut words, "90k")?,
            "avpkt" => config.avpkt = size(word, &mut words, "1000")?,
            "burst" => {
                let value = words.value(word, "55")?;
                let hint = "a number of packets below 4294967296, as 55";
                config.burst = legal("red", word, value, number::mask, hint)?;
            }
            "probability" => {
                let value = words.value(word, "0.02")?;
                let share = |word: &str| word.parse().ok().filter(|it| (0.0..=1.0).contains(it));
                let hint = "a share from 0 to 1, as 0.02";
                config.probability =
                    Config::probability_of(legal("red", word, value, share, hint)?);
            }
            "bandwidth" => {
                config.bandwidth = super::tbf::rate("red", word, words.value(word, "10mbit")?)?;
            }
            "ecn" => config.ecn = true,
            "harddrop" => config.harddrop = true,
            "nodrop" => config.nodrop = true,
            "adaptive" | "adaptative" => config.adaptive = true,
            "qevent" => {
                return Err(Complaint::wrong(
                    "red: \"qevent\" is not supported here: a dropped or marked packet has nowhere else to go. tc -s shows how many there are.",
                ));
            }
            "help" => return Err(Complaint::wrong(USAGE)),
            _ => return Err(Complaint::wrong(format!("What is \"{word}\"?\n{USAGE}"))),
        }
    }
    finish(config).map(|config| Params::Red(Box::new(config)))
}

fn size(word: &str, words: &mut Words, example: &str) -> Result<u32, Complaint> {
    let value = words.value(word, example)?;
    legal("red", word, value, number::size, number::SIZE_HINT)
}

/// Derives what was not given. As in `tc`, 0 counts as not given.
fn finish(mut config: Config) -> Result<Config, Complaint> {
    let wrong = |why: String| Err(Complaint::wrong(format!("RED: {why}")));
    if config.limit == 0 || config.avpkt == 0 {
        return wrong("Required parameter (limit, avpkt) is missing: give both.".to_owned());
    }
    let or = |value: &mut u32, default: u64| {
        if *value == 0 {
            *value = u32::try_from(default).unwrap_or(u32::MAX);
        }
    };
    or(&mut config.max, u64::from(config.limit / 4));
    or(&mut config.min, u64::from(config.max / 3));
    let sum = 2 * u64::from(config.min) + u64::from(config.max);
    or(&mut config.burst, sum / (3 * u64::from(config.avpkt)));
    if config.bandwidth.is_zero() {
        config.bandwidth = BANDWIDTH;
    }
    let unfit = config.per_byte().map(drop).and_then(|()| config.ewma().map(drop));
    match unfit.and_then(|()| config.idle().map(drop)) {
        Ok(()) => Ok(config),
        Err(Unfit::Order) => wrong("failed to calculate probability: max is below min.".to_owned()),
        Err(Unfit::Probability) => wrong(
            "failed to calculate probability: give a larger one, or min and max closer together."
                .to_owned(),
        ),
        Err(Unfit::Burst(least)) => wrong(format!(
            "failed to calculate EWMA constant: burst {} is too small, give burst {least} or more.",
            config.burst
        )),
        Err(Unfit::Idle) => {
            wrong("failed to calculate idle damping table: give more bandwidth.".to_owned())
        }
        Err(Unfit::Average | Unfit::Threshold) => {
            wrong("failed to calculate EWMA constant: give less burst.".to_owned())
        }
    }
}

/// A warning about an average that follows too slowly.
pub(super) fn warning(config: &Config) -> Option<String> {
    let is_slow = config.ewma().is_ok_and(|log| log >= SLOW);
    is_slow.then(|| format!("RED: WARNING. Burst {} seems to be too large.", config.burst))
}

pub(super) fn show(config: &Config, details: bool, line: &mut Line) {
    let Config { limit, min, max, ecn, harddrop, nodrop, adaptive, .. } = *config;
    for (key, bytes) in [("limit", limit), ("min", min), ("max", max)] {
        let bytes = u64::from(bytes);
        line.add(key, Json::Number(bytes), &format!("{key} {} ", notation::size(bytes)));
    }
    let flags = [("ecn", ecn), ("harddrop", harddrop), ("adaptive", adaptive), ("nodrop", nodrop)];
    for (key, is_set) in flags {
        line.json(key, Json::Bool(is_set));
        if is_set {
            line.text(&format!("{key} "));
        }
    }
    if !details {
        return;
    }
    let ewma = u64::from(config.ewma().unwrap_or_default());
    line.add("ewma", Json::Number(ewma), &format!("ewma {ewma} "));
    let share = config.share();
    let text = format!("probability {} ", notation::general(share));
    line.add("probability", Json::Float(share), &text);
    let cell = u64::from(config.idle().map_or(0, |(cell, _)| cell));
    line.add("Scell_log", Json::Number(cell), &format!("Scell_log {cell}"));
}

pub(super) fn save(config: &Config) -> String {
    let Config { limit, min, max, avpkt, burst, bandwidth, .. } = *config;
    let mut words = format!(" limit {limit} min {min} max {max} avpkt {avpkt} burst {burst}");
    // Writing to a string cannot fail.
    let _ = write!(
        words,
        " bandwidth {}bit probability {:?}",
        bandwidth.bits_per_sec(),
        config.share()
    );
    let Config { ecn, harddrop, nodrop, adaptive, .. } = *config;
    let flags = [("ecn", ecn), ("harddrop", harddrop), ("nodrop", nodrop), ("adaptive", adaptive)];
    for (word, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
        let _ = write!(words, " {word}");
    }
    words
}

/// What `tc -s` prints beyond the statistics of all qdiscs.
pub(crate) fn figures(figures: &Figures, line: &mut Line) {
    let Figures { marked, early, pdrop } = *figures;
    let counts = [("marked", marked), ("early", early), ("pdrop", pdrop), ("other", 0)];
    line.text(" ");
    for (key, count) in counts {
        line.add(key, Json::Number(count), &format!(" {key} {count}"));
    }
    line.text("\n");
}
