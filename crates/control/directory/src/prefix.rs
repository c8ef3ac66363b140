//! Addresses and prefixes as text.

use crate::Prefix;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Why a text is no address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("\"{0}\" is no address: write 10.0.0.1, 10.0.0.0/24 or 2001:db8::/56")]
pub struct PrefixError(String);

impl Prefix {
    /// The first `bits` bits of `ip`, the others cleared; none if the address is shorter. An
    /// address of IPv4 in IPv6's form (`::ffff:10.0.0.1`, RFC 4291 section 2.5.5.2), as some
    /// systems write it, is IPv4: so it is in packets.
    pub fn new(ip: IpAddr, bits: u8) -> Option<Self> {
        let (ip, bits) = match (ip.to_canonical(), bits.checked_sub(96)) {
            (short @ IpAddr::V4(_), Some(bits)) if ip.is_ipv6() => (short, bits),
            _ => (ip, bits),
        };
        let cut = match ip {
            IpAddr::V4(ip) => {
                let free = 32_u32.checked_sub(bits.into())?;
                Ipv4Addr::from(u32::from(ip) & u32::MAX.checked_shl(free).unwrap_or(0)).into()
            }
            IpAddr::V6(ip) => {
                let free = 128_u32.checked_sub(bits.into())?;
                Ipv6Addr::from(u128::from(ip) & u128::MAX.checked_shl(free).unwrap_or(0)).into()
            }
        };
        Some(Self { ip: cut, bits })
    }

    /// Whether it is one address.
    pub fn is_whole(&self) -> bool {
        self.bits == if self.ip.is_ipv4() { 32 } else { 128 }
    }
}

/// A whole address stands without its length.
impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_whole() {
            true => write!(f, "{}", self.ip),
            false => write!(f, "{}/{}", self.ip, self.bits),
        }
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let read = || {
            let (ip, bits) = match text.split_once('/') {
                Some((ip, bits)) => (ip, Some(bits.parse::<u8>().ok()?)),
                None => (text, None),
            };
            let ip: IpAddr = ip.trim().parse().ok()?;
            Self::new(ip, bits.unwrap_or(if ip.is_ipv4() { 32 } else { 128 }))
        };
        read().ok_or_else(|| PrefixError(crate::printable(text)))
    }
}

impl TryFrom<String> for Prefix {
    type Error = PrefixError;

    fn try_from(text: String) -> Result<Self, PrefixError> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn host_bits_are_cut_off() {
        let text = |text: &str| text.parse::<Prefix>().map(|prefix| prefix.to_string());
        assert_eq!(text("10.1.2.3/16").as_deref(), Ok("10.1.0.0/16"));
        assert_eq!(text("10.1.2.3/32").as_deref(), Ok("10.1.2.3"));
        assert_eq!(text("10.1.2.3/0").as_deref(), Ok("0.0.0.0/0"));
        assert_eq!(text("2001:db8:1::7/48").as_deref(), Ok("2001:db8:1::/48"));
        assert!(text("10.1.2.3/33").is_err() && text("::/129").is_err() && text("10.1").is_err());
    }

    #[test]
    fn ipv4_in_ipv6s_form_is_ipv4() {
        let text = |text: &str| text.parse::<Prefix>().map(|prefix| prefix.to_string());
        assert_eq!(text("::ffff:10.1.2.3").as_deref(), Ok("10.1.2.3"));
        assert_eq!(text("::FFFF:0a01:0203/120").as_deref(), Ok("10.1.2.0/24"));
        assert_eq!(text("::ffff:0:0/96").as_deref(), Ok("0.0.0.0/0"));
        assert_eq!(text("::ffff:0:0/95").as_deref(), Ok("::fffe:0:0/95"), "more than IPv4");
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(ip in any::<IpAddr>(), bits in 0..=128_u8) {
            let Some(prefix) = Prefix::new(ip, bits) else { return Ok(()) };
            prop_assert_eq!(prefix.to_string().parse::<Prefix>(), Ok(prefix));
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = text.parse::<Prefix>();
        }
    }
}
