//! The kinds of filters: what they match read, shown and saved.

use crate::complaint::Complaint;
use crate::render::{Json, Line};
use crate::words::{Words, abbreviates};
use crate::{number, qdisc};
use narrows_classify::{ANY_PROTOCOL, Filter, Flower, Matches, PortRange, Prefix, Selector, VLAN};
use narrows_policy::{ClassId, Handle, Parent};
use std::fmt::Write;
use std::net::IpAddr;

const USAGE: &str = "Usage: ... matchall classid ID
       ... flower [ vlan_id ID ] [ ip_proto tcp|udp|icmp|icmpv6|sctp|NUMBER ] [ ip_tos V[/M] ]
                  [ src_ip PREFIX ] [ dst_ip PREFIX ] [ src_port N[-N] ] [ dst_port N[-N] ] classid ID
       ... u32 { match { ip { src|dst PREFIX | protocol|tos N M | sport|dport N M }
                       | ip6 { src|dst PREFIX } | { u32|u16|u8 V M at [nexthdr+]OFFSET } } }... classid ID";

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// The names of EtherTypes that `tc` knows, as far as filters can tell them apart.
const PROTOCOLS: [(&str, u16); 6] = [
    ("all", ANY_PROTOCOL),
    ("ip", IPV4),
    ("ipv4", IPV4),
    ("ipv6", IPV6),
    ("802.1Q", VLAN),
    ("arp", 0x0806),
];

/// The names of what IP carries.
const CARRIED: [(&str, u8); 5] =
    [("tcp", 6), ("udp", 17), ("sctp", 132), ("icmp", 1), ("icmpv6", 58)];

/// The EtherType that `word` names, or is in hexadecimal.
pub(crate) fn protocol(word: &str) -> Option<u16> {
    let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    let number = || {
        let digits = word.strip_prefix("0x")?;
        u16::from_str_radix(digits, 16).ok()
    };
    named.map(|(_, protocol)| *protocol).or_else(number)
}

/// Its name.
pub(crate) fn protocol_name(protocol: u16) -> String {
    let named = PROTOCOLS.iter().find(|(_, known)| *known == protocol);
    named.map_or_else(|| format!("[{protocol}]"), |(name, _)| (*name).to_owned())
}

/// The number of a filter of `kind`.
pub(crate) fn handle(kind: &str, word: &str) -> Option<u32> {
    if kind != "u32" {
        return number::mask(word);
    }
    // Table, bucket and node.
    let node = word.rsplit(':').next()?;
    u32::from_str_radix(node, 16).ok()
}

/// Reads what follows the name of `kind`.
pub(crate) fn parse(
    kind: &str,
    protocol: Option<u16>,
    words: Words,
) -> Result<(Matches, Option<ClassId>), Complaint> {
    let mut draft = Draft { protocol: protocol.unwrap_or(ANY_PROTOCOL), ..Draft::default() };
    match kind {
        "matchall" => draft.read(words, |_, word, _| Err(unknown(word)))?,
        "flower" => draft.read(words, Draft::flower)?,
        "u32" => draft.read(words, Draft::selector)?,
        _ => {
            return Err(Complaint::wrong(format!(
                "Unknown filter \"{kind}\", hence option is unparsable: the kinds are flower, u32 and matchall."
            )));
        }
    }
    let matches = match kind {
        "matchall" => Matches::All,
        "flower" => Matches::Flower(draft.flower),
        _ if draft.words.is_empty() => {
            return Err(Complaint::wrong(
                "Error: Selector not specified: give match, as match ip dst 10.0.0.0/8.",
            ));
        }
        _ => Matches::Words(draft.words),
    };
    Ok((matches, draft.class))
}

#[derive(Default)]
struct Draft {
    protocol: u16,
    class: Option<ClassId>,
    flower: Flower,
    words: Vec<Selector>,
}

fn unknown(word: &str) -> Complaint {
    match word {
        "help" => Complaint::wrong(USAGE),
        _ => Complaint::wrong(format!("What is \"{word}\"?\n{USAGE}")),
    }
}

/// The complaint about a value, with what it should have been.
fn illegal(name: &str) -> Complaint {
    let hint = match name {
        "src_ip" | "dst_ip" => {
            "an address or a prefix, as 10.0.0.0/8, of the protocol before it: protocol ip or ipv6"
        }
        "src_port" | "dst_port" => {
            "a port or a range, as 80 or 5000-5010, after ip_proto tcp, udp or sctp"
        }
        "ip_proto" => "tcp, udp, sctp, icmp, icmpv6 or a hexadecimal number",
        "ip_tos" => "a value and a mask, as 0xb8/0xfc",
        "vlan_id" => "0 to 4095",
        "match" => "as ip dst 10.0.0.0/8, ip dport 80 0xffff, or u16 0x50 0xffff at nexthdr+2",
        _ => "a class, as 1:10",
    };
    Complaint::wrong(format!("Illegal \"{name}\": {hint}."))
}

impl Draft {
    /// Reads what all kinds have, and with `own` what only one has.
    fn read(
        &mut self,
        mut words: Words,
        own: impl Fn(&mut Self, &str, &mut Words) -> Result<(), Complaint>,
    ) -> Result<(), Complaint> {
        while let Some(word) = words.next() {
            match word {
                "classid" | "flowid" => {
                    let value = words.value(word, "1:10")?;
                    let Some(Parent::Class(class)) = qdisc::parent(value)? else {
                        return Err(illegal(word));
                    };
                    self.class = Some(class);
                }
                "skip_hw" => {}
                "action" | "police" | "skip_sw" | "link" | "ht" | "hashkey" | "offset"
                | "sample" | "divisor" => {
                    return Err(Complaint::wrong(format!(
                        "Error: \"{word}\" is not supported here: a filter assigns packets to a class."
                    )));
                }
                _ => own(self, word, &mut words)?,
            }
        }
        Ok(())
    }

    fn flower(&mut self, word: &str, words: &mut Words) -> Result<(), Complaint> {
        let flower = &mut self.flower;
        match word {
            "vlan_id" => {
                let id = words.value(word, "7")?.parse().ok().filter(|id| *id < 4096);
                flower.vlan_id = Some(id.ok_or_else(|| illegal(word))?);
            }
            "ip_proto" => {
                let value = words.value(word, "tcp")?;
                flower.protocol = Some(carried(value).ok_or_else(|| illegal(word))?);
            }
            "ip_tos" => {
                let value = words.value(word, "0xb8/0xfc")?;
                let (value, mask) = value.split_once('/').unwrap_or((value, "0xff"));
                let byte = |word: &str| u8::try_from(number::mask(word)?).ok();
                let both = byte(value).zip(byte(mask));
                let (value, mask) = both.ok_or_else(|| illegal(word))?;
                flower.traffic_class = Some((value & mask, mask));
            }
            "src_ip" | "dst_ip" => {
                let prefix = prefix(words.value(word, "10.0.0.0/8")?);
                let of_protocol = |prefix: &Prefix| match self.protocol {
                    IPV4 => !prefix.is_v6(),
                    IPV6 => prefix.is_v6(),
                    _ => false,
                };
                let prefix = prefix.filter(of_protocol).ok_or_else(|| illegal(word))?;
                let place =
                    if word == "src_ip" { &mut flower.source } else { &mut flower.destination };
                *place = Some(prefix);
            }
            "src_port" | "dst_port" => {
                let has_ports = matches!(flower.protocol, Some(6 | 17 | 132));
                let range = ports(words.value(word, "80")?).filter(|_| has_ports);
                let range = range.ok_or_else(|| illegal(word))?;
                let place = if word == "src_port" {
                    &mut flower.source_port
                } else {
                    &mut flower.destination_port
                };
                *place = Some(range);
            }
            _ => return Err(unknown(word)),
        }
        Ok(())
    }

    /// One `match` of `u32`.
    fn selector(&mut self, word: &str, words: &mut Words) -> Result<(), Complaint> {
        if !abbreviates(word, "match") {
            return Err(unknown(word));
        }
        let family = words.value("match", "ip")?;
        let selectors = match family {
            "ip" => ip(words),
            "ip6" => ip6(words),
            "u32" => raw(words, 4),
            "u16" => raw(words, 2),
            "u8" => raw(words, 1),
            _ => None,
        };
        self.words.extend(selectors.ok_or_else(|| illegal("match"))?);
        Ok(())
    }
}

/// What IP carries, by name or as a hexadecimal number.
fn carried(word: &str) -> Option<u8> {
    let named = CARRIED.iter().find(|(name, _)| *name == word);
    named
        .map(|(_, number)| *number)
        .or_else(|| u8::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok())
}

fn prefix(word: &str) -> Option<Prefix> {
    let (address, len) = word.split_once('/').map_or((word, None), |(a, l)| (a, Some(l)));
    let address: IpAddr = address.parse().ok()?;
    let whole = if address.is_ipv6() { 128 } else { 32 };
    Prefix::new(address, len.map_or(Some(whole), |len| len.parse().ok())?)
}

fn ports(word: &str) -> Option<PortRange> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let range = PortRange { first: first.parse().ok()?, last: last.parse().ok()? };
    (range.first <= range.last).then_some(range)
}

/// The part of `len` bytes at `offset`, as a part of the four that it lies in.
fn part(value: u32, mask: u32, offset: i32, len: i32, is_behind_ip: bool) -> Option<Selector> {
    let within = offset.rem_euclid(4);
    if within % len != 0 {
        return None;
    }
    let shift = (8 * (4 - len - within)) as u32;
    let offset = i16::try_from(offset - within).ok()?;
    let mask = mask << shift;
    Some(Selector { value: value << shift & mask, mask, offset, is_behind_ip })
}

/// A number with any prefix, and a mask in hexadecimal.
fn value_and_mask(words: &mut Words, bytes: i32) -> Option<(u32, u32)> {
    let value = number::mask(words.next()?)?;
    let mask = words.next()?;
    let mask = u32::from_str_radix(mask.strip_prefix("0x").unwrap_or(mask), 16).ok()?;
    let most = u32::MAX >> (32 - 8 * bytes);
    (value <= most && mask <= most).then_some((value, mask))
}

fn ip(words: &mut Words) -> Option<Vec<Selector>> {
    let field = words.next()?;
    if let "src" | "dst" = field {
        let prefix = prefix(words.next()?).filter(|prefix| !prefix.is_v6())?;
        return Some(address(prefix, if field == "src" { 12 } else { 16 }));
    }
    let (offset, len) = match field {
        "protocol" => (9, 1),
        "tos" | "dsfield" | "precedence" => (1, 1),
        "sport" => (20, 2),
        "dport" => (22, 2),
        _ => return None,
    };
    let (value, mask) = value_and_mask(words, len)?;
    Some(vec![part(value, mask, offset, len, false)?])
}

fn ip6(words: &mut Words) -> Option<Vec<Selector>> {
    let at = match words.next()? {
        "src" => 8,
        "dst" => 24,
        _ => return None,
    };
    let prefix = prefix(words.next()?).filter(Prefix::is_v6)?;
    Some(address(prefix, at))
}

/// An address that begins with `prefix`, at `offset`.
fn address(prefix: Prefix, offset: i16) -> Vec<Selector> {
    let (bits, words) = prefix.bits();
    let word = |place: usize| {
        let shift = 32 * (words - 1 - place);
        let mask = (prefix.mask() >> shift) as u32;
        Selector::network(offset + 4 * place as i16, (bits >> shift) as u32, mask)
    };
    (0..words).map(word).filter(|selector| selector.mask != 0).collect()
}

/// `VALUE MASK at [nexthdr+]OFFSET`, of `len` bytes.
fn raw(words: &mut Words, len: i32) -> Option<Vec<Selector>> {
    let (value, mask) = value_and_mask(words, len)?;
    if words.next()? != "at" {
        return None;
    }
    let word = words.next()?;
    let (digits, is_behind_ip) = match word.strip_prefix("nexthdr+") {
        Some(digits) => (digits, true),
        None => (word, false),
    };
    let offset = digits.parse().ok()?;
    Some(vec![part(value, mask, offset, len, is_behind_ip)?])
}

/// Shows the handle, the class of `htb` `qdisc`, and what is matched.
pub(crate) fn show(qdisc: Handle, filter: &Filter, line: &mut Line) {
    let class = qdisc.class(filter.class).to_string();
    match &filter.matches {
        Matches::All => {
            line.add(
                "handle",
                Json::Text(format!("{:#x}", filter.handle)),
                &format!("handle {:#x} ", filter.handle),
            );
            line.add("flowid", Json::Text(class.clone()), &format!("flowid {class} \n"));
            line.add("not_in_hw", Json::Bool(true), "  not_in_hw");
        }
        Matches::Flower(flower) => {
            let text = format!("handle {:#x} ", filter.handle);
            line.add("handle", Json::Number(u64::from(filter.handle)), &text);
            line.add("classid", Json::Text(class.clone()), &format!("classid {class} "));
            let mut keys = Line::default();
            show_flower(flower, filter.protocol, &mut keys);
            line.nest("keys", keys);
            line.add("not_in_hw", Json::Bool(true), "\n  not_in_hw");
        }
        Matches::Words(words) => {
            let node = format!("800::{:x}", filter.handle);
            line.add("fh", Json::Text(node.clone()), &format!("fh {node} "));
            let order = u64::from(filter.handle);
            line.add("order", Json::Number(order), &format!("order {order} "));
            line.add("key_ht", Json::Text("0x800".to_owned()), "key ht 800 ");
            line.add("bkt", Json::Text("0x0".to_owned()), "bkt 0 ");
            line.add("flowid", Json::Text(class.clone()), &format!("flowid {class} "));
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
}

fn show_flower(flower: &Flower, protocol: u16, line: &mut Line) {
    let mut add = |key: &'static str, json: Json, text: String| {
        line.add(key, json, &format!("\n  {key} {text}"));
    };
    if let Some(id) = flower.vlan_id {
        add("vlan_id", Json::Number(u64::from(id)), id.to_string());
    }
    let family = match protocol {
        IPV4 => Some("ipv4"),
        IPV6 => Some("ipv6"),
        _ => None,
    };
    if let Some(family) = family {
        add("eth_type", Json::Text(family.to_owned()), family.to_owned());
    }
    if let Some(protocol) = flower.protocol {
        let name = carried_name(protocol);
        add("ip_proto", Json::Text(name.clone()), name);
    }
    if let Some((value, mask)) = flower.traffic_class {
        // tc prints the value in decimal and the mask in hexadecimal.
        let value = format!("{value}/{mask:#x}");
        add("ip_tos", Json::Text(value.clone()), value);
    }
    for (key, prefix) in [("dst_ip", flower.destination), ("src_ip", flower.source)] {
        if let Some(prefix) = prefix {
            add(key, Json::Text(prefix.to_string()), prefix.to_string());
        }
    }
    let ports = [("dst_port", flower.destination_port), ("src_port", flower.source_port)];
    for (key, range) in ports {
        match range {
            Some(PortRange { first, last }) if first == last => {
                add(key, Json::Number(u64::from(first)), first.to_string());
            }
            Some(PortRange { first, last }) => {
                let ends = vec![
                    ("start", Json::Number(u64::from(first))),
                    ("end", Json::Number(u64::from(last))),
                ];
                add(key, Json::Object(ends), format!("{first}-{last}"));
            }
            None => {}
        }
    }
}

fn carried_name(number: u8) -> String {
    let named = CARRIED.iter().find(|(_, known)| *known == number);
    named.map_or_else(|| format!("{number:02x}"), |(name, _)| (*name).to_owned())
}

/// The command that makes `filter` of the `htb` `qdisc` on `dev`.
pub(crate) fn save(dev: &str, qdisc: Handle, filter: &Filter) -> String {
    let protocol = match filter.protocol {
        known if PROTOCOLS.iter().any(|(_, of)| *of == known) => protocol_name(known),
        other => format!("{other:#x}"),
    };
    let handle = match filter.matches {
        Matches::Words(_) => format!("800::{:x}", filter.handle),
        _ => format!("{:#x}", filter.handle),
    };
    let mut text = format!(
        "filter replace dev {dev} parent {qdisc} protocol {protocol} pref {} handle {handle} {}",
        filter.pref,
        filter.kind()
    );
    let mut add = |name: &str, value: &dyn std::fmt::Display| {
        // Writing to a string does not fail.
        let _ = write!(text, " {name} {value}");
    };
    match &filter.matches {
        Matches::All => {}
        Matches::Flower(flower) => save_flower(flower, &mut add),
        Matches::Words(words) => {
            for Selector { value, mask, offset, is_behind_ip } in words {
                let from = if *is_behind_ip { "nexthdr+" } else { "" };
                add("match", &format_args!("u32 {value:#x} {mask:#x} at {from}{offset}"));
            }
        }
    }
    add("classid", &qdisc.class(filter.class));
    text.push('\n');
    text
}

fn save_flower(flower: &Flower, add: &mut dyn FnMut(&str, &dyn std::fmt::Display)) {
    if let Some(id) = flower.vlan_id {
        add("vlan_id", &id);
    }
    if let Some(protocol) = flower.protocol {
        add("ip_proto", &carried_name(protocol));
    }
    if let Some((value, mask)) = flower.traffic_class {
        add("ip_tos", &format_args!("{value:#x}/{mask:#x}"));
    }
    for (name, prefix) in [("dst_ip", flower.destination), ("src_ip", flower.source)] {
        if let Some(prefix) = prefix {
            add(name, &prefix);
        }
    }
    let ports = [("dst_port", flower.destination_port), ("src_port", flower.source_port)];
    for (name, range) in ports {
        if let Some(PortRange { first, last }) = range {
            add(name, &format_args!("{first}-{last}"));
        }
    }
}
