//! Qdiscs and classes: the command-line words for each key of the JSON.

use super::value::{text, word};
use super::{Draft, Object, netem};
use serde_json::Value;

/// How the value of a key becomes words.
#[derive(Clone, Copy)]
enum Take {
    /// As it is.
    Plain(&'static str),
    /// In microseconds.
    Micros(&'static str),
    /// In microseconds; the kernel keeps it in units of 1024 ns.
    Codel(&'static str),
    /// In bytes per second.
    Rate(&'static str),
    /// One word if true, another if false; no word if that one is empty.
    Flag(&'static str, &'static str),
    /// The value is the word.
    Word,
    /// Each element of an array.
    List(&'static str),
    /// The minor number of a class; as a number, it is not hexadecimal.
    Minor(&'static str),
    /// A service curve.
    Curve(&'static str),
    /// Has no counterpart in a command.
    Skip,
}

use Take::{Codel, Curve, Flag, List, Micros, Minor, Plain, Rate, Skip, Word};

const FIFO: &[(&str, Take)] = &[("limit", Plain("limit"))];
const TBF: &[(&str, Take)] = &[
    ("rate", Rate("rate")),
    ("burst", Plain("burst")),
    ("lat", Micros("latency")),
    ("limit", Plain("limit")),
    ("mpu", Plain("mpu")),
    ("peakrate", Rate("peakrate")),
    ("minburst", Plain("minburst")),
    ("overhead", Plain("overhead")),
    ("linklayer", Plain("linklayer")),
    ("coordination", Plain("coordination")),
    ("sync", Plain("sync")),
];
const HTB: &[(&str, Take)] = &[
    ("r2q", Plain("r2q")),
    ("default", Plain("default")),
    ("direct_qlen", Plain("direct_qlen")),
    ("coordination", Plain("coordination")),
    ("direct_packets_stat", Skip),
    ("ver", Skip),
    ("offload", Skip),
];
const HFSC: &[(&str, Take)] = &[("default", Minor("default"))];
const HFSC_CLASS: &[(&str, Take)] =
    &[("rt", Curve("rt")), ("ls", Curve("ls")), ("sc", Curve("sc")), ("ul", Curve("ul"))];
/// Of a service curve.
const CURVE: &[(&str, Take)] = &[("m1", Rate("m1")), ("d", Micros("d")), ("m2", Rate("m2"))];
const HTB_CLASS: &[(&str, Take)] = &[
    ("rate", Rate("rate")),
    ("ceil", Rate("ceil")),
    ("burst", Plain("burst")),
    ("cburst", Plain("cburst")),
    ("prio", Plain("prio")),
    ("quantum", Plain("quantum")),
    ("mpu", Plain("mpu")),
    ("overhead", Plain("overhead")),
    ("linklayer", Plain("linklayer")),
    ("level", Skip),
];
/// Keys of any class, which are written otherwise or are no setting.
const ANY_CLASS: [&str; 7] = ["class", "handle", "parent", "root", "leaf", "options", "stats"];
/// Keys of any qdisc, likewise.
const ANY_QDISC: [&str; 9] =
    ["kind", "handle", "dev", "parent", "root", "refcnt", "options", "offloaded", "stab"];
/// Keys of a qdisc that are settings, whatever else is printed.
const SETTINGS: [&str; 2] = ["ingress_block", "egress_block"];
/// Of a size table.
const STAB: &[(&str, Take)] = &[
    ("linklayer", Plain("linklayer")),
    ("overhead", Plain("overhead")),
    ("mpu", Plain("mpu")),
    ("mtu", Plain("mtu")),
    ("tsize", Plain("tsize")),
];
/// What is not an object of its own.
const NETEM: &[(&str, Take)] =
    &[("limit", Plain("limit")), ("seed", Plain("seed")), ("ecn", Flag("ecn", ""))];
const QUANTUM: &[(&str, Take)] = &[("quantum", Plain("quantum"))];
const PRIO: &[(&str, Take)] =
    &[("bands", Plain("bands")), ("priomap", List("priomap")), ("multiqueue", Skip)];
const ETS: &[(&str, Take)] = &[
    ("bands", Plain("bands")),
    ("strict", Plain("strict")),
    ("quanta", List("quanta")),
    ("priomap", List("priomap")),
];
const CODEL: &[(&str, Take)] = &[
    ("limit", Plain("limit")),
    ("flows", Plain("flows")),
    ("quantum", Plain("quantum")),
    ("target", Codel("target")),
    ("interval", Codel("interval")),
    ("memory_limit", Plain("memory_limit")),
    ("drop_batch", Plain("drop_batch")),
    ("ce_threshold", Codel("ce_threshold")),
    ("ecn", Flag("ecn", "noecn")),
];
const SFQ: &[(&str, Take)] = &[
    ("limit", Plain("limit")),
    ("quantum", Plain("quantum")),
    ("depth", Plain("depth")),
    ("divisor", Plain("divisor")),
    ("perturb", Plain("perturb")),
    ("headdrop", Flag("headdrop", "")),
    ("flows", Skip),
];
/// `tc` prints the derived weight, not the `burst` and `bandwidth` that it was derived from.
const RED: &[(&str, Take)] = &[
    ("limit", Plain("limit")),
    ("min", Plain("min")),
    ("max", Plain("max")),
    ("probability", Plain("probability")),
    ("ecn", Flag("ecn", "")),
    ("harddrop", Flag("harddrop", "")),
    ("adaptive", Flag("adaptive", "")),
    ("nodrop", Flag("nodrop", "")),
    ("ewma", Skip),
    ("Plog", Skip),
    ("Scell_log", Skip),
];
const FQ: &[(&str, Take)] = &[
    ("limit", Plain("limit")),
    ("flow_limit", Plain("flow_limit")),
    ("buckets", Plain("buckets")),
    ("orphan_mask", Plain("orphan_mask")),
    ("bands", Plain("bands")),
    ("priomap ", List("priomap")),
    ("priomap", List("priomap")),
    ("weights ", List("weights")),
    ("weights", List("weights")),
    ("quantum", Plain("quantum")),
    ("initial_quantum", Plain("initial_quantum")),
    ("low_rate_threshold", Rate("low_rate_threshold")),
    ("maxrate", Rate("maxrate")),
    ("defrate", Rate("defrate")),
    ("refill_delay", Micros("refill_delay")),
    // In nanoseconds, which is this word's unit.
    ("timer_slack", Plain("timer_slack")),
    ("horizon", Micros("horizon")),
    ("horizon_cap", Flag("horizon_cap", "")),
    ("horizon_drop", Flag("horizon_drop", "")),
    ("ce_threshold", Micros("ce_threshold")),
    ("pacing", Flag("pacing", "nopacing")),
    ("offload_horizon", Skip),
];
const CAKE: &[(&str, Take)] = &[
    ("diffserv", Word),
    ("flowmode", Word),
    ("nat", Flag("nat", "nonat")),
    ("wash", Flag("wash", "nowash")),
    ("ingress", Flag("ingress", "egress")),
    ("split_gso", Flag("split-gso", "no-split-gso")),
    ("rtt", Micros("rtt")),
    ("memlimit", Plain("memlimit")),
    ("fwmark", Plain("fwmark")),
    ("coordination", Plain("coordination")),
    ("sync", Plain("sync")),
    // Written with the overhead, whose order matters.
    ("bandwidth", Skip),
    ("autorate", Skip),
    ("ack-filter", Skip),
    ("raw", Skip),
    ("atm", Skip),
    ("overhead", Skip),
    ("mpu", Skip),
];

/// Writes a qdisc; false if it has no equivalent.
pub(super) fn write(dev: &str, qdisc: &Object, draft: &mut Draft) -> bool {
    let kind = text(qdisc, "kind").unwrap_or("");
    let keys = match kind {
        "pfifo" | "bfifo" => FIFO,
        "tbf" => TBF,
        "htb" => HTB,
        "hfsc" => HFSC,
        "prio" => PRIO,
        "ets" => ETS,
        "drr" | "mq" | "noqueue" => &[],
        "codel" | "fq_codel" => CODEL,
        "sfq" => SFQ,
        "red" => RED,
        "netem" => NETEM,
        "fq" => FQ,
        "cake" | "cake_mq" => CAKE,
        _ => {
            draft.fault(&format!("the qdisc {kind} of {dev} has no equivalent: left out"));
            return false;
        }
    };
    let place = match (text(qdisc, "parent"), text(qdisc, "handle")) {
        (None, _) if !qdisc.contains_key("root") => None,
        (parent, handle) => {
            let parent =
                parent.filter(|parent| is_id(parent)).map(|parent| format!("parent {parent}"));
            let handle = handle.filter(|handle| is_id(handle) && *handle != "0:");
            let handle = handle.map(|handle| format!(" handle {handle}")).unwrap_or_default();
            Some(format!("{}{handle}", parent.unwrap_or_else(|| "root".to_owned())))
        }
    };
    let Some(place) = place else {
        draft.fault(&format!("the qdisc {kind} of {dev} has no place: left out"));
        return false;
    };
    let empty = Object::new();
    let options = qdisc.get("options").and_then(Value::as_object).unwrap_or(&empty);
    let mut words = Vec::new();
    if keys.as_ptr() == CAKE.as_ptr() {
        cake(options, &mut words);
    }
    let handle = text(qdisc, "handle").unwrap_or("");
    let of = format!("{kind} {handle} of {dev}");
    let mut options = options.clone();
    if kind == "tbf" {
        tbf(&mut options, &of, draft);
    }
    if kind == "netem" && netem::words(&mut options, &of, &mut words, draft).is_none() {
        draft.fault(&format!("the qdisc {of} is not understood: left out"));
        return false;
    }
    take(&options, keys, &[], &of, &mut words, draft);
    // With statistics, a kind's own are beside them.
    let counts = qdisc.contains_key("bytes");
    for key in qdisc.keys().filter(|key| !ANY_QDISC.contains(&key.as_str())) {
        if !counts || SETTINGS.contains(&key.as_str()) {
            draft.fault(&format!("{of}: {key} has no equivalent: left out"));
        }
    }
    if kind == "red" {
        words.push("avpkt 1000".to_owned());
        draft.fault(&format!(
            "{of}: tc prints neither avpkt nor burst nor bandwidth: avpkt 1000 and what follows from it is assumed"
        ));
    }
    // tc prints it only if it is on, and on is the default.
    if kind == "fq_codel" && !options.contains_key("ecn") {
        words.push("noecn".to_owned());
    }
    let words: String = words.iter().map(|word| format!(" {word}")).collect();
    let table = match qdisc.get("stab").and_then(Value::as_object) {
        None => String::new(),
        Some(stab) => {
            let mut words = Vec::new();
            take(stab, STAB, &[], &of, &mut words, draft);
            format!(" stab {}", words.join(" "))
        }
    };
    let command = format!("qdisc replace dev {dev} {place}{table} {kind}{words}");
    draft.attempt(&command, &format!("the qdisc {of}"))
}

/// Whether `tc` has printed the details of a qdisc (`-d`), if its kind shows that.
pub(super) fn has_details(qdisc: &Object) -> Option<bool> {
    let key = match text(qdisc, "kind")? {
        "tbf" => "mpu",
        "htb" => "ver",
        _ => return None,
    };
    Some(qdisc.get("options")?.get(key).is_some())
}

/// Makes the options of a `tbf` one form: with details, `mpu` is there for each of its buckets, and
/// the second bucket is called `mtu`.
fn tbf(options: &mut Object, of: &str, draft: &mut Draft) {
    if let Some(Value::Array(each)) = options.get("mpu") {
        let one = each.first().cloned().unwrap_or_default();
        options.insert("mpu".to_owned(), one);
    }
    if let Some(mtu) = options.remove("mtu") {
        options.insert("minburst".to_owned(), mtu);
    }
    if options.contains_key("minburst") && !options.contains_key("peakrate") {
        options.remove("minburst");
        draft.fault(&format!("{of}: tc's JSON lacks the peakrate: left out"));
    }
}

/// The options of cake whose order matters, and those that are not flags.
fn cake(options: &Object, words: &mut Vec<String>) {
    match options.get("bandwidth") {
        Some(rate @ Value::Number(_)) => match bits(rate) {
            Some(rate) => words.push(format!("bandwidth {rate}bit")),
            // Too much for a rate.
            None => words.push(format!("bandwidth {rate}bps")),
        },
        _ => words.push("unlimited".to_owned()),
    }
    if options.get("autorate").and_then(Value::as_bool) == Some(true) {
        words.push("autorate-ingress".to_owned());
    }
    match text(options, "ack-filter") {
        Some("enabled") => words.push("ack-filter".to_owned()),
        Some("aggressive") => words.push("ack-filter-aggressive".to_owned()),
        _ => {}
    }
    let number = |key: &str| options.get(key).and_then(Value::as_i64).unwrap_or(0);
    if options.get("raw").and_then(Value::as_bool) == Some(true) {
        words.push("raw".to_owned());
        return;
    }
    words.push(format!("overhead {}", number("overhead")));
    if let Some(framing @ ("atm" | "ptm" | "noatm")) = text(options, "atm") {
        words.push(framing.to_owned());
    }
    if number("mpu") > 0 {
        words.push(format!("mpu {}", number("mpu")));
    }
}

/// Writes a class of a qdisc of `kind`; false if such classes are not written.
pub(super) fn write_class(dev: &str, class: &Object, kind: &str, draft: &mut Draft) -> bool {
    let keys = match kind {
        "htb" => HTB_CLASS,
        // The root class is the qdisc itself.
        "hfsc" if class.contains_key("root") => return false,
        "hfsc" => HFSC_CLASS,
        "drr" => QUANTUM,
        // Their classes are bands, which exist already, or queues.
        _ => return false,
    };
    let Some(handle) = text(class, "handle").filter(|handle| is_id(handle)) else {
        draft.fault(&format!("a class of {dev} has no handle: left out"));
        return false;
    };
    let major = super::major(handle);
    let parent = text(class, "parent").filter(|parent| is_id(parent));
    let parent = parent.map_or_else(|| format!("{major}:"), str::to_owned);
    let of = format!("class {handle} of {dev}");
    let mut words = Vec::new();
    // Options are among the common keys of a class, or below `options`.
    take(class, keys, &ANY_CLASS, &of, &mut words, draft);
    if let Some(options) = class.get("options").and_then(Value::as_object) {
        take(options, keys, &[], &of, &mut words, draft);
    }
    let words: String = words.iter().map(|word| format!(" {word}")).collect();
    let command = format!("class add dev {dev} parent {parent} classid {handle} {kind}{words}");
    draft.attempt(&command, &of)
}

/// Adds the words for `options`. Keys that neither `keys` nor `others` list are left out, and
/// said so for the qdisc or class `of`.
fn take(
    options: &Object,
    keys: &[(&str, Take)],
    others: &[&str],
    of: &str,
    words: &mut Vec<String>,
    draft: &mut Draft,
) {
    for (name, take) in keys {
        let Some(value) = options.get(*name) else { continue };
        // Narrows' own word, which it always prints.
        if *name == "coordination" && value == "fair" {
            continue;
        }
        let said = match take {
            Skip => continue,
            // tc sets it by the rate, as without the word.
            Plain("burst" | "cburst") if value == "0b" || value == 0 => continue,
            Plain(key) => word(value).map(|value| format!("{key} {value}")),
            Micros(key) => match value {
                // As text, with its unit.
                Value::String(_) => word(value).map(|time| format!("{key} {time}")),
                _ => micros(value).map(|micros| format!("{key} {micros}us")),
            },
            Codel(key) => micros(value).map(|micros| format!("{key} {}us", given_as(micros))),
            Rate(key) => match value {
                // As text, with its unit.
                Value::String(_) => word(value).map(|rate| format!("{key} {rate}")),
                _ => bits(value).map(|rate| format!("{key} {rate}bit")),
            },
            // A key without a value is a flag that is on.
            Flag(on, _) if value.is_null() => Some((*on).to_owned()),
            Flag(on, off) => value.as_bool().map(|is_on| if is_on { *on } else { *off }.to_owned()),
            Word => word(value),
            List(key) => list(value).map(|list| format!("{key} {list}")),
            Minor(key) => match value.as_u64() {
                Some(minor) => Some(format!("{key} {minor:x}")),
                None => word(value).map(|minor| format!("{key} {minor}")),
            },
            Curve(key) => curve(value, of, draft).map(|curve| format!("{key} {curve}")),
        };
        match said {
            Some(said) if said.is_empty() => {}
            Some(said) => words.push(said),
            None => draft.fault(&format!("{of}: {name} {value} is not understood: left out")),
        }
    }
    for (name, value) in options {
        if !keys.iter().any(|(known, _)| known == name) && !others.contains(&name.as_str()) {
            draft.fault(&format!("{of}: {name} {value} has no equivalent: left out"));
        }
    }
}

/// The words of a service curve; none if it is not one.
fn curve(value: &Value, of: &str, draft: &mut Draft) -> Option<String> {
    let parts = value.as_object().filter(|parts| parts.contains_key("m2"))?;
    let mut words = Vec::new();
    take(parts, CURVE, &[], of, &mut words, draft);
    Some(words.join(" "))
}

/// Bits per second, of bytes per second.
pub(super) fn bits(value: &Value) -> Option<u64> {
    value.as_u64()?.checked_mul(8)
}

fn micros(value: &Value) -> Option<u64> {
    value.as_u64().filter(|&micros| micros <= u64::from(u32::MAX))
}

/// The value that was probably given for a time that is shown as `micros`: `5ms` is shown as
/// 4999us.
fn given_as(micros: u64) -> u64 {
    let shown = |micros: u64| ((micros * 1000) >> 10 << 10) / 1000;
    let next = micros + 1;
    if next.is_multiple_of(10) && shown(next) == micros { next } else { micros }
}

/// Numbers with blanks between them.
fn list(value: &Value) -> Option<String> {
    let numbers = value.as_array().filter(|numbers| numbers.len() <= 16)?;
    let numbers: Option<Vec<String>> =
        numbers.iter().map(|number| number.as_u64().map(|number| number.to_string())).collect();
    numbers.filter(|numbers| !numbers.is_empty()).map(|numbers| numbers.join(" "))
}

/// `1:`, `1:10`, `8001:`, and Narrows' own longer ones.
pub(super) fn is_id(text: &str) -> bool {
    let part = |part: &str| part.len() <= 8 && part.chars().all(|digit| digit.is_ascii_hexdigit());
    text.split_once(':').is_some_and(|(a, b)| !a.is_empty() && part(a) && part(b))
}
