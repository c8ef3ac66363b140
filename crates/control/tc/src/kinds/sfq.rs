//! `sfq`: the words of `tc-sfq(8)`, except those of RED. As in `tc`, none of them may be
//! abbreviated.

use super::codel::packets;
use super::legal::legal;
use crate::complaint::Complaint;
use crate::render::{Json, Line};
use crate::words::Words;
use crate::{notation, number};
use narrows_policy::{Params, SfqOptions};
use narrows_qdisc::sfq::Config;
use narrows_units::Nanos;

const USAGE: &str = "Usage: ... sfq [ limit NUMBER ] [ perturb SECS ] [ quantum BYTES ]
               [ divisor NUMBER ] [ flows NUMBER ] [ depth NUMBER ] [ headdrop ]";

/// The words of RED within flows.
const RED: [&str; 8] =
    ["redflowlimit", "min", "max", "burst", "avpkt", "probability", "ecn", "harddrop"];

/// Seconds; the kernel's timer counts milliseconds in 31 bits.
const PERTURB_MAX: u32 = i32::MAX as u32 / 1000;

pub(super) fn parse(mut words: Words) -> Result<Params, Complaint> {
    let mut options = SfqOptions::default();
    while let Some(word) = words.next() {
        let words = &mut words;
        match word {
            "limit" => {
                options.limit = packets("sfq", word, words, "127")?;
                // tc refuses these itself; of the words below, 0 counts as not given.
                if options.limit.is_none_or(|limit| limit < 2) {
                    return Err(Complaint::wrong(
                        "Illegal \"limit\", must be > 1: with fewer packets no two flows could take turns.",
                    ));
                }
            }
            "divisor" => options.divisor = packets("sfq", word, words, "1024")?,
            "flows" => options.flows = packets("sfq", word, words, "128")?,
            "depth" => options.depth = packets("sfq", word, words, "127")?,
            "quantum" => {
                let value = words.value(word, "1514")?;
                let size = legal("sfq", word, value, number::size, number::SIZE_HINT)?;
                options.quantum = Some(size).filter(|size| *size != 0);
            }
            "perturb" => {
                let value = words.value(word, "10")?;
                let hint = "a number of seconds below 2147484, as 10";
                // tc takes negative numbers, and the kernel refuses them.
                let digits = value.strip_prefix('-');
                let secs = legal("sfq", word, digits.unwrap_or(value), number::mask, hint)?;
                if secs > PERTURB_MAX || digits.is_some() {
                    return Err(Complaint::refused(format!(
                        "Error: sfq: invalid perturb interval. {value} is none: give {hint}."
                    )));
                }
                options.perturb = Some(Nanos::from_secs(u64::from(secs)));
            }
            "headdrop" => options.headdrop = true,
            _ if RED.contains(&word) => {
                return Err(Complaint::wrong(format!(
                    "sfq: \"{word}\" belongs to RED, which flows here do not have: use fq_codel, which keeps their queues short."
                )));
            }
            "help" => return Err(Complaint::wrong(USAGE)),
            _ => return Err(Complaint::wrong(format!("What is \"{word}\"?\n{USAGE}"))),
        }
    }
    Ok(Params::Sfq(options))
}

pub(super) fn show(config: &Config, details: bool, line: &mut Line) {
    let number = |line: &mut Line, key: &'static str, value: u32| {
        line.add(key, Json::Number(u64::from(value)), &format!("{key} {value} "));
    };
    let Config { limit, depth, flows, divisor, .. } = *config;
    line.add("limit", Json::Number(u64::from(limit)), &format!("limit {limit}p "));
    let quantum = u64::from(config.quantum);
    line.add("quantum", Json::Number(quantum), &format!("quantum {} ", notation::size(quantum)));
    number(line, "depth", depth);
    if config.headdrop {
        line.add("headdrop", Json::Bool(true), "headdrop ");
    }
    if details {
        number(line, "flows", flows);
    }
    number(line, "divisor", divisor);
    if config.perturb != Nanos::ZERO {
        let secs = config.perturb.0 / Nanos::from_secs(1).0;
        line.add("perturb", Json::Number(secs), &format!("perturb {secs}sec "));
    }
}

pub(super) fn save(config: &Config) -> String {
    let Config { limit, depth, flows, divisor, quantum, perturb, headdrop } = config;
    format!(
        " limit {limit} quantum {quantum} depth {depth} flows {flows} divisor {divisor} perturb {}{}",
        perturb.0 / Nanos::from_secs(1).0,
        if *headdrop { " headdrop" } else { "" }
    )
}
