//! FlowValve's options: `weight` and `borrow` of a class of an `htb`, `coordination` of the tree.
//! These are Narrows' own, in addition to HTB's; there is no `sync`.

use super::legal::legal;
use crate::complaint::Complaint;
use crate::number;
use crate::render::{Json, Line};
use crate::words::Words;
use narrows_coordination::{LENDERS_MAX, TreeStrategy};
use narrows_policy::{ClassId, HtbLabel, Parent};

/// The value of `borrow` that means no lender.
const NOBODY: &str = "none";

/// Parses the value of `coordination`.
pub(super) fn strategy(words: &mut Words) -> Result<TreeStrategy, Complaint> {
    let value = words.value("coordination", "fair")?;
    let hint = "queues keep a tree of classes together by fair, flowvalve or lock";
    legal("htb", "coordination", value, TreeStrategy::from_name, hint)
}

/// Parses `word` of a class with its value, if it is one of FlowValve's.
pub(super) fn parse(
    word: &str,
    words: &mut Words,
    label: &mut HtbLabel,
) -> Result<bool, Complaint> {
    match word {
        "weight" => {
            super::coordination::once("htb", "weight", label.weight.is_some())?;
            let value = words.value("weight", "2")?;
            let weight = |word: &str| word.parse().ok().filter(|weight| *weight != 0);
            label.weight = Some(legal("htb", "weight", value, weight, "a number from 1, as 2")?);
        }
        "borrow" => {
            super::coordination::once("htb", "borrow", label.borrow.is_some())?;
            let value = words.value("borrow", "1:10,1:20")?;
            let hint = format!("up to {LENDERS_MAX} classes, as 1:10,1:20, or none");
            label.borrow = Some(Box::new(legal("htb", "borrow", value, lenders, &hint)?));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn lenders(value: &str) -> Option<[Option<ClassId>; LENDERS_MAX]> {
    let mut all = [None; LENDERS_MAX];
    if value == NOBODY {
        return Some(all);
    }
    let mut names = value.split(',');
    for (place, name) in all.iter_mut().zip(&mut names) {
        *place = match number::parent(name)? {
            Some(Parent::Class(class)) => Some(class),
            _ => return None,
        };
    }
    names.next().is_none().then_some(all)
}

/// The lenders as one word.
fn names(label: &HtbLabel) -> String {
    let names: Vec<String> = label.lenders().map(|lender| lender.to_string()).collect();
    if names.is_empty() { NOBODY.to_owned() } else { names.join(",") }
}

/// Prints how the tree is coordinated, unless it is the default.
pub(super) fn show_strategy(strategy: TreeStrategy, line: &mut Line) {
    if strategy != TreeStrategy::default() {
        let name = strategy.name();
        line.add("coordination", Json::Text(name.to_owned()), &format!("coordination {name} "));
    }
}

/// The strategy as words, each after a space.
pub(super) fn save_strategy(strategy: TreeStrategy) -> String {
    match strategy == TreeStrategy::default() {
        true => String::new(),
        false => format!(" coordination {}", strategy.name()),
    }
}

/// Prints the options of a class.
pub(super) fn show(label: &HtbLabel, line: &mut Line) {
    if let Some(weight) = label.weight {
        line.add("weight", Json::Number(u64::from(weight)), &format!("weight {weight} "));
    }
    if label.borrow.is_some() {
        let names = names(label);
        let text = format!("borrow {names} ");
        line.add("borrow", Json::Text(names), &text);
    }
}

/// The label as words, each after a space.
pub(super) fn save(label: &HtbLabel) -> String {
    let mut words = label.weight.map(|weight| format!(" weight {weight}")).unwrap_or_default();
    if label.borrow.is_some() {
        words += &format!(" borrow {}", names(label));
    }
    words
}
