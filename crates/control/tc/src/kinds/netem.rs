//! `netem`: the words of `tc-netem(8)`. As in `tc`, they may be abbreviated, and the first of
//! several with the same beginning is meant. An optional value is present if a number follows.

mod print;

use super::legal::legal;
use crate::complaint::Complaint;
use crate::number;
use crate::words::{Words, abbreviates};
use narrows_policy::Params;
use narrows_qdisc::netem::{
    Config, Distribution, Happening, Loss, Probability, RateLimit, Reorder, SlotDelay, Slotting,
};
use narrows_units::{Bytes, Nanos};

pub(super) use print::{save, show};

const USAGE: &str = "Usage: ... netem [ limit PACKETS ]
                 [ delay TIME [ JITTER [CORRELATION]]]
                 [ distribution {uniform|normal|pareto|paretonormal} ]
                 [ corrupt PERCENT [CORRELATION]]
                 [ duplicate PERCENT [CORRELATION]]
                 [ loss random PERCENT [CORRELATION]]
                 [ loss state P13 [P31 [P32 [P23 P14]]]
                 [ loss gemodel PERCENT [R [1-H [1-K]]]
                 [ ecn ]
                 [ reorder PERCENT [CORRELATION] [ gap DISTANCE ]]
                 [ rate RATE [PACKETOVERHEAD] [CELLSIZE] [CELLOVERHEAD]]
                 [ slot MIN_DELAY [MAX_DELAY] [packets MAX_PACKETS] [bytes MAX_BYTES]]
                 [ slot distribution {uniform|normal|pareto|paretonormal} DELAY JITTER
                   [packets MAX_PACKETS] [bytes MAX_BYTES]]
                 [ seed SEED ]";

const PERCENT_HINT: &str = "a percentage from 0% to 100%, as 1%";
const NUMBER_HINT: &str = "a number below 4294967296 without a unit, as 20";
const SLOT_HINT: &str = "a number and a unit: ns, us, ms, s, below 4.3 s, as 800us";
const DISTRIBUTION_HINT: &str = "the distributions are uniform, normal, pareto and paretonormal";

/// What has been parsed so far.
struct Draft {
    config: Config,
    gap: u32,
    reorder: Happening,
    is_spread: bool,
}

pub(super) fn parse(mut words: Words) -> Result<Params, Complaint> {
    let (gap, reorder) = (0, Happening::default());
    let mut draft = Draft { config: Config::default(), gap, reorder, is_spread: false };
    while let Some(word) = words.next() {
        draft.parameter(word, &mut words)?;
    }
    draft.finish().map(Params::Netem)
}

impl Draft {
    /// Parses the parameter that `word` names. As in `tc`, the order decides between words with the
    /// same beginning.
    fn parameter(&mut self, word: &str, words: &mut Words) -> Result<(), Complaint> {
        let config = &mut self.config;
        if abbreviates(word, "limit") {
            config.limit = value("limit", words, "1000", number::size, NUMBER_HINT)?;
        } else if abbreviates(word, "latency") || abbreviates(word, "delay") {
            config.delay = value("delay", words, "20ms", number::time, number::TIME_HINT)?;
            if let Some(jitter) = more("delay", words, number::time, number::TIME_HINT)? {
                config.jitter = jitter;
                config.delay_correlation = correlation("delay", words)?;
            }
        } else if abbreviates(word, "loss") || abbreviates(word, "drop") {
            if config.loss != Loss::None {
                return Err(wrong("duplicate loss argument: give one model of loss.".to_owned()));
            }
            config.loss = loss(words)?;
        } else if abbreviates(word, "ecn") {
            config.ecn = true;
        } else if abbreviates(word, "reorder") {
            self.reorder = happening("reorder", words)?;
        } else if abbreviates(word, "corrupt") {
            config.corrupt = happening("corrupt", words)?;
        } else if abbreviates(word, "gap") {
            self.gap = value("gap", words, "5", number::mask, NUMBER_HINT)?;
        } else if abbreviates(word, "duplicate") {
            config.duplicate = happening("duplicate", words)?;
        } else if abbreviates(word, "distribution") {
            self.is_spread = true;
            config.distribution =
                value("distribution", words, "normal", distribution, DISTRIBUTION_HINT)?;
        } else if abbreviates(word, "rate") {
            config.rate = Some(rate(words)?).filter(|rate| !rate.rate.is_zero());
        } else if abbreviates(word, "slot") {
            config.slots = Some(slots(words)?);
        } else if abbreviates(word, "seed") {
            let number = |word: &str| word.parse().ok();
            config.seed = value("seed", words, "42", number, "a number, as 42")?;
        } else if word == "help" {
            return Err(Complaint::wrong(USAGE));
        } else {
            return Err(Complaint::wrong(format!("What is \"{word}\"?\n{USAGE}")));
        }
        Ok(())
    }

    fn finish(self) -> Result<Config, Complaint> {
        let Self { mut config, gap, reorder, is_spread } = self;
        let has_reorder = reorder.probability != Probability::NEVER;
        if has_reorder && config.delay == Nanos::ZERO {
            return Err(wrong(format!(
                "reordering not possible without specifying some delay: a packet can only overtake packets that are delayed. Give delay 10ms.\n{USAGE}"
            )));
        }
        if !has_reorder && gap > 0 {
            return Err(wrong(format!(
                "gap specified without reorder probability: give reorder 25%, too.\n{USAGE}"
            )));
        }
        if config.ecn && config.loss == Loss::None {
            return Err(wrong(format!(
                "ecn requested without loss model: give loss 1%, too.\n{USAGE}"
            )));
        }
        if is_spread && (config.delay == Nanos::ZERO || config.jitter == Nanos::ZERO) {
            return Err(wrong(format!(
                "distribution specified but no latency and jitter values: give delay 20ms 2ms, too.\n{USAGE}"
            )));
        }
        if let Some(RateLimit { cell, cell_overhead, .. }) = config.rate
            && i64::from(cell) + i64::from(cell_overhead) <= 0
            && cell > 0
        {
            return Err(wrong(
                "a cell that costs nothing is no limit: give a CELLOVERHEAD above -CELLSIZE."
                    .to_owned(),
            ));
        }
        config.reorder = has_reorder.then_some(Reorder { happening: reorder, gap: gap.max(1) });
        Ok(config)
    }
}

fn wrong(why: String) -> Complaint {
    Complaint::wrong(format!("netem: {why}"))
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
    legal("netem", name, value, read, hint)
}

/// The following value, if it is a number.
fn more<T>(
    name: &str,
    words: &mut Words,
    read: impl Fn(&str) -> Option<T>,
    hint: &str,
) -> Result<Option<T>, Complaint> {
    let is_number = |word: &str| word.starts_with(|letter: char| letter.is_ascii_digit());
    let Some(value) = words.next_if(is_number) else { return Ok(None) };
    legal("netem", name, value, read, hint).map(Some)
}

/// The next word as a number that may be negative, if it is one.
fn more_signed(name: &str, words: &mut Words) -> Result<Option<i32>, Complaint> {
    let is_number =
        |word: &str| word.starts_with(|letter: char| letter.is_ascii_digit() || letter == '-');
    let Some(value) = words.next_if(is_number) else { return Ok(None) };
    let hint = "a number of bytes without a unit, which may be negative, as -14";
    legal("netem", name, value, number::integer, hint).map(Some)
}

fn probability(word: &str) -> Option<Probability> {
    let share = number::percent(word)?;
    Some(Probability((share * f64::from(u32::MAX)).round_ties_even() as u32))
}

fn correlation(name: &str, words: &mut Words) -> Result<Probability, Complaint> {
    more(name, words, probability, PERCENT_HINT).map(Option::unwrap_or_default)
}

fn happening(name: &str, words: &mut Words) -> Result<Happening, Complaint> {
    let probability = value(name, words, "1%", probability, PERCENT_HINT)?;
    let happening = Happening { probability, correlation: correlation(name, words)? };
    // A probability of 0 equals no setting.
    let is_never = probability == Probability::NEVER;
    Ok(if is_never { Happening::default() } else { happening })
}

fn loss(words: &mut Words) -> Result<Loss, Complaint> {
    let model = words.next_if(|word| matches!(word, "random" | "state" | "gemodel"));
    let first = |words: &mut Words| {
        value("loss", words, "1%", probability, "random, state or gemodel, and a percentage, as 1%")
    };
    let inverse = |Probability(probability)| Probability(u32::MAX - probability);
    let next = |words: &mut Words, is_there: &mut bool, default| {
        let given = if *is_there { more("loss", words, probability, PERCENT_HINT)? } else { None };
        *is_there = given.is_some();
        Ok::<_, Complaint>(given.unwrap_or(default))
    };
    let mut is_there = true;
    match model {
        Some("state") => {
            let p13 = first(words)?;
            Ok(Loss::State {
                p13,
                p31: next(words, &mut is_there, inverse(p13))?,
                p32: next(words, &mut is_there, Probability::NEVER)?,
                p23: next(words, &mut is_there, Probability::ALWAYS)?,
                p14: next(words, &mut is_there, Probability::NEVER)?,
            })
        }
        Some("gemodel") => {
            let p = first(words)?;
            Ok(Loss::Gilbert {
                p,
                r: next(words, &mut is_there, inverse(p))?,
                bad: next(words, &mut is_there, Probability::ALWAYS)?,
                good: next(words, &mut is_there, Probability::NEVER)?,
            })
        }
        _ => {
            let probability = first(words)?;
            let happening = Happening { probability, correlation: correlation("loss", words)? };
            let is_none = probability == Probability::NEVER;
            Ok(if is_none { Loss::None } else { Loss::Random(happening) })
        }
    }
}

fn distribution(word: &str) -> Option<Distribution> {
    print::DISTRIBUTIONS.into_iter().find(|(_, name)| *name == word).map(|(found, _)| found)
}

fn rate(words: &mut Words) -> Result<RateLimit, Complaint> {
    let rate = super::tbf::rate("netem", "rate", words.value("rate", "10mbit")?)?;
    let overhead = more_signed("rate", words)?.unwrap_or(0);
    let cell = more("rate", words, number::mask, NUMBER_HINT)?.unwrap_or(0);
    let cell_overhead = more_signed("rate", words)?.unwrap_or(0);
    Ok(RateLimit { rate, overhead, cell, cell_overhead })
}

fn slots(words: &mut Words) -> Result<Slotting, Complaint> {
    let delay = if words.next_if(|word| word == "distribution").is_some() {
        let spread = value("slot distribution", words, "normal", distribution, DISTRIBUTION_HINT)?;
        let mean = value("slot distribution", words, "1ms", number::nanos, SLOT_HINT)?;
        let some = |word: &str| number::nanos(word).filter(|time| *time != Nanos::ZERO);
        let jitter = value("slot distribution", words, "100us", some, SLOT_HINT)?;
        SlotDelay::Spread(mean, jitter, spread)
    } else {
        let from = value("slot", words, "800us", number::nanos, SLOT_HINT)?;
        let hint = "the longest time between slots, not below the shortest, as 1ms";
        let to = |word: &str| number::nanos(word).filter(|to| *to >= from);
        SlotDelay::Between(from, more("slot", words, to, hint)?.unwrap_or(from))
    };
    let mut limit = |name, example, read: fn(&str) -> Option<u32>, hint| {
        if words.next_if(|word| abbreviates(word, name)).is_none() {
            return Ok(0);
        }
        value(name, words, example, read, hint)
    };
    let packets = limit("packets", "20", number::mask, NUMBER_HINT)?;
    let bytes = limit("bytes", "32k", number::size, number::SIZE_HINT)?;
    Ok(Slotting { delay, packets, bytes })
}

/// A warning about a setting that is probably not meant: a limit below the packets in flight.
pub(super) fn warning(config: &Config) -> Option<String> {
    let rate = config.rate?.rate;
    let under_way = rate.bytes_in(config.delay);
    let holds = Bytes(u64::from(config.limit) * u64::from(config.frame));
    (under_way > holds).then(|| {
        let least = under_way.0.div_ceil(u64::from(config.frame));
        format!(
            "Warning: netem: {} packets are fewer than are under way at this rate with this delay: the rate will not be reached. Give limit {least} or more.",
            config.limit
        )
    })
}
