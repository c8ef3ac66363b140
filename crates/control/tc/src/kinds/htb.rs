//! `htb` and its classes.
//!
//! Bursts are printed as they were given, as in `tc` since iproute2 6.15. Older versions print the
//! result of two roundings to whole microseconds.

use super::figures::{TreeFigures, sum};
use super::legal::legal;
use super::{fleet, label};
use crate::complaint::Complaint;
use crate::notation;
use crate::number;
use crate::overhead;
use crate::render::{Json, Line};
use crate::words::{Words, abbreviates};
use narrows_policy::{Classful, Fleet, Handle, Htb, HtbLabel, HtbOptions, HtbParams, Params};
use narrows_qdisc::Stats;
use narrows_units::wire::{Framing, Overhead};
use narrows_units::{Bytes, Rate};
use std::fmt::Write;

const USAGE: &str = "Usage: ... qdisc add ... htb [default N] [r2q N] [direct_qlen P]
                      [coordination fair|flowvalve|lock]
 default  minor id of class to which unclassified packets are sent {0}
 r2q      a class's quantum is its rate, in bytes a second, divided by this {10}
 direct_qlen  how many unclassified packets may wait {in packets}
 coordination  how queues keep the classes together {fair}

... class add ... htb rate R1 [burst B1] [mpu B] [overhead O]
                      [prio P] [ceil R2] [cburst B2] [mtu MTU] [quantum Q]
                      [weight W] [borrow none|ID,ID...]
                      [fleet NAME {safe RATE | boxes N} [rejoin]]
 rate     rate assured to this class (its children can still borrow)
 burst    how much may leave at once at rate after a pause {computed}
 ceil     rate that is never exceeded (borrowing included) {rate}
 cburst   how much may leave at once at ceil {computed}
 mpu      least that a frame is charged
 overhead bytes added to each frame before it is charged
 linklayer  ethernet, atm, adsl or ptm
 mtu      longest frame, for bursts that are computed {1600}
 prio     priority of leaf; the lower borrow first {0}
 quantum  bytes in a turn of a leaf that borrows {from r2q}
 weight   part among those of its priority, under coordination flowvalve {1}
 borrow   from whom, the first before the others, under coordination flowvalve {from those beside}
 fleet    rate and ceil are those of several boxes together; this one may use safe alone,
          or a part in so many boxes; with rejoin, only by its agent's word after a start";

/// The version of the kernel's `htb`, whose output this follows.
const VERSION: &str = "3.17";

/// The default `mtu` of a class.
const MTU: u64 = 1600;

fn wrong(word: &str) -> Complaint {
    match word {
        "help" => Complaint::wrong(USAGE),
        _ => Complaint::wrong(format!("What is \"{word}\"?\n{USAGE}")),
    }
}

/// Parses the parameters of the qdisc.
pub(super) fn parse(mut words: Words) -> Result<Params, Complaint> {
    let mut options = HtbOptions::default();
    let number = |name: &str, value: &str, read: &dyn Fn(&str) -> Option<u32>, hint: &str| {
        legal("htb", name, value, read, hint)
    };
    let plain = |word: &str| word.parse::<u32>().ok();
    while let Some(word) = words.next() {
        if abbreviates(word, "r2q") {
            let value = words.value("r2q", "10")?;
            options.r2q = Some(number("r2q", value, &plain, "a number from 1, as 10")?);
        } else if abbreviates(word, "default") {
            let value = words.value("default", "30")?;
            let minor = |word: &str| {
                let digits = word.strip_prefix("0x").unwrap_or(word);
                u32::from_str_radix(digits, 16).ok()
            };
            let hint = "the minor number of a class, hexadecimal, as 30 for 1:30";
            options.default = Some(number("default", value, &minor, hint)?);
        } else if abbreviates(word, "direct_qlen") {
            let value = words.value("direct_qlen", "1000")?;
            options.direct_limit = Some(number("direct_qlen", value, &plain, "packets, as 1000")?);
        } else if abbreviates(word, "coordination") {
            super::coordination::once("htb", "coordination", options.coordination.is_some())?;
            options.coordination = Some(label::strategy(&mut words)?);
        } else if word == "offload" {
            return Err(Complaint::wrong(
                "Error: \"offload\" is not supported here: the queues share the tree themselves.",
            ));
        } else {
            return Err(wrong(word));
        }
    }
    Ok(Params::Htb(options))
}

/// What has been parsed of a class.
#[derive(Default)]
struct Draft {
    rate: Option<Rate>,
    ceil: Option<Rate>,
    burst: Option<Bytes>,
    cburst: Option<Bytes>,
    mtu: Option<u32>,
    mpu: u16,
    overhead: u16,
    framing: Framing,
    prio: u8,
    quantum: Option<u32>,
    label: HtbLabel,
    fleet: Option<Box<Fleet>>,
}

/// Parses the parameters of a class.
pub(super) fn parse_class(mut words: Words) -> Result<HtbParams, Complaint> {
    let mut draft = Draft::default();
    while let Some(word) = words.next() {
        draft.parameter(word, &mut words)?;
    }
    draft.finish()
}

impl Draft {
    /// Parses the parameter that `word` names. As in `tc`, the order decides between words with the
    /// same beginning.
    fn parameter(&mut self, word: &str, words: &mut Words) -> Result<(), Complaint> {
        let small = |word: &str| u16::try_from(number::size(word)?).ok();
        let plain = |word: &str| word.parse::<u32>().ok();
        if abbreviates(word, "prio") {
            let value = words.value("prio", "0")?;
            let prio = legal("htb", "prio", value, plain, "0 to 7")?;
            // As in the kernel.
            self.prio = u8::try_from(prio).unwrap_or(7).min(7);
        } else if abbreviates(word, "mtu") {
            let value = words.value("mtu", "1600")?;
            self.mtu = Some(legal("htb", "mtu", value, plain, "bytes, as 1600")?);
        } else if abbreviates(word, "mpu") {
            let value = words.value("mpu", "64")?;
            self.mpu = legal("htb", "mpu", value, small, "a number of bytes up to 65535, as 64")?;
        } else if abbreviates(word, "overhead") {
            let value = words.value("overhead", "24")?;
            self.overhead =
                legal("htb", "overhead", value, small, "a number of bytes up to 65535, as 24")?;
        } else if abbreviates(word, "linklayer") {
            let value = words.value("linklayer", "ethernet")?;
            self.framing =
                legal("htb", "linklayer", value, overhead::framing, overhead::FRAMING_HINT)?;
        } else if abbreviates(word, "quantum") {
            let value = words.value("quantum", "1514")?;
            let quantum = |word: &str| plain(word).filter(|quantum| *quantum < 1 << 28);
            self.quantum = Some(legal("htb", "quantum", value, quantum, "bytes, as 1514")?);
        } else if abbreviates(word, "burst") || matches!(word, "buffer" | "maxburst") {
            let value = words.value("burst", "15k")?;
            self.burst =
                Some(legal("htb", "burst", value, number::size_and_cell, number::SIZE_HINT)?);
        } else if abbreviates(word, "cburst") || matches!(word, "cbuffer" | "cmaxburst") {
            let value = words.value("cburst", "15k")?;
            self.cburst =
                Some(legal("htb", "cburst", value, number::size_and_cell, number::SIZE_HINT)?);
        } else if word == "ceil" {
            if self.ceil.is_some() {
                return Err(Complaint::wrong("Double \"ceil\" spec"));
            }
            self.ceil = Some(super::tbf::rate("htb", "ceil", words.value("ceil", "100mbit")?)?);
        } else if word == "rate" {
            if self.rate.is_some() {
                return Err(Complaint::wrong("Double \"rate\" spec"));
            }
            self.rate = Some(super::tbf::rate("htb", "rate", words.value("rate", "100mbit")?)?);
        } else if word == "fleet" {
            fleet::parse("htb", words, &mut self.fleet)?;
        } else if !label::parse(word, words, &mut self.label)? {
            return Err(wrong(word));
        }
        Ok(())
    }

    fn finish(self) -> Result<HtbParams, Complaint> {
        let missing =
            || Complaint::wrong("\"rate\" is required: give one of at least 8bit, as rate 10mbit.");
        let rate = self.rate.filter(|rate| !rate.is_zero()).ok_or_else(missing)?;
        let ceil = self.ceil.filter(|ceil| !ceil.is_zero()).unwrap_or(rate);
        // The bytes of a tick of the kernel's clock, and a frame.
        let mtu = self.mtu.map_or(MTU, u64::from);
        let burst = |rate: Rate| Bytes(rate.bytes_per_sec() / 1_000_000_000 + mtu);
        Ok(HtbParams {
            rate,
            ceil,
            burst: self.burst.filter(|burst| burst.0 != 0).unwrap_or_else(|| burst(rate)),
            cburst: self.cburst.filter(|burst| burst.0 != 0).unwrap_or_else(|| burst(ceil)),
            prio: self.prio,
            quantum: self.quantum.filter(|quantum| *quantum != 0),
            overhead: Overhead {
                per_frame: i32::from(self.overhead),
                minimum: u32::from(self.mpu),
                framing: self.framing,
            },
            label: self.label,
            fleet: self.fleet,
        })
    }
}

/// Prints the parameters of the qdisc.
pub(super) fn show(htb: &Htb, line: &mut Line) {
    // As C's "%#x" prints it: nothing before a zero.
    let default = match htb.default {
        0 => "0".to_owned(),
        default => format!("{default:#x}"),
    };
    line.add("r2q", Json::Number(u64::from(htb.r2q)), &format!("r2q {} ", htb.r2q));
    let text = format!("default {default} ");
    line.add("default", Json::Text(default), &text);
    label::show_strategy(htb.coordination, line);
}

/// Prints how many packets had no class, and how many may wait.
pub(crate) fn show_direct(htb: &Htb, stats: Option<&Stats>, details: bool, line: &mut Line) {
    let detail = stats.and_then(|stats| stats.detail.as_ref()?.htb());
    let direct = detail.map_or(0, |figures| figures.direct_packets);
    line.add(
        "direct_packets_stat",
        Json::Number(direct),
        &format!("direct_packets_stat {direct} "),
    );
    if details {
        line.add("ver", Json::Text(VERSION.to_owned()), &format!("ver {VERSION} "));
    }
    let limit = u64::from(htb.direct_limit);
    line.add("direct_qlen", Json::Number(limit), &format!("direct_qlen {limit}"));
}

/// Prints the parameters of the class `minor`.
pub(super) fn show_class(htb: &Htb, minor: u32, details: bool, line: &mut Line) {
    let Some(class) = htb.classes.get(minor) else { return };
    let HtbParams { rate, ceil, burst, cburst, prio, overhead, .. } = class.params;
    if !htb.is_inner(minor) {
        line.add("prio", Json::Number(u64::from(prio)), &format!("prio {prio} "));
        if details {
            let quantum = u64::from(htb.quantum(&class.params));
            line.add("quantum", Json::Number(quantum), &format!("quantum {quantum} "));
        }
    }
    let show_rate = |line: &mut Line, name: &'static str, rate: Rate| {
        let text = format!("{name} {} ", line.rate(rate));
        line.add(name, Json::Number(rate.bytes_per_sec()), &text);
    };
    show_rate(line, "rate", rate);
    overhead::show_per_frame(&overhead, line);
    show_rate(line, "ceil", ceil);
    overhead::show_framing(&overhead, details, line);
    for (name, size) in [("burst", burst), ("cburst", cburst)] {
        let text = notation::size(size.0);
        let mpu = notation::size(u64::from(overhead.minimum));
        let text =
            if details { format!("{name} {text}/1 mpu {mpu} ") } else { format!("{name} {text} ") };
        line.add(name, Json::Number(size.0), &text);
    }
    label::show(&class.params.label, line);
    fleet::show(class.params.fleet.as_deref(), ceil, line);
    if details {
        let level = htb.level(minor) as u64;
        line.add("level", Json::Number(level), &format!("level {level} "));
    }
}

/// The parameters of the qdisc as words, each after a space.
pub(super) fn save(htb: &Htb) -> String {
    let Htb { default, r2q, direct_limit, .. } = htb;
    let coordination = label::save_strategy(htb.coordination);
    format!(" default {default:x} r2q {r2q} direct_qlen {direct_limit}{coordination}")
}

/// The commands that create the classes of the `htb` with this `handle` on `dev`, parents first.
pub(super) fn save_classes(dev: &str, handle: Handle, htb: &Htb) -> String {
    let mut text = String::new();
    for (minor, class) in htb.classes.from_above() {
        let parent = handle.class(class.parent.unwrap_or(0));
        let id = handle.class(minor);
        // Writing to a string cannot fail.
        let _ = write!(text, "class replace dev {dev} parent {parent} classid {id} htb");
        text += &save_class(&class.params);
        text.push('\n');
    }
    text
}

fn save_class(params: &HtbParams) -> String {
    let HtbParams { rate, ceil, burst, cburst, prio, quantum, overhead, label, fleet } = params;
    let mut words = format!(
        " rate {}bit ceil {}bit burst {} cburst {}",
        rate.bits_per_sec(),
        ceil.bits_per_sec(),
        burst.0,
        cburst.0
    );
    let mut add = |name: &str, value: &dyn std::fmt::Display| {
        // Writing to a string cannot fail.
        let _ = write!(words, " {name} {value}");
    };
    if *prio != 0 {
        add("prio", prio);
    }
    if let Some(quantum) = quantum {
        add("quantum", quantum);
    }
    overhead::save(overhead, &mut add);
    words += &label::save(label);
    words + &fleet::save(fleet.as_deref())
}

/// The tokens of a class that has sent nothing: its bursts, in nanoseconds.
fn full(htb: &Htb, minor: u32) -> [i64; 2] {
    let time = |bytes: Bytes, rate: Rate| {
        let nanos = u128::from(bytes.0) * 1_000_000_000 / u128::from(rate.bytes_per_sec().max(1));
        i64::try_from(nanos).unwrap_or(i64::MAX)
    };
    htb.classes.get(minor).map_or([0; 2], |class| {
        let HtbParams { rate, ceil, burst, cburst, .. } = class.params;
        [time(burst, rate), time(cburst, ceil)]
    })
}

/// The statistics of the class `minor`; `stats` are the qdisc's.
pub(super) fn figures(htb: &Htb, minor: u32, stats: Option<&Stats>) -> TreeFigures {
    let (mut lended, mut borrowed, mut tokens) = (0, 0, full(htb, minor));
    let figures = sum(&htb.classes, minor, stats, |leaf, steps| {
        lended += leaf.granted.get(steps).copied().unwrap_or(0);
        borrowed += leaf.granted.iter().skip(steps + 1).sum::<u64>();
        tokens = leaf.tokens.get(steps).copied().unwrap_or(tokens);
    });
    // The kernel's ticks of 64 ns.
    let ticks = |nanos: i64| (nanos >> 6).clamp(i64::from(i32::MIN), i64::from(i32::MAX));
    let [tokens, ctokens] = tokens.map(ticks);
    let text = format!(
        " lended: {lended} borrowed: {borrowed} giants: 0\n tokens: {tokens} ctokens: {ctokens}\n\n"
    );
    let count = |key, value| (key, Json::Number(value));
    let json = vec![
        count("lended", lended),
        count("borrowed", borrowed),
        count("giants", 0),
        ("tokens", Json::Signed(tokens)),
        ("ctokens", Json::Signed(ctokens)),
    ];
    TreeFigures { text, json, ..figures }
}
