//! `carousel`, `eiffel`, `flowbundler`: with the words of `tc-fq(8)` for parameters that `fq` has,
//! too.
//!
//! As in `tc fq`, no word may be abbreviated, and of two that exclude each other the later one
//! counts.

use super::legal::legal;
use crate::complaint::Complaint;
use crate::render::{Json, Line};
use crate::words::Words;
use crate::{notation, number};
use narrows_policy::{CodelOptions, PacingOptions, Params};
use narrows_qdisc::pacing::{Beyond, Codel, Config, Figures, Key, Mltw, Signals, Structure};
use narrows_units::Nanos;

/// An unlimited horizon would need unlimited memory for slots.
const HORIZON_HINT: &str = "a time from 1us on, below 4295 s, as 10s";
const CODEL_HINT: &str = "a time from 1us to 10s, as 5ms";
/// Longer than any round trip.
const CODEL_MAX: Nanos = Nanos::from_secs(10);
const GRANULARITY_HINT: &str = "a time from 1ns to 1s, as 500ns or 8us";
/// The longest slot.
const GRANULARITY_MAX: Nanos = Nanos::from_secs(1);

pub(super) fn parse(structure: Structure, mut words: Words) -> Result<Params, Complaint> {
    let kind = structure.name();
    let mut options = PacingOptions::default();
    while let Some(word) = words.next() {
        match word {
            "limit" | "flow_limit" => {
                let value = words.value(word, if word == "limit" { "10000" } else { "100" })?;
                let hint = "a number of packets, at least 1";
                let packets = Some(legal(kind, word, value, count, hint)?);
                let option =
                    if word == "limit" { &mut options.limit } else { &mut options.flow_limit };
                *option = packets;
            }
            "maxrate" => {
                let value = words.value(word, "100mbit")?;
                options.maxrate = Some(legal(kind, word, value, number::rate, number::RATE_HINT)?);
            }
            "hostrate" | "flowrate" => {
                let value = words.value(word, "50mbit")?;
                let rate = legal(kind, word, value, number::rate, number::RATE_HINT)?;
                let of = if word == "hostrate" { Key::Hosts } else { Key::Flows };
                options.beside = Some((of, rate));
            }
            "horizon" => {
                let value = words.value(word, "10s")?;
                let some = |word: &str| number::time(word).filter(|time| *time != Nanos::ZERO);
                options.horizon = Some(legal(kind, word, value, some, HORIZON_HINT)?);
            }
            "horizon_drop" => options.beyond = Some(Beyond::Drop),
            "horizon_cap" => options.beyond = Some(Beyond::Cap),
            "granularity" => {
                let value = words.value(word, "1us")?;
                options.granularity =
                    Some(legal(kind, word, value, granularity, GRANULARITY_HINT)?);
            }
            "slots" if structure == Structure::FlowBundler => {
                let value = words.value(word, "1024")?;
                let hint = "a power of two from 64 to 4096";
                options.slots = Some(legal(kind, word, value, slots, hint)?);
            }
            "apart" if structure == Structure::FlowBundler => {
                let value = words.value(word, "hosts")?;
                options.apart = Some(legal(kind, word, value, apart, "flows or hosts")?);
            }
            "safeguard" | "nosafeguard" if structure == Structure::FlowBundler => {
                options.safeguard = Some(word == "safeguard");
            }
            "codel" | "ecn" | "noecn" | "target" | "interval" => {
                options.codel = Some(codel(kind, word, options.codel, &mut words)?);
            }
            "nocodel" => options.codel = Some(CodelOptions::Off),
            "flows" => options.key = Some(Key::Flows),
            "hosts" => options.key = Some(Key::Hosts),
            "help" => return Err(Complaint::wrong(usage(structure))),
            _ => {
                let usage = usage(structure);
                return Err(Complaint::wrong(format!("What is \"{word}\"?\n{usage}")));
            }
        }
    }
    Ok(Params::Pacing { structure, options })
}

/// The queue management after `word`; `before` is the result of earlier words.
fn codel(
    kind: &str,
    word: &str,
    before: Option<CodelOptions>,
    words: &mut Words,
) -> Result<CodelOptions, Complaint> {
    let (mut target, mut interval, mut ecn) = match before {
        Some(CodelOptions::On { target, interval, ecn }) => (target, interval, ecn),
        Some(CodelOptions::Off) | None => (None, None, None),
    };
    match word {
        "target" | "interval" => {
            let value = words.value(word, if word == "target" { "5ms" } else { "100ms" })?;
            let some = |word: &str| {
                number::time(word).filter(|time| (Nanos(1)..=CODEL_MAX).contains(time))
            };
            let time = Some(legal(kind, word, value, some, CODEL_HINT)?);
            *(if word == "target" { &mut target } else { &mut interval }) = time;
        }
        "ecn" | "noecn" => ecn = Some(word == "ecn"),
        _ => {}
    }
    Ok(CodelOptions::On { target, interval, ecn })
}

fn usage(structure: Structure) -> String {
    let kind = structure.name();
    let own = "\n           [ slots N ] [ apart { flows* | hosts } ] [ safeguard | nosafeguard* ]";
    let own = if structure == Structure::FlowBundler { own } else { "" };
    format!(
        "Usage: {kind} [ limit PACKETS ] [ flow_limit PACKETS ] [ maxrate RATE ] [ flows* | hosts ]
           [ hostrate RATE | flowrate RATE ]
           [ horizon TIME ] [ horizon_drop* | horizon_cap ] [ granularity TIME ]
           [ codel [ target TIME ] [ interval TIME ] [ ecn* | noecn ] | nocodel* ]{own}
maxrate is the most of each flow, or of each destination with hosts, whatever rate filters give it;
maxrate 0 is no bound. Beside it, hostrate is the most of each destination with flows, flowrate
that of each flow with hosts.
* marks the defaults. For a rate of all together, put it below a tbf."
    )
}

/// A positive number.
fn count(word: &str) -> Option<u32> {
    word.parse().ok().filter(|number| *number > 0)
}

fn apart(word: &str) -> Option<Key> {
    [Key::Flows, Key::Hosts].into_iter().find(|apart| key(*apart) == word)
}

fn slots(word: &str) -> Option<u32> {
    word.parse().ok().filter(|slots: &u32| slots.is_power_of_two() && Mltw::SLOTS.contains(slots))
}

/// A time with the usual units, or in nanoseconds.
fn granularity(word: &str) -> Option<Nanos> {
    let nanos = word.strip_suffix("ns").or(word.strip_suffix("nsec"));
    let time = match nanos {
        Some(nanos) => Nanos(nanos.parse().ok()?),
        None => number::time(word)?,
    };
    (Nanos(1)..=GRANULARITY_MAX).contains(&time).then_some(time)
}

/// In microseconds if they are whole.
fn fine(time: Nanos) -> String {
    let Nanos(nanos) = time;
    if nanos.is_multiple_of(1_000) { format!("{}us", nanos / 1_000) } else { format!("{nanos}ns") }
}

/// The word for the rate beside that of flows.
fn beside(config: &Config) -> &'static str {
    match config.key {
        Key::Flows => "hostrate",
        Key::Hosts => "flowrate",
    }
}

fn beyond(beyond: Beyond) -> &'static str {
    match beyond {
        Beyond::Drop => "horizon_drop",
        Beyond::Cap => "horizon_cap",
    }
}

fn key(key: Key) -> &'static str {
    match key {
        Key::Flows => "flows",
        Key::Hosts => "hosts",
    }
}

pub(super) fn show(config: &Config, line: &mut Line) {
    let packets = |line: &mut Line, key, limit: u32| {
        line.add(key, Json::Number(u64::from(limit)), &format!("{key} {limit}p "));
    };
    packets(line, "limit", config.limit);
    packets(line, "flow_limit", config.flow_limit);
    if let Some(rate) = config.maxrate {
        let text = format!("maxrate {} ", line.rate(rate));
        line.add("maxrate", Json::Number(rate.bytes_per_sec()), &text);
    }
    if let Some(rate) = config.beside {
        let word = beside(config);
        line.add(word, Json::Number(rate.bytes_per_sec()), &format!("{word} {} ", line.rate(rate)));
    }
    let horizon = config.horizon.0 / 1_000;
    line.add("horizon", Json::Number(horizon), &format!("horizon {} ", notation::time(horizon)));
    let beyond = beyond(config.beyond);
    line.add(beyond, Json::Bool(true), &format!("{beyond} "));
    let granularity = config.granularity;
    let text = format!("granularity {} ", fine(granularity));
    line.add("granularity_ns", Json::Number(granularity.0), &text);
    if config.structure == Structure::FlowBundler {
        let slots = config.slots;
        line.add("slots", Json::Number(u64::from(slots)), &format!("slots {slots} "));
        let apart = key(config.apart);
        line.add("apart", Json::Text(apart.to_owned()), &format!("apart {apart} "));
        let safeguard = if config.safeguard { "safeguard " } else { "nosafeguard " };
        line.add("safeguard", Json::Bool(config.safeguard), safeguard);
    }
    if let Some(Codel { target, interval, ecn }) = config.codel {
        let mut words = Line::default();
        for (name, time) in [("target", target), ("interval", interval)] {
            let micros = time.0 / 1_000;
            let text = format!("{name} {} ", notation::time(micros));
            words.add(name, Json::Number(micros), &text);
        }
        words.add("ecn", Json::Bool(ecn), if ecn { "ecn " } else { "noecn " });
        line.text("codel ");
        line.nest("codel", words);
    }
    let key = key(config.key);
    line.add("flowmode", Json::Text(key.to_owned()), &format!("{key} "));
}

pub(super) fn save(config: &Config) -> String {
    let rate = config.maxrate.unwrap_or_default().bits_per_sec();
    let (limit, flow_limit) = (config.limit, config.flow_limit);
    let horizon = config.horizon.0 / 1_000;
    let slots = match config.structure {
        Structure::FlowBundler => {
            let safeguard = if config.safeguard { "safeguard" } else { "nosafeguard" };
            format!(" slots {} apart {} {safeguard}", config.slots, key(config.apart))
        }
        Structure::Carousel | Structure::Eiffel => String::new(),
    };
    let codel = config.codel.map_or_else(
        || "nocodel".to_owned(),
        |Codel { target, interval, ecn }| {
            let (target, interval) = (target.0 / 1_000, interval.0 / 1_000);
            let ecn = if ecn { "ecn" } else { "noecn" };
            format!("codel target {target}us interval {interval}us {ecn}")
        },
    );
    let second = config.beside.unwrap_or_default().bits_per_sec();
    let second = format!("{} {second}bit", beside(config));
    format!(
        " limit {limit} flow_limit {flow_limit} maxrate {rate}bit {second} horizon {horizon}us {} granularity {}{slots} {codel} {}",
        beyond(config.beyond),
        fine(config.granularity),
        key(config.key),
    )
}

/// What `tc -s` prints beyond the statistics of all qdiscs, in the style of `tc-fq(8)`.
pub(crate) fn figures(figures: &Figures, line: &mut Line) {
    let inactive = figures.flows - figures.throttled_flows;
    let memory = notation::size(figures.memory.0);
    line.text(&format!(
        "  flows {} (inactive {inactive} throttled {}) memory {memory}\n",
        figures.flows, figures.throttled_flows,
    ));
    line.text(&format!(
        "  throttled {} flows_plimit {} horizon_drops {} horizon_caps {} congestion {}\n",
        figures.throttled,
        figures.flow_limit_drops,
        figures.horizon_drops,
        figures.horizon_caps,
        figures.congestion,
    ));
    if let Some(signals) = figures.codel {
        let Signals { drops, marks, overlimit } = signals;
        line.text(&format!("  codel drops {drops} marks {marks} overlimit {overlimit}\n"));
    }
    for (key, value) in [
        ("flows", u64::from(figures.flows)),
        ("inactive_flows", u64::from(inactive)),
        ("throttled_flows", u64::from(figures.throttled_flows)),
        ("throttled", figures.throttled),
        ("flows_plimit", figures.flow_limit_drops),
        ("horizon_drops", figures.horizon_drops),
        ("horizon_caps", figures.horizon_caps),
        ("congestion", figures.congestion),
        ("memory", figures.memory.0),
    ] {
        line.json(key, Json::Number(value));
    }
    if let Some(Signals { drops, marks, overlimit }) = figures.codel {
        line.json("codel_drops", Json::Number(drops));
        line.json("codel_marks", Json::Number(marks));
        line.json("codel_overlimit", Json::Number(overlimit));
    }
}
