//! IP prefixes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address and a prefix length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// The first `len` bits of `address`, the others cleared; `None` if the address is shorter.
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(address) if len <= 32 => {
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask(32, len) as u32))
            }
            IpAddr::V6(address) if len <= 128 => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask(128, len)))
            }
            _ => return None,
        };
        Some(Self { address, len })
    }

    /// An IPv4 prefix.
    ///
    /// # Panics
    /// If `len` is above 32.
    pub fn v4(address: [u8; 4], len: u8) -> Self {
        Self::new(IpAddr::from(address), len).expect("no more than 32 bits")
    }

    /// Whether it is an IPv6 prefix.
    pub fn is_v6(&self) -> bool {
        self.address.is_ipv6()
    }

    /// The address, and its length in 32-bit words.
    pub fn bits(&self) -> (u128, usize) {
        match self.address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), 1),
            IpAddr::V6(address) => (address.to_bits(), 4),
        }
    }

    /// The mask of the bits that count.
    pub fn mask(&self) -> u128 {
        mask(if self.is_v6() { 128 } else { 32 }, self.len)
    }

    /// Whether it contains `address`; an IPv4 address stands in the last four bytes.
    #[inline]
    pub(crate) fn contains(&self, address: u128) -> bool {
        (address ^ self.bits().0) & self.mask() == 0
    }
}

/// A mask of the first `len` of `bits` bits.
fn mask(bits: u8, len: u8) -> u128 {
    let all = if bits == 128 { u128::MAX } else { (1 << bits) - 1 };
    all & !all.checked_shr(u32::from(len)).unwrap_or(0)
}

/// As `tc` prints it: a whole address without its length.
impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.is_v6() { 128 } else { 32 };
        match self.len {
            len if len == whole => write!(f, "{}", self.address),
            len => write!(f, "{}/{len}", self.address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_contains_what_begins_with_it() {
        let prefix = Prefix::v4([10, 9, 8, 7], 16);
        assert_eq!(prefix.to_string(), "10.9.0.0/16");
        assert!(prefix.contains(0x0a09_ffff) && !prefix.contains(0x0a0a_0000));
        assert!(Prefix::v4([0; 4], 0).contains(0xffff_ffff));
        assert!(Prefix::new(IpAddr::from([1, 2, 3, 4]), 33).is_none());
        let six = Prefix::new("2001:db8::1".parse().unwrap(), 128).unwrap();
        assert_eq!(six.to_string(), "2001:db8::1");
        assert!(six.contains(0x2001_0db8 << 96 | 1) && !six.contains(0x2001_0db8 << 96));
    }
}
