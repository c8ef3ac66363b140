//! The output of `tc` for a `netem`, to the blank; and what is saved.

use crate::notation;
use crate::render::{Json, Line};
use narrows_qdisc::netem::{
    Config, Distribution, Happening, Loss, Probability, RateLimit, SlotDelay, Slotting,
};
use narrows_units::Nanos;
use std::fmt::Write;

/// Distributions, with their names.
pub(super) const DISTRIBUTIONS: [(Distribution, &str); 4] = [
    (Distribution::Uniform, "uniform"),
    (Distribution::Normal, "normal"),
    (Distribution::Pareto, "pareto"),
    (Distribution::ParetoNormal, "paretonormal"),
];

fn name(distribution: Distribution) -> &'static str {
    DISTRIBUTIONS.into_iter().find(|(which, _)| *which == distribution).map_or("", |(_, name)| name)
}

fn share(Probability(probability): Probability) -> f64 {
    f64::from(probability) / f64::from(u32::MAX)
}

fn percent(probability: Probability) -> String {
    format!("{}%", notation::general(100.0 * share(probability)))
}

/// Adds a probability: a percentage in text, a fraction in JSON.
fn add_percent(line: &mut Line, key: &'static str, label: &str, probability: Probability) {
    let text = format!(" {label} {}", percent(probability));
    line.add(key, Json::Float(share(probability)), &text);
}

/// Adds a correlation, which text only has if it is not 0.
fn add_correlation(line: &mut Line, correlation: Probability) {
    line.json("correlation", Json::Float(share(correlation)));
    if correlation != Probability::NEVER {
        line.text(&format!(" {}", percent(correlation)));
    }
}

fn show_happening(key: &'static str, label: &str, happening: &Happening, line: &mut Line) {
    let mut inner = Line::default();
    add_percent(&mut inner, label_of(key), label, happening.probability);
    add_correlation(&mut inner, happening.correlation);
    line.nest(key, inner);
}

/// The label of a probability within the object `key`.
fn label_of(key: &'static str) -> &'static str {
    if key == "loss-random" { "loss" } else { key }
}

fn secs(time: Nanos) -> Json {
    Json::Float(time.as_secs_f64())
}

pub(crate) fn show(config: &Config, line: &mut Line) {
    let limit = u64::from(config.limit);
    line.add("limit", Json::Number(limit), &format!("limit {limit}"));
    if config.delay != Nanos::ZERO {
        line.nest("delay", delay(config));
    }
    show_loss(&config.loss, line);
    if config.duplicate.probability != Probability::NEVER {
        show_happening("duplicate", "duplicate", &config.duplicate, line);
    }
    if let Some(reorder) = &config.reorder {
        show_happening("reorder", "reorder", &reorder.happening, line);
    }
    if config.corrupt.probability != Probability::NEVER {
        show_happening("corrupt", "corrupt", &config.corrupt, line);
    }
    if let Some(rate) = &config.rate {
        let inner = show_rate(rate, line);
        line.nest("rate", inner);
    }
    if let Some(slots) = &config.slots {
        line.nest("slot", show_slots(slots));
    }
    if config.seed != 0 {
        line.add("seed", Json::Number(config.seed), &format!(" seed {}", config.seed));
    }
    line.add("ecn", Json::Bool(config.ecn), if config.ecn { " ecn " } else { "" });
    let gap = config.reorder.map_or(0, |reorder| u64::from(reorder.gap));
    let text = if gap == 0 { String::new() } else { format!(" gap {gap}") };
    line.add("gap", Json::Number(gap), &text);
}

fn delay(config: &Config) -> Line {
    let mut inner = Line::default();
    let time = |time: Nanos| notation::time(time.0 / 1_000);
    inner.add("delay", secs(config.delay), &format!(" delay {}", time(config.delay)));
    inner.json("jitter", secs(config.jitter));
    inner.json("correlation", Json::Float(share(config.delay_correlation)));
    if config.jitter != Nanos::ZERO {
        // tc prints two blanks here, too.
        inner.text(&format!("  {}", time(config.jitter)));
        if config.delay_correlation != Probability::NEVER {
            inner.text(&format!(" {}", percent(config.delay_correlation)));
        }
    }
    if config.distribution != Distribution::Uniform {
        // tc does not print it.
        inner.json("distribution", Json::Text(name(config.distribution).to_owned()));
    }
    inner
}

fn show_loss(loss: &Loss, line: &mut Line) {
    let mut inner = Line::default();
    match loss {
        Loss::None => {}
        Loss::Random(happening) => show_happening("loss-random", "loss", happening, line),
        Loss::State { p13, p31, p32, p23, p14 } => {
            add_percent(&mut inner, "p13", "loss state p13", *p13);
            for (key, value) in [("p31", p31), ("p32", p32), ("p23", p23), ("p14", p14)] {
                add_percent(&mut inner, key, key, *value);
            }
            line.nest("loss-state", inner);
        }
        Loss::Gilbert { p, r, bad, good } => {
            add_percent(&mut inner, "p", "loss gemodel p", *p);
            for (key, value) in [("r", r), ("1-h", bad), ("1-k", good)] {
                add_percent(&mut inner, key, key, *value);
            }
            line.nest("loss-gemodel", inner);
        }
    }
}

fn show_rate(limit: &RateLimit, line: &Line) -> Line {
    let RateLimit { rate, overhead, cell, cell_overhead } = *limit;
    let mut inner = Line::default();
    let text = format!(" rate {}", line.rate(rate));
    inner.add("rate", Json::Number(rate.bytes_per_sec()), &text);
    for (key, value) in [
        ("packetoverhead", i64::from(overhead)),
        ("cellsize", i64::from(cell)),
        ("celloverhead", i64::from(cell_overhead)),
    ] {
        let text = if value == 0 { String::new() } else { format!(" {key} {value}") };
        inner.add(key, Json::Signed(value), &text);
    }
    inner
}

fn show_slots(slots: &Slotting) -> Line {
    let mut inner = Line::default();
    let mut time = |key, label: &str, time: Nanos| {
        inner.add(key, secs(time), &format!("{label} {}", notation::nanos(time.0)));
    };
    match slots.delay {
        SlotDelay::Between(from, to) => {
            time("min-delay", " slot", from);
            time("max-delay", "", to);
        }
        SlotDelay::Spread(mean, jitter, _) => {
            time("distribution", " slot distribution", mean);
            time("jitter", "", jitter);
        }
    }
    for (key, value) in [("packets", slots.packets), ("bytes", slots.bytes)] {
        let text = if value == 0 { String::new() } else { format!(" {key} {value}") };
        inner.add(key, Json::Number(u64::from(value)), &text);
    }
    inner
}

/// A probability as a percentage that is read back as the same value.
fn exact(probability: Probability) -> String {
    format!("{}%", 100.0 * share(probability))
}

fn save_happening(name: &str, happening: &Happening, words: &mut String) {
    let Happening { probability, correlation } = *happening;
    // Writing to a string cannot fail.
    let _ = write!(words, " {name} {} {}", exact(probability), exact(correlation));
}

pub(crate) fn save(config: &Config) -> String {
    let mut words = format!(" limit {}", config.limit);
    let mut add = |word: std::fmt::Arguments| {
        // Writing to a string cannot fail.
        let _ = write!(words, " {word}");
    };
    let micros = |time: Nanos| time.0 / 1_000;
    if config.delay != Nanos::ZERO || config.jitter != Nanos::ZERO {
        add(format_args!(
            "delay {}us {}us {}",
            micros(config.delay),
            micros(config.jitter),
            exact(config.delay_correlation)
        ));
    }
    if config.distribution != Distribution::Uniform {
        add(format_args!("distribution {}", name(config.distribution)));
    }
    match &config.loss {
        Loss::None => {}
        Loss::Random(happening) => save_happening("loss random", happening, &mut words),
        Loss::State { p13, p31, p32, p23, p14 } => {
            let [p13, p31, p32, p23, p14] = [p13, p31, p32, p23, p14].map(|p| exact(*p));
            add(format_args!("loss state {p13} {p31} {p32} {p23} {p14}"));
        }
        Loss::Gilbert { p, r, bad, good } => {
            let [p, r, bad, good] = [p, r, bad, good].map(|p| exact(*p));
            add(format_args!("loss gemodel {p} {r} {bad} {good}"));
        }
    }
    words += &save_rest(config);
    words
}

fn save_rest(config: &Config) -> String {
    let mut words = String::new();
    if config.ecn {
        words += " ecn";
    }
    if config.duplicate.probability != Probability::NEVER {
        save_happening("duplicate", &config.duplicate, &mut words);
    }
    if config.corrupt.probability != Probability::NEVER {
        save_happening("corrupt", &config.corrupt, &mut words);
    }
    if let Some(reorder) = &config.reorder {
        save_happening("reorder", &reorder.happening, &mut words);
        // Writing to a string cannot fail.
        let _ = write!(words, " gap {}", reorder.gap);
    }
    if let Some(RateLimit { rate, overhead, cell, cell_overhead }) = config.rate {
        let rate = rate.bits_per_sec();
        let _ = write!(words, " rate {rate}bit {overhead} {cell} {cell_overhead}");
    }
    if let Some(Slotting { delay, packets, bytes }) = config.slots {
        let _ = match delay {
            SlotDelay::Between(Nanos(from), Nanos(to)) => write!(words, " slot {from}ns {to}ns"),
            SlotDelay::Spread(Nanos(mean), Nanos(jitter), spread) => {
                write!(words, " slot distribution {} {mean}ns {jitter}ns", name(spread))
            }
        };
        let _ = write!(words, " packets {packets} bytes {bytes}");
    }
    if config.seed != 0 {
        let _ = write!(words, " seed {}", config.seed);
    }
    words
}
