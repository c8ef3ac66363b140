//! `fleet`: a rate that several boxes share. Narrows' own words, the same for every rate that can
//! be shared.

use super::coordination::once;
use super::legal::legal;
use crate::complaint::Complaint;
use crate::number;
use crate::render::{Json, Line};
use crate::words::Words;
use narrows_policy::{Fleet, FleetName, SafeShare};
use narrows_units::Rate;

/// The kinds that can be shared, for complaints.
const KINDS: &str = "the rate of a tbf, the bandwidth of a cake or cake_mq, and the ceil of a \
                     class of an htb can be shared";

/// Parses the words after `fleet`.
pub(super) fn parse(
    kind: &str,
    words: &mut Words,
    fleet: &mut Option<Box<Fleet>>,
) -> Result<(), Complaint> {
    once(kind, "fleet", fleet.is_some())?;
    let value = words.value("fleet", "customer-7 boxes 2")?;
    let hint = format!("1 to {} letters, digits, -, _ and .", FleetName::MAX);
    let name = legal(kind, "fleet", value, FleetName::new, &hint)?;
    let own = |word: &str| matches!(word, "safe" | "boxes");
    let Some(word) = words.next_if(own) else {
        return Err(Complaint::wrong(format!(
            "{kind}: \"fleet {name}\" does not say what this box may use alone: write safe RATE \
             after it, or boxes N for an N-th of the rate."
        )));
    };
    let safe = if word == "safe" {
        let value = words.value("safe", "100mbit")?;
        let some = |word: &str| number::rate(word).filter(|rate| !rate.is_zero());
        SafeShare::Rate(legal(kind, "safe", value, some, super::tbf::rate_hint(value))?)
    } else {
        let value = words.value("boxes", "2")?;
        let some = |word: &str| word.parse().ok().filter(|boxes| *boxes != 0);
        let hint = "how many boxes share the rate, from 1, as 2";
        SafeShare::Boxes(legal(kind, "boxes", value, some, hint)?)
    };
    if let Some(second) = words.next_if(own) {
        return Err(Complaint::wrong(format!(
            "{kind}: \"{second}\": \"safe\" and \"boxes\" are two ways to say the same, give one \
             of them."
        )));
    }
    let (mut rejoins, mut by_box) = (false, false);
    while let Some(word) = words.next_if(|word| matches!(word, "rejoin" | "by-box")) {
        let is_there = if word == "rejoin" { &mut rejoins } else { &mut by_box };
        once(kind, word, std::mem::replace(is_there, true))?;
    }
    *fleet = Some(Box::new(Fleet { name, safe, rejoins, by_box }));
    Ok(())
}

/// Refuses `fleet` at a kind that cannot be shared.
pub(super) fn refuse(kind: &str, words: Words) -> Result<(), Complaint> {
    let mut rest = words;
    let is_there = std::iter::from_fn(|| rest.next()).any(|word| word == "fleet");
    match is_there && !matches!(kind, "tbf" | "cake" | "cake_mq") {
        true => Err(Complaint::wrong(format!("{kind}: \"fleet\" means nothing here: {KINDS}."))),
        false => Ok(()),
    }
}

/// Prints what makes `limit` that of a fleet.
pub(super) fn show(fleet: Option<&Fleet>, limit: Rate, line: &mut Line) {
    let Some(Fleet { name, safe, rejoins, by_box }) = fleet else { return };
    let bytes = fleet.map_or(0, |fleet| fleet.safe_share(limit).bytes_per_sec());
    let mut json = vec![("name", Json::Text(name.to_string())), ("safe", Json::Number(bytes))];
    let mut text = match safe {
        SafeShare::Rate(rate) => format!("fleet {name} safe {} ", line.rate(*rate)),
        SafeShare::Boxes(boxes) => {
            json.push(("boxes", Json::Number(u64::from(*boxes))));
            format!("fleet {name} boxes {boxes} ")
        }
    };
    if *rejoins {
        json.push(("rejoin", Json::Bool(true)));
        text.push_str("rejoin ");
    }
    if *by_box {
        json.push(("by-box", Json::Bool(true)));
        text.push_str("by-box ");
    }
    line.add("fleet", Json::Object(json), &text);
}

/// The options of a shared limit as words, each after a space.
pub(super) fn save(fleet: Option<&Fleet>) -> String {
    let Some(Fleet { name, safe, rejoins, by_box }) = fleet else { return String::new() };
    let safe = match safe {
        SafeShare::Rate(rate) => format!("safe {}bit", rate.bits_per_sec()),
        SafeShare::Boxes(boxes) => format!("boxes {boxes}"),
    };
    let rejoin = if *rejoins { " rejoin" } else { "" };
    let by_box = if *by_box { " by-box" } else { "" };
    format!(" fleet {name} {safe}{rejoin}{by_box}")
}
