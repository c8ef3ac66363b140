//! `fq_codel`: the words of `tc-fq_codel(8)`, and `hosts`, which Linux has not. As in `tc`, none of
//! them may be abbreviated.

use super::codel::{packets, show_time, span};
use super::legal::legal;
use super::no_look_up;
use crate::complaint::Complaint;
use crate::render::{Json, Line};
use crate::words::Words;
use crate::{notation, number};
use narrows_policy::{FqCodelOptions, Params};
use narrows_qdisc::codel::Selector;
use narrows_qdisc::fq_codel::{Config, Figures, Hosts};
use narrows_units::{Bytes, Nanos};
use std::fmt::Write;

const KIND: &str = "fq_codel";

const USAGE: &str = "Usage: ... fq_codel [ limit PACKETS ] [ flows NUMBER ]
                    [ memory_limit BYTES ]
                    [ target TIME ] [ interval TIME ]
                    [ quantum BYTES ] [ [no]ecn ]
                    [ ce_threshold TIME ]
                    [ ce_threshold_selector VALUE/MASK ]
                    [ drop_batch SIZE ]
                    [ hosts { src [ nat ] | dst [ nat ] | none } ]";

pub(super) fn parse(mut words: Words) -> Result<Params, Complaint> {
    let mut options = FqCodelOptions::default();
    while let Some(word) = words.next() {
        let words = &mut words;
        match word {
            // As in tc, 0 counts as not given.
            "limit" => options.limit = packets(KIND, word, words, "10240")?,
            "flows" => options.flows = packets(KIND, word, words, "1024")?,
            "quantum" => options.quantum = packets(KIND, word, words, "1514")?,
            "drop_batch" => options.drop_batch = packets(KIND, word, words, "64")?,
            "target" => options.target = span(KIND, word, words, "5ms")?,
            "interval" => options.interval = span(KIND, word, words, "100ms")?,
            "memory_limit" => {
                let value = words.value(word, "32mb")?;
                let size = legal(KIND, word, value, number::size, number::SIZE_HINT)?;
                options.memory_limit = Some(Bytes(u64::from(size)));
            }
            "ce_threshold" => {
                let value = words.value(word, "1ms")?;
                let time = legal(KIND, word, value, number::time, number::TIME_HINT)?;
                options.ce_threshold = Some(time);
            }
            "ce_threshold_selector" => {
                let value = words.value(word, "0x1/0x3")?;
                let hint = "a value and a mask of the traffic class, up to 255 each, as 0x1/0x3";
                options.ce_threshold_selector = Some(legal(KIND, word, value, selector, hint)?);
            }
            "hosts" => {
                let value = words.value(word, "dst")?;
                let hint = "src, dst, or none";
                let hosts = legal(KIND, word, value, hosts, hint)?;
                options.hosts = Some(match words.next_if(|word| word == "nat") {
                    Some(_) => hosts.inside().ok_or_else(|| {
                        Complaint::wrong(
                            "Error: fq_codel: hosts none nat: nat tells hosts apart \
                                          by their addresses before NAT: write \"hosts src nat\" \
                                          or \"hosts dst nat\".",
                        )
                    })?,
                    None => hosts,
                });
            }
            "ecn" | "noecn" => options.ecn = Some(word == "ecn"),
            "help" => return Err(Complaint::wrong(USAGE)),
            _ => return Err(Complaint::wrong(format!("What is \"{word}\"?\n{USAGE}"))),
        }
    }
    Ok(Params::FqCodel(options))
}

const HOSTS: [(&str, Hosts); 3] =
    [("none", Hosts::None), ("src", Hosts::Sources), ("dst", Hosts::Destinations)];

fn hosts(word: &str) -> Option<Hosts> {
    HOSTS.iter().find(|(name, _)| *name == word).map(|(_, hosts)| *hosts)
}

/// The word for `hosts`; none where flows share alone.
fn hosts_word(hosts: Hosts) -> Option<&'static str> {
    let is_word = |of: Hosts| of == hosts || of.inside() == Some(hosts);
    let found = HOSTS.iter().skip(1).find(|(_, of)| is_word(*of));
    found.map(|(name, _)| *name)
}

/// A warning about `hosts … nat`; `looks_up` says whether the kernel can tell addresses before
/// translation.
pub(super) fn warning(options: &FqCodelOptions, looks_up: impl FnOnce() -> bool) -> Option<String> {
    let is_inside = options.hosts.is_some_and(Hosts::is_inside);
    (is_inside && !looks_up()).then(|| no_look_up("fq_codel: hosts nat"))
}

fn selector(word: &str) -> Option<Selector> {
    let (value, mask) = word.split_once('/')?;
    let byte = |word: &str| u8::try_from(number::mask(word)?).ok();
    Some(Selector { value: byte(value)?, mask: byte(mask)? })
}

pub(super) fn show(config: &Config, line: &mut Line) {
    let Config { limit, flows, quantum, drop_batch, .. } = *config;
    line.add("limit", Json::Number(u64::from(limit)), &format!("limit {limit}p "));
    let number = |line: &mut Line, key: &'static str, value: u32| {
        line.add(key, Json::Number(u64::from(value)), &format!("{key} {value} "));
    };
    number(line, "flows", flows);
    number(line, "quantum", quantum);
    show_time(line, "target", config.target);
    if let Some(threshold) = config.ce_threshold {
        show_time(line, "ce_threshold", threshold.sojourn);
        let Selector { value, mask } = threshold.selector;
        if value != 0 || mask != 0 {
            let hex =
                |number: u8| if number == 0 { "0".to_owned() } else { format!("{number:#x}") };
            let text = format!("ce_threshold_selector {}", hex(value));
            line.add("ce_threshold_selector", Json::Number(u64::from(value)), &text);
            line.add(
                "ce_threshold_mask",
                Json::Number(u64::from(mask)),
                &format!("/{} ", hex(mask)),
            );
        }
    }
    show_time(line, "interval", config.interval);
    let memory = config.memory_limit.0;
    let text = format!("memory_limit {} ", notation::size(memory));
    line.add("memory_limit", Json::Number(memory), &text);
    if config.ecn {
        line.add("ecn", Json::Bool(true), "ecn ");
    }
    number(line, "drop_batch", drop_batch);
    if let Some(hosts) = hosts_word(config.hosts) {
        line.add("hosts", Json::Text(hosts.to_owned()), &format!("hosts {hosts} "));
    }
    if config.hosts.is_inside() {
        line.add("nat", Json::Bool(true), "nat ");
    }
}

pub(super) fn save(config: &Config) -> String {
    let Config { limit, flows, quantum, drop_batch, .. } = config;
    let micros = |time: Nanos| time.0 / 1_000;
    let mut words = format!(
        " limit {limit} flows {flows} quantum {quantum} target {}us interval {}us memory_limit {} {} drop_batch {drop_batch}",
        micros(config.target),
        micros(config.interval),
        // The kernel's maximum is more than a size in tc's notation can express.
        config.memory_limit.0,
        if config.ecn { "ecn" } else { "noecn" },
    );
    if let Some(threshold) = config.ce_threshold {
        let Selector { value, mask } = threshold.selector;
        // Writing to a string cannot fail.
        let _ = write!(words, " ce_threshold {}us", micros(threshold.sojourn));
        let _ = write!(words, " ce_threshold_selector {value:#x}/{mask:#x}");
    }
    if let Some(hosts) = hosts_word(config.hosts) {
        let _ = write!(words, " hosts {hosts}");
    }
    if config.hosts.is_inside() {
        words.push_str(" nat");
    }
    words
}

/// What `tc -s` prints beyond the statistics of all qdiscs.
pub(crate) fn figures(figures: &Figures, line: &mut Line) {
    let mut count = |key: &'static str, before: &str, value: u64| {
        line.add(key, Json::Number(value), &format!("{before}{key} {value}"));
    };
    count("maxpacket", "  ", u64::from(figures.signals.max_packet));
    count("drop_overlimit", " ", figures.drop_overlimit);
    count("new_flow_count", " ", figures.new_flow_count);
    count("ecn_mark", " ", figures.signals.ecn_mark);
    for (key, value) in [
        ("ce_mark", figures.signals.ce_mark),
        ("memory_used", figures.memory_used),
        ("drop_overmemory", figures.drop_overmemory),
    ] {
        if value != 0 {
            count(key, " ", value);
        }
    }
    count("new_flows_len", "\n  ", u64::from(figures.new_flows_len));
    count("old_flows_len", " ", u64::from(figures.old_flows_len));
    line.text("\n");
}
