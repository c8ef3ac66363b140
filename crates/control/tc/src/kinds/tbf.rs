//! `tbf`, with the words for shared rates: `coordination` and `sync`.

use super::autorate;
use super::coordination;
use super::fleet;
use super::legal;
use super::style::Style;
use crate::complaint::Complaint;
use crate::notation::{self, Prefixes};
use crate::number;
use crate::overhead;
use crate::render::{Json, Line};
use crate::ticks::Bucket;
use crate::words::{Words, abbreviates};
use narrows_policy::{Autorate, Fleet, PortFacts, TbfParams};
use narrows_qdisc::tbf::Peak;
use narrows_units::wire::{Framing, Overhead};
use narrows_units::{Bytes, Nanos, Rate};
use std::fmt::Write;

const USAGE: &str = "Usage: tbf rate RATE burst SIZE { limit SIZE | latency TIME }
           [ peakrate RATE mtu SIZE ] [ overhead BYTES ] [ mpu BYTES ]
           [ linklayer ethernet|atm|adsl|ptm ] [ coordination fair|equal|edt|lock ] [ sync TIME ]
           [ fleet NAME { safe RATE | boxes N } [ rejoin ] ] [ autorate MIN MAX [ line PORT ]
           [ reflector ADDRESS ]... ]";

/// What has been parsed so far. As in `tc`, 0 counts as not given.
#[derive(Default)]
struct Draft {
    rate: Rate,
    burst: Bytes,
    limit: Bytes,
    latency: Nanos,
    peak: Rate,
    mtu: Bytes,
    overhead: u16,
    mpu: u16,
    framing: Framing,
    shared: coordination::Draft,
    fleet: Option<Box<Fleet>>,
    autorate: Option<Box<Autorate>>,
}

pub(super) fn parse(mut words: Words) -> Result<TbfParams, Complaint> {
    let mut draft = Draft::default();
    while let Some(word) = words.next() {
        draft.parameter(word, &mut words)?;
    }
    draft.finish()
}

impl Draft {
    /// Parses the parameter that `word` names. As in `tc`, only some words may be abbreviated, and
    /// the order decides between words with the same beginning.
    fn parameter(&mut self, word: &str, words: &mut Words) -> Result<(), Complaint> {
        if abbreviates(word, "limit") {
            once("limit", self.limit != Bytes::ZERO)?;
            if self.latency != Nanos::ZERO {
                return Err(limit_and_latency(word));
            }
            let value = words.value("limit", "64k")?;
            self.limit = Bytes(u64::from(legal("limit", value, number::size, number::SIZE_HINT)?));
        } else if abbreviates(word, "latency") {
            once("latency", self.latency != Nanos::ZERO)?;
            if self.limit != Bytes::ZERO {
                return Err(limit_and_latency(word));
            }
            let value = words.value("latency", "5ms")?;
            self.latency = legal("latency", value, number::time, number::TIME_HINT)?;
        } else if abbreviates(word, "burst") || matches!(word, "buffer" | "maxburst") {
            once("buffer/burst/maxburst", self.burst != Bytes::ZERO)?;
            let value = words.value(word, "32k")?;
            self.burst = legal(word, value, number::size_and_cell, number::SIZE_HINT)?;
        } else if matches!(word, "mtu" | "minburst") {
            once("mtu/minburst", self.mtu != Bytes::ZERO)?;
            let value = words.value(word, "1540")?;
            self.mtu = legal(word, value, number::size_and_cell, number::SIZE_HINT)?;
        } else if word == "mpu" {
            once("mpu", self.mpu != 0)?;
            let value = words.value("mpu", "64")?;
            let small = |word: &str| u16::try_from(number::size(word)?).ok();
            self.mpu = legal("mpu", value, small, "a number of bytes up to 65535, as 64")?;
        } else if word == "rate" {
            once("rate", !self.rate.is_zero())?;
            let value = words.value("rate", "100mbit")?;
            self.rate = rate("tbf", "rate", value)?;
        } else if abbreviates(word, "peakrate") {
            once("peakrate", !self.peak.is_zero())?;
            let value = words.value("peakrate", "200mbit")?;
            self.peak = rate("tbf", "peakrate", value)?;
        } else if abbreviates(word, "overhead") {
            once("overhead", self.overhead != 0)?;
            let value = words.value("overhead", "24")?;
            let hint = "a number of bytes from 0 to 65535 without a unit, as 24";
            self.overhead = legal("overhead", value, number::short, hint)?;
        } else if abbreviates(word, "linklayer") {
            let value = words.value("linklayer", "ethernet")?;
            self.framing = legal("linklayer", value, overhead::framing, overhead::FRAMING_HINT)?;
        } else if abbreviates(word, "coordination") {
            self.shared.strategy("tbf", words)?;
        } else if abbreviates(word, "sync") {
            self.shared.sync("tbf", words)?;
        } else if word == "fleet" {
            fleet::parse("tbf", words, &mut self.fleet)?;
        } else if word == "autorate" {
            autorate::parse("tbf", words, &mut self.autorate)?;
        } else if word == "help" {
            return Err(Complaint::wrong(USAGE));
        } else {
            return Err(Complaint::wrong(format!("tbf: unknown parameter \"{word}\".\n{USAGE}")));
        }
        Ok(())
    }

    fn finish(self) -> Result<TbfParams, Complaint> {
        let mut missing = Vec::new();
        if self.rate.is_zero() {
            missing.push("the \"rate\" parameter is mandatory: give one of at least 8bit");
        }
        if self.burst == Bytes::ZERO {
            missing.push("the \"burst\" parameter is mandatory: give at least one frame, as 32k");
        }
        if !self.peak.is_zero() && self.mtu == Bytes::ZERO {
            missing.push("with \"peakrate\" goes \"mtu\": give at least one frame, as 1540");
        }
        if self.limit == Bytes::ZERO && self.latency == Nanos::ZERO {
            missing.push("either \"limit\" or \"latency\" is required, as latency 5ms");
        }
        if !missing.is_empty() {
            let lines: Vec<_> = missing.iter().map(|what| format!("tbf: {what}.")).collect();
            return Err(Complaint::wrong(lines.join("\n")));
        }
        let limit = self.backlog()?;
        Ok(TbfParams {
            rate: self.rate,
            burst: self.burst,
            limit,
            peak: (!self.peak.is_zero()).then_some(Peak { rate: self.peak, mtu: self.mtu }),
            overhead: Overhead {
                per_frame: i32::from(self.overhead),
                minimum: u32::from(self.mpu),
                framing: self.framing,
            },
            strategy: self.shared.finish("tbf")?,
            fleet: self.fleet,
            autorate: self.autorate,
        })
    }

    /// The limit, or the bytes that arrive during `latency` beyond what the bucket passes.
    fn backlog(&self) -> Result<Bytes, Complaint> {
        if self.limit != Bytes::ZERO {
            return Ok(self.limit);
        }
        let during = |rate: Rate, bucket: Bytes| {
            rate.bytes_per_sec() as f64 * ((self.latency.0 / 1_000) as f64) / 1e6 + bucket.0 as f64
        };
        let mut limit = during(self.rate, self.burst);
        if !self.peak.is_zero() {
            limit = limit.min(during(self.peak, self.mtu));
        }
        if limit > f64::from(u32::MAX) {
            return Err(Complaint::wrong(format!(
                "tbf: at {} a latency of {} is a backlog of 4 GiB or more: give less latency.",
                notation::rate(self.rate, Prefixes::Decimal),
                notation::time(self.latency.0 / 1_000),
            )));
        }
        Ok(Bytes(limit as u64))
    }
}

/// Refuses a repeated word.
fn once(name: &str, given: bool) -> Result<(), Complaint> {
    coordination::once("tbf", name, given)
}

fn limit_and_latency(word: &str) -> Complaint {
    Complaint::wrong(format!(
        "tbf: \"{word}\": \"limit\" and \"latency\" are two ways to say the same, give one of them."
    ))
}

/// The value of a parameter, or a complaint with what it should be.
fn legal<T>(
    name: &str,
    value: &str,
    read: impl Fn(&str) -> Option<T>,
    hint: &str,
) -> Result<T, Complaint> {
    legal::legal("tbf", name, value, read, hint)
}

pub(super) fn rate(kind: &str, name: &str, value: &str) -> Result<Rate, Complaint> {
    legal::legal(kind, name, value, number::rate, rate_hint(value))
}

/// The hint after `value`, which is not a rate.
pub(super) fn rate_hint(value: &str) -> &'static str {
    if value.ends_with('%') {
        "a share of the device's speed means nothing here, since Narrows sits before the \
         bottleneck: give the rate itself, as 100mbit"
    } else {
        number::RATE_HINT
    }
}

/// Warns if the bucket is smaller than a frame, because such frames are dropped.
pub(super) fn warning(params: &TbfParams, facts: &PortFacts) -> Option<String> {
    let cost = params.overhead.cost(Bytes(u64::from(facts.frame())));
    let bucket = params.peak.map_or(params.burst, |peak| peak.mtu.min(params.burst));
    (bucket < cost).then(|| {
        let name = if bucket == params.burst { "burst" } else { "mtu" };
        format!(
            "Warning: tbf: {name} {}b is less than a full frame of the device, which is charged \
             {}b: such frames will all be dropped. Give at least {name} {}.",
            bucket.0, cost.0, cost.0
        )
    })
}

pub(super) fn show(params: &TbfParams, style: Style, line: &mut Line) {
    let overhead = &params.overhead;
    let bucket = Bucket::new(params.burst, params.rate, overhead);
    line.add(
        "rate",
        Json::Number(params.rate.bytes_per_sec()),
        &format!("rate {} ", line.rate(params.rate)),
    );
    let show_bucket = |line: &mut Line, brief: &'static str, detailed: &'static str, bytes| {
        let size = notation::size(bytes);
        if style.details {
            // The kernel no longer returns the cell size; tc then prints 1.
            let text = format!("{size}/1");
            line.add(detailed, Json::Text(text.clone()), &format!("{detailed} {text} "));
            let mpu = u64::from(overhead.minimum);
            line.add("mpu", Json::Number(mpu), &format!("mpu {} ", notation::size(mpu)));
        } else {
            line.add(brief, Json::Number(bytes), &format!("{brief} {size} "));
        }
    };
    show_bucket(line, "burst", "burst", bucket.size(params.rate));
    let mut latency = lateness(params.limit, params.rate, bucket);
    if let Some(peak) = params.peak {
        // tc has no JSON key for it.
        line.text(&format!("peakrate {} ", line.rate(peak.rate)));
        let bucket = Bucket::new(peak.mtu, peak.rate, overhead);
        // A bucket that fills within a tick is not printed.
        if !bucket.is_nothing() || overhead.minimum != 0 {
            show_bucket(line, "minburst", "mtu", bucket.size(peak.rate));
        }
        latency = latency.max(lateness(params.limit, peak.rate, bucket));
    }
    if latency >= 0.0 {
        let micros = latency as u64;
        line.add("lat", Json::Number(micros), &format!("lat {} ", notation::time(micros)));
    } else {
        let limit = params.limit.0;
        line.add("limit", Json::Number(limit), &format!("limit {} ", notation::size(limit)));
    }
    overhead::show_per_frame(overhead, line);
    overhead::show_framing(overhead, style.details, line);
    if style.shared {
        coordination::show(params.strategy(), line);
    }
    fleet::show(params.fleet.as_deref(), params.rate, line);
    autorate::show(params.autorate.as_deref(), line);
}

/// How long the last byte of a full queue waits, in microseconds; negative if the bucket is larger
/// than the queue.
fn lateness(limit: Bytes, rate: Rate, bucket: Bucket) -> f64 {
    1e6 * (limit.0 as f64 / rate.bytes_per_sec() as f64) - bucket.micros() as f64
}

pub(super) fn save(params: &TbfParams) -> String {
    let mut words = format!(
        " rate {}bit burst {} limit {}",
        params.rate.bits_per_sec(),
        params.burst.0,
        params.limit.0
    );
    let mut add = |name: &str, value: &dyn std::fmt::Display| {
        // Writing to a string cannot fail.
        let _ = write!(words, " {name} {value}");
    };
    if let Some(peak) = params.peak {
        add("peakrate", &format_args!("{}bit", peak.rate.bits_per_sec()));
        add("mtu", &peak.mtu.0);
    }
    overhead::save(&params.overhead, &mut add);
    words += &params.strategy.map(coordination::save).unwrap_or_default();
    words + &fleet::save(params.fleet.as_deref()) + &autorate::save(params.autorate.as_deref())
}
