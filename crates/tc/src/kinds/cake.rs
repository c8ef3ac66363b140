//! `cake` and `cake_mq`: the words of `tc-cake(8)`, with ours for what queues share
//! (`coordination`, `sync`) and for tunnels (`inner`).
//!
//! As in `tc` no word may be abbreviated, of two that exclude each other the later one holds, and
//! those about overhead act in their order: most of them add to what stands before.

use super::coordination;
use super::{Style, legal};
use crate::complaint::Complaint;
use crate::render::{Json, Line};
use crate::words::Words;
use crate::{notation, number};
use narrows_policy::{CakeOptions, CakeParams, Params};
use narrows_qdisc::cake::{AckFilter, Diffserv, Isolation};
use narrows_units::wire::Framing;
use narrows_units::{Bytes, Nanos, Rate};
use std::fmt::Write;
use std::ops::RangeInclusive;

const USAGE: &str = "Usage: { cake | cake_mq } [ bandwidth RATE | unlimited* | autorate-ingress ]
           [ rtt TIME | datacentre | lan | metro | regional | internet* | oceanic
             | satellite | interplanetary ]
           [ besteffort | precedence | diffserv8 | diffserv4 | diffserv3* ] [ fwmark MASK ]
           [ flowblind | srchost | dsthost | hosts | flows | dual-srchost | dual-dsthost
             | triple-isolate* ] [ nat | nonat* ] [ inner | noinner* ]
           [ ack-filter | ack-filter-aggressive | no-ack-filter* ] [ wash | nowash* ]
           [ memlimit SIZE ] [ ingress | egress* ] [ split-gso* | no-split-gso ]
           [ raw* | overhead N | conservative | ethernet | ether-vlan | docsis
             | pppoe-ptm | bridged-ptm | { pppoa | ipoa }-{ vcmux | llc | llcsnap }
             | { pppoe | bridged }-{ vcmux | llcsnap } ] [ atm | ptm | noatm* ] [ mpu N ]
           [ coordination fair*|equal|edt|lock ] [ sync TIME ]
* marks the defaults. inner tells flows apart inside of tunnels. split-gso changes nothing:
frames at a port are segments already.";

/// Round trips by name, in microseconds.
const ROUND_TRIPS: [(&str, u64); 8] = [
    ("datacentre", 100),
    ("lan", 1_000),
    ("metro", 10_000),
    ("regional", 30_000),
    ("internet", 100_000),
    ("oceanic", 300_000),
    ("satellite", 1_000_000),
    ("interplanetary", 1_000_000_000),
];

const ISOLATIONS: [(&str, Isolation); 8] = [
    ("flowblind", Isolation::Flowblind),
    ("srchost", Isolation::Srchost),
    ("dsthost", Isolation::Dsthost),
    ("hosts", Isolation::Hosts),
    ("flows", Isolation::Flows),
    ("dual-srchost", Isolation::DualSrchost),
    ("dual-dsthost", Isolation::DualDsthost),
    ("triple-isolate", Isolation::TripleIsolate),
];

const DIFFSERVS: [(&str, Diffserv); 5] = [
    ("besteffort", Diffserv::BestEffort),
    ("precedence", Diffserv::Precedence),
    ("diffserv3", Diffserv::Diffserv3),
    ("diffserv4", Diffserv::Diffserv4),
    ("diffserv8", Diffserv::Diffserv8),
];

const ACK_FILTERS: [(&str, AckFilter); 3] = [
    ("no-ack-filter", AckFilter::Off),
    ("ack-filter", AckFilter::On),
    ("ack-filter-aggressive", AckFilter::Aggressive),
];

const FRAMINGS: [(&str, Framing); 3] =
    [("noatm", Framing::Whole), ("atm", Framing::Atm), ("ptm", Framing::Ptm)];

/// What a link adds to a packet of the network layer.
struct Link {
    name: &'static str,
    /// Bytes that are added to those that earlier words gave.
    adds: i32,
    /// How it cuts frames up, where it says.
    framing: Option<Framing>,
    /// The shortest frame that it knows, where there is one.
    minimum: Option<u32>,
}

const fn link(name: &'static str, adds: i32, framing: Option<Framing>) -> Link {
    Link { name, adds, framing, minimum: None }
}

const ATM: Option<Framing> = Some(Framing::Atm);
const PTM: Option<Framing> = Some(Framing::Ptm);

const LINKS: [Link; 13] = [
    link("pppoa-vcmux", 10, ATM),
    link("pppoa-llc", 14, ATM),
    link("pppoe-vcmux", 32, ATM),
    link("pppoe-llcsnap", 40, ATM),
    link("bridged-vcmux", 24, ATM),
    link("bridged-llcsnap", 32, ATM),
    link("ipoa-vcmux", 8, ATM),
    link("ipoa-llcsnap", 16, ATM),
    link("pppoe-ptm", 30, PTM),
    link("bridged-ptm", 22, PTM),
    link("ether-vlan", 4, None),
    Link { name: "docsis", adds: 18, framing: Some(Framing::Whole), minimum: Some(64) },
    // Preamble, header, FCS and the gap between frames; 84 is the shortest frame with them.
    Link { name: "ethernet", adds: 38, framing: None, minimum: Some(84) },
];

/// `conservative`: an ATM cell more than the packet, which no link exceeds.
const CONSERVATIVE: i32 = 48;
/// What `overhead` may be: a few headers more, or a few less.
const OVERHEADS: RangeInclusive<i32> = -64..=256;
/// What `mpu` may be.
const MINIMA: RangeInclusive<i32> = 0..=256;

/// Words that stand in no table above.
const OTHER_WORDS: [&str; 24] = [
    "bandwidth",
    "unlimited",
    "autorate-ingress",
    "rtt",
    "nat",
    "nonat",
    "inner",
    "noinner",
    "wash",
    "nowash",
    "split-gso",
    "no-split-gso",
    "ingress",
    "egress",
    "raw",
    "conservative",
    "overhead",
    "mpu",
    "memlimit",
    "fwmark",
    "coordination",
    "sync",
    "via-ethernet",
    "help",
];

/// What has been read so far.
#[derive(Default)]
struct Draft {
    options: CakeOptions,
    /// The sum of what was said about overhead, once something was.
    overhead: Option<i32>,
    /// The round trip that was named.
    round_trip: Option<&'static str>,
    shared: coordination::Draft,
}

pub(super) fn parse(multi: bool, mut words: Words) -> Result<Params, Complaint> {
    let kind = if multi { "cake_mq" } else { "cake" };
    let mut draft = Draft::default();
    while let Some(word) = words.next() {
        draft.parameter(kind, word, &mut words)?;
    }
    Ok(Params::Cake { multi, options: draft.finish(kind)? })
}

impl Draft {
    fn parameter(&mut self, kind: &str, word: &str, words: &mut Words) -> Result<(), Complaint> {
        let options = &mut self.options;
        match word {
            "bandwidth" => {
                let value = words.value(word, "100mbit")?;
                let rate = legal(kind, word, value, number::rate, rate_hint(value))?;
                // As in tc a rate of 0 is as good as none.
                options.rate = Some(rate).filter(|rate| !rate.is_zero());
                options.autorate = Some(false);
            }
            "unlimited" => {
                options.rate = Some(Rate::default());
                options.autorate = Some(false);
            }
            "autorate-ingress" => options.autorate = Some(true),
            "rtt" => {
                let value = words.value(word, "100ms")?;
                let hint = "a time from 1us on, below 4295 s, as 100ms";
                let some = |word: &str| number::time(word).filter(|time| *time != Nanos::ZERO);
                options.interval = Some(legal(kind, word, value, some, hint)?);
            }
            "nat" | "nonat" => options.nat = Some(word == "nat"),
            "inner" | "noinner" => options.inner = Some(word == "inner"),
            "wash" | "nowash" => options.wash = Some(word == "wash"),
            "split-gso" | "no-split-gso" => options.split_gso = Some(word == "split-gso"),
            "ingress" | "egress" => options.ingress = Some(word == "ingress"),
            "raw" => {
                options.raw = true;
                options.framing = Some(Framing::Whole);
                self.overhead = Some(0);
            }
            "conservative" => {
                options.framing = Some(Framing::Atm);
                self.overhead = Some(CONSERVATIVE);
            }
            "overhead" => {
                let value = words.value(word, "38")?;
                let hint = "a number of bytes from -64 to 256, without a unit";
                self.overhead =
                    Some(legal(kind, word, value, |word| within(word, OVERHEADS), hint)?);
            }
            "mpu" => {
                let value = words.value(word, "84")?;
                let hint = "a number of bytes from 0 to 256, without a unit";
                let minimum = legal(kind, word, value, |word| within(word, MINIMA), hint)?;
                options.minimum = Some(minimum.unsigned_abs()).filter(|minimum| *minimum != 0);
            }
            "memlimit" => {
                let value = words.value(word, "32mb")?;
                let limit = legal(kind, word, value, number::size, number::SIZE_HINT)?;
                options.memory = Some(Bytes(u64::from(limit))).filter(|limit| limit.0 != 0);
            }
            "fwmark" => {
                let value = words.value(word, "0xff")?;
                let hint = "the bits of the mark that name the tin, as 0xff";
                let mask = legal(kind, word, value, number::mask, hint)?;
                options.mark_mask = Some(mask).filter(|mask| *mask != 0);
            }
            "coordination" => self.shared.strategy(kind, words)?,
            "sync" => self.shared.sync(kind, words)?,
            // Taken by tc without an effect, for scripts of long ago.
            "via-ethernet" => {}
            "help" => return Err(Complaint::wrong(USAGE)),
            _ => return self.from_tables(kind, word),
        }
        Ok(())
    }

    fn from_tables(&mut self, kind: &str, word: &str) -> Result<(), Complaint> {
        let options = &mut self.options;
        if let Some((name, micros)) = ROUND_TRIPS.into_iter().find(|(name, _)| *name == word) {
            if let Some(first) = self.round_trip {
                return Err(Complaint::unreadable(format!(
                    "Error: duplicate \"{name}\": \"{first}\" was given before, give one round trip."
                )));
            }
            self.round_trip = Some(name);
            options.interval = Some(Nanos::from_micros(micros));
        } else if let Some(isolation) = value(&ISOLATIONS, word) {
            options.isolation = Some(isolation);
        } else if let Some(diffserv) = value(&DIFFSERVS, word) {
            options.diffserv = Some(diffserv);
        } else if let Some(ack_filter) = value(&ACK_FILTERS, word) {
            options.ack_filter = Some(ack_filter);
        } else if let Some(framing) = value(&FRAMINGS, word) {
            options.framing = Some(framing);
        } else if let Some(link) = LINKS.iter().find(|link| link.name == word) {
            self.overhead = Some(self.overhead.unwrap_or(0).saturating_add(link.adds));
            options.framing = link.framing.or(options.framing);
            options.minimum = link.minimum.or(options.minimum);
        } else {
            let nearest =
                nearest(word).map_or(String::new(), |like| format!(" Perhaps \"{like}\"?"));
            return Err(Complaint::wrong(format!(
                "What is \"{word}\"?{nearest} \"{kind} help\" lists the words of {kind}.\n{USAGE}"
            )));
        }
        Ok(())
    }

    fn finish(self, kind: &str) -> Result<CakeOptions, Complaint> {
        if let Some(sum) = self.overhead.filter(|sum| !OVERHEADS.contains(sum)) {
            return Err(Complaint::wrong(format!(
                "{kind}: the words about overhead add up to {sum} bytes: it may be -64 to 256."
            )));
        }
        let strategy = self.shared.finish(kind)?;
        Ok(CakeOptions { per_frame: self.overhead, strategy, ..self.options })
    }
}

fn rate_hint(value: &str) -> &'static str {
    if value.ends_with('%') {
        "a share of the device's speed means nothing here, since Narrows sits before the \
         bottleneck: give the rate itself, as 100mbit"
    } else {
        number::RATE_HINT
    }
}

/// A decimal number in that range, with a sign if it has one.
fn within(word: &str, range: RangeInclusive<i32>) -> Option<i32> {
    word.parse().ok().filter(|number| range.contains(number))
}

fn value<T: Copy>(table: &[(&str, T)], word: &str) -> Option<T> {
    table.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
}

fn name<T: Copy + PartialEq>(table: &[(&'static str, T)], wanted: T) -> &'static str {
    // Every value stands in its table, by a test.
    table.iter().find(|(_, value)| *value == wanted).map_or("", |(name, _)| name)
}

/// The word that was probably meant, if there is one.
fn nearest(word: &str) -> Option<&'static str> {
    /// How many letters may be wrong, or of how many one.
    const WRONG_LETTERS: usize = 2;
    const LETTERS_PER_WRONG: usize = 3;
    let tables = ROUND_TRIPS.iter().map(|(name, _)| *name);
    let tables = tables.chain(ISOLATIONS.iter().map(|(name, _)| *name));
    let tables = tables.chain(DIFFSERVS.iter().map(|(name, _)| *name));
    let tables = tables.chain(ACK_FILTERS.iter().map(|(name, _)| *name));
    let tables = tables.chain(FRAMINGS.iter().map(|(name, _)| *name));
    let tables = tables.chain(LINKS.iter().map(|link| link.name));
    let near = tables
        .chain(OTHER_WORDS)
        .map(|known| (strsim::damerau_levenshtein(word, known), known))
        .filter(|(wrong, known)| *wrong <= WRONG_LETTERS.max(known.len() / LETTERS_PER_WRONG));
    near.min_by_key(|(wrong, _)| *wrong).map(|(_, known)| known)
}

/// What a port cannot do although it is allowed to be asked for.
pub(super) fn warning(options: &CakeOptions) -> Option<String> {
    let nat = options.nat == Some(true);
    let mark = options.mark_mask.is_some();
    let nat = nat.then_some(
        "Warning: cake: nat: the kernel offers this port no look-up of what addresses were before \
         translation, so hosts are told apart by those in the frames. Put Narrows on the inside of \
         the translation to tell inner hosts apart.",
    );
    let mark = mark.then_some(
        "Warning: cake: fwmark: frames at a port carry no firewall mark, so their code points \
         decide the tin.",
    );
    let warnings: Vec<_> = [nat, mark].into_iter().flatten().collect();
    (!warnings.is_empty()).then(|| warnings.join("\n"))
}

pub(super) fn show(params: &CakeParams, style: Style, line: &mut Line) {
    let config = &params.config;
    match config.rate {
        Some(rate) => line.add(
            "bandwidth",
            Json::Number(rate.bytes_per_sec()),
            &format!("bandwidth {} ", notation::rate(rate)),
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
    // The default stays unsaid, so that what Linux has looks as there.
    let unusual = params.strategy() != narrows_coordination::Strategy::default();
    if style.shared && unusual {
        coordination::show(params.strategy(), line);
    }
}

/// What differs from the defaults.
pub(super) fn save(params: &CakeParams) -> String {
    let config = &params.config;
    let defaults = CakeParams::new(config.frame);
    let mut words = String::new();
    let mut add = |word: &dyn std::fmt::Display| {
        // Writing to a string does not fail.
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
    words + &params.strategy.map(coordination::save).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_nearly_right_is_recognized() {
        for (wrong, right) in [
            ("datacenter", "datacentre"),
            ("bandwith", "bandwidth"),
            ("triple-isolated", "triple-isolate"),
            ("ack_filter", "ack-filter"),
            ("diffserv5", "diffserv3"),
            ("autorate_ingress", "autorate-ingress"),
        ] {
            assert_eq!(nearest(wrong), Some(right), "{wrong}");
        }
        assert_eq!(nearest("turbo"), None);
    }

    #[test]
    fn every_value_has_a_name() {
        assert!(!name(&ISOLATIONS, Isolation::default()).is_empty());
        assert!(!name(&DIFFSERVS, Diffserv::default()).is_empty());
        assert!(!name(&FRAMINGS, Framing::Ptm).is_empty());
        assert!(!name(&ACK_FILTERS, AckFilter::Aggressive).is_empty());
    }
}
