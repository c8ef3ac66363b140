//! Prints the parameters of `cake`, as `tc` shows them and as words that create them again.

use super::super::style::Style;
use super::super::{autorate, coordination, fleet};
use super::words::{ACK_FILTERS, DIFFSERVS, FRAMINGS, ISOLATIONS, name};
use crate::notation;
use crate::render::{Json, Line};
use narrows_coordination::Strategy;
use narrows_policy::CakeParams;
use narrows_qdisc::cake::AckFilter;
use narrows_units::Bytes;
use narrows_units::wire::Framing;
use std::fmt::Write;

pub(in crate::kinds) fn show(params: &CakeParams, style: Style, line: &mut Line) {
    let config = &params.config;
    match config.rate {
        Some(rate) => line.add(
            "bandwidth",
            Json::Number(rate.bytes_per_sec()),
            &format!("bandwidth {} ", line.rate(rate)),
        ),
        None => line.add("bandwidth", Json::Text("unlimited".to_owned()), "bandwidth unlimited "),
    }
    let word = |line: &mut Line, key, word: &str| {
        line.add(key, Json::Text(word.to_owned()), &format!("{word} "));
    };
    let switch = |line: &mut Line, key, on: bool, words: [&str; 2]| {
        line.add(key, Json::Bool(on), words[usize::from(on)]);
    };
    if config.autorate {
        word(line, "autorate", "autorate-ingress");
    }
    word(line, "diffserv", name(&DIFFSERVS, config.diffserv));
    word(line, "flowmode", name(&ISOLATIONS, config.isolation));
    switch(line, "nat", config.nat, ["nonat ", "nat "]);
    switch(line, "wash", config.wash, ["nowash ", "wash "]);
    switch(line, "ingress", config.ingress, ["", "ingress "]);
    let state = match config.ack_filter {
        AckFilter::Off => "disabled",
        AckFilter::On => "enabled",
        AckFilter::Aggressive => "aggressive",
    };
    let ack_filter = format!("{} ", name(&ACK_FILTERS, config.ack_filter));
    line.add("ack-filter", Json::Text(state.to_owned()), &ack_filter);
    switch(line, "split_gso", params.split_gso, ["no-split-gso ", "split-gso "]);
    let micros = config.interval.0 / 1_000;
    line.add("rtt", Json::Number(micros), &format!("rtt {} ", notation::time(micros)));
    switch(line, "raw", !config.network_length, ["", "raw "]);
    let overhead = &config.overhead;
    if overhead.framing != Framing::Whole || config.network_length {
        word(line, "atm", name(&FRAMINGS, overhead.framing));
    }
    let added = overhead.per_frame;
    line.add("overhead", Json::Signed(i64::from(added)), &format!("overhead {added} "));
    if overhead.minimum != 0 {
        let minimum = overhead.minimum;
        line.add("mpu", Json::Number(u64::from(minimum)), &format!("mpu {minimum} "));
    }
    if let Some(Bytes(limit)) = config.memory {
        let text = format!("memlimit {} ", notation::size(limit));
        line.add("memlimit", Json::Number(limit), &text);
    }
    let mask = config.mark_mask;
    let text = if mask == 0 { "0".to_owned() } else { format!("{mask:#x}") };
    let shown = if mask == 0 { String::new() } else { format!("fwmark {mask:#x} ") };
    line.add("fwmark", Json::Text(text), &shown);
    if config.inner {
        line.add("inner", Json::Bool(true), "inner ");
    }
    // The default is not printed, so that the output looks as on Linux.
    let unusual = params.strategy() != Strategy::default();
    if style.shared && unusual {
        coordination::show(params.strategy(), line);
    }
    fleet::show(params.fleet.as_deref(), config.rate.unwrap_or_default(), line);
    autorate::show(params.autorate.as_deref(), line);
}

/// The parameters that differ from the defaults.
pub(in crate::kinds) fn save(params: &CakeParams) -> String {
    let config = &params.config;
    let defaults = CakeParams::new(config.frame);
    let mut words = String::new();
    let mut add = |word: &dyn std::fmt::Display| {
        // Writing to a string cannot fail.
        let _ = write!(words, " {word}");
    };
    if let Some(rate) = config.rate {
        add(&format_args!("bandwidth {}bit", rate.bits_per_sec()));
    }
    if config.autorate {
        add(&"autorate-ingress");
    }
    if config.interval != defaults.config.interval {
        add(&format_args!("rtt {}us", config.interval.0 / 1_000));
    }
    if config.diffserv != defaults.config.diffserv {
        add(&name(&DIFFSERVS, config.diffserv));
    }
    if config.isolation != defaults.config.isolation {
        add(&name(&ISOLATIONS, config.isolation));
    }
    if config.ack_filter != defaults.config.ack_filter {
        add(&name(&ACK_FILTERS, config.ack_filter));
    }
    for (on, word) in [
        (config.nat, "nat"),
        (config.inner, "inner"),
        (config.wash, "wash"),
        (config.ingress, "ingress"),
        (!params.split_gso, "no-split-gso"),
    ] {
        if on {
            add(&word);
        }
    }
    let overhead = &config.overhead;
    if config.network_length {
        add(&format_args!("overhead {}", overhead.per_frame));
    } else if overhead.per_frame != 0 {
        add(&format_args!("raw overhead {}", overhead.per_frame));
    }
    if overhead.framing != Framing::Whole {
        add(&name(&FRAMINGS, overhead.framing));
    }
    if overhead.minimum != 0 {
        add(&format_args!("mpu {}", overhead.minimum));
    }
    if let Some(Bytes(limit)) = config.memory {
        add(&format_args!("memlimit {limit}"));
    }
    if config.mark_mask != 0 {
        add(&format_args!("fwmark {:#x}", config.mark_mask));
    }
    words += &params.strategy.map(coordination::save).unwrap_or_default();
    words + &fleet::save(params.fleet.as_deref()) + &autorate::save(params.autorate.as_deref())
}
