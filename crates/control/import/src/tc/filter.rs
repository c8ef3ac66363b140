//! Filters: `flower`, `u32`, `fw` and `matchall`, which assign packets to classes.
//!
//! A filter is carried over whole or left out. Each key of its JSON is known here, as a condition,
//! an effect or a remark; a filter with any other key is left out, because without a condition it
//! would match more.

use super::qdisc::is_id;
use super::value::{is_word, text, word};
use super::{Draft, Object, major};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

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
/// Keys of a filter besides those of its kind.
const ANY_FILTER: [&str; 8] =
    ["parent", "protocol", "pref", "kind", "chain", "options", "dev", "stats"];
/// Keys of the options of any kind: the class, the actions, and where a filter is in force. One
/// that is only in a device (`skip_sw`) is not among them.
const ANY_OPTIONS: [&str; 8] =
    ["flowid", "classid", "actions", "not_in_hw", "in_hw", "in_hw_count", "skip_hw", "handle"];
/// Those of `u32`: its number, its table and counts.
const U32: [&str; 8] = ["fh", "order", "key_ht", "bkt", "match", "terminal", "rule_hit", "success"];

/// Where a filter is.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) dev: &'a str,
    /// The qdisc at the root, which is meant if a filter names none.
    pub(super) root: Option<&'a str>,
    /// The qdiscs that are there.
    pub(super) kinds: &'a HashMap<String, String>,
    pub(super) tables: &'a Tables,
}

/// The tables of `u32` where packets begin: one of each preference of a qdisc.
#[derive(Debug, Default)]
pub(super) struct Tables {
    begin: BTreeSet<(String, u64, String)>,
}

impl Tables {
    /// The root table of a preference has one bucket, a number from 800 on, which the kernel gives,
    /// and no link to it. If that is true of several, none can be told.
    pub(super) fn new(filters: &[Object]) -> Self {
        let mut candidates: BTreeMap<(String, u64), Vec<String>> = BTreeMap::new();
        let mut linked = BTreeSet::new();
        for filter in filters.iter().filter(|filter| text(filter, "kind") == Some("u32")) {
            let Some(options) = filter.get("options").and_then(Value::as_object) else { continue };
            let Some(place) = preference(filter) else { continue };
            if let Some(link) = options.get("link") {
                linked.insert(link.as_str().map_or("", major).to_owned());
            }
            // Old output names no tables, but each filter says its own.
            let table = match options.get("ht_divisor") {
                Some(divisor) if divisor == 1 => text(options, "fh").map(major),
                Some(_) => None,
                None => text(options, "key_ht").filter(|_| text(options, "bkt") == Some("0")),
            };
            let Some(table) = table else { continue };
            let is_kernels = u32::from_str_radix(table, 16).is_ok_and(|table| table >= 0x800);
            let tables = candidates.entry(place).or_default();
            if is_kernels && !tables.iter().any(|known| known == table) {
                tables.push(table.to_owned());
            }
        }
        let begin = candidates.into_iter().filter_map(|((parent, pref), mut tables)| {
            tables.retain(|table| !linked.contains(table));
            let one = tables.pop().filter(|_| tables.is_empty())?;
            Some((parent, pref, one))
        });
        Self { begin: begin.collect() }
    }

    /// Whether packets begin in the table of this filter.
    fn begin_at(&self, filter: &Object, options: &Object) -> bool {
        let (Some((parent, pref)), Some(table)) = (preference(filter), text(options, "key_ht"))
        else {
            return false;
        };
        text(options, "bkt") == Some("0") && self.begin.contains(&(parent, pref, table.to_owned()))
    }
}

/// The qdisc and the preference of a filter.
fn preference(filter: &Object) -> Option<(String, u64)> {
    let parent = text(filter, "parent").unwrap_or("").to_owned();
    Some((parent, filter.get("pref")?.as_u64()?))
}

/// Writes a filter; false if it is not one, or is left out.
pub(super) fn write(place: &Place, filter: &Object, draft: &mut Draft) -> bool {
    // tc prints an object without options for each preference first.
    let Some(options) = filter.get("options").and_then(Value::as_object) else { return false };
    let kind = text(filter, "kind").unwrap_or("");
    if kind == "u32" && options.contains_key("ht_divisor") {
        return false;
    }
    let said = || Value::Object(filter.clone()).to_string();
    match command(place, filter, kind, options) {
        Ok(command) => draft.attempt(&command, &format!("a filter of {}", place.dev)),
        Err(why) => {
            draft.fault(&format!(
                "a {kind} filter of {} is left out: {why}: {}",
                place.dev,
                said()
            ));
            false
        }
    }
}

fn command(place: &Place, filter: &Object, kind: &str, options: &Object) -> Result<String, String> {
    let dev = place.dev;
    only(filter, &ANY_FILTER)?;
    let parent = match text(filter, "parent") {
        Some(parent) if is_id(parent) => parent.to_owned(),
        Some(parent) => return Err(format!("its parent {parent} is not understood")),
        None => place.root.ok_or("there is no qdisc at the root")?.to_owned(),
    };
    match place.kinds.get(major(&parent)).map(String::as_str) {
        Some("htb" | "hfsc" | "prio" | "drr" | "ets") => {}
        Some(kind) => return Err(format!("filters of a {kind} have no equivalent")),
        None => return Err(format!("its qdisc {parent} is not there")),
    }
    let protocol = text(filter, "protocol").filter(|protocol| is_word(protocol));
    let protocol = protocol.ok_or("it has no protocol")?;
    let pref =
        filter.get("pref").and_then(Value::as_u64).filter(|pref| (1..=65_535).contains(pref));
    let pref = pref.ok_or("it has no preference")?;
    if filter.get("chain").is_some_and(|chain| chain != 0) {
        return Err("there are no chains here".to_owned());
    }
    let class = match options.get("classid").or_else(|| options.get("flowid")) {
        None => None,
        Some(Value::String(class)) if is_id(class) => Some(class),
        Some(class) => return Err(format!("its class {class} is not understood")),
    };
    let action = action(options)?;
    if class.is_none() && action.is_empty() {
        return Err("it names no class".to_owned());
    }
    let class = class.map(|class| format!(" classid {class}")).unwrap_or_default();
    let of_kind: &[&str] = match kind {
        "flower" => &["keys"],
        "u32" => &U32,
        "fw" => &["fw", "mark", "mask"],
        "matchall" => &["rule_hit"],
        _ => return Err("its kind has no equivalent".to_owned()),
    };
    only(options, &[&ANY_OPTIONS, of_kind].concat())?;
    let start = format!("filter add dev {dev} parent {parent} protocol {protocol} pref {pref}");
    let matches = match kind {
        "flower" => flower(options)?,
        "u32" if !place.tables.begin_at(filter, options) => {
            return Err(
                "its hash table is reached by a link, with conditions of its own".to_owned()
            );
        }
        "u32" => u32_matches(options)?,
        "fw" => return Ok(format!("{start} handle {} fw{class}{action}", mark(options)?)),
        _ => String::new(),
    };
    Ok(format!("{start} {kind}{matches}{class}{action}"))
}

/// An error if the object has another key than these.
fn only(object: &Object, known: &[&str]) -> Result<(), String> {
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("its \"{key}\" has no equivalent")),
        None => Ok(()),
    }
}

fn flower(options: &Object) -> Result<String, String> {
    let keys = match options.get("keys") {
        None => return Ok(String::new()),
        Some(keys) => keys.as_object().ok_or("its keys are not understood")?,
    };
    let mut words = String::new();
    for (key, value) in keys {
        match key.as_str() {
            // The protocol already says this.
            "eth_type" => {}
            key if FLOWER.contains(&key) => {
                let value = word(value).ok_or_else(|| format!("its {key} is not understood"))?;
                words.push_str(&format!(" {key} {value}"));
            }
            _ => return Err(format!("its key \"{key}\" has no equivalent")),
        }
    }
    Ok(words)
}

/// The mark of a `fw`, with its mask.
fn mark(options: &Object) -> Result<String, String> {
    let shown = match options.get("fw") {
        None => options,
        Some(fw) => {
            let fw = fw.as_object().ok_or("its mark is not understood")?;
            only(fw, &["mark", "mask", "handle"])?;
            fw
        }
    };
    let key = |key: &str| shown.get(key).map(|value| word(value).ok_or("its mark is no word"));
    let mark = key("mark").or_else(|| key("handle")).ok_or("it has no mark")??;
    let mask = key("mask").transpose()?.map(|mask| format!("/{mask}")).unwrap_or_default();
    Ok(mark + &mask)
}

/// Several matches are an array: iproute2 repeats the key.
fn u32_matches(options: &Object) -> Result<String, String> {
    let matches = match options.get("match") {
        Some(Value::Array(matches)) => matches.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => return Err("it has no match".to_owned()),
    };
    let mut words = String::new();
    for one in matches {
        let one = one.as_object().ok_or("a match is not understood")?;
        only(one, &["value", "mask", "off", "offmask", "success"])?;
        let hex = |key: &str| {
            text(one, key)
                .and_then(|digits| u32::from_str_radix(digits.trim_start_matches("0x"), 16).ok())
        };
        let (Some(value), Some(mask)) = (hex("value"), hex("mask")) else {
            return Err("a match is not understood".to_owned());
        };
        let at = one.get("off").and_then(Value::as_i64).ok_or("a match has no offset")?;
        let from = match one.get("offmask") {
            None => "",
            Some(Value::String(from)) if from.is_empty() => "",
            Some(Value::String(from)) if from.starts_with("nexthdr") => "nexthdr+",
            Some(_) => return Err("a match is not understood".to_owned()),
        };
        words.push_str(&format!(" match u32 {value:#010x} {mask:#010x} at {from}{at}"));
    }
    Ok(words)
}

/// `drop` and `pass`; other actions are not imported.
fn action(options: &Object) -> Result<&'static str, String> {
    let no = || "its actions are not imported".to_owned();
    let actions = match options.get("actions") {
        None => return Ok(""),
        Some(Value::Array(actions)) => actions,
        Some(_) => return Err(no()),
    };
    let [Value::Object(action)] = actions.as_slice() else { return Err(no()) };
    only(
        action,
        &[
            "order",
            "kind",
            "control_action",
            "prob",
            "index",
            "ref",
            "bind",
            "stats",
            "installed",
            "last_used",
            "first_used",
            "not_in_hw",
            "in_hw",
            "in_hw_count",
            "used_hw_stats",
            "hw_stats",
        ],
    )?;
    // With a probability, it does something else now and then.
    let random = action.get("prob").and_then(|prob| prob.get("random_type"));
    if action.contains_key("prob") && random != Some(&"none".into()) {
        return Err("its action has a probability".to_owned());
    }
    let control = action.get("control_action").and_then(Value::as_object).ok_or_else(no)?;
    only(control, &["type"]).map_err(|_| no())?;
    match (text(action, "kind"), text(control, "type")) {
        (Some("gact"), Some("drop")) => Ok(" action drop"),
        (Some("gact"), Some("pass")) => Ok(" action pass"),
        _ => Err(no()),
    }
}
