//! `fq`: the words of `tc-fq(8)` and newer ones (`timer_slack`, `horizon`, `bands`, `weights`,
//! `offload_horizon`). As in `tc`, none of them may be abbreviated.

mod figures;

use super::legal::legal;
use crate::complaint::Complaint;
use crate::render::{Json, Line};
use crate::words::Words;
use crate::{notation, number};
use narrows_policy::{FqOptions, FqParams, Params};
use narrows_qdisc::fq::{BANDS, Beyond, PRIORITIES};
use narrows_units::{Nanos, Rate};
use std::fmt::Write;

pub(crate) use figures::figures;

const USAGE: &str = "Usage: fq [ limit PACKETS ] [ flow_limit PACKETS ] [ quantum BYTES ] [ initial_quantum BYTES ]
          [ maxrate RATE ] [ defrate RATE ] [ low_rate_threshold RATE ] [ pacing* | nopacing ]
          [ refill_delay TIME ] [ buckets NUMBER ] [ orphan_mask MASK ] [ ce_threshold TIME ]
          [ timer_slack TIME ] [ horizon TIME ] [ horizon_cap | horizon_drop* ] [ offload_horizon 0 ]
          [ bands 3 priomap P0 ... P15 ] [ weights W0 W1 W2 ]
* marks the defaults. defrate changes nothing: it is for sockets, and frames at a port have none.";

const NUMBER_HINT: &str = "a number below 4294967296 without a unit, as 100 or 0xff";
const NANOS_HINT: &str =
    "a number and a unit: ns, us, ms, s, below 4.3 s; without one in nanoseconds";

pub(super) fn parse(mut words: Words) -> Result<Params, Complaint> {
    let mut options = FqOptions::default();
    while let Some(word) = words.next() {
        parameter(&mut options, word, &mut words)?;
    }
    Ok(Params::Fq(options))
}

fn parameter(options: &mut FqOptions, word: &str, words: &mut Words) -> Result<(), Complaint> {
    let mut number = |at: &mut Option<u32>, example| {
        *at = Some(value(word, words, example, number::mask, NUMBER_HINT)?);
        Ok(())
    };
    match word {
        "limit" => return number(&mut options.limit, "10000"),
        "flow_limit" => return number(&mut options.flow_limit, "100"),
        "quantum" => return number(&mut options.quantum, "3028"),
        "initial_quantum" => return number(&mut options.initial_quantum, "15140"),
        "orphan_mask" => return number(&mut options.orphan_mask, "1023"),
        "buckets" => {
            number(&mut options.buckets, "1024")?;
            // As in tc, 0 counts as not given.
            options.buckets = options.buckets.filter(|buckets| *buckets != 0);
        }
        "maxrate" => options.max_rate = Some(rate(word, words)?),
        "defrate" => options.default_rate = Some(rate(word, words)?),
        "low_rate_threshold" => options.low_rate_threshold = Some(rate(word, words)?),
        "pacing" | "nopacing" => options.pacing = Some(word == "pacing"),
        "refill_delay" => options.refill_delay = Some(time(word, words, "40ms")?),
        "ce_threshold" => options.ce_threshold = Some(time(word, words, "4ms")?),
        "horizon" => options.horizon = Some(time(word, words, "10s")?),
        "offload_horizon" => options.offload_horizon = Some(time(word, words, "0")?),
        "timer_slack" => {
            let slack = value(word, words, "10us", number::nanos, NANOS_HINT)?;
            options.timer_slack = Some(slack);
        }
        "horizon_cap" => options.beyond = Some(Beyond::Cap),
        "horizon_drop" => options.beyond = Some(Beyond::Drop),
        "bands" => {
            once(word, options.priomap.is_some())?;
            options.priomap = Some(priomap(words)?);
        }
        "weights" => {
            once(word, options.weights.is_some())?;
            let hint = "three numbers from 16384 on, as 589824 196608 65536";
            options.weights = Some(numbers(word, words, "589824 196608 65536", hint)?);
        }
        "help" => return Err(Complaint::wrong(USAGE)),
        _ => return Err(Complaint::wrong(format!("What is \"{word}\"?\n{USAGE}"))),
    }
    Ok(())
}

/// The words after `bands`: their number, which is fixed, and the band of each priority.
fn priomap(words: &mut Words) -> Result<[u8; PRIORITIES], Complaint> {
    const EXAMPLE: &str = "3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1";
    let bands = words.value("bands", EXAMPLE)?;
    let three = |word: &str| (word.parse() == Ok(BANDS)).then_some(());
    legal("fq", "bands", bands, three, "there are 3 bands")?;
    let word = words.value("bands 3", "priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1")?;
    if word != "priomap" {
        return Err(Complaint::wrong(format!(
            "fq: \"priomap\" expected behind \"bands 3\", not \"{word}\": bands {EXAMPLE}."
        )));
    }
    let hint = "sixteen numbers from 0 to 2, the band of each priority";
    let bands: [u32; PRIORITIES] = numbers(word, words, "1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1", hint)?;
    // The policy reports invalid bands; the conversion must not turn one into a valid band.
    Ok(bands.map(|band| u8::try_from(band).unwrap_or(u8::MAX)))
}

/// Parses exactly `N` numbers.
fn numbers<const N: usize>(
    name: &str,
    words: &mut Words,
    example: &str,
    hint: &str,
) -> Result<[u32; N], Complaint> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let word = words.value(name, example)?;
        *number = legal("fq", name, word, |word| word.parse().ok(), hint)?;
    }
    Ok(numbers)
}

fn once(name: &str, given: bool) -> Result<(), Complaint> {
    if given {
        return Err(Complaint::wrong(format!("fq: duplicate \"{name}\": give it once.")));
    }
    Ok(())
}

/// The value that follows `name`.
fn value<T>(
    name: &str,
    words: &mut Words,
    example: &str,
    read: impl Fn(&str) -> Option<T>,
    hint: &str,
) -> Result<T, Complaint> {
    let value = words.value(name, example)?;
    legal("fq", name, value, read, hint)
}

fn rate(name: &str, words: &mut Words) -> Result<Rate, Complaint> {
    value(name, words, "100mbit", number::rate, number::RATE_HINT)
}

fn time(name: &str, words: &mut Words, example: &str) -> Result<Nanos, Complaint> {
    value(name, words, example, number::time, number::TIME_HINT)
}

pub(super) fn show(params: &FqParams, line: &mut Line) {
    let config = &params.config;
    let packets = |line: &mut Line, key, value: u32| {
        line.add(key, Json::Number(u64::from(value)), &format!("{key} {value}p "));
    };
    let number = |line: &mut Line, key, value: u32| {
        line.add(key, Json::Number(u64::from(value)), &format!("{key} {value} "));
    };
    let size = |line: &mut Line, key, value: u32| {
        let value = u64::from(value);
        line.add(key, Json::Number(value), &format!("{key} {} ", notation::size(value)));
    };
    let rate = |line: &mut Line, key, rate: Rate| {
        let text = format!("{key} {} ", line.rate(rate));
        line.add(key, Json::Number(rate.bytes_per_sec()), &text);
    };
    let time = |line: &mut Line, key, time: Nanos| {
        let micros = micros(time);
        line.add(key, Json::Number(micros), &format!("{key} {} ", notation::time(micros)));
    };
    packets(line, "limit", config.limit);
    packets(line, "flow_limit", config.flow_limit);
    number(line, "buckets", config.buckets);
    number(line, "orphan_mask", config.orphan_mask);
    if !config.pacing {
        line.add("pacing", Json::Bool(false), "nopacing ");
    }
    number(line, "bands", BANDS as u32);
    // In tc, too, these values end in a blank.
    list(line, "priomap ", &config.priomap.map(u32::from));
    list(line, "weights ", &config.weights);
    size(line, "quantum", config.quantum);
    size(line, "initial_quantum", config.initial_quantum);
    if let Some(max_rate) = config.max_rate {
        rate(line, "maxrate", max_rate);
    }
    for (key, value) in
        [("defrate", params.default_rate), ("low_rate_threshold", config.low_rate_threshold)]
    {
        if !value.is_zero() {
            rate(line, key, value);
        }
    }
    time(line, "refill_delay", config.refill_delay);
    if let Some(threshold) = config.ce_threshold {
        time(line, "ce_threshold", threshold);
    }
    let slack = config.timer_slack.0;
    let text = format!("timer_slack {} ", notation::nanos(slack));
    line.add("timer_slack", Json::Number(slack), &text);
    time(line, "horizon", config.horizon);
    match config.beyond {
        Beyond::Cap => line.add("horizon_cap", Json::Null, "horizon_cap "),
        Beyond::Drop => line.add("horizon_drop", Json::Null, "horizon_drop "),
    }
    time(line, "offload_horizon", Nanos::ZERO);
}

/// Numbers, each followed by a blank.
fn list(line: &mut Line, key: &'static str, numbers: &[u32]) {
    let mut text = key.to_owned();
    for number in numbers {
        // Writing to a string cannot fail.
        let _ = write!(text, "{number} ");
    }
    line.add(key, Json::Numbers(numbers.iter().copied().map(u64::from).collect()), &text);
}

fn micros(time: Nanos) -> u64 {
    time.0 / 1_000
}

/// The quanta, whose defaults depend on the port, and what differs from the other defaults.
pub(super) fn save(params: &FqParams) -> String {
    let config = &params.config;
    let defaults = FqParams::new(0);
    let default = &defaults.config;
    let mut words = String::new();
    let mut add = |is_said: bool, word: std::fmt::Arguments| {
        if is_said {
            // Writing to a string cannot fail.
            let _ = write!(words, " {word}");
        }
    };
    let (limit, flow_limit) = (config.limit, config.flow_limit);
    add(limit != default.limit, format_args!("limit {limit}"));
    add(flow_limit != default.flow_limit, format_args!("flow_limit {flow_limit}"));
    add(true, format_args!("quantum {}", config.quantum));
    add(true, format_args!("initial_quantum {}", config.initial_quantum));
    let max_rate = config.max_rate.unwrap_or_default().bits_per_sec();
    add(config.max_rate.is_some(), format_args!("maxrate {max_rate}bit"));
    let default_rate = params.default_rate.bits_per_sec();
    add(default_rate != 0, format_args!("defrate {default_rate}bit"));
    let low = config.low_rate_threshold;
    add(
        low != default.low_rate_threshold,
        format_args!("low_rate_threshold {}bit", low.bits_per_sec()),
    );
    add(!config.pacing, format_args!("nopacing"));
    let refill = config.refill_delay;
    add(refill != default.refill_delay, format_args!("refill_delay {}us", micros(refill)));
    add(config.buckets != default.buckets, format_args!("buckets {}", config.buckets));
    let mask = config.orphan_mask;
    add(mask != default.orphan_mask, format_args!("orphan_mask {mask}"));
    let threshold = config.ce_threshold.map_or(0, micros);
    add(config.ce_threshold.is_some(), format_args!("ce_threshold {threshold}us"));
    let slack = config.timer_slack;
    add(slack != default.timer_slack, format_args!("timer_slack {}ns", slack.0));
    let horizon = config.horizon;
    add(horizon != default.horizon, format_args!("horizon {}us", micros(horizon)));
    add(config.beyond == Beyond::Cap, format_args!("horizon_cap"));
    let map = config.priomap.map(|band| band.to_string()).join(" ");
    add(config.priomap != default.priomap, format_args!("bands {BANDS} priomap {map}"));
    let weights = config.weights.map(|weight| weight.to_string()).join(" ");
    add(config.weights != default.weights, format_args!("weights {weights}"));
    words
}
