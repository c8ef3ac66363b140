//! Sets as `ipset list` and `ipset save` print them.

use crate::entry;
use crate::key::Key;
use crate::kind::{Kind, Shape};
use crate::set::{Element, Set};
use narrows_units::Nanos;
use std::fmt::Write;

/// The memory of a member in this process, in bytes: a key, its options, and its share of a tree's
/// nodes.
const ELEMENT_BYTES: usize = 48;

/// Packets and bytes of a member.
pub(crate) type Counted<'a> = &'a dyn Fn(&Key) -> (u64, u64);

/// The options of `create` after the type.
fn header(kind: &Kind) -> String {
    let mut text = String::new();
    if kind.shape != Shape::Mac {
        text += &format!("family {} ", kind.family.name());
    }
    // Writing to a string does not fail.
    let _ = write!(text, "hashsize {} maxelem {}", kind.hashsize, kind.maxelem);
    if let Shape::Ip { netmask } = kind.shape
        && netmask != kind.family.bits()
    {
        let _ = write!(text, " netmask {netmask}");
    }
    if let Some(timeout) = kind.timeout {
        let _ = write!(text, " timeout {timeout}");
    }
    let words = [(kind.counters, " counters"), (kind.comment, " comment"), (kind.rates, " rate")];
    for (is, word) in words {
        text += if is { word } else { "" };
    }
    if let Some(size) = kind.bucketsize {
        let _ = write!(text, " bucketsize {size}");
    }
    if let Some(value) = kind.initval {
        let _ = write!(text, " initval {value:#010x}");
    }
    text
}

/// The line that makes a set without its members.
pub(crate) fn create(name: &str, kind: &Kind) -> String {
    format!("create {name} {} {}\n", kind.shape.name(), header(kind))
}

/// The head of a set in `list`.
pub(crate) fn describe(name: &str, set: &Set, references: usize) -> String {
    let kind = set.kind();
    format!(
        "Name: {name}\nType: {}\nRevision: {}\nHeader: {}\nSize in memory: {}\nReferences: {references}\n\
         Number of entries: {}\n",
        kind.shape.name(),
        kind.shape.revision(),
        header(kind),
        set.len() * ELEMENT_BYTES,
        set.len()
    )
}

/// All members, a line each, with `before` in front of each.
pub(crate) fn members(
    text: &mut String,
    set: &Set,
    before: &str,
    now: Nanos,
    counted: Counted<'_>,
) {
    for (key, element) in set.iter() {
        text.push_str(before);
        member(text, set, &key, &element, now, counted);
        text.push('\n');
    }
}

fn member(
    text: &mut String,
    set: &Set,
    key: &Key,
    element: &Element,
    now: Nanos,
    counted: Counted<'_>,
) {
    let kind = set.kind();
    entry::write(text, key, kind);
    if kind.timeout.is_some() {
        // A started second counts: 0 means no time-out.
        let left = element.expires.map_or(0, |end| end.since(now).0.div_ceil(1_000_000_000).max(1));
        let _ = write!(text, " timeout {left}");
    }
    if element.is_exception {
        text.push_str(" nomatch");
    }
    if kind.counters {
        let (packets, bytes) = counted(key);
        let _ = write!(text, " packets {packets} bytes {bytes}");
    }
    if let Some(rate) = element.pace.rate() {
        let _ = write!(text, " rate {}bit", rate.bits_per_sec());
    }
    if let Some(comment) = set.comment(key) {
        let _ = write!(text, " comment \"{comment}\"");
    }
}
