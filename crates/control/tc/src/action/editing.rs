//! Parses the actions that change a packet's fields, its way or its flow's rate: `skbedit`,
//! `mirred` and `pace`.
//!
//! Words that no packet at a port can follow are kept as they are given: without a filter an action
//! does nothing. The policy refuses such an action once a filter is to have it.

use super::control::control_or_jump;
use super::options::{Common, bad, common};
use crate::complaint::Complaint;
use crate::words::{Words, abbreviates, twice};
use crate::{device, number};
use narrows_classify::{
    Action, ActionKind, Control, DeviceName, Idle, Mark, Mirred, PaceRate, SetName,
};
use narrows_policy::{ActionDraft, ClassId, Parent};

/// Parses `mirred` after that word. What no filter can have is refused when one names it.
pub(super) fn mirred(words: &mut Words) -> Result<ActionDraft, Complaint> {
    let illegal = |why: &str| bad("mirred", &format!("Error: {why}."));
    let (mut said, mut end, mut mirror, mut to) = (Common::default(), None, None, None);
    let mut control = None;
    while let Some(word) = words.peek() {
        if common(words, &mut said)? {
            continue;
        }
        match word {
            _ if abbreviates(word, "egress") && end.is_none() => end = Some(false),
            _ if abbreviates(word, "ingress") && end.is_none() => end = Some(true),
            _ if abbreviates(word, "mirror") && mirror.is_none() => mirror = Some(true),
            _ if abbreviates(word, "redirect") && mirror.is_none() => mirror = Some(false),
            _ if abbreviates(word, "dev") && to.is_none() => {
                words.next();
                let name = words.value(word, "ifb0")?;
                let device = DeviceName::new(name).filter(|_| device::is_name(name));
                to = Some(
                    device
                        .ok_or_else(|| illegal(&format!("no device can be called \"{name}\"")))?,
                );
                continue;
            }
            _ if abbreviates(word, "blockid") => {
                return Err(illegal(
                    "\"blockid\" is not supported here: redirect to one device, as dev ifb0",
                ));
            }
            // It is stolen from the port in any case.
            "stolen" | "pipe" | "pass" | "ok" if mirror == Some(false) => {}
            _ if mirror == Some(true) && to.is_some() && control.is_none() => {
                match control_or_jump(words) {
                    Some(read) => control = Some(read?),
                    None => break,
                }
                continue;
            }
            _ => break,
        }
        words.next();
    }
    if to.is_none() && end.is_none() && mirror.is_none() && said.index.is_some() {
        return Ok(said.draft(ActionKind::Mirred, None));
    }
    match (to, end, mirror) {
        (Some(to), Some(is_ingress), Some(is_mirror)) => {
            let control = control.unwrap_or(Control::Pipe);
            let mirred = Mirred { to, is_mirror, is_ingress, control };
            Ok(said.draft(ActionKind::Mirred, Some(Action::Mirred(mirred))))
        }
        _ => {
            Err(illegal("mirred wants egress redirect dev IFB, as mirred egress redirect dev ifb0"))
        }
    }
}

/// Parses `pace` after that word.
pub(super) fn pace(words: &mut Words) -> Result<ActionDraft, Complaint> {
    let (mut said, mut rate, mut control) = (Common::default(), None, None);
    while let Some(word) = words.peek() {
        if common(words, &mut said)? {
            continue;
        }
        if let "rate" | "set-rate" = word {
            words.next();
            let value = words.value(word, if word == "rate" { "5mbit" } else { "plans dst" })?;
            if rate.is_some() {
                return Err(twice(word, value));
            }
            rate = Some(if word == "rate" { fixed(value)? } else { of_member(value, words)? });
            continue;
        }
        match control_or_jump(words) {
            Some(read) => control = Some(read?),
            None => break,
        }
    }
    let control = control.unwrap_or(Control::Pipe);
    match rate {
        Some(rate) => Ok(said.draft(ActionKind::Pace, Some(Action::Pace { rate, control }))),
        None if said.index.is_some() => Ok(said.draft(ActionKind::Pace, None)),
        None => Err(bad(
            "pace",
            "Error: say which rate flows have, as pace rate 5mbit or pace set-rate plans dst.",
        )),
    }
}

/// A rate for the flows of all packets.
fn fixed(value: &str) -> Result<PaceRate, Complaint> {
    // Rates are whole bytes per second, as police has them.
    let read = number::rate(value).filter(|rate| rate.bytes_per_sec() > 0);
    let wrong = || bad("pace", "Illegal \"rate\": a rate from 8bit on, as 5mbit.");
    read.map(PaceRate::Of).ok_or_else(wrong)
}

/// The rate of the member of the set `name` that covers the address that the next word names.
fn of_member(name: &str, words: &mut Words) -> Result<PaceRate, Complaint> {
    let wrong = || {
        bad(
            "pace",
            "Illegal \"set-rate\": the name of a set whose members have rates, and src or dst, as \
             set-rate plans dst.",
        )
    };
    let set = SetName::new(name).ok_or_else(wrong)?;
    let is_source = match words.next() {
        Some("src") => true,
        Some("dst") => false,
        _ => return Err(wrong()),
    };
    Ok(PaceRate::Member { set, is_source })
}

/// The word for the source's address or the destination's.
pub(super) fn address_word(is_source: bool) -> &'static str {
    if is_source { "src" } else { "dst" }
}

/// The names of packet types, by their numbers (`PACKET_HOST` and so on).
pub(super) const PACKET_TYPES: [&str; 4] = ["host", "broadcast", "multicast", "otherhost"];

pub(super) fn skbedit(words: &mut Words) -> Result<ActionDraft, Complaint> {
    let illegal = |word: &str, why: &str| bad("skbedit", &format!("Illegal \"{word}\": {why}."));
    let (mut said, mut priority, mut mark) = (Common::default(), None, None);
    let (mut idle, mut control) = (Idle::default(), Control::Pipe);
    while let Some(word) = words.peek() {
        if common(words, &mut said)? {
            continue;
        }
        match word {
            word if abbreviates(word, "queue_mapping") => {
                words.next();
                let queue = number::mask(words.value(word, "3")?);
                let queue = queue.and_then(|queue| u16::try_from(queue).ok());
                idle.queue = Some(queue.ok_or_else(|| illegal(word, "0 to 65535"))?);
            }
            word if abbreviates(word, "priority") => {
                words.next();
                let ClassId { major, minor } = match number::parent(words.value(word, "1:10")?) {
                    Some(Some(Parent::Class(class))) => class,
                    // The priority that a packet has without this action.
                    Some(None) => ClassId { major: 0, minor: 0 },
                    _ => return Err(illegal("priority", "a class, as 1:10, or 0 for none")),
                };
                // A packet's priority has 16 bits for each number.
                if major.max(minor) > 0xffff {
                    return Err(illegal(
                        word,
                        "a class up to ffff:ffff: give classid to the filter",
                    ));
                }
                priority = Some(major << 16 | minor);
            }
            word if abbreviates(word, "mark") => {
                words.next();
                let value = words.value(word, "5")?;
                said.flags.has_mask = value.contains('/');
                let (value, mask) = value.split_once('/').unwrap_or((value, "0xffffffff"));
                let both = number::mask(value).zip(number::mask(mask));
                let (value, mask) =
                    both.ok_or_else(|| illegal(word, "a number, or one and a mask"))?;
                mark = Some(Mark { value: value & mask, mask });
            }
            word if abbreviates(word, "ptype") => {
                words.next();
                let value = words.value(word, "host")?;
                let named = PACKET_TYPES.iter().position(|name| abbreviates(value, name));
                let counted = || number::mask(value).and_then(|number| u16::try_from(number).ok());
                let read = named.map(|place| place as u16).or_else(counted);
                let hint = "host, broadcast, multicast, otherhost or a number";
                idle.packet_type = Some(read.ok_or_else(|| illegal(word, hint))?);
            }
            word if abbreviates(word, "inheritdsfield") => {
                words.next();
                idle.inherits_ds_field = true;
            }
            _ => match control_or_jump(words) {
                Some(read) => control = read?,
                None => break,
            },
        }
    }
    let says_any = priority.is_some() || mark.is_some() || idle != Idle::default();
    if !says_any && said.index.is_none() {
        return Err(bad("skbedit", "Error: say what to set: priority CLASSID or mark M."));
    }
    let action = says_any.then_some(Action::Skbedit { priority, mark, idle, control });
    Ok(said.draft(ActionKind::Skbedit, action))
}
