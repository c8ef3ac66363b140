//! Prefixes from text and from bytes, without bits behind their length.

use narrows_directory::Prefix;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The network of `bits` bits in which `ip` is; `None` if an address has fewer bits.
pub fn network(ip: IpAddr, bits: u8) -> Option<Prefix> {
    let ip = match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32_u32.checked_sub(bits.into())?).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(ip) & mask))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128_u32.checked_sub(bits.into())?).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(ip) & mask))
        }
    };
    Some(Prefix { ip, bits })
}

/// A single address.
pub fn host(ip: IpAddr) -> Prefix {
    Prefix { ip, bits: if ip.is_ipv4() { 32 } else { 128 } }
}

/// `192.0.2.0/24`, `2001:db8::/32`, or an address alone. Bits behind the length become zero.
pub fn parse(text: &str) -> Option<Prefix> {
    match text.split_once('/') {
        Some((ip, bits)) if bits.bytes().all(|digit| digit.is_ascii_digit()) => {
            network(ip.parse().ok()?, bits.parse().ok()?)
        }
        Some(_) => None,
        None => text.parse().ok().map(host),
    }
}

/// As [`parse`] reads it.
pub fn show(prefix: &Prefix) -> String {
    format!("{}/{}", prefix.ip, prefix.bits)
}

/// Whether `ip` is in `prefix`.
pub fn contains(prefix: &Prefix, ip: IpAddr) -> bool {
    network(ip, prefix.bits).is_some_and(|network| network == *prefix)
}

/// Whether a subscriber can have this address: not the one that means none, all, or this machine,
/// and no group.
pub fn is_usable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            // 255.255.255.254: the NAS is to choose one (RFC 2865 section 5.8).
            let is_choice = ip.octets()[0] == 255;
            !ip.is_unspecified() && !is_choice && !ip.is_multicast() && !ip.is_loopback()
        }
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_prefix_loses_the_bits_behind_its_length() {
        assert_eq!(show(&parse("192.0.2.77/24").unwrap()), "192.0.2.0/24");
        assert_eq!(show(&parse("2001:db8::1/32").unwrap()), "2001:db8::/32");
        assert_eq!(show(&parse("192.0.2.77").unwrap()), "192.0.2.77/32");
        assert_eq!(show(&parse("192.0.2.77/0").unwrap()), "0.0.0.0/0");
    }

    #[test]
    fn other_text_is_no_prefix() {
        for text in ["", "/", "10.0.0.1/33", "10.0.0.1/+8", "::/129", "10.0.0/8", "10.0.0.1/8/8"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_prefix_is_read_as_it_is_shown(ip: [u8; 16], bits in 0..=128_u8) {
            let prefix = network(IpAddr::from(ip), bits).unwrap();
            prop_assert_eq!(parse(&show(&prefix)), Some(prefix));
            prop_assert!(contains(&prefix, IpAddr::from(ip)));
        }
    }
}
