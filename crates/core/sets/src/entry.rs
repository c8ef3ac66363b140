//! Members as they are written: an address, a prefix or a range, with or without a port.
//!
//! One entry may stand for many members: `hash:ip` expands a prefix into its addresses, `hash:net`
//! a range into the fewest prefixes, `hash:net,port` a range of ports into single ports.

use crate::key::{Key, Mac};
use crate::kind::{Family, Kind, Shape};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

/// Protocols, by `ipset`'s names.
const PROTOCOLS: [(&str, u8); 7] = [
    ("tcp", 6),
    ("udp", 17),
    ("sctp", 132),
    ("udplite", 136),
    ("gre", 47),
    ("esp", 50),
    ("vrrp", 112),
];

/// Whether the protocol has ports.
fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 132 | 136)
}

/// The most members per entry, so that each takes only a moment.
pub(crate) const MEMBERS_MAX: usize = 1 << 20;

/// The members that `text` means in a set of `kind`, at most `most` of them.
///
/// # Errors
/// Why it is none, as a sentence.
pub(crate) fn parse(text: &str, kind: &Kind, most: usize) -> Result<Vec<Key>, String> {
    match kind.shape {
        Shape::Ip { netmask } => addresses(text, kind.family, netmask, most),
        Shape::Net => prefixes(text, kind.family),
        Shape::NetPort => {
            let (net, port) = text.split_once(',').ok_or_else(|| {
                format!("\"{text}\" has no port: write NET,PROTO:PORT, such as {text},tcp:80")
            })?;
            let (protocol, first, last) = ports(port)?;
            let nets = prefixes(net, kind.family)?;
            let all = usize::from(last - first).saturating_add(1).saturating_mul(nets.len());
            within(all, most)?;
            let with_ports =
                |net: Key| (first..=last).map(move |port| net.with_port(protocol, port));
            Ok(nets.into_iter().flat_map(with_ports).collect())
        }
        Shape::Mac => mac(text).map(|mac| vec![Key::mac(mac)]),
    }
}

fn within(count: usize, most: usize) -> Result<(), String> {
    match count <= most {
        true => Ok(()),
        false => Err(format!(
            "it stands for {count} members and {most} are allowed: write smaller ranges, or create the \
             set with a larger maxelem"
        )),
    }
}

fn addresses(text: &str, family: Family, netmask: u8, most: usize) -> Result<Vec<Key>, String> {
    if let Some((first, last)) = range(text, family)? {
        return every(first, last, netmask, most);
    }
    let (address, len) = prefix(text, family)?;
    match address {
        IpAddr::V4(v4) if len < 32 => {
            let first = u32::from(v4) & !(u32::MAX >> len);
            every(first, first | u32::MAX >> len, netmask, most)
        }
        IpAddr::V6(_) if len < 128 => {
            Err(format!("\"{text}\": a hash:ip of IPv6 takes single addresses: use hash:net"))
        }
        _ => Ok(vec![Key::prefix(address, netmask)]),
    }
}

/// Every address from `first` to `last`, of which `netmask` bits count.
fn every(first: u32, last: u32, netmask: u8, most: usize) -> Result<Vec<Key>, String> {
    let shift = 32 - u32::from(netmask.min(32));
    let numbers = (u64::from(first) >> shift)..=(u64::from(last) >> shift);
    within((numbers.end() - numbers.start() + 1) as usize, most)?;
    let address = |number: u64| Ipv4Addr::from((number << shift) as u32);
    Ok(numbers.map(|number| Key::prefix(address(number).into(), netmask)).collect())
}

fn prefixes(text: &str, family: Family) -> Result<Vec<Key>, String> {
    if let Some((first, last)) = range(text, family)? {
        return Ok(fewest(first, last));
    }
    let (address, len) = prefix(text, family)?;
    if len == 0 {
        return Err(format!("\"{text}\" is everything, which no set holds: use matchall"));
    }
    Ok(vec![Key::prefix(address, len)])
}

/// The fewest prefixes that are the addresses from `first` to `last`.
fn fewest(first: u32, last: u32) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut next = u64::from(first);
    let end = u64::from(last) + 1;
    while next < end {
        let aligned = if next == 0 { 31 } else { next.trailing_zeros().min(31) };
        let fitting = (end - next).ilog2().min(31);
        let bits = aligned.min(fitting);
        keys.push(Key::prefix(Ipv4Addr::from(next as u32).into(), (32 - bits) as u8));
        next += 1 << bits;
    }
    keys
}

/// The ends of `A-B`; `None` if it is no range.
fn range(text: &str, family: Family) -> Result<Option<(u32, u32)>, String> {
    let Some((first, last)) = text.split_once('-') else { return Ok(None) };
    if family == Family::Inet6 {
        return Err(format!("\"{text}\": ranges are for IPv4; write prefixes"));
    }
    let end = |text: &str| match address(text, family)? {
        IpAddr::V4(v4) => Ok(u32::from(v4)),
        IpAddr::V6(_) => Err(format!("\"{text}\" is not an IPv4 address")),
    };
    let (first, last) = (end(first)?, end(last)?);
    Ok(Some((first.min(last), first.max(last))))
}

fn prefix(text: &str, family: Family) -> Result<(IpAddr, u8), String> {
    let Some((head, len)) = text.split_once('/') else {
        return Ok((address(text, family)?, family.bits()));
    };
    let len = len.parse().ok().filter(|len| *len <= family.bits()).ok_or_else(|| {
        format!("\"{text}\": the length of a prefix is a number up to {}", family.bits())
    })?;
    Ok((address(head, family)?, len))
}

fn address(text: &str, family: Family) -> Result<IpAddr, String> {
    let parsed = match family {
        Family::Inet => text.parse().map(IpAddr::V4).ok(),
        Family::Inet6 => text.parse().map(IpAddr::V6).ok(),
    };
    parsed.ok_or_else(|| {
        let is_other = text.parse::<IpAddr>().is_ok();
        match (is_other, family) {
            (true, Family::Inet) => {
                format!("\"{text}\" is IPv6 and the set is IPv4: create it with family inet6")
            }
            (true, Family::Inet6) => {
                format!("\"{text}\" is IPv4 and the set is IPv6: create it with family inet")
            }
            (false, _) => format!("\"{text}\" is no address: names are not resolved"),
        }
    })
}

/// The protocol, and the first and last port.
fn ports(text: &str) -> Result<(u8, u16, u16), String> {
    let wrong = || {
        format!("\"{text}\" is no port: write tcp:80, udp:5000-5010, a number of tcp, or PROTO:0")
    };
    let (protocol, ports) = text.split_once(':').unwrap_or(("tcp", text));
    let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(protocol));
    let protocol = named.map_or_else(|| protocol.parse().ok(), |(_, number)| Some(*number));
    let protocol = protocol.filter(|protocol| *protocol != 0).ok_or_else(wrong)?;
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let [first, last] = [first, last].map(str::parse::<u16>);
    let (first, last) = (first.map_err(|_| wrong())?, last.map_err(|_| wrong())?);
    match first <= last && (has_ports(protocol) || last == 0) {
        true => Ok((protocol, first, last)),
        false => Err(wrong()),
    }
}

fn mac(text: &str) -> Result<[u8; 6], String> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    let read = |part: &str| match part.len() {
        1 | 2 if part.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u8::from_str_radix(part, 16).ok()
        }
        _ => None,
    };
    let is_read = bytes.iter_mut().all(|byte| {
        let read = parts.next().and_then(read);
        *byte = read.unwrap_or_default();
        read.is_some()
    });
    match is_read && parts.next().is_none() && bytes != [0; 6] {
        true => Ok(bytes),
        false => Err(format!("\"{text}\" is no Ethernet address such as 02:00:00:00:00:01")),
    }
}

/// Writes `key`, a member of a set of `kind`, as `ipset` does.
pub(crate) fn write(text: &mut String, key: &Key, kind: &Kind) {
    // Writing to a string does not fail.
    let _ = match (kind.shape, kind.family) {
        (Shape::Mac, _) => write!(text, "{}", Mac(key)),
        (_, Family::Inet) => write!(text, "{}", key.v4()),
        (_, Family::Inet6) => write!(text, "{}", key.v6()),
    };
    let is_prefix = matches!(kind.shape, Shape::Net | Shape::NetPort);
    if is_prefix && key.len() < kind.family.bits() {
        let _ = write!(text, "/{}", key.len());
    }
    if kind.shape == Shape::NetPort {
        let (protocol, port) = key.port();
        let _ = match PROTOCOLS.iter().find(|(_, number)| *number == protocol) {
            Some((name, _)) => write!(text, ",{name}:{port}"),
            None => write!(text, ",{protocol}:{port}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, kind: &Kind) -> Vec<String> {
        let keys = parse(text, kind, 1000).unwrap();
        let write = |key| {
            let mut text = String::new();
            write(&mut text, key, kind);
            text
        };
        keys.iter().map(write).collect()
    }

    fn refusal(text: &str, kind: &Kind) -> String {
        parse(text, kind, 1000).unwrap_err()
    }

    const V6: Family = Family::Inet6;

    #[test]
    fn an_address_set_takes_prefixes_and_ranges_as_their_addresses() {
        let kind = Kind::new(Shape::Ip { netmask: 32 });
        assert_eq!(written("10.0.0.7", &kind), ["10.0.0.7"]);
        assert_eq!(written("10.0.0.9/31", &kind), ["10.0.0.8", "10.0.0.9"]);
        assert_eq!(written("10.0.0.3-10.0.0.1", &kind), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        assert!(refusal("0.0.0.0/0", &kind).contains("4294967296 members and 1000 are allowed"));
        let six = Kind { family: V6, ..Kind::new(Shape::Ip { netmask: 128 }) };
        assert_eq!(written("2001:DB8::1", &six), ["2001:db8::1"]);
        assert!(refusal("2001:db8::/64", &six).contains("use hash:net"));
        assert!(refusal("::1-::2", &six).contains("ranges are for IPv4"));
    }

    #[test]
    fn a_netmask_makes_one_member_of_many_addresses() {
        let kind = Kind::new(Shape::Ip { netmask: 24 });
        assert_eq!(written("10.0.0.7", &kind), ["10.0.0.0"]);
        assert_eq!(written("10.0.0.0/23", &kind), ["10.0.0.0", "10.0.1.0"]);
    }

    #[test]
    fn a_prefix_set_takes_ranges_as_the_fewest_prefixes() {
        let kind = Kind::new(Shape::Net);
        assert_eq!(written("10.1.2.3/8", &kind), ["10.0.0.0/8"]);
        assert_eq!(written("10.0.0.1/32", &kind), ["10.0.0.1"]);
        let range = ["10.0.0.1", "10.0.0.2/31", "10.0.0.4/30"];
        assert_eq!(written("10.0.0.1-10.0.0.7", &kind), range);
        assert_eq!(written("0.0.0.0-255.255.255.255", &kind), ["0.0.0.0/1", "128.0.0.0/1"]);
        assert!(refusal("0.0.0.0/0", &kind).contains("use matchall"));
        assert!(refusal("10.0.0.0/33", &kind).contains("up to 32"));
        assert!(refusal("2001:db8::/32", &kind).contains("family inet6"));
        assert!(refusal("example.org", &kind).contains("not resolved"));
    }

    #[test]
    fn ports_stand_behind_the_prefix() {
        let kind = Kind::new(Shape::NetPort);
        assert_eq!(written("10.0.0.0/8,80", &kind), ["10.0.0.0/8,tcp:80"]);
        let range = ["10.0.0.1,udp:53", "10.0.0.1,udp:54"];
        assert_eq!(written("10.0.0.1,UDP:53-54", &kind), range);
        assert_eq!(written("10.0.0.1,vrrp:0", &kind), ["10.0.0.1,vrrp:0"]);
        assert_eq!(written("10.0.0.1,89:0", &kind), ["10.0.0.1,89:0"]);
        for text in ["10.0.0.1,89:1", "10.0.0.1,tcp:9-8", "10.0.0.1,tcp:", "10.0.0.1,0:0"] {
            assert!(refusal(text, &kind).contains("is no port"), "{text}");
        }
        assert!(refusal("10.0.0.1", &kind).contains("has no port"));
        assert!(refusal("10.0.0.1,0-65535", &kind).contains("65536 members"));
    }

    #[test]
    fn ethernet_addresses_are_six_bytes() {
        let kind = Kind::new(Shape::Mac);
        assert_eq!(written("2:0:0:0:0:aB", &kind), ["02:00:00:00:00:AB"]);
        for text in ["00:00:00:00:00:00", "1:2:3:4:5", "1:2:3:4:5:6:7", "1:2:3:4:5:+6", "x"] {
            assert!(refusal(text, &kind).contains("no Ethernet address"), "{text}");
        }
    }
}
