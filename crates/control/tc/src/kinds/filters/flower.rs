//! The keys of `flower`.

use super::address::{IPV4, IPV6, carried, carried_name, mac, prefix};
use crate::complaint::Complaint;
use crate::render::{Json, Line};
use crate::words::Words;
use crate::{number, protocols};
use narrows_classify::{ANY_PROTOCOL, Flower, PortRange, Prefix, is_tag};
use std::fmt::Display;

/// The words of `ip_flags` that apply to frames.
const FLAGS: [&str; 2] = ["frag", "firstfrag"];

/// Parses one key. `protocol` is the filter's. False if there is no such key.
pub(super) fn parse(
    flower: &mut Flower,
    protocol: u16,
    word: &str,
    words: &mut Words,
) -> Result<bool, Complaint> {
    let behind_tags = behind_tags(flower, protocol);
    let is_ip = matches!(behind_tags, IPV4 | IPV6);
    let mut value = |example: &str| words.value(word, example);
    match word {
        "vlan_id" | "vlan_prio" | "cvlan_id" | "cvlan_prio" => {
            match word.starts_with('c') {
                true => twice_tagged(word, flower, protocol)?,
                false => tagged(word, protocol)?,
            }
            let most = if word.ends_with("id") { 4095 } else { 7 };
            let number = value("7")?.parse::<u16>().ok().filter(|number| *number <= most);
            let number = number.ok_or_else(|| illegal(word))?;
            match word {
                "vlan_id" => flower.vlan_id = Some(number),
                "vlan_prio" => flower.vlan_priority = Some(number as u8),
                "cvlan_id" => flower.inner_vlan_id = Some(number),
                _ => flower.inner_vlan_priority = Some(number as u8),
            }
        }
        "vlan_ethtype" => {
            tagged(word, protocol)?;
            let ether_type = protocols::number(value("ip")?).filter(|of| *of != ANY_PROTOCOL);
            flower.vlan_ether_type = Some(ether_type.ok_or_else(|| illegal(word))?);
        }
        "cvlan_ethtype" => {
            twice_tagged(word, flower, protocol)?;
            let ether_type =
                protocols::number(value("ip")?).filter(|of| *of != ANY_PROTOCOL && !is_tag(*of));
            flower.inner_vlan_ether_type = Some(ether_type.ok_or_else(|| illegal(word))?);
        }
        "dst_mac" | "src_mac" => {
            let mac = Some(mac(value("02:00:00:00:00:01")?).ok_or_else(|| illegal(word))?);
            match word {
                "dst_mac" => flower.destination_mac = mac,
                _ => flower.source_mac = mac,
            }
        }
        "ip_proto" => {
            let carried =
                carried(value("tcp")?).filter(|_| is_ip || flower.vlan_ether_type.is_none());
            flower.protocol = Some(carried.ok_or_else(|| illegal(word))?);
        }
        "ip_tos" => flower.traffic_class = Some(masked(word, value("0xb8/0xfc")?)?),
        "ip_ttl" => flower.ttl = Some(masked(word, value("64")?)?),
        "src_ip" | "dst_ip" => {
            let of_protocol = |prefix: &Prefix| match behind_tags {
                IPV4 => !prefix.is_v6(),
                IPV6 => prefix.is_v6(),
                _ => false,
            };
            let prefix = prefix(value("10.0.0.0/8")?, behind_tags).filter(of_protocol);
            let prefix = Some(prefix.ok_or_else(|| illegal(word))?);
            match word {
                "src_ip" => flower.source = prefix,
                _ => flower.destination = prefix,
            }
        }
        "src_port" | "dst_port" => {
            let has_ports = matches!(flower.protocol, Some(6 | 17 | 132));
            let range = ports(value("80")?).filter(|_| has_ports);
            let range = Some(range.ok_or_else(|| illegal(word))?);
            match word {
                "src_port" => flower.source_port = range,
                _ => flower.destination_port = range,
            }
        }
        "tcp_flags" => {
            let (flags, mask) = split(value("0x12/0x17")?, "fff");
            let hex = |word: &str| {
                let digits = word.strip_prefix("0x").unwrap_or(word);
                u16::from_str_radix(digits, 16).ok().filter(|flags| *flags <= 0xfff)
            };
            let both = hex(flags).zip(hex(mask)).filter(|_| flower.protocol == Some(6));
            let (flags, mask) = both.ok_or_else(|| illegal(word))?;
            flower.tcp_flags = Some((flags & mask, mask));
        }
        "type" | "code" => {
            let pair = masked(word, value("8")?)?;
            if !matches!(flower.protocol, Some(1 | 58)) {
                return Err(illegal(word));
            }
            match word {
                "type" => flower.icmp_type = Some(pair),
                _ => flower.icmp_code = Some(pair),
            }
        }
        "ip_flags" => {
            for flag in value("nofrag")?.split('/') {
                let (is, name) = flag.strip_prefix("no").map_or((true, flag), |name| (false, name));
                match name {
                    "frag" => flower.is_fragment = Some(is),
                    "firstfrag" => flower.is_first_fragment = Some(is),
                    _ => return Err(illegal(word)),
                }
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The EtherType behind the tags that a filter names.
fn behind_tags(flower: &Flower, protocol: u16) -> u16 {
    flower.inner_vlan_ether_type.or(flower.vlan_ether_type).unwrap_or(protocol)
}

/// Keys about the second tag need one: `vlan_ethtype` says so, or nothing does.
fn twice_tagged(word: &str, flower: &Flower, protocol: u16) -> Result<(), Complaint> {
    match flower.vlan_ether_type {
        Some(ether_type) if is_tag(ether_type) => Ok(()),
        None if protocol == ANY_PROTOCOL => Ok(()),
        _ => Err(Complaint::wrong(format!(
            "Can't set \"{word}\" if inner vlan ethertype isn't 802.1Q or 802.1AD: vlan_ethtype 802.1Q before it."
        ))),
    }
}

/// Keys about tags need a tagged protocol, or any.
fn tagged(word: &str, protocol: u16) -> Result<(), Complaint> {
    match protocol {
        ANY_PROTOCOL => Ok(()),
        protocol if is_tag(protocol) => Ok(()),
        _ => Err(Complaint::wrong(format!(
            "Can't set \"{word}\" if ethertype isn't 802.1Q or 802.1AD and num_of_vlans is 0: protocol 802.1Q."
        ))),
    }
}

fn illegal(word: &str) -> Complaint {
    let hint = match word {
        "vlan_id" | "cvlan_id" => "0 to 4095",
        "vlan_prio" | "cvlan_prio" => "0 to 7",
        "vlan_ethtype" => "ip, ipv6, arp, 802.1Q or a hexadecimal number",
        "cvlan_ethtype" => "ip, ipv6, arp or a hexadecimal number, but no further tag",
        "dst_mac" | "src_mac" => "an address, as 02:00:00:00:00:01, or one and a mask",
        "ip_proto" => "tcp, udp, sctp, icmp, icmpv6 or a hexadecimal number",
        "ip_tos" | "ip_ttl" => "a value and a mask, as 0xb8/0xfc",
        "src_ip" | "dst_ip" => {
            "an address or a prefix, as 10.0.0.0/8, of the protocol before it: protocol ip or ipv6"
        }
        "src_port" | "dst_port" => {
            "a port, a range or a prefix of one, as 80, 5000-5010 or 0x1400/0xff00, after ip_proto tcp, udp or sctp"
        }
        "tcp_flags" => "flags and a mask in hexadecimal, as 0x02/0x12, after ip_proto tcp",
        "type" | "code" => "0 to 255, after ip_proto icmp or icmpv6",
        _ => "frag, nofrag, firstfrag or nofirstfrag, several with / between",
    };
    Complaint::wrong(format!("Illegal \"{word}\": {hint}."))
}

fn split<'a>(word: &'a str, whole: &'a str) -> (&'a str, &'a str) {
    word.split_once('/').unwrap_or((word, whole))
}

/// A byte with a mask.
fn masked(name: &str, word: &str) -> Result<(u8, u8), Complaint> {
    let (value, mask) = split(word, "0xff");
    let byte = |word: &str| u8::try_from(number::mask(word)?).ok();
    let (value, mask) = byte(value).zip(byte(mask)).ok_or_else(|| illegal(name))?;
    Ok((value & mask, mask))
}

/// A port, a range, or a port with a mask whose ones are at its beginning, which is a range, too.
fn ports(word: &str) -> Option<PortRange> {
    let port = |word: &str| u16::try_from(number::mask(word)?).ok();
    if let Some((value, mask)) = word.split_once('/') {
        let (value, mask) = (port(value)?, port(mask)?);
        let is_prefix = mask.count_ones() == mask.leading_ones();
        return is_prefix.then_some(PortRange { first: value & mask, last: value | !mask });
    }
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let range = PortRange { first: port(first)?, last: port(last)? };
    (range.first <= range.last).then_some(range)
}

/// A MAC address, with its mask unless that is all ones.
fn station((mac, mask): (u64, u64)) -> String {
    let text = |number: u64| {
        let bytes: Vec<_> = number.to_be_bytes()[2..].iter().map(|b| format!("{b:02x}")).collect();
        bytes.join(":")
    };
    match mask {
        0xffff_ffff_ffff => text(mac),
        _ => format!("{}/{}", text(mac), text(mask)),
    }
}

/// The conditions on IP flags.
fn flags(flower: &Flower) -> Option<String> {
    let both = [flower.is_fragment, flower.is_first_fragment];
    let said = both.into_iter().zip(FLAGS).filter_map(|(is, name)| match is? {
        true => Some(name.to_owned()),
        false => Some(format!("no{name}")),
    });
    let said: Vec<_> = said.collect();
    (!said.is_empty()).then(|| said.join("/"))
}

/// Prints all keys.
pub(super) fn show(flower: &Flower, protocol: u16, line: &mut Line) {
    let mut add = |key: &'static str, json: Json, text: String| {
        line.add(key, json, &format!("\n  {key} {text}"));
    };
    let number = |number: u64| (Json::Number(number), number.to_string());
    let said = |text: String| (Json::Text(text.clone()), text);
    let mut show = |key, both: Option<(Json, String)>| {
        if let Some((json, text)) = both {
            add(key, json, text);
        }
    };
    let byte = |pair: Option<(u8, u8)>, is_hex: bool| {
        pair.map(|(value, mask)| match (mask, is_hex) {
            (0xff, false) => number(u64::from(value)),
            // tc prints the value in decimal and the mask in hexadecimal.
            _ => said(format!("{value}/{mask:#x}")),
        })
    };
    show("vlan_id", flower.vlan_id.map(|id| number(u64::from(id))));
    show("vlan_prio", flower.vlan_priority.map(|prio| number(u64::from(prio))));
    show("vlan_ethtype", flower.vlan_ether_type.map(|of| said(protocols::name(of))));
    show("cvlan_id", flower.inner_vlan_id.map(|id| number(u64::from(id))));
    show("cvlan_prio", flower.inner_vlan_priority.map(|prio| number(u64::from(prio))));
    show("cvlan_ethtype", flower.inner_vlan_ether_type.map(|of| said(protocols::name(of))));
    show("dst_mac", flower.destination_mac.map(station).map(said));
    show("src_mac", flower.source_mac.map(station).map(said));
    let family = match behind_tags(flower, protocol) {
        IPV4 => Some("ipv4"),
        IPV6 => Some("ipv6"),
        _ => None,
    };
    show("eth_type", family.map(|family| said(family.to_owned())));
    show("ip_proto", flower.protocol.map(|protocol| said(carried_name(protocol))));
    show("ip_tos", byte(flower.traffic_class, true));
    show("ip_ttl", byte(flower.ttl, false));
    show("dst_ip", flower.destination.map(|prefix| said(prefix.to_string())));
    show("src_ip", flower.source.map(|prefix| said(prefix.to_string())));
    let range = |range: PortRange| {
        let PortRange { first, last } = range;
        let ends = [("start", first), ("end", last)];
        let ends = ends.map(|(name, port)| (name, Json::Number(u64::from(port))));
        match first == last {
            true => number(u64::from(first)),
            false => (Json::Object(ends.into()), format!("{first}-{last}")),
        }
    };
    show("dst_port", flower.destination_port.map(range));
    show("src_port", flower.source_port.map(range));
    let flags_of_tcp = flower.tcp_flags.map(|(flags, mask)| match mask {
        0xfff => said(format!("0x{flags:x}")),
        _ => said(format!("0x{flags:x}/{mask:x}")),
    });
    show("tcp_flags", flags_of_tcp);
    show("icmp_type", byte(flower.icmp_type, false));
    show("icmp_code", byte(flower.icmp_code, false));
    show("ip_flags", flags(flower).map(said));
}

/// The words that create it.
pub(super) fn save(flower: &Flower, add: &mut dyn FnMut(&str, &dyn Display)) {
    let mut say = |name: &str, text: Option<String>| {
        if let Some(text) = text {
            add(name, &text);
        }
    };
    let byte = |pair: Option<(u8, u8)>| pair.map(|(value, mask)| format!("{value:#x}/{mask:#x}"));
    let ports =
        |range: Option<PortRange>| range.map(|PortRange { first, last }| format!("{first}-{last}"));
    say("vlan_id", flower.vlan_id.map(|id| id.to_string()));
    say("vlan_prio", flower.vlan_priority.map(|prio| prio.to_string()));
    say("vlan_ethtype", flower.vlan_ether_type.map(|of| format!("{of:#x}")));
    say("cvlan_id", flower.inner_vlan_id.map(|id| id.to_string()));
    say("cvlan_prio", flower.inner_vlan_priority.map(|prio| prio.to_string()));
    say("cvlan_ethtype", flower.inner_vlan_ether_type.map(|of| format!("{of:#x}")));
    say("dst_mac", flower.destination_mac.map(station));
    say("src_mac", flower.source_mac.map(station));
    say("ip_proto", flower.protocol.map(carried_name));
    say("ip_tos", byte(flower.traffic_class));
    say("ip_ttl", byte(flower.ttl));
    say("dst_ip", flower.destination.map(|prefix| prefix.to_string()));
    say("src_ip", flower.source.map(|prefix| prefix.to_string()));
    say("dst_port", ports(flower.destination_port));
    say("src_port", ports(flower.source_port));
    say("tcp_flags", flower.tcp_flags.map(|(flags, mask)| format!("{flags:#x}/{mask:#x}")));
    say("type", byte(flower.icmp_type));
    say("code", byte(flower.icmp_code));
    say("ip_flags", flags(flower));
}
