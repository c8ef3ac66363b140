//! A member of a set: an address or a prefix, with a port if the set has ports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How many bits of an address count.
pub type PrefixLen = u8;

/// A member of a set. Sorted by address, then by length: a prefix comes before all that it covers.
///
/// Its layout is what the program in the driver looks up (`struct element_key` of
/// `crates/kernel/bpf/src/programs/sets.h`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Key {
    /// The address, the rest zeros: IPv4 in 4 bytes, Ethernet in 6, IPv6 in all. Bits behind the
    /// prefix are 0.
    address: [u8; 16],
    /// How many bits of it count.
    len: PrefixLen,
    /// The protocol; 0 if the set has no ports.
    protocol: u8,
    /// The port; 0 if the set has none.
    port: u16,
}

impl Key {
    /// The first `len` bits of `address`.
    pub fn prefix(address: IpAddr, len: PrefixLen) -> Self {
        let mut bytes = [0; 16];
        match address {
            IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => bytes = v6.octets(),
        }
        Self { address: masked(bytes, len), len, protocol: 0, port: 0 }
    }

    /// The first `len` bits of the 128 in `bits`, of which an IPv4 address is the first 32.
    pub(crate) fn at(bits: u128, len: PrefixLen) -> Self {
        Self { address: masked(bits.to_be_bytes(), len), len, protocol: 0, port: 0 }
    }

    /// An Ethernet address.
    pub fn mac(mac: [u8; 6]) -> Self {
        let mut address = [0; 16];
        address[..6].copy_from_slice(&mac);
        Self { address, len: 48, protocol: 0, port: 0 }
    }

    /// This prefix, and `port` of what `protocol` is.
    #[must_use]
    pub fn with_port(self, protocol: u8, port: u16) -> Self {
        Self { protocol, port, ..self }
    }

    /// How many bits count.
    pub fn len(&self) -> PrefixLen {
        self.len
    }

    /// Whether no bit counts: it covers everything.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address in its memory layout.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.address
    }

    /// The protocol and the port.
    pub fn port(&self) -> (u8, u16) {
        (self.protocol, self.port)
    }

    /// The IPv4 address.
    pub fn v4(&self) -> Ipv4Addr {
        let [a, b, c, d, ..] = self.address;
        Ipv4Addr::new(a, b, c, d)
    }

    /// The IPv6 address.
    pub fn v6(&self) -> Ipv6Addr {
        self.address.into()
    }

    /// A key of IPv4 as a number, in the same order.
    pub(crate) fn number(&self) -> u64 {
        let rest = u64::from(self.len) << 24 | u64::from(self.protocol) << 16;
        u64::from(u32::from(self.v4())) << 32 | rest | u64::from(self.port)
    }

    /// The key of IPv4 with this number.
    pub(crate) fn of_number(number: u64) -> Self {
        let mut address = [0; 16];
        address[..4].copy_from_slice(&((number >> 32) as u32).to_be_bytes());
        let (len, protocol) = ((number >> 24) as u8, (number >> 16) as u8);
        Self { address, len, protocol, port: number as u16 }
    }

    /// As a program looks it up: address, length, protocol, and the port in network order.
    pub fn layout(&self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(&self.address);
        bytes[16] = self.len;
        bytes[17] = self.protocol;
        bytes[18..].copy_from_slice(&self.port.to_be_bytes());
        bytes
    }
}

fn masked(mut address: [u8; 16], len: PrefixLen) -> [u8; 16] {
    for (byte, first) in address.iter_mut().zip((0_u8..).step_by(8)) {
        let kept = len.saturating_sub(first).min(8);
        *byte &= !(0xff_u16 >> kept) as u8;
    }
    address
}

/// An Ethernet address, as `ipset` prints it.
pub(crate) struct Mac<'a>(pub(crate) &'a Key);

impl fmt::Display for Mac<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, ..] = self.0.address;
        write!(f, "{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{g:02X}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_behind_the_prefix_do_not_count() {
        let address: IpAddr = "10.255.255.255".parse().unwrap();
        let of = |len| Key::prefix(address, len).v4().to_string();
        let expected = ["10.255.255.255", "10.255.255.254", "10.255.255.0", "10.128.0.0"];
        assert_eq!([32, 31, 24, 9].map(of), expected);
        assert_eq!([8, 4, 0].map(of), ["10.0.0.0", "0.0.0.0", "0.0.0.0"]);
        let v6: IpAddr = "2001:db8:ffff::1".parse().unwrap();
        assert_eq!(Key::prefix(v6, 33).v6().to_string(), "2001:db8:8000::");
        assert_eq!(Key::prefix(v6, 128).v6(), v6);
    }

    #[test]
    fn a_prefix_comes_before_the_ones_it_covers() {
        let key = |text: &str, len| Key::prefix(text.parse().unwrap(), len);
        let mut keys = [key("10.0.0.1", 32), key("10.0.0.0", 32), key("10.0.0.0", 8)];
        keys.sort();
        assert_eq!(keys, [key("10.0.0.0", 8), key("10.0.0.0", 32), key("10.0.0.1", 32)]);
    }
}
