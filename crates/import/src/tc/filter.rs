//! Filters: `flower`, `u32`, `fw` and `matchall`, which assign packets to classes.

use super::qdisc::is_id;
use super::value::{is_word, text, word};
use super::{Draft, Object, major};
use serde_json::Value;
use std::collections::HashMap;

/// JSON keys of `flower` that equal its command-line words.
const FLOWER: [&str; 15] = [
    "ip_proto",
    "dst_ip",
    "src_ip",
    "dst_port",
    "src_port",
    "vlan_id",
    "vlan_prio",
    "dst_mac",
    "src_mac",
    "ip_tos",
    "ip_ttl",
    "tcp_flags",
    "type",
    "code",
    "ip_flags",
];

/// Writes a filter; false if it is not one, or has no equivalent.
pub(super) fn write(
    dev: &str,
    filter: &Object,
    kinds: &HashMap<String, String>,
    draft: &mut Draft,
) -> bool {
    // tc prints an object without options for each preference first.
    let Some(options) = filter.get("options").and_then(Value::as_object) else { return false };
    let kind = text(filter, "kind").unwrap_or("");
    if kind == "u32" && options.contains_key("ht_divisor") {
        if text(options, "fh").is_some_and(|table| table != "800:") {
            draft.note("a hash table of u32: not needed, filters are in hash tables anyway", dev);
        }
        return false;
    }
    match command(dev, filter, kind, options, kinds) {
        Ok(command) => {
            draft.line(&command);
            true
        }
        Err(why) => {
            let said = Value::Object(filter.clone()).to_string();
            draft.note(
                &format!("a filter was left out: {why}"),
                &format!("{kind} at {dev}: {said}"),
            );
            false
        }
    }
}

fn command(
    dev: &str,
    filter: &Object,
    kind: &str,
    options: &Object,
    kinds: &HashMap<String, String>,
) -> Result<String, &'static str> {
    let parent = match text(filter, "parent").filter(|parent| is_id(parent)) {
        Some(parent) => parent.to_owned(),
        None => "1:".to_owned(),
    };
    if !kinds.contains_key(major(&parent)) {
        return Err("its qdisc is not there");
    }
    let protocol = text(filter, "protocol").filter(|protocol| is_word(protocol)).unwrap_or("all");
    let pref =
        filter.get("pref").and_then(Value::as_u64).filter(|pref| (1..=65_535).contains(pref));
    let pref = pref.ok_or("it has no preference")?;
    if filter.get("chain").and_then(Value::as_u64).unwrap_or(0) != 0 {
        return Err("there are no chains here");
    }
    let class = text(options, "classid").or_else(|| text(options, "flowid"));
    let class = class.filter(|class| is_id(class));
    let action = action(options)?;
    if class.is_none() && action.is_empty() {
        return Err("it names no class");
    }
    let class = class.map(|class| format!(" classid {class}")).unwrap_or_default();
    let matches = match kind {
        "flower" => flower(options)?,
        "u32" => u32_matches(options)?,
        "matchall" => String::new(),
        "fw" => {
            let shown = options.get("fw").and_then(Value::as_object).unwrap_or(options);
            let key = |key: &str| shown.get(key).and_then(word);
            let mark = key("mark").or_else(|| key("handle")).ok_or("it has no mark")?;
            let mask = key("mask").map(|mask| format!("/{mask}")).unwrap_or_default();
            return Ok(format!(
                "filter add dev {dev} parent {parent} protocol {protocol} pref {pref} handle {mark}{mask} fw{class}{action}"
            ));
        }
        _ => return Err("its kind has no equivalent"),
    };
    Ok(format!(
        "filter add dev {dev} parent {parent} protocol {protocol} pref {pref} {kind}{matches}{class}{action}"
    ))
}

fn flower(options: &Object) -> Result<String, &'static str> {
    let empty = Object::new();
    let keys = options.get("keys").and_then(Value::as_object).unwrap_or(&empty);
    let mut words = String::new();
    for (key, value) in keys {
        match key.as_str() {
            // The protocol already says this.
            "eth_type" => {}
            key if FLOWER.contains(&key) => {
                let value = word(value).ok_or("a value is not understood")?;
                words.push_str(&format!(" {key} {value}"));
            }
            _ => return Err("a key of flower has no equivalent"),
        }
    }
    Ok(words)
}

/// Several matches are an array: iproute2 repeats the key.
fn u32_matches(options: &Object) -> Result<String, &'static str> {
    if options.contains_key("link") {
        return Err("there are no links between tables here");
    }
    let matches = match options.get("match") {
        Some(Value::Array(matches)) => matches.clone(),
        Some(one) => vec![one.clone()],
        None => return Err("it has no match"),
    };
    let mut words = String::new();
    for one in &matches {
        let one = one.as_object().ok_or("a match is not understood")?;
        let hex = |key: &str| {
            text(one, key)
                .and_then(|digits| u32::from_str_radix(digits.trim_start_matches("0x"), 16).ok())
        };
        let (Some(value), Some(mask)) = (hex("value"), hex("mask")) else {
            return Err("a match is not understood");
        };
        let at = one.get("off").and_then(Value::as_i64).ok_or("a match has no offset")?;
        let from = match text(one, "offmask").unwrap_or("") {
            "" => "",
            "nexthdr" | "nexthdr+" => "nexthdr+",
            _ => return Err("a match is not understood"),
        };
        words.push_str(&format!(" match u32 {value:#010x} {mask:#010x} at {from}{at}"));
    }
    Ok(words)
}

/// `drop` and `pass`; other actions are not imported.
fn action(options: &Object) -> Result<&'static str, &'static str> {
    if options.contains_key("police") {
        return Err("its policer is not imported");
    }
    let actions = match options.get("actions") {
        None => return Ok(""),
        Some(Value::Array(actions)) => actions,
        Some(_) => return Err("its actions are not understood"),
    };
    let [Value::Object(action)] = actions.as_slice() else {
        return Err("its actions are not imported");
    };
    let control = action.get("control_action").and_then(Value::as_object);
    match (text(action, "kind"), control.and_then(|control| text(control, "type"))) {
        (Some("gact"), Some("drop")) => Ok(" action drop"),
        (Some("gact"), Some("pass")) => Ok(" action pass"),
        _ => Err("its actions are not imported"),
    }
}
