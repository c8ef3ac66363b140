//! Addresses and protocols, as filters name them.

use crate::number;
use narrows_classify::Prefix;
use std::net::IpAddr;

/// The EtherType of IPv4.
pub(super) const IPV4: u16 = 0x0800;
/// The EtherType of IPv6.
pub(super) const IPV6: u16 = 0x86dd;

/// The names of IP protocols.
const CARRIED: [(&str, u8); 5] =
    [("tcp", 6), ("udp", 17), ("sctp", 132), ("icmp", 1), ("icmpv6", 58)];

/// An IP protocol, by name or as a hexadecimal number.
pub(super) fn carried(word: &str) -> Option<u8> {
    let named = CARRIED.iter().find(|(name, _)| *name == word);
    named
        .map(|(_, number)| *number)
        .or_else(|| u8::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok())
}

/// The inverse: its name, or its hexadecimal number.
pub(super) fn carried_name(number: u8) -> String {
    let named = CARRIED.iter().find(|(_, known)| *known == number);
    named.map_or_else(|| format!("{number:02x}"), |(name, _)| (*name).to_owned())
}

/// A prefix of `family`, an EtherType. As in `tc`, a mask may have dots, and `any` is every
/// address.
pub(super) fn prefix(word: &str, family: u16) -> Option<Prefix> {
    let nothing = if family == IPV6 { "::/0" } else { "0/0" };
    let word = if matches!(word, "any" | "all" | "default") { nothing } else { word };
    let (address, len) = word.split_once('/').map_or((word, None), |(a, l)| (a, Some(l)));
    let address: IpAddr = address.parse().ok().or_else(|| octets(address).map(IpAddr::from))?;
    let whole = if address.is_ipv6() { 128 } else { 32 };
    Prefix::new(address, len.map_or(Some(whole), prefix_len)?)
}

/// The length of a prefix: a number, or a mask with dots whose ones are at its beginning.
fn prefix_len(word: &str) -> Option<u8> {
    if let Some(number) = number::mask(word) {
        return u8::try_from(number).ok();
    }
    let mask = u32::from_be_bytes(octets(word)?);
    (mask.count_ones() == mask.leading_ones()).then(|| mask.leading_ones() as u8)
}

/// An IPv4 address with only its first octets, such as `10.1` or `0`: the others are 0.
fn octets(word: &str) -> Option<[u8; 4]> {
    let mut address = [0; 4];
    for (at, octet) in word.split('.').enumerate() {
        let number = number::mask(octet).filter(|_| !octet.starts_with('+'));
        *address.get_mut(at)? = number?.try_into().ok()?;
    }
    Some(address)
}

/// A MAC address with a mask, given as a mask or as a prefix length.
pub(super) fn mac(word: &str) -> Option<(u64, u64)> {
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
