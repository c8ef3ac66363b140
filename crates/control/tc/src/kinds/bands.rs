//! Parses and prints `prio`, `drr` and `ets`.
//!
//! As in `tc`, none of their words can be abbreviated, and the numbers of a list follow each other
//! until the next word. Differences: `bands` after `priomap` is refused, while `tc` prints its
//! usage and continues; JSON has the quanta and deficits of `drr`, which `tc` leaves out.

use super::legal::legal;
use crate::complaint::Complaint;
use crate::notation;
use crate::number;
use crate::render::{Json, Line};
use crate::words::Words;
use narrows_policy::{
    ClassParams, Drr, Ets, EtsOptions, Handle, Params, Prio, PrioParams, Priomap,
};
use std::fmt::Write;

/// The highest priority (`TC_PRIO_MAX`).
const PRIO_MAX: usize = 15;

/// The most bands of an `ets`.
const ETS_BANDS_MAX: u16 = 16;

const PRIO_USAGE: &str = "Usage: ... prio bands NUMBER priomap P1 P2...
 bands    how many bands there are, 2 to 16; the first goes first {3}
 priomap  for the priorities 0 to 15, which band, counted from 0 {1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1}
Packets that no filter assigns to a band have the priority that their TOS byte says.";

const DRR_USAGE: &str = "Usage: ... drr
Usage: ... class add ... drr quantum SIZE
 quantum  bytes in a turn of the class {a full frame}
Packets that no filter assigns to a class are dropped.";

const ETS_USAGE: &str =
    "Usage: ... ets [bands NUMBER] [strict NUMBER] [quanta Q1 Q2...] [priomap P1 P2...]
 bands    how many bands there are, up to 16 {strict and quanta together}
 strict   how many of them go before the others, each before the next {0}
 quanta   bytes in a turn of each of the others {a full frame}
 priomap  for the priorities 0 to 15, which band, counted from 0 {the last}
Usage: ... class change ... ets quantum Q1";

fn wrong(word: &str, usage: &str) -> Complaint {
    match word {
        "help" => Complaint::wrong(usage),
        _ => Complaint::wrong(format!("What is \"{word}\"?\n{usage}")),
    }
}

fn plain(word: &str) -> Option<u32> {
    word.parse().ok()
}

/// An element of a list.
fn element(name: &str, word: &str) -> Result<u32, Complaint> {
    plain(word).ok_or_else(|| Complaint::wrong(format!("Illegal \"{name}\" element: \"{word}\".")))
}

/// Parses the parameters of a `prio`.
pub(super) fn parse_prio(mut words: Words) -> Result<Params, Complaint> {
    let mut params = PrioParams::default();
    let mut map = None;
    while let Some(word) = words.next() {
        match (word, &mut map) {
            ("bands", None) => {
                let value = words.value("bands", "3")?;
                let bands = legal("prio", "bands", value, plain, "2 to 16")?;
                params.bands = u16::try_from(bands).unwrap_or(u16::MAX);
            }
            ("bands", Some(_)) => {
                return Err(Complaint::wrong(format!(
                    "\"bands\" belongs before \"priomap\".\n{PRIO_USAGE}"
                )));
            }
            ("priomap", None) => map = Some(0),
            ("priomap", Some(_)) => return Err(Complaint::wrong("Error: duplicate priomap")),
            (word, Some(at)) if word != "help" => {
                let band = element("priomap", word)?;
                if band >= u32::from(params.bands) {
                    return Err(Complaint::wrong(format!(
                        "\"priomap\" element is out of bands: {band} is not below {}.",
                        params.bands
                    )));
                }
                let place = params.priomap.get_mut(*at).ok_or_else(|| {
                    Complaint::wrong(format!("\"priomap\" index > TC_PRIO_MAX={PRIO_MAX}"))
                })?;
                *place = band as u8;
                *at += 1;
            }
            (word, _) => return Err(wrong(word, PRIO_USAGE)),
        }
    }
    Ok(Params::Prio(params))
}

/// Parses the parameters of a `drr`: there are none.
pub(super) fn parse_drr(mut words: Words) -> Result<Params, Complaint> {
    match words.next() {
        Some(word) => Err(wrong(word, DRR_USAGE)),
        None => Ok(Params::Drr),
    }
}

/// Parses the parameters of a class of a `drr`.
pub(crate) fn parse_drr_class(mut words: Words) -> Result<ClassParams, Complaint> {
    let mut quantum = None;
    while let Some(word) = words.next() {
        match word {
            "quantum" => {
                let value = words.value("quantum", "1514")?;
                quantum = Some(legal("drr", "quantum", value, number::size, number::SIZE_HINT)?);
            }
            word => return Err(wrong(word, DRR_USAGE)),
        }
    }
    Ok(ClassParams::Drr { quantum })
}

/// The list of an `ets` that is being parsed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Quanta,
    Priomap,
}

/// Parses the parameters of an `ets`.
pub(super) fn parse_ets(mut words: Words) -> Result<Params, Complaint> {
    let (mut bands, mut strict, mut list) = (None, None, None);
    let (mut quanta, mut priomap): (Option<Vec<u32>>, Option<Vec<u32>>) = (None, None);
    let twice = |word: &str| Complaint::wrong(format!("Duplicate \"{word}\""));
    while let Some(word) = words.next() {
        match word {
            "bands" | "strict" => {
                let value = words.value(word, "3")?;
                let present = if word == "bands" { &mut bands } else { &mut strict };
                let small = |word: &str| word.parse::<u8>().ok().map(u16::from);
                let number = legal("ets", word, value, small, "a number up to 16")?;
                if present.replace(number).is_some() {
                    return Err(twice(word));
                }
                list = None;
            }
            "quanta" => {
                list = Some(List::Quanta);
                if quanta
                    .replace(vec![element("quanta", words.value("quanta", "1514")?)?])
                    .is_some()
                {
                    return Err(twice(word));
                }
            }
            "priomap" => {
                list = Some(List::Priomap);
                if priomap
                    .replace(vec![element("priomap", words.value("priomap", "0")?)?])
                    .is_some()
                {
                    return Err(twice(word));
                }
            }
            word if word != "help" && list.is_some() => {
                let (name, into) = match list {
                    Some(List::Quanta) => ("quanta", &mut quanta),
                    _ => ("priomap", &mut priomap),
                };
                into.get_or_insert_default().push(element(name, word)?);
            }
            word => return Err(wrong(word, ETS_USAGE)),
        }
    }
    let (quanta, priomap) = (quanta.unwrap_or_default(), priomap.unwrap_or_default());
    let strict = strict.unwrap_or(0);
    let named = u16::try_from(quanta.len()).unwrap_or(u16::MAX).saturating_add(strict);
    let given = bands.filter(|bands| *bands != 0);
    let bands = given.unwrap_or(named);
    let complaint = |text: String| Err(Complaint::wrong(text));
    if quanta.contains(&0) {
        return complaint("\"quanta\" must be > 0".into());
    }
    if priomap.len() > PRIO_MAX + 1 {
        return complaint(format!("\"priomap\" index cannot be higher than {PRIO_MAX}"));
    }
    if bands == 0 {
        return complaint(format!(
            "One of \"bands\", \"quanta\" or \"strict\" needs to be specified\n{ETS_USAGE}"
        ));
    }
    if bands > ETS_BANDS_MAX {
        let why = format!("The number of \"bands\" must be <= {ETS_BANDS_MAX}");
        // The kernel counts list elements, tc the given number.
        return Err(match given {
            None if strict <= ETS_BANDS_MAX => Complaint::refused(why),
            _ => Complaint::wrong(why),
        });
    }
    if named > bands {
        return complaint(format!(
            "Not enough total bands to cover all the strict bands and quanta\n{ETS_USAGE}"
        ));
    }
    if priomap.iter().any(|band| *band >= u32::from(bands)) {
        return complaint("\"priomap\" element is out of bounds".into());
    }
    let priomap = priomap.into_iter().map(|band| band as u8).collect();
    Ok(Params::Ets(EtsOptions { bands, strict, quanta, priomap }))
}

/// Parses the parameters of a class of an `ets`.
pub(crate) fn parse_ets_class(mut words: Words) -> Result<ClassParams, Complaint> {
    let mut quantum = None;
    while let Some(word) = words.next() {
        match word {
            "quantum" => {
                let given = element("quanta", words.value("quantum", "1514")?)?;
                if given == 0 {
                    return Err(Complaint::wrong("\"quanta\" must be > 0"));
                }
                quantum = Some(given);
            }
            word => return Err(wrong(word, ETS_USAGE)),
        }
    }
    Ok(ClassParams::Ets { quantum })
}

fn list(numbers: impl IntoIterator<Item = u64>) -> (Json, String) {
    let numbers: Vec<u64> = numbers.into_iter().collect();
    let text = numbers.iter().map(|number| format!("{number} ")).collect();
    (Json::Numbers(numbers), text)
}

fn show_priomap(priomap: &Priomap, line: &mut Line) {
    let (json, text) = list(priomap.iter().copied().map(u64::from));
    line.add("priomap", json, &format!("priomap {text}"));
}

fn show_bands(bands: u16, line: &mut Line) {
    line.add("bands", Json::Number(u64::from(bands)), &format!("bands {bands} "));
}

/// Prints the parameters of a `prio`.
pub(super) fn show_prio(prio: &Prio, line: &mut Line) {
    show_bands(prio.params.bands, line);
    show_priomap(&prio.params.priomap, line);
}

/// Prints the parameters of an `ets`.
pub(super) fn show_ets(ets: &Ets, line: &mut Line) {
    show_bands(ets.bands(), line);
    if ets.strict != 0 {
        let strict = ets.strict;
        line.add("strict", Json::Number(u64::from(strict)), &format!("strict {strict} "));
    }
    if !ets.quanta.is_empty() {
        let (json, text) = list(ets.quanta.iter().copied().map(u64::from));
        line.add("quanta", json, &format!("quanta {text}"));
    }
    show_priomap(&ets.priomap, line);
}

/// Prints the quantum of a class of a `drr`.
pub(crate) fn show_drr_class(drr: &Drr, minor: u32, line: &mut Line) {
    let Some(quantum) = drr.quanta.get(&minor) else { return };
    let text = format!("quantum {} ", notation::size(u64::from(*quantum)));
    line.add("quantum", Json::Number(u64::from(*quantum)), &text);
}

/// Prints the quantum of a class of an `ets`.
pub(crate) fn show_ets_class(ets: &Ets, minor: u32, line: &mut Line) {
    let Some(quantum) = ets.quantum(minor) else { return };
    line.add("quantum", Json::Number(u64::from(quantum)), &format!("quantum {quantum} "));
}

fn words<T: ToString>(numbers: impl IntoIterator<Item = T>) -> String {
    numbers.into_iter().map(|number| format!(" {}", number.to_string())).collect()
}

/// The parameters of a `prio` as words, each after a space.
pub(super) fn save_prio(prio: &Prio) -> String {
    if prio.is_fast() {
        return String::new();
    }
    let PrioParams { bands, priomap } = prio.params;
    format!(" bands {bands} priomap{}", words(priomap))
}

/// The options of an `ets` as words, each after a space.
pub(super) fn save_ets(ets: &Ets) -> String {
    let mut text = format!(" bands {}", ets.bands());
    // Writing to a string cannot fail.
    if ets.strict != 0 {
        let _ = write!(text, " strict {}", ets.strict);
    }
    if !ets.quanta.is_empty() {
        let _ = write!(text, " quanta{}", words(&ets.quanta));
    }
    let _ = write!(text, " priomap{}", words(ets.priomap));
    text
}

/// The commands that create the classes of the `drr` with this `handle` on `dev`.
pub(crate) fn save_drr_classes(dev: &str, handle: Handle, drr: &Drr) -> String {
    let class = |(minor, quantum): (&u32, &u32)| {
        let id = handle.class(*minor);
        format!("class replace dev {dev} parent {handle} classid {id} drr quantum {quantum}\n")
    };
    drr.quanta.iter().map(class).collect()
}
