//! `codel`: the words of `tc-codel(8)`. As in `tc`, none of them may be abbreviated.

use super::legal::legal;
use crate::complaint::Complaint;
use crate::render::{Json, Line};
use crate::words::Words;
use crate::{notation, number};
use narrows_policy::{CodelQueueOptions, Params};
use narrows_qdisc::codel::{Config, Figures};
use narrows_units::Nanos;
use std::fmt::Write;

const USAGE: &str = "Usage: ... codel [ limit PACKETS ] [ target TIME ]
                 [ interval TIME ] [ ecn | noecn ]
                 [ ce_threshold TIME ]";

/// The hint after a word that is not a number of packets.
pub(super) const NUMBER_HINT: &str = "a number below 4294967296 without a unit, as 1000";

pub(super) fn parse(mut words: Words) -> Result<Params, Complaint> {
    let mut options = CodelQueueOptions::default();
    while let Some(word) = words.next() {
        match word {
            // As in tc, 0 counts as not given.
            "limit" => options.limit = packets("codel", word, &mut words, "1000")?,
            "target" => options.target = span("codel", word, &mut words, "5ms")?,
            "interval" => options.interval = span("codel", word, &mut words, "100ms")?,
            "ce_threshold" => {
                let value = words.value(word, "1ms")?;
                let time = legal("codel", word, value, number::time, number::TIME_HINT)?;
                options.ce_threshold = Some(time);
            }
            "ecn" | "noecn" => options.ecn = Some(word == "ecn"),
            "help" => return Err(Complaint::wrong(USAGE)),
            _ => return Err(Complaint::wrong(format!("What is \"{word}\"?\n{USAGE}"))),
        }
    }
    Ok(Params::Codel(options))
}

/// The number that follows `word`; `None` for 0.
pub(super) fn packets(
    kind: &str,
    word: &str,
    words: &mut Words,
    example: &str,
) -> Result<Option<u32>, Complaint> {
    let value = words.value(word, example)?;
    legal(kind, word, value, number::mask, NUMBER_HINT)
        .map(|value| Some(value).filter(|value| *value != 0))
}

/// The time that follows `word`; `None` for 0.
pub(super) fn span(
    kind: &str,
    word: &str,
    words: &mut Words,
    example: &str,
) -> Result<Option<Nanos>, Complaint> {
    let value = words.value(word, example)?;
    legal(kind, word, value, number::time, number::TIME_HINT)
        .map(|time| Some(time).filter(|time| *time != Nanos::ZERO))
}

/// A time in microseconds as the kernel returns it, which stores it in units of 1024 ns.
pub(super) fn kept(time: Nanos) -> u64 {
    ((time.0 >> 10) << 10) / 1_000
}

/// Prints a time that the kernel stores like this.
pub(super) fn show_time(line: &mut Line, key: &'static str, time: Nanos) {
    let micros = kept(time);
    line.add(key, Json::Number(micros), &format!("{key} {} ", notation::time(micros)));
}

/// Shows a time that may be negative; it wraps around in the kernel's units.
fn show_signed(line: &mut Line, key: &'static str, nanos: i64) {
    let micros = i64::try_from(kept(Nanos(nanos.unsigned_abs()))).unwrap_or(i64::MAX);
    let (sign, value) = if nanos < 0 { ("-", -micros) } else { ("", micros) };
    let text = format!(" {key} {sign}{}", notation::time(micros.unsigned_abs()));
    line.add(key, Json::Signed(value), &text);
}

pub(super) fn show(config: &Config, line: &mut Line) {
    let limit = u64::from(config.limit);
    line.add("limit", Json::Number(limit), &format!("limit {limit}p "));
    show_time(line, "target", config.target);
    if let Some(threshold) = config.ce_threshold {
        show_time(line, "ce_threshold", threshold);
    }
    show_time(line, "interval", config.interval);
    if config.ecn {
        line.add("ecn", Json::Bool(true), "ecn ");
    }
}

pub(super) fn save(config: &Config) -> String {
    let Config { limit, target, interval, ecn, ce_threshold, .. } = config;
    let micros = |time: &Nanos| time.0 / 1_000;
    let ecn = if *ecn { "ecn" } else { "noecn" };
    let mut words =
        format!(" limit {limit} target {}us interval {}us {ecn}", micros(target), micros(interval));
    if let Some(threshold) = ce_threshold {
        // Writing to a string cannot fail.
        let _ = write!(words, " ce_threshold {}us", micros(threshold));
    }
    words
}

/// What `tc -s` prints beyond the statistics of all qdiscs.
pub(crate) fn figures(figures: &Figures, line: &mut Line) {
    let Figures { state, signals, drop_overlimit } = figures;
    let mut count = |key: &'static str, before: &str, value: u64| {
        line.add(key, Json::Number(value), &format!("{before}{key} {value}"));
    };
    count("count", "  ", u64::from(state.count));
    count("lastcount", " ", u64::from(state.last_count));
    let sojourn = kept(state.sojourn);
    line.add("ldelay", Json::Number(sojourn), &format!(" ldelay {}", notation::time(sojourn)));
    if state.is_dropping {
        line.add("dropping", Json::Bool(true), " dropping");
    }
    show_signed(line, "drop_next", state.drop_next_nanos);
    line.text("\n");
    let mut count = |key: &'static str, before: &str, value: u64| {
        line.add(key, Json::Number(value), &format!("{before}{key} {value}"));
    };
    count("maxpacket", "  ", u64::from(signals.max_packet));
    count("ecn_mark", " ", signals.ecn_mark);
    count("drop_overlimit", " ", *drop_overlimit);
    if signals.ce_mark != 0 {
        count("ce_mark", " ", signals.ce_mark);
    }
    line.text("\n");
}
