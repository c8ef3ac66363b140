//! `hfsc` and its classes.
//!
//! A curve is two slopes and the time of the bend between them, or a burst and a delay from which
//! the slopes follow. As in `tc`, words can be abbreviated, and words of neither form are an
//! illegal curve. Rates are whole bytes per second and times whole microseconds, in 32 bits.
//! Differences: what wraps around in `tc` is computed without loss (a `umax` above 4294 bytes) or
//! refused, and so is a `rate` of 0 without `umax`, which ends `tc` with a signal.
//!
//! Source: iproute2 6.1, `tc/q_hfsc.c`. It prints no JSON for these classes; the keys are those of
//! later versions.

use super::figures::{TreeFigures, sum};
use super::tbf;
use crate::complaint::Complaint;
use crate::notation;
use crate::number;
use crate::render::{Json, Line};
use crate::words::{Words, abbreviates};
use narrows_policy::{Handle, Hfsc, HfscCurves, Params};
use narrows_qdisc::Stats;
use narrows_qdisc::hfsc::{Curve, Service};
use narrows_units::{Nanos, Rate};
use std::fmt::Write;

const USAGE: &str = "Usage: ... hfsc [ default CLASSID ]
 default  minor id of class to which unclassified packets are sent {dropped}";

const CLASS_USAGE: &str = "Usage: ... hfsc [ [ rt SC ] [ ls SC ] | [ sc SC ] ] [ ul SC ]
SC := [ [ m1 BPS ] d SEC ] m2 BPS
      [ [ umax BYTE ] dmax SEC ] rate BPS
 rt     what a leaf gets in time, whatever the classes above it may send
 ls     the part that a class gets of what the class above it sends
 sc     both of them
 ul     the most that a class gets by ls; needs ls or sc
 m1     rate until d, once the class has packets again {0}
 d      how long m1 holds {0}
 m2     rate after that
 umax   bytes that may come at once {0}
 dmax   time in which they leave {0}
 rate   rate after that";

/// The hint after words that are no curve.
const CURVE_HINT: &str = "a curve is m2 10mbit, m1 20mbit d 10ms m2 10mbit, \
                          or umax 1500b dmax 10ms rate 10mbit";

/// The most bytes per second, and microseconds, of a curve.
const MOST: u64 = u32::MAX as u64;

fn wrong(word: &str, usage: &str) -> Complaint {
    match abbreviates(word, "help") {
        true => Complaint::wrong(usage),
        false => Complaint::wrong(format!("HFSC: What is \"{word}\" ?\n{usage}")),
    }
}

/// Parses the parameters of the qdisc.
pub(super) fn parse(mut words: Words) -> Result<Params, Complaint> {
    let mut default = 0;
    while let Some(word) = words.next() {
        if !abbreviates(word, "default") {
            return Err(wrong(word, USAGE));
        }
        let value = words.value("default", "30")?;
        if default != 0 {
            return Err(Complaint::wrong("HFSC: Double \"default\""));
        }
        let digits = value.strip_prefix("0x").unwrap_or(value);
        let minor = u16::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
        default = minor.map(u32::from).ok_or_else(|| {
            Complaint::wrong(format!(
                "HFSC: Illegal \"default\": \"{value}\": the minor number of a class, hexadecimal, \
                 as 30 for 1:30."
            ))
        })?;
    }
    Ok(Params::Hfsc { default })
}

/// Parses the parameters of a class.
pub(super) fn parse_class(mut words: Words) -> Result<HfscCurves, Complaint> {
    let mut curves = HfscCurves::default();
    while let Some(word) = words.next() {
        if abbreviates(word, "rt") {
            curves.real_time = Some(curve("rt", &mut words)?);
        } else if abbreviates(word, "ls") {
            curves.link_share = Some(curve("ls", &mut words)?);
        } else if abbreviates(word, "sc") {
            curves.real_time = Some(curve("sc", &mut words)?);
            curves.link_share = curves.real_time;
        } else if abbreviates(word, "ul") {
            curves.upper_limit = Some(curve("ul", &mut words)?);
        } else {
            return Err(wrong(word, CLASS_USAGE));
        }
    }
    if curves == HfscCurves::default() {
        return Err(Complaint::wrong(format!("HFSC: no parameters given\n{CLASS_USAGE}")));
    }
    if curves.upper_limit.is_some() && curves.link_share.is_none() {
        return Err(Complaint::wrong(format!(
            "HFSC: Upper-limit Service Curve without Link-Share Service Curve\n{CLASS_USAGE}"
        )));
    }
    Ok(curves)
}

/// Why words are no curve.
enum NoCurve {
    /// The line ends too early.
    Cut(Complaint),
    /// They are something else: what is wrong, in lines of their own.
    Illegal(String),
}

/// Parses the curve after the word `name`, in one of the two forms.
fn curve(name: &str, words: &mut Words) -> Result<Curve, Complaint> {
    let mut said = String::new();
    for form in [slopes, delay] {
        let mut rest = *words;
        match form(name, &mut rest) {
            Ok(curve) if curve.m1.is_zero() && curve.m2.is_zero() => {
                said = "HFSC: Service Curve has two zero slopes\n".to_owned();
            }
            Ok(curve) => {
                *words = rest;
                return Ok(curve);
            }
            Err(NoCurve::Cut(complaint)) => return Err(complaint),
            Err(NoCurve::Illegal(why)) => said += &why,
        }
    }
    Err(Complaint::wrong(format!("{said}HFSC: Illegal \"{name}\": {CURVE_HINT}.")))
}

/// Parses `[[m1 BPS] d SEC] m2 BPS`.
fn slopes(name: &str, words: &mut Words) -> Result<Curve, NoCurve> {
    let m1 = rate("m1", words)?.unwrap_or_default();
    let d = time("d", words)?.unwrap_or_default();
    let m2 = needed(rate("m2", words)?, name, words)?;
    Ok(Curve { m1, d, m2 })
}

/// Parses `[[umax BYTE] dmax SEC] rate BPS`.
fn delay(name: &str, words: &mut Words) -> Result<Curve, NoCurve> {
    let umax = part("umax", "1500b", words, number::size, |_| number::SIZE_HINT)?;
    let umax = umax.map_or(0, u64::from);
    let d = time("dmax", words)?.unwrap_or_default();
    let m2 = needed(rate("rate", words)?, name, words)?;
    let micros = d.0 / 1_000;
    if umax != 0 && micros == 0 {
        return Err(NoCurve::Illegal("HFSC: umax given but dmax is zero.\n".to_owned()));
    }
    let m1 = (umax * 1_000_000).div_ceil(micros.max(1));
    if m1 > MOST {
        let why = "HFSC: Illegal \"umax\": it is more than 34359738360bit can send until dmax.\n";
        return Err(NoCurve::Illegal(why.to_owned()));
    }
    if m1 > m2.bytes_per_sec() {
        return Ok(Curve { m1: Rate::from_bytes_per_sec(m1), d, m2 });
    }
    // The slope of the rate reaches umax at dmax.
    let before = (umax * 1_000_000).checked_div(m2.bytes_per_sec()).unwrap_or(0);
    let d = Nanos::from_micros(micros.saturating_sub(before));
    Ok(Curve { m1: Rate::default(), d, m2 })
}

/// The value of a part that a curve called `name` must have.
fn needed<T>(part: Option<T>, name: &str, words: &mut Words) -> Result<T, NoCurve> {
    part.ok_or_else(|| match words.value(name, "m2 10mbit") {
        Err(cut) => NoCurve::Cut(cut),
        Ok(_) => NoCurve::Illegal(String::new()),
    })
}

/// The value of the part `name`, if it is the next word.
fn part<T>(
    name: &str,
    example: &str,
    words: &mut Words,
    read: impl Fn(&str) -> Option<T>,
    hint: impl Fn(&str) -> &'static str,
) -> Result<Option<T>, NoCurve> {
    if words.next_if(|word| abbreviates(word, name)).is_none() {
        return Ok(None);
    }
    let value = words.value(name, example).map_err(NoCurve::Cut)?;
    let illegal =
        || NoCurve::Illegal(format!("HFSC: Illegal \"{name}\": \"{value}\": {}.\n", hint(value)));
    read(value).map(Some).ok_or_else(illegal)
}

fn rate(name: &str, words: &mut Words) -> Result<Option<Rate>, NoCurve> {
    let fits = |rate: &Rate| rate.bytes_per_sec() <= MOST;
    let hint = |value: &str| match number::rate(value) {
        Some(_) => "a slope is at most 34359738360bit",
        None => tbf::rate_hint(value),
    };
    part(name, "10mbit", words, |value| number::rate(value).filter(fits), hint)
}

fn time(name: &str, words: &mut Words) -> Result<Option<Nanos>, NoCurve> {
    part(name, "10ms", words, number::time, |_| number::TIME_HINT)
}

/// Prints the parameters of the qdisc.
pub(super) fn show(hfsc: &Hfsc, line: &mut Line) {
    if hfsc.default != 0 {
        let default = format!("{:#x}", hfsc.default);
        line.add("default", Json::Text(default), &format!("default {:x} ", hfsc.default));
    }
}

/// Prints the curves of the class `minor`.
pub(super) fn show_class(hfsc: &Hfsc, minor: u32, line: &mut Line) {
    let Some(class) = hfsc.classes.get(minor) else { return };
    for (name, curve) in named(&class.curves) {
        let mut inner = Line::default();
        let micros = curve.d.0 / 1_000;
        let [m1, m2] = [curve.m1, curve.m2].map(|rate| (rate, line.rate(rate)));
        inner.text(&format!("{name} "));
        inner.add("m1", Json::Number(m1.0.bytes_per_sec()), &format!("m1 {} ", m1.1));
        inner.add("d", Json::Number(micros), &format!("d {} ", notation::time(micros)));
        inner.add("m2", Json::Number(m2.0.bytes_per_sec()), &format!("m2 {} ", m2.1));
        line.nest(name, inner);
    }
}

/// The curves by their words: `sc` for `rt` and `ls` if these are equal.
fn named(curves: &HfscCurves) -> impl Iterator<Item = (&'static str, Curve)> {
    let HfscCurves { real_time, link_share, upper_limit } = *curves;
    let both = real_time.filter(|_| real_time == link_share);
    let apart = |curve: Option<Curve>| curve.filter(|_| both.is_none());
    let all =
        [("sc", both), ("rt", apart(real_time)), ("ls", apart(link_share)), ("ul", upper_limit)];
    all.into_iter().filter_map(|(name, curve)| Some((name, curve?)))
}

/// The parameters of the qdisc as words, each after a space.
pub(super) fn save(hfsc: &Hfsc) -> String {
    match hfsc.default {
        0 => String::new(),
        default => format!(" default {default:x}"),
    }
}

/// The commands that create the classes of the `hfsc` with this `handle` on `dev`, parents first.
pub(super) fn save_classes(dev: &str, handle: Handle, hfsc: &Hfsc) -> String {
    let mut text = String::new();
    for (minor, class) in hfsc.classes.from_above() {
        let parent = handle.class(class.parent.unwrap_or(0));
        let id = handle.class(minor);
        // Writing to a string cannot fail.
        let _ = write!(text, "class replace dev {dev} parent {parent} classid {id} hfsc");
        for (name, Curve { m1, d, m2 }) in named(&class.curves) {
            let (m1, d, m2) = (m1.bits_per_sec(), d.0 / 1_000, m2.bits_per_sec());
            let _ = write!(text, " {name} m1 {m1}bit d {d}us m2 {m2}bit");
        }
        text.push('\n');
    }
    text
}

/// The statistics of the class `minor`, or of the root class if that is 0; `stats` are the
/// qdisc's.
pub(super) fn figures(hfsc: &Hfsc, minor: u32, stats: Option<&Stats>) -> TreeFigures {
    let mut service = Service::default();
    let figures = sum(&hfsc.classes, minor, stats, |leaf, steps| {
        if let Some(seen) = leaf.service.get(steps).filter(|_| minor != 0) {
            service = *seen;
        }
    });
    let Service { period, work, real_time } = service;
    let level = hfsc.level(minor) as u64;
    let mut text = format!(" period {period} ");
    // As in tc, nothing is not worth a word.
    for (name, bytes) in [("work", work), ("rtwork", real_time)] {
        if bytes.0 != 0 {
            let _ = write!(text, "{name} {} bytes ", bytes.0);
        }
    }
    let _ = write!(text, "level {level} \n\n");
    let count = |key, value| (key, Json::Number(value));
    let json = vec![
        count("period", u64::from(period)),
        count("work", work.0),
        count("rtwork", real_time.0),
        count("level", level),
    ];
    TreeFigures { text, json, ..figures }
}
