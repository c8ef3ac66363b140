//! The kinds of filters: parses, prints and saves their conditions.

mod basic;
mod flower;
mod selector;

use crate::action;
use crate::complaint::Complaint;
use crate::number;
use crate::render::{Json, Line};
use crate::words::{Words, abbreviates};
use narrows_classify::{
    ANY_PROTOCOL, ActionId, ActionStats, Expression, Filter, Flower, Mark, Matches, Prefix,
    Selector, VLAN,
};
use narrows_policy::{ActionDraft, ClassId, Parent, Policy};
use std::fmt::Write;
use std::net::IpAddr;

const USAGE: &str = "Usage: ... matchall [ classid ID ] [ ACTION ]
       ... fw handle MARK[/MASK] [ classid ID ] [ ACTION ]
       ... flower [ vlan_id ID ] [ vlan_prio N ] [ vlan_ethtype PROTO ]
                  [ cvlan_id ID ] [ cvlan_prio N ] [ cvlan_ethtype PROTO ] [ dst_mac M[/M] ] [ src_mac M[/M] ]
                  [ ip_proto tcp|udp|icmp|icmpv6|sctp|NUMBER ] [ ip_tos V[/M] ] [ ip_ttl V[/M] ]
                  [ src_ip PREFIX ] [ dst_ip PREFIX ] [ src_port N[-N] ] [ dst_port N[-N] ]
                  [ tcp_flags V[/M] ] [ type V[/M] ] [ code V[/M] ] [ ip_flags [no]frag|[no]firstfrag ]
                  [ classid ID ] [ ACTION ]
       ... u32 { match { ip { src|dst PREFIX | protocol|tos N M | sport|dport N M | nofrag|df|mf }
                       | ip6 { src|dst PREFIX | protocol N M | sport|dport N M } | { tcp|udp } { src|dst } N M
                       | icmp { type|code } N M | ether { src|dst } MAC
                       | { u32|u16|u8 } V M at [nexthdr+]OFFSET } }... [ classid ID ] [ ACTION ]
       ... basic [ match EXPRESSION ] [ classid ID ] [ ACTION ]
ACTION is action { drop | pass | continue | reclassify | police ... | skbedit ... }";

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// The names of EtherTypes in `tc`, as far as filters can distinguish them.
const PROTOCOLS: [(&str, u16); 6] = [
    ("all", ANY_PROTOCOL),
    ("ip", IPV4),
    ("ipv4", IPV4),
    ("ipv6", IPV6),
    ("802.1Q", VLAN),
    ("arp", 0x0806),
];

/// The names of IP protocols.
const CARRIED: [(&str, u8); 5] =
    [("tcp", 6), ("udp", 17), ("sctp", 132), ("icmp", 1), ("icmpv6", 58)];

/// The EtherType `word`, a name or a hexadecimal number.
pub(crate) fn protocol(word: &str) -> Option<u16> {
    ether_type(word)
}

fn ether_type(word: &str) -> Option<u16> {
    let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    let number = || {
        let digits = word.strip_prefix("0x")?;
        u16::from_str_radix(digits, 16).ok()
    };
    named.map(|(_, protocol)| *protocol).or_else(number)
}

/// The name of an EtherType.
pub(crate) fn protocol_name(protocol: u16) -> String {
    let named = PROTOCOLS.iter().find(|(_, known)| *known == protocol);
    named.map_or_else(|| format!("[{protocol}]"), |(name, _)| (*name).to_owned())
}

/// The number of a filter of `kind`.
pub(crate) fn handle(kind: &str, word: &str) -> Option<u32> {
    match kind {
        "u32" => node(word),
        "fw" => mark(word).map(|mark| mark.value),
        _ => number::mask(word),
    }
}

/// `u32`'s table, bucket and node. A filter here has no bucket.
fn node(word: &str) -> Option<u32> {
    let hex = |word: &str, most: u32| match word {
        "" => Some(0),
        word => u32::from_str_radix(word, 16).ok().filter(|number| *number <= most),
    };
    let parts: Vec<&str> = word.split(':').collect();
    match parts.as_slice() {
        [table, "" | "0", node] => Some(hex(table, 0xfff)? << 20 | hex(node, 0xfff)?),
        [node] => hex(node, 0xfff),
        _ => None,
    }
}

fn mark(word: &str) -> Option<Mark> {
    let (value, mask) = match word.split_once('/') {
        Some((value, mask)) => (number::mask(value)?, number::mask(mask)?),
        None => (number::mask(word)?, u32::MAX),
    };
    Some(Mark { value: value & mask, mask })
}

/// The words after the name of a kind.
pub(crate) struct Parsed {
    pub(crate) matches: Matches,
    pub(crate) class: Option<ClassId>,
    pub(crate) actions: Vec<ActionDraft>,
}

/// Parses them. `handle` is the word that was given for the filter's number.
pub(crate) fn parse(
    kind: &str,
    protocol: Option<u16>,
    handle: Option<&str>,
    words: Words,
) -> Result<Parsed, Complaint> {
    let mut draft = Draft { protocol: protocol.unwrap_or(ANY_PROTOCOL), ..Draft::default() };
    match kind {
        "matchall" | "fw" => draft.read(words, |_, word, _| Err(unknown(word)))?,
        "flower" => draft.read(words, Draft::flower)?,
        "u32" => draft.read(words, Draft::selector)?,
        "basic" => draft.read(words, Draft::expression)?,
        "bpf" | "cgroup" | "flow" | "route" | "rsvp" | "rsvp6" | "tcindex" => {
            return Err(Complaint::wrong(format!(
                "Unknown filter \"{kind}\", hence option is unparsable: frames at a port lack the fields that it compares. The kinds are flower, u32, matchall, fw and basic."
            )));
        }
        _ => {
            return Err(Complaint::wrong(format!(
                "Unknown filter \"{kind}\", hence option is unparsable: the kinds are flower, u32, matchall, fw and basic."
            )));
        }
    }
    let matches = match kind {
        "matchall" => Matches::All,
        "flower" => Matches::Flower(draft.flower),
        "basic" => Matches::Basic(draft.expression),
        "fw" => {
            let illegal =
                || Complaint::wrong("Illegal \"handle\": MARK or MARK/MASK, 32 bits each.");
            let mark = handle.map(|word| mark(word).ok_or_else(illegal)).transpose()?;
            Matches::Mark(mark.filter(|mark| mark.value != 0).ok_or_else(|| {
                Complaint::refused("Error: an fw wants a mark before its kind: handle MARK[/MASK].")
            })?)
        }
        _ if draft.words.is_empty() => {
            return Err(Complaint::wrong(
                "Error: Selector not specified: give match, as match ip dst 10.0.0.0/8.",
            ));
        }
        _ => Matches::Words(draft.words),
    };
    Ok(Parsed { matches, class: draft.class, actions: draft.actions })
}

#[derive(Default)]
struct Draft {
    protocol: u16,
    class: Option<ClassId>,
    actions: Vec<ActionDraft>,
    flower: Flower,
    words: Vec<Selector>,
    expression: Option<Expression>,
}

fn unknown(word: &str) -> Complaint {
    match word {
        "help" => Complaint::wrong(USAGE),
        _ => Complaint::wrong(format!("What is \"{word}\"?\n{USAGE}")),
    }
}

impl Draft {
    /// Parses the options of all kinds, and with `own` those of a single kind.
    fn read(
        &mut self,
        mut words: Words,
        own: impl Fn(&mut Self, &str, &mut Words) -> Result<(), Complaint>,
    ) -> Result<(), Complaint> {
        while let Some(word) = words.next() {
            match word {
                "classid" | "flowid" => {
                    let value = words.value(word, "1:10")?;
                    self.class = match number::parent(value) {
                        Some(Some(Parent::Class(class))) => Some(class),
                        Some(Some(Parent::Root)) => Some(ClassId { major: 0xffff, minor: 0xffff }),
                        _ => {
                            return Err(Complaint::wrong(format!(
                                "Illegal \"{word}\": a class, as 1:10."
                            )));
                        }
                    };
                }
                "skip_hw" => {}
                "action" => self.actions.push(action::parse(&mut words)?),
                "police" => self.actions.push(action::police(&mut words)?),
                "indev" => {
                    return Err(Complaint::refused(
                        "Error: \"indev\" is not supported here: a filter is at the port where frames come in.",
                    ));
                }
                "skip_sw" => {
                    return Err(Complaint::refused(
                        "Error: \"skip_sw\" is not supported here: no hardware filters for Narrows.",
                    ));
                }
                "link" | "hashkey" | "offset" | "sample" | "divisor" => {
                    return Err(Complaint::wrong(format!(
                        "Error: \"{word}\" is not supported here: every match is in a hash table already, give it alone."
                    )));
                }
                "ht" => {
                    let table = words.value(word, "800:")?;
                    if table != "800:" && table != "800" {
                        return Err(Complaint::refused(
                            "cls_u32: Specified hash table not found. The only one is 800:, leave ht out.",
                        ));
                    }
                }
                _ => own(self, word, &mut words)?,
            }
            if self.actions.len() > action::MOST {
                return Err(Complaint::wrong(format!(
                    "Error: a filter has {} actions at most.",
                    action::MOST
                )));
            }
        }
        Ok(())
    }

    fn flower(&mut self, word: &str, words: &mut Words) -> Result<(), Complaint> {
        if word.starts_with("mpls") {
            return Err(Complaint::wrong(format!(
                "Error: \"{word}\" is not supported here: packets behind labels are matched, the labels are not."
            )));
        }
        match flower::parse(&mut self.flower, self.protocol, word, words)? {
            true => Ok(()),
            false => Err(unknown(word)),
        }
    }

    /// One `match` of `u32`.
    fn selector(&mut self, word: &str, words: &mut Words) -> Result<(), Complaint> {
        if !abbreviates(word, "match") {
            return Err(unknown(word));
        }
        if words.peek() == Some("mark") {
            return Err(Complaint::wrong(
                "Error: \"match mark\" is not supported here: give an fw, or basic match meta(nf_mark eq N).",
            ));
        }
        let selectors = selector::parse(words).ok_or_else(|| {
            Complaint::wrong(
                "Illegal \"match\": as ip dst 10.0.0.0/8, ip dport 80 0xffff, or u16 0x50 0xffff at nexthdr+2.",
            )
        })?;
        self.words.extend(selectors);
        if self.words.len() > SELECTORS_MAX {
            return Err(Complaint::wrong(format!(
                "Error: a u32 has {SELECTORS_MAX} selectors at most."
            )));
        }
        Ok(())
    }

    /// The `match` of `basic`.
    fn expression(&mut self, word: &str, words: &mut Words) -> Result<(), Complaint> {
        if !abbreviates(word, "match") {
            return Err(unknown(word));
        }
        self.expression = Some(basic::parse(words)?);
        Ok(())
    }
}

/// The most selectors, as in the kernel.
const SELECTORS_MAX: usize = 128;

/// An IP protocol, by name or as a hexadecimal number.
fn carried(word: &str) -> Option<u8> {
    let named = CARRIED.iter().find(|(name, _)| *name == word);
    named
        .map(|(_, number)| *number)
        .or_else(|| u8::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok())
}

fn carried_name(number: u8) -> String {
    let named = CARRIED.iter().find(|(_, known)| *known == number);
    named.map_or_else(|| format!("{number:02x}"), |(name, _)| (*name).to_owned())
}

fn prefix(word: &str) -> Option<Prefix> {
    let word = if matches!(word, "any" | "all" | "default") { "0/0" } else { word };
    let (address, len) = word.split_once('/').map_or((word, None), |(a, l)| (a, Some(l)));
    let address: IpAddr = address.parse().ok().or_else(|| octets(address))?;
    let whole = if address.is_ipv6() { 128 } else { 32 };
    Prefix::new(address, len.map_or(Some(whole), |len| len.parse().ok())?)
}

/// An IPv4 address with only its first octets, such as `10.1` or `0`: the others are 0.
fn octets(word: &str) -> Option<IpAddr> {
    let mut address = [0; 4];
    for (at, octet) in word.split('.').enumerate() {
        let is_number = octet.bytes().all(|digit| digit.is_ascii_digit());
        *address.get_mut(at)? = octet.parse().ok().filter(|_| is_number)?;
    }
    Some(IpAddr::from(address))
}

/// A MAC address with a mask, given as a mask or as a prefix length.
fn mac(word: &str) -> Option<(u64, u64)> {
    const ALL: u64 = 0xffff_ffff_ffff;
    let station = |word: &str| {
        let parts: Vec<&str> = word.split(':').collect();
        let byte = |sum: u64, part: &&str| {
            let byte = u8::from_str_radix(part, 16).ok().filter(|_| part.len() <= 2)?;
            Some(sum << 8 | u64::from(byte))
        };
        (parts.len() == 6).then_some(())?;
        parts.iter().try_fold(0, byte)
    };
    let (address, mask) = word.split_once('/').map_or((word, None), |(a, m)| (a, Some(m)));
    let mask = match mask {
        None => ALL,
        Some(mask) if mask.contains(':') => station(mask)?,
        Some(bits) => {
            let bits = bits.parse().ok().filter(|bits| *bits <= 48)?;
            ALL & !ALL.checked_shr(bits).unwrap_or(0)
        }
    };
    Some((station(address)? & mask, mask))
}

/// Prints the number, the class `class` and the condition.
pub(crate) fn show(
    class: Option<&str>,
    filter: &Filter,
    policy: &Policy,
    stats: Option<&[(ActionId, ActionStats)]>,
    line: &mut Line,
) {
    let number = format!("{:#x}", filter.handle);
    let class_of = |name: &'static str, line: &mut Line| {
        if let Some(class) = class {
            line.add(name, Json::Text(class.to_owned()), &format!("{name} {class} "));
        }
    };
    match &filter.matches {
        Matches::All => {
            line.add("handle", Json::Text(number.clone()), &format!("handle {number} "));
            class_of("flowid", line);
            line.text("\n");
            line.add("not_in_hw", Json::Bool(true), "  not_in_hw");
        }
        Matches::Flower(flower) => {
            let handle = u64::from(filter.handle);
            line.add("handle", Json::Number(handle), &format!("handle {number} "));
            class_of("classid", line);
            let mut keys = Line::default();
            flower::show(flower, filter.protocol, &mut keys);
            line.nest("keys", keys);
            line.add("not_in_hw", Json::Bool(true), "\n  not_in_hw");
        }
        Matches::Mark(Mark { value, mask }) => {
            let text = |number: u32| Json::Text(format!("{number:#x}"));
            let (mut both, mut shown) = (vec![("mark", text(*value))], format!("{value:#x}"));
            if *mask != u32::MAX {
                both.push(("mask", text(*mask)));
                shown += &format!("/{mask:#x}");
            }
            line.add("fw", Json::Object(both), &format!("handle {shown} "));
            class_of("classid", line);
        }
        Matches::Basic(expression) => {
            line.add("handle", Json::Text(number.clone()), &format!("handle {number} "));
            class_of("flowid", line);
            if let Some(expression) = expression {
                let text = basic::text(expression, 1);
                let words = Json::Text(basic::save(expression));
                line.add("ematch", words, &format!("\n  {text}"));
            }
        }
        Matches::Words(words) => {
            let node = format!("{:x}::{:x}", filter.handle >> 20, filter.handle & 0xfff);
            let table = format!("{:x}", filter.handle >> 20);
            line.add("fh", Json::Text(node.clone()), &format!("fh {node} "));
            let order = u64::from(filter.handle & 0xfff);
            line.add("order", Json::Number(order), &format!("order {order} "));
            line.add("key_ht", Json::Text(table.clone()), &format!("key ht {table} "));
            line.add("bkt", Json::Text("0".to_owned()), "bkt 0 ");
            match class {
                Some(class) => {
                    // The star means that the class exists. Here it always does, if there are
                    // classes.
                    let star = if filter.class == 0 { "" } else { "*" };
                    let shown = format!("{star}flowid {class} ");
                    line.add("flowid", Json::Text(class.to_owned()), &shown);
                }
                None => line.add("terminal", Json::Bool(true), "terminal flowid "),
            }
            line.add("not_in_hw", Json::Bool(true), "not_in_hw ");
            let mut list = Vec::new();
            for Selector { value, mask, offset, is_behind_ip } in words {
                let from = if *is_behind_ip { "nexthdr+" } else { "" };
                line.text(&format!("\n  match {value:08x}/{mask:08x} at {from}{offset}"));
                list.push(vec![
                    ("value", Json::Text(format!("{value:x}"))),
                    ("mask", Json::Text(format!("{mask:x}"))),
                    ("offmask", Json::Text(from.trim_end_matches('+').to_owned())),
                    ("off", Json::Signed(i64::from(*offset))),
                ]);
            }
            line.json("match", Json::Objects(list));
        }
    }
    action::show_bound(&filter.actions, policy, stats, line);
}

/// The command that creates `filter` at `place` of `dev`, with its class as `class`.
pub(crate) fn save(
    dev: &str,
    place: &str,
    class: Option<&str>,
    filter: &Filter,
    policy: &Policy,
) -> String {
    let protocol = match filter.protocol {
        known if PROTOCOLS.iter().any(|(_, of)| *of == known) => protocol_name(known),
        other => format!("{other:#x}"),
    };
    let handle = match filter.matches {
        Matches::Words(_) => format!("{:x}::{:x}", filter.handle >> 20, filter.handle & 0xfff),
        Matches::Mark(Mark { value, mask }) => format!("{value:#x}/{mask:#x}"),
        _ => format!("{:#x}", filter.handle),
    };
    let mut text = format!(
        "filter replace dev {dev} {place} protocol {protocol} pref {} handle {handle} {}",
        filter.pref,
        filter.kind()
    );
    let mut add = |name: &str, value: &dyn std::fmt::Display| {
        // Writing to a string cannot fail.
        let _ = write!(text, " {name} {value}");
    };
    match &filter.matches {
        Matches::All | Matches::Mark(_) | Matches::Basic(None) => {}
        Matches::Basic(Some(expression)) => add("match", &basic::save(expression)),
        Matches::Flower(flower) => flower::save(flower, &mut add),
        Matches::Words(words) => {
            for Selector { value, mask, offset, is_behind_ip } in words {
                let from = if *is_behind_ip { "nexthdr+" } else { "" };
                add("match", &format_args!("u32 {value:#x} {mask:#x} at {from}{offset}"));
            }
        }
    }
    if let Some(class) = class {
        add("classid", &class);
    }
    for bound in filter.actions.iter().filter_map(|id| policy.action(*id)) {
        add("action", &action::save(bound));
    }
    text.push('\n');
    text
}
