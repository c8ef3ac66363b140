//! Actions of filters, and `tc actions …`.
//!
//! Source: `tc-actions(8)`, `tc-police(8)`, `tc-skbedit(8)`; iproute2's `m_action.c`, `m_gact.c`,
//! `m_police.c`, `m_skbedit.c`. `pace`, and `per` and its options, are Narrows' own.

mod control;
mod editing;
mod options;

use crate::complaint::{Complaint, Outcome, refusal};
use crate::notation;
use crate::options::Options;
use crate::render::{Json, Line};
use crate::words::{Words, abbreviates, twice};
use crate::{Host, number, overhead, verb};
use control::{NUMBERS, control, control_json, control_name, control_or_jump, jump};
use editing::{PACKET_TYPES, address_word, mirred, pace, skbedit};
use narrows_classify::{
    AccountKey, Action, ActionId, ActionKind, ActionStats, Control, Mark, Mirred, PaceRate, Per,
    Police, Random,
};
use narrows_policy::{
    ActionDraft, ActionFlags, BoundAction, ClassId, Cookie, Policy, Verb, is_intermediate,
};
use narrows_units::{Bytes, Nanos, wire::Overhead};
use options::{Common, bad, common};
use std::fmt::Write;

/// The most actions of a filter, as in the kernel.
pub(crate) const MOST: usize = 32;

/// The default `mtu`; longer packets never conform. It is what the kernel's table of 256 cells of 8
/// bytes covers.
const MTU: Bytes = Bytes(2040);

const USAGE: &str = "Usage: tc actions { add | replace | change } action ACTION
       tc actions { del | get } { action KIND index N }...
       tc actions { show | list | flush } action KIND
ACTION is drop, pass, continue, reclassify, pipe [ random netrand|determ CONTROL N ],
       police [ rate R burst B [ mtu B ] [ peakrate R ] ] [ pkts_rate N pkts_burst N ]
              [ overhead B ] [ mpu B ] [ linklayer L ] [ conform-exceed EXCEED[/CONFORM] ]
              [ per src|dst|flow [ block TIME ] [ room N ] [ newcomers N ] ], or
       skbedit [ priority CLASSID ] [ mark M[/MASK] ] [ CONTROL ], or
       pace { rate R | set-rate SET src|dst } [ CONTROL ], or
       mirred egress redirect dev IFB; each with
              [ index N ] [ cookie HEX ]
";

/// Parses an action after the word `action`, up to the first word that does not belong to it.
pub(crate) fn parse(words: &mut Words) -> Result<ActionDraft, Complaint> {
    let kind = words.value("action", "drop")?;
    match kind {
        "police" => police(words),
        "skbedit" => skbedit(words),
        "pace" => pace(words),
        "gact" => {
            let word = words.peek().unwrap_or_default();
            match control_or_jump(words) {
                Some(control) => gact(control?, words),
                None if abbreviates(word, "index") => gact_bound(words),
                None => Err(bad(
                    "gact",
                    "Error: give the result for packets: drop, pass, continue, reclassify or pipe.",
                )),
            }
        }
        "jump" => {
            let control = jump(words.value("jump", "2")?).ok_or_else(|| {
                bad(kind, "Error: \"jump\" names the place of an action, as jump 2.")
            })?;
            gact(control, words)
        }
        "goto" => {
            Err(bad(kind, "Error: \"goto chain\" is not supported here: filters are one chain."))
        }
        "trap" => Err(bad(
            kind,
            "Error: \"trap\" is not supported here: there is no other plane to trap to.",
        )),
        "mirred" => mirred(words),
        "pedit" | "vlan" | "nat" | "csum" | "mpls" | "tunnel_key" | "skbmod" | "ife" => Err(bad(
            kind,
            &format!(
                "Error: \"{kind}\" is not supported here: Narrows changes no packet but its code point."
            ),
        )),
        "bpf" | "connmark" | "ct" | "ctinfo" | "ipt" | "xt" | "sample" | "simple" | "gate" => {
            Err(bad(
                kind,
                &format!(
                    "Error: \"{kind}\" is not supported here: there are gact, police, skbedit, pace and mirred."
                ),
            ))
        }
        _ => match control(kind) {
            Some(control) => gact(control, words),
            None => Err(Complaint::unreadable(format!(
                "Error: there is no action \"{kind}\": there are drop, pass, continue, reclassify, pipe, police, skbedit, pace and mirred."
            ))),
        },
    }
}

fn gact_bound(words: &mut Words) -> Result<ActionDraft, Complaint> {
    let mut said = Common::default();
    while common(words, &mut said)? {}
    Ok(said.draft(ActionKind::Gact, None))
}

fn gact(control: Control, words: &mut Words) -> Result<ActionDraft, Complaint> {
    let illegal = || {
        bad(
            "gact",
            "Illegal \"random\": as random determ drop 10: every tenth packet, or netrand for any of ten.",
        )
    };
    let (mut said, mut random) = (Common::default(), None);
    loop {
        if words.next_if(|word| abbreviates(word, "random")).is_some() {
            let is_determined = match words.next().unwrap_or_default() {
                word if abbreviates(word, "netrand") => false,
                word if abbreviates(word, "determ") => true,
                _ => return Err(illegal()),
            };
            let control = words.next().and_then(self::control::control).ok_or_else(illegal)?;
            let of = words.next().and_then(|of| of.parse().ok()).filter(|of| *of != 0);
            random = Some(Random { is_determined, of: of.ok_or_else(illegal)?, control });
        } else if !common(words, &mut said)? {
            break;
        }
    }
    Ok(said.draft(ActionKind::Gact, Some(Action::Gact { control, random })))
}

/// The words of a policer that must not be given twice; of several for the same, any.
const ONCE: [&[&str]; 5] =
    [&["rate"], &["peakrate"], &["burst", "buffer", "maxburst"], &["mtu", "minburst"], &["mpu"]];

/// The word of a policer that `word` stands for, or `word` itself. The others must be whole.
fn whole(word: &str) -> &str {
    let abbreviated = ["peakrate", "pkts_rate", "pkts_burst", "overhead", "linklayer"];
    // "p" is rather pass.
    let is_control = control(word).is_some();
    let found = abbreviated.into_iter().find(|whole| !is_control && abbreviates(word, whole));
    found.unwrap_or(word)
}

/// Parses a policer after the word `police`.
pub(crate) fn police(words: &mut Words) -> Result<ActionDraft, Complaint> {
    let illegal = |word: &str, why: &str| bad("police", &format!("Illegal \"{word}\": {why}."));
    let (mut rate, mut burst, mut mtu, mut peak_rate) = (None, None, None, None);
    let (mut pkts_rate, mut pkts_burst, mut said) = (None, None, Common::default());
    let (mut exceed, mut conform) = (Control::Reclassify, Control::Pass);
    let mut overhead = Overhead::default();
    let mut many = Many::default();
    let mut says_any = false;
    let mut given: Vec<&str> = Vec::new();
    while let Some(word) = words.peek() {
        if common(words, &mut said)? {
            continue;
        }
        let word = whole(word);
        if let Some(name) = ONCE.iter().find(|names| names.contains(&word)).map(|names| names[0]) {
            if given.contains(&name) {
                words.next();
                return Err(twice(word, words.value(word, "1")?));
            }
            given.push(name);
        }
        let both = |word: &str| {
            let (exceed, conform) = word.split_once('/').unwrap_or((word, "pass"));
            let either = |word: &str| {
                let number = NUMBERS.iter().find(|(number, _)| *number == word);
                control(word).or(number.map(|(_, control)| *control))
            };
            either(exceed).zip(either(conform))
        };
        match word {
            "rate" | "peakrate" => {
                words.next();
                let read = number::rate(words.value(word, "1mbit")?);
                let read = read.filter(|rate| !rate.is_zero());
                let read = Some(read.ok_or_else(|| illegal(word, "a rate, as 10mbit"))?);
                *(if word == "rate" { &mut rate } else { &mut peak_rate }) = read;
            }
            "burst" | "buffer" | "maxburst" | "mtu" | "minburst" => {
                words.next();
                let read = number::size_and_cell(words.value(word, "10k")?);
                let read = read.filter(|size| size.0 != 0);
                let read = Some(read.ok_or_else(|| illegal(word, "a size, as 10k"))?);
                *(if matches!(word, "mtu" | "minburst") { &mut mtu } else { &mut burst }) = read;
            }
            "pkts_rate" | "pkts_burst" => {
                words.next();
                let read = words.value(word, "1000")?.parse::<u64>().ok();
                let read = read.filter(|number| (1..=1_000_000_000).contains(number));
                let read = Some(read.ok_or_else(|| illegal(word, "1 to 1000000000"))?);
                *(if word == "pkts_rate" { &mut pkts_rate } else { &mut pkts_burst }) = read;
            }
            "overhead" => {
                words.next();
                let read = words.value(word, "14")?.parse::<u16>().ok();
                overhead.per_frame = i32::from(read.ok_or_else(|| illegal(word, "0 to 65535"))?);
            }
            "mpu" => {
                words.next();
                let read = words.value(word, "64")?.parse::<u16>().ok();
                overhead.minimum = read.ok_or_else(|| illegal(word, "0 to 65535"))?.into();
            }
            "linklayer" => {
                words.next();
                let framing = overhead::framing(words.value(word, "ethernet")?);
                overhead.framing = framing.ok_or_else(|| illegal(word, overhead::FRAMING_HINT))?;
            }
            "per" | "block" | "room" | "newcomers" => {
                words.next();
                let value = words.value(word, Many::example(word))?;
                many.read(word, value).map_err(|why| illegal(word, &why))?;
            }
            "avrate" => {
                return Err(bad(
                    "police",
                    "Error: \"avrate\" is not supported here: give rate and burst.",
                ));
            }
            "conform-exceed" => {
                words.next();
                let read = both(words.value(word, "drop/pipe")?);
                (exceed, conform) = read
                    .ok_or_else(|| illegal(word, "what exceeds and what conforms, as drop/pipe"))?;
            }
            word => match control(word) {
                Some(control) => {
                    words.next();
                    (exceed, conform) = (control, Control::Pass);
                }
                None => break,
            },
        }
        says_any = true;
    }
    let draft = |action| said.draft(ActionKind::Police, action);
    if !says_any && said.index.is_some() {
        return Ok(draft(None));
    }
    let refuse = |why: &str| Err(bad("police", why));
    match (rate, burst, pkts_rate, pkts_burst) {
        (None, _, None, _) if mtu.is_none() => {
            return refuse("'rate' or 'avrate' or 'mtu' or 'pkts_rate' MUST be specified.");
        }
        (None, Some(_), _, _) | (Some(_), None, _, _) => return refuse("'burst' requires 'rate'."),
        (_, _, None, Some(_)) | (_, _, Some(_), None) => {
            return refuse("'pkts_burst' requires 'pkts_rate'.");
        }
        (Some(_), _, Some(_), _) => {
            return refuse("'rate' and 'pkts_rate' are not allowed in same action.");
        }
        _ => {}
    }
    if peak_rate.is_some() && rate.is_none() {
        return refuse("'peakrate' requires 'rate'.");
    }
    if peak_rate.is_some() && mtu.is_none() {
        return refuse("'mtu' is required, if 'peakrate' is requested.");
    }
    let mtu = mtu.unwrap_or(if rate.is_some() { MTU } else { Bytes(0) });
    let burst = burst.unwrap_or_default();
    let packets = pkts_rate.zip(pkts_burst);
    let per = many.finish().map_err(|why| bad("police", &why))?;
    if per.is_some() && rate.is_none() && packets.is_none() {
        return refuse("'per' requires 'rate' or 'pkts_rate'.");
    }
    let police = Police { rate, burst, peak_rate, mtu, packets, overhead, per, exceed, conform };
    Ok(draft(Some(Action::Police(police))))
}

/// The options of a per-key policer.
#[derive(Default)]
struct Many {
    key: Option<AccountKey>,
    block: Option<Nanos>,
    room: Option<u32>,
    newcomers: Option<u32>,
}

impl Many {
    fn example(word: &str) -> &'static str {
        match word {
            "per" => "src",
            "block" => "10s",
            "room" => "65536",
            _ => "4096",
        }
    }

    fn read(&mut self, word: &str, value: &str) -> Result<(), String> {
        match word {
            "per" => {
                let key = AccountKey::ALL.into_iter().find(|key| key.name() == value);
                self.key = Some(key.ok_or("src, dst or flow")?);
            }
            "block" => {
                let time = number::time(value).filter(|time| *time != Nanos::ZERO);
                self.block = Some(time.ok_or(number::TIME_HINT)?);
            }
            "room" => {
                let room = value.parse().ok().filter(|room| Per::ROOM.contains(room));
                let (least, most) = (Per::ROOM.start(), Per::ROOM.end());
                self.room = Some(room.ok_or(format!("{least} to {most} accounts"))?);
            }
            _ => {
                let newcomers = value.parse().ok().filter(|number| *number != 0);
                self.newcomers = Some(newcomers.ok_or("how many in a second, from 1")?);
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Option<Per>, String> {
        let Some(key) = self.key else {
            return match (self.block, self.room, self.newcomers) {
                (None, None, None) => Ok(None),
                _ => Err("'block', 'room' and 'newcomers' require 'per src|dst|flow'.".to_owned()),
            };
        };
        let block = self.block.unwrap_or(Nanos::ZERO);
        let room = self.room.unwrap_or(Per::ROOM_DEFAULT);
        let newcomers = self.newcomers.unwrap_or_else(|| Per::newcomers_default(room, block));
        let most = Per::newcomers_max(room, block);
        match u64::from(newcomers) <= most {
            true => Ok(Some(Per { key, block, room, newcomers })),
            false => Err(format!(
                "Error: with {newcomers} newcomers a second blocked keys could take all room: \
                 give at most newcomers {most}, or more room, or a shorter block."
            )),
        }
    }
}

/// The class that a priority names.
fn class(priority: u32) -> String {
    if priority == 0 {
        return "none".to_owned();
    }
    ClassId { major: priority >> 16, minor: priority & 0xffff }.to_string()
}

/// A cookie in hexadecimal digits.
fn digits(cookie: &Cookie) -> String {
    cookie.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The words that create the action.
pub(crate) fn save(bound: &BoundAction) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match &bound.action {
        Action::Gact { control, random } => {
            let random = random.map_or(String::new(), |random| {
                let sort = if random.is_determined { "determ" } else { "netrand" };
                format!(" random {sort} {} {}", control_name(random.control), random.of)
            });
            write!(text, "gact {}{random}", control_name(*control))
        }
        Action::Police(police) => {
            text.push_str("police");
            let mut add = |name: &str, value: &dyn std::fmt::Display| {
                let _ = write!(text, " {name} {value}");
            };
            if let Some(rate) = police.rate {
                add("rate", &format_args!("{}bps", rate.bytes_per_sec()));
                add("burst", &police.burst.0);
            }
            if police.mtu.0 != 0 {
                add("mtu", &police.mtu.0);
            }
            if let Some(rate) = police.peak_rate {
                add("peakrate", &format_args!("{}bps", rate.bytes_per_sec()));
            }
            if let Some((rate, burst)) = police.packets {
                add("pkts_rate", &rate);
                add("pkts_burst", &burst);
            }
            overhead::save(&police.overhead, &mut add);
            if let Some(Per { key, block, room, newcomers }) = police.per {
                add("per", &key.name());
                if block != Nanos::ZERO {
                    add("block", &format_args!("{}us", block.0 / 1000));
                }
                add("room", &room);
                add("newcomers", &newcomers);
            }
            let (exceed, conform) = (control_name(police.exceed), control_name(police.conform));
            write!(text, " conform-exceed {exceed}/{conform}")
        }
        Action::Mirred(Mirred { to, is_mirror, is_ingress, control }) => {
            let end = if *is_ingress { "ingress" } else { "egress" };
            let (does, then) = match is_mirror {
                true => ("mirror", format!(" {}", control_name(*control))),
                false => ("redirect", String::new()),
            };
            write!(text, "mirred {end} {does} dev {}{then}", to.as_str())
        }
        Action::Pace { rate, control } => {
            let control = control_name(*control);
            match rate {
                PaceRate::Of(rate) => {
                    write!(text, "pace rate {}bps {control}", rate.bytes_per_sec())
                }
                PaceRate::Member { set, is_source } => {
                    let address = address_word(*is_source);
                    write!(text, "pace set-rate {} {address} {control}", set.as_str())
                }
            }
        }
        Action::Skbedit { priority, mark, idle, control } => {
            text.push_str("skbedit");
            if let Some(queue) = idle.queue {
                let _ = write!(text, " queue_mapping {queue}");
            }
            if let Some(priority) = priority {
                let _ = write!(text, " priority {}", class(*priority));
            }
            if let Some(Mark { value, mask }) = mark {
                let _ = write!(text, " mark {value:#x}");
                if bound.flags.has_mask {
                    let _ = write!(text, "/{mask:#x}");
                }
            }
            if let Some(packet_type) = idle.packet_type {
                let _ = write!(text, " ptype {packet_type}");
            }
            if idle.inherits_ds_field {
                text.push_str(" inheritdsfield");
            }
            write!(text, " {}", control_name(*control))
        }
    };
    let _ = write!(text, " index {}", bound.id.index);
    if let Some(cookie) = bound.cookie {
        let _ = write!(text, " cookie {}", digits(&cookie));
    }
    for word in flag_words(bound.flags) {
        let _ = write!(text, " {word}");
    }
    text
}

/// The words of `flags`.
fn flag_words(flags: ActionFlags) -> Vec<&'static str> {
    let all = [(flags.no_percpu, "no_percpu"), (flags.skips_hardware, "skip_hw")];
    all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word).collect()
}

/// Prints the actions of a filter after it.
pub(crate) fn show_bound(
    ids: &[ActionId],
    policy: &Policy,
    stats: Option<&[(ActionId, ActionStats)]>,
    options: &Options,
    line: &mut Line,
) {
    let mut all = Vec::new();
    let found = ids.iter().filter_map(|id| policy.action(*id));
    for (order, bound) in (1..).zip(found) {
        let mut one = options.line();
        show(order, bound, figures(bound.id, stats), options, &mut one);
        let (text, json) = one.into_parts();
        line.text(&format!("\n{text}"));
        all.push(json);
    }
    if !all.is_empty() {
        line.json("actions", Json::Objects(all));
    }
}

/// The statistics of `id`; none if no statistics are wanted.
fn figures(id: ActionId, stats: Option<&[(ActionId, ActionStats)]>) -> Option<ActionStats> {
    let found = stats?.iter().find(|(of, _)| *of == id);
    Some(found.map_or_else(ActionStats::default, |(_, stats)| *stats))
}

fn show(
    order: u64,
    bound: &BoundAction,
    stats: Option<ActionStats>,
    options: &Options,
    line: &mut Line,
) {
    line.add("order", Json::Number(order), &format!("\taction order {order}: "));
    let BoundAction { id, action, cookie, flags, filters, stays } = bound;
    let text = |text: &str| Json::Text(text.to_owned());
    let index = u64::from(id.index);
    let (references, bound) = (u64::from(*filters) + u64::from(*stays), u64::from(*filters));
    match action {
        Action::Gact { control: does, random } => {
            line.add("kind", text("gact"), "gact ");
            line.add(
                "control_action",
                control_json(*does),
                &format!("action {}", control_name(*does)),
            );
            let (sort, other, of) = match random {
                None => ("none", Control::Pass, 0),
                Some(Random { is_determined: true, of, control }) => ("determ", *control, *of),
                Some(Random { of, control, .. }) => ("netrand", *control, *of),
            };
            let shown = format!("\n\t random type {sort} {} val {of}", control_name(other));
            let random = vec![
                ("random_type", text(sort)),
                ("control_action", control_json(other)),
                ("val", Json::Number(u64::from(of))),
            ];
            line.add("prob", Json::Object(random), &shown);
            line.add("index", Json::Number(index), &format!("\n\t index {index}"));
            line.add("ref", Json::Number(references), &format!(" ref {references}"));
            line.add("bind", Json::Number(bound), &format!(" bind {bound}\n"));
        }
        Action::Police(police) => {
            line.add("kind", text("police"), " police ");
            line.add("index", Json::Number(index), &format!("{index:#x} "));
            let rate = police.rate.unwrap_or_default();
            let shown = format!("rate {} ", line.rate(rate));
            line.add("rate", Json::Number(rate.bytes_per_sec()), &shown);
            // As tc prints it since 6.15. Before, it was rounded to whole microseconds.
            let burst = police.burst.0;
            let shown = format!("burst {} ", notation::size(burst));
            line.add("burst", Json::Number(burst), &shown);
            // No limit is shown as the kernel's largest value.
            let mtu = if police.mtu.0 == 0 { u64::from(u32::MAX) } else { police.mtu.0 };
            line.add("mtu", Json::Number(mtu), &format!("mtu {} ", notation::size(mtu)));
            if let Some((rate, burst)) = police.packets {
                line.add("pkts_rate", Json::Number(rate), &format!("pkts_rate {rate} "));
                line.add("pkts_burst", Json::Number(burst), &format!("pkts_burst {burst} "));
            }
            if let Some(rate) = police.peak_rate {
                let shown = format!("peakrate {} ", line.rate(rate));
                line.add("peakrate", Json::Number(rate.bytes_per_sec()), &shown);
            }
            let mut shown = format!("action {}", control_name(police.exceed));
            if police.conform != Control::Pass {
                shown += &format!("/{}", control_name(police.conform));
            }
            line.add("control_action", control_json(police.exceed), &(shown + " "));
            let overhead = u64::try_from(police.overhead.per_frame).unwrap_or(0);
            line.add("overhead", Json::Number(overhead), &format!("overhead {overhead}b "));
            overhead::show_framing(&police.overhead, options.details, line);
            if let Some(Per { key, block, room, newcomers }) = police.per {
                line.add("per", text(key.name()), &format!("per {} ", key.name()));
                if block != Nanos::ZERO {
                    let shown = format!("block {} ", notation::time(block.0 / 1000));
                    line.add("block", Json::Number(block.0 / 1000), &shown);
                }
                line.add("room", Json::Number(room.into()), &format!("room {room} "));
                let shown = format!("newcomers {newcomers} ");
                line.add("newcomers", Json::Number(newcomers.into()), &shown);
            }
            line.add("ref", Json::Number(references), &format!("\n\tref {references} "));
            line.add("bind", Json::Number(bound), &format!("bind {bound} \n"));
        }
        Action::Mirred(Mirred { to, is_mirror, is_ingress, control }) => {
            let to = to.as_str();
            let direction = if *is_ingress { "ingress" } else { "egress" };
            let does = if *is_mirror { "mirror" } else { "redirect" };
            let shown = match (is_ingress, is_mirror) {
                (false, false) => "Egress Redirect",
                (false, true) => "Egress Mirror",
                (true, false) => "Ingress Redirect",
                (true, true) => "Ingress Mirror",
            };
            line.add("kind", text("mirred"), "mirred ");
            line.json("mirred_action", text(does));
            line.json("direction", text(direction));
            line.add("to_dev", text(to), &format!("({shown} to device {to})"));
            let (json, name) = match is_mirror {
                true => (control_json(*control), control_name(*control)),
                false => (Json::Object(vec![("type", text("stolen"))]), "stolen".to_owned()),
            };
            line.add("control_action", json, &format!(" {name}"));
            line.add("index", Json::Number(index), &format!("\n\tindex {index}"));
            line.add("ref", Json::Number(references), &format!(" ref {references}"));
            line.add("bind", Json::Number(bound), &format!(" bind {bound}\n"));
        }
        Action::Pace { rate, control: does } => {
            line.add("kind", text("pace"), "pace ");
            match rate {
                PaceRate::Of(rate) => {
                    let shown = format!("rate {}", line.rate(*rate));
                    line.add("rate", Json::Number(rate.bytes_per_sec()), &shown);
                }
                PaceRate::Member { set, is_source } => {
                    let set = set.as_str();
                    line.add("set", text(set), &format!("set-rate {set} "));
                    let address = address_word(*is_source);
                    line.add("address", text(address), address);
                }
            }
            line.add("control_action", control_json(*does), &format!(" {}", control_name(*does)));
            line.add("index", Json::Number(index), &format!("\n\t index {index}"));
            line.add("ref", Json::Number(references), &format!(" ref {references}"));
            line.add("bind", Json::Number(bound), &format!(" bind {bound}\n"));
        }
        Action::Skbedit { priority, mark, idle, control: does } => {
            line.add("kind", text("skbedit"), "skbedit ");
            if let Some(queue) = idle.queue {
                let shown = format!("queue_mapping {queue}");
                line.add("queue_mapping", Json::Number(u64::from(queue)), &shown);
            }
            if let Some(priority) = priority {
                let class = class(*priority);
                line.add("priority", text(&class), &format!(" priority {class}"));
            }
            if let Some(Mark { value, mask }) = mark {
                line.add("mark", Json::Number(u64::from(*value)), &format!(" mark {value}"));
                if flags.has_mask {
                    let mask = format!("{mask:#x}");
                    line.add("mask", text(&mask), &format!("/{mask}"));
                }
            }
            if let Some(number) = idle.packet_type {
                match PACKET_TYPES.get(usize::from(number)) {
                    Some(name) => line.add("ptype", text(name), &format!(" ptype {name}")),
                    None => {
                        let json = Json::Number(u64::from(number));
                        line.add("ptype", json, &format!(" ptype {number}"));
                    }
                }
            }
            if idle.inherits_ds_field {
                line.add("inheritdsfield", Json::Null, " inheritdsfield");
            }
            line.add("control_action", control_json(*does), &format!(" {}", control_name(*does)));
            line.add("index", Json::Number(index), &format!("\n\t index {index}"));
            line.add("ref", Json::Number(references), &format!(" ref {references}"));
            line.add("bind", Json::Number(bound), &format!(" bind {bound}\n"));
        }
    }
    if let Some(ActionStats { packets, bytes, drops, overlimits, blocked, newcomers }) = stats {
        line.text(&format!(
            "\tAction statistics:\n\tSent {bytes} bytes {packets} pkt (dropped {drops}, \
             overlimits {overlimits} requeues 0) \n\tbacklog 0b 0p requeues 0\n"
        ));
        let figures = [
            ("bytes", bytes),
            ("packets", packets),
            ("drops", drops),
            ("overlimits", overlimits),
            ("requeues", 0),
            ("backlog", 0),
            ("qlen", 0),
        ];
        let mut figures = figures.to_vec();
        if action.per().is_some() {
            let over = overlimits.saturating_sub(blocked + newcomers);
            line.text(&format!("\tover {over} blocked {blocked} newcomers {newcomers} \n"));
            figures.extend([("over", over), ("blocked", blocked), ("newcomers", newcomers)]);
        }
        let figures = figures.into_iter().map(|(name, figure)| (name, Json::Number(figure)));
        line.json("stats", Json::Object(figures.collect()));
    }
    if let Some(cookie) = cookie {
        let cookie = digits(cookie);
        line.add("cookie", text(&cookie), &format!("\tcookie {cookie}\n"));
    }
    let set = flag_words(*flags);
    for word in &set {
        line.add(word, Json::Bool(true), &format!("\t{word}"));
    }
    line.text(if set.is_empty() { "" } else { "\n" });
}

/// `tc actions …`. All failures have the same exit code, except those of `flush`.
pub(crate) fn run(
    words: Words,
    options: &Options,
    host: &mut dyn Host,
) -> Result<Outcome, Complaint> {
    let code = Outcome::UNREADABLE;
    execute(words, options, host).map_err(|complaint| Complaint { code, ..complaint })
}

fn execute(mut words: Words, options: &Options, host: &mut dyn Host) -> Result<Outcome, Complaint> {
    let usage = || Outcome { stderr: USAGE.to_owned(), ..Outcome::default() };
    let Some(command) = words.next() else { return Ok(usage()) };
    let unreadable = || Complaint::unreadable(format!("What is \"{command}\"?\n{USAGE}"));
    if abbreviates(command, "help") {
        return Ok(usage());
    }
    if !words.next().is_some_and(|word| word == "action" || word == "actions") {
        return Err(unreadable());
    }
    let refuse = |why: String| Complaint::refused(format!("Error: {why}"));
    let is_flush = abbreviates(command, "flush");
    if is_flush || verb::lists(command) {
        let word = words.next().unwrap_or_default();
        let kind = ActionKind::ALL.into_iter().find(|kind| kind.name() == word);
        let kind = kind.ok_or_else(|| {
            refuse(format!(
                "there is no action \"{word}\": there are gact, police, skbedit, pace and mirred."
            ))
        })?;
        if is_flush {
            let present = host.policy();
            let policy = present.flush_actions(kind);
            if policy == present && policy.actions().any(|bound| bound.id.kind == kind) {
                let refused = Complaint::wrong(
                    "Error: Unable to flush all TC actions: filters have them, delete those first.",
                );
                return Ok(refused.into());
            }
            host.apply(policy).map_err(refuse)?;
            return Ok(Outcome::default());
        }
        return Ok(options.print(&list(kind, None, options, host)));
    }
    let is_get = abbreviates(command, "get");
    if is_get || verb::parse(command) == Some(Verb::Delete) {
        let named = all_named(&mut words)?;
        let mut policy = host.policy();
        if is_get {
            let mut lines = Vec::new();
            for ActionDraft { kind, index, .. } in named {
                let id = ActionId { kind, index: index.unwrap_or_default() };
                if policy.action(id).is_none() {
                    let name = kind.name();
                    return Err(refuse(format!(
                        "TC action \"{name}\" not found: see tc actions show."
                    )));
                }
                lines.extend(list(kind, Some(id), options, host));
            }
            return Ok(options.print(&lines));
        }
        for draft in named {
            policy = policy
                .edit_action(Verb::Delete, &draft)
                .map_err(|error| Complaint::refused(format!("Error: {}", refusal(&error))))?;
        }
        host.apply(policy).map_err(refuse)?;
        return Ok(Outcome::default());
    }
    let Some(verb) = verb::parse(command) else { return Err(unreadable()) };
    let mut policy = host.policy();
    loop {
        let draft = parse(&mut words)?;
        if let Some(Action::Mirred(Mirred { to, .. })) = draft.action
            && !is_intermediate(to.as_str())
            && !host.has_device(to.as_str())
        {
            let to = to.as_str();
            return Err(refuse(format!("mirred: there is no device {to}, see ip link.")));
        }
        policy = policy
            .edit_action(verb, &draft)
            .map_err(|error| Complaint::refused(format!("Error: {}", refusal(&error))))?;
        match words.next() {
            None => break,
            Some("action") => {}
            Some(word) => return Err(Complaint::unreadable(format!("What is \"{word}\"?"))),
        }
    }
    host.apply(policy).map_err(refuse)?;
    Ok(Outcome::default())
}

/// `KIND index N`, once or more often, with or without `action` between.
fn all_named(words: &mut Words) -> Result<Vec<ActionDraft>, Complaint> {
    let mut all = Vec::new();
    while let Some(word) = words.next() {
        if word == "action" && !all.is_empty() {
            continue;
        }
        let kind = ActionKind::ALL.into_iter().find(|kind| kind.name() == word);
        let mut said = Common::default();
        while common(words, &mut said)? {}
        match kind {
            Some(kind) if said.index.is_some() => all.push(said.draft(kind, None)),
            _ => {
                return Err(Complaint::unreadable(format!(
                    "Error: no index specified action: {word}: say which, as police index 1.\n{USAGE}"
                )));
            }
        }
    }
    match all.is_empty() {
        true => Err(Complaint::unreadable(format!(
            "Command line is not complete: say which action, as police index 1.\n{USAGE}"
        ))),
        false => Ok(all),
    }
}

/// The actions of `kind`, or only one.
fn list(kind: ActionKind, only: Option<ActionId>, options: &Options, host: &dyn Host) -> Vec<Line> {
    let stats = options.statistics.then(|| host.action_stats());
    let policy = host.policy();
    let wanted =
        |bound: &&BoundAction| bound.id.kind == kind && only.is_none_or(|only| bound.id == only);
    let found: Vec<&BoundAction> = policy.actions().filter(wanted).collect();
    let mut total = Line::default();
    let count = found.len() as u64;
    total.add("total acts", Json::Number(count), &format!("total acts {count}\n\n"));
    let mut lines = if only.is_none() { vec![total] } else { Vec::new() };
    let shown = (0..).zip(found).map(|(order, bound)| {
        let mut line = options.line();
        show(order, bound, figures(bound.id, stats.as_deref()), options, &mut line);
        line
    });
    lines.extend(shown);
    lines
}
