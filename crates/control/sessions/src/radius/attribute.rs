//! Names of attributes, and their values as text.
//!
//! A configuration names an attribute as FreeRADIUS' dictionaries do, or as `VENDOR.NUMBER` or
//! `NUMBER`. Only those have a name here that say who a session is, which addresses it has, or how
//! fast it is.
//!
//! *Source.* IANA's registry "RADIUS Types"; MikroTik's and WISPr's published dictionaries.

use super::packet::Type;
use std::fmt;

/// MikroTik's enterprise number.
pub const MIKROTIK: u32 = 14_988;
/// The Wi-Fi Alliance's, under which WISPr has its attributes.
pub const WISPR: u32 = 14_122;

/// The attributes that this crate reads, by name.
const NAMES: &[(&str, Type)] = &[
    ("User-Name", USER_NAME),
    ("NAS-IP-Address", NAS_IP_ADDRESS),
    ("NAS-Port", Type::standard(5)),
    ("Service-Type", SERVICE_TYPE),
    ("Framed-IP-Address", FRAMED_IP_ADDRESS),
    ("Framed-IP-Netmask", FRAMED_IP_NETMASK),
    ("Filter-Id", FILTER_ID),
    ("Framed-Route", FRAMED_ROUTE),
    ("Class", CLASS),
    ("Called-Station-Id", Type::standard(30)),
    ("Calling-Station-Id", CALLING_STATION_ID),
    ("NAS-Identifier", NAS_IDENTIFIER),
    ("Acct-Session-Id", ACCT_SESSION_ID),
    ("Acct-Multi-Session-Id", Type::standard(50)),
    ("NAS-Port-Id", Type::standard(87)),
    ("NAS-IPv6-Address", NAS_IPV6_ADDRESS),
    ("Framed-IPv6-Prefix", FRAMED_IPV6_PREFIX),
    ("Framed-IPv6-Route", FRAMED_IPV6_ROUTE),
    ("Chargeable-User-Identity", Type::standard(89)),
    ("Delegated-IPv6-Prefix", DELEGATED_IPV6_PREFIX),
    ("Framed-IPv6-Address", FRAMED_IPV6_ADDRESS),
    ("Mikrotik-Rate-Limit", MIKROTIK_RATE_LIMIT),
    ("WISPr-Bandwidth-Min-Up", WISPR_MIN_UP),
    ("WISPr-Bandwidth-Min-Down", WISPR_MIN_DOWN),
    ("WISPr-Bandwidth-Max-Up", WISPR_MAX_UP),
    ("WISPr-Bandwidth-Max-Down", WISPR_MAX_DOWN),
    ("Cisco-AVPair", Type::vendor(9, 1)),
    ("Huawei-Input-Average-Rate", Type::vendor(2_011, 2)),
    ("Huawei-Output-Average-Rate", Type::vendor(2_011, 5)),
    ("Agent-Circuit-Id", Type::vendor(3_561, 1)),
    ("Agent-Remote-Id", Type::vendor(3_561, 2)),
];

macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => { $($(#[$doc])* pub const $name: Type = $value;)* };
}

attributes! {
    /// Who (RFC 2865 section 5.1).
    USER_NAME = Type::standard(1);
    /// Which NAS (RFC 2865 section 5.4).
    NAS_IP_ADDRESS = Type::standard(4);
    /// What for (RFC 2865 section 5.6).
    SERVICE_TYPE = Type::standard(6);
    /// The session's address (RFC 2865 section 5.8).
    FRAMED_IP_ADDRESS = Type::standard(8);
    /// The mask of its network (RFC 2865 section 5.9).
    FRAMED_IP_NETMASK = Type::standard(9);
    /// The name of a filter, here of a plan (RFC 2865 section 5.11).
    FILTER_ID = Type::standard(11);
    /// A network behind the session (RFC 2865 section 5.22).
    FRAMED_ROUTE = Type::standard(22);
    /// State of the authorizing server (RFC 2865 section 5.24).
    STATE = Type::standard(24);
    /// What the authorizing server wants to see again (RFC 2865 section 5.25).
    CLASS = Type::standard(25);
    /// The subscriber's own number or MAC address (RFC 2865 section 5.31).
    CALLING_STATION_ID = Type::standard(31);
    /// Which NAS, in its own words (RFC 2865 section 5.32).
    NAS_IDENTIFIER = Type::standard(32);
    /// Returned as it is (RFC 2865 section 5.33).
    PROXY_STATE = Type::standard(33);
    /// Start, Stop, ... (RFC 2866 section 5.1).
    ACCT_STATUS_TYPE = Type::standard(40);
    /// For how long the client tried to send it, in seconds (RFC 2866 section 5.2).
    ACCT_DELAY_TIME = Type::standard(41);
    /// Which session of the NAS (RFC 2866 section 5.5).
    ACCT_SESSION_ID = Type::standard(44);
    /// When, in seconds since 1970 (RFC 2869 section 5.3).
    EVENT_TIMESTAMP = Type::standard(55);
    /// A signature (RFC 3579 section 3.2).
    MESSAGE_AUTHENTICATOR = Type::standard(80);
    /// Which NAS (RFC 3162 section 2.1).
    NAS_IPV6_ADDRESS = Type::standard(95);
    /// The prefix of the session's link (RFC 3162 section 2.3).
    FRAMED_IPV6_PREFIX = Type::standard(97);
    /// A network behind the session (RFC 3162 section 2.5).
    FRAMED_IPV6_ROUTE = Type::standard(99);
    /// The prefix that the session's router has for itself (RFC 4818).
    DELEGATED_IPV6_PREFIX = Type::standard(123);
    /// The session's address (RFC 6911 section 3.1).
    FRAMED_IPV6_ADDRESS = Type::standard(168);
    /// Rates in MikroTik's words.
    MIKROTIK_RATE_LIMIT = Type::vendor(MIKROTIK, 8);
    /// The assured rate of the subscriber's upload, in bit/s.
    WISPR_MIN_UP = Type::vendor(WISPR, 5);
    /// The assured rate of its download, in bit/s.
    WISPR_MIN_DOWN = Type::vendor(WISPR, 6);
    /// The most of its upload, in bit/s.
    WISPR_MAX_UP = Type::vendor(WISPR, 7);
    /// The most of its download, in bit/s.
    WISPR_MAX_DOWN = Type::vendor(WISPR, 8);
}

impl Type {
    /// The attribute with this name (in any case), or `VENDOR.NUMBER`, or `NUMBER`.
    pub fn named(word: &str) -> Option<Self> {
        if let Some((_, kind)) = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
            return Some(*kind);
        }
        let (vendor, number) = match word.split_once('.') {
            Some((vendor, number)) => (Some(vendor.parse().ok()?), number),
            None => (None, word),
        };
        // What is inside a Vendor-Specific attribute has a name of its own.
        let number = number.parse().ok().filter(|number| *number > 0)?;
        (vendor.is_some() || number != super::packet::VENDOR_SPECIFIC)
            .then_some(Self { vendor, number })
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = NAMES.iter().find(|(_, kind)| kind == self) {
            return f.write_str(name);
        }
        match self.vendor {
            Some(vendor) => write!(f, "{vendor}.{}", self.number),
            None => write!(f, "{}", self.number),
        }
    }
}

/// The value as one line of text that can be an identity or a label: a MAC address in the form
/// `aa:bb:cc:dd:ee:ff`, other text as it is, bytes that are no text in hexadecimal with `0x` in
/// front. `None` if it is empty.
pub fn text(value: &[u8]) -> Option<String> {
    // Some clients end a string with a zero, as in C.
    let value = value.strip_suffix(&[0]).unwrap_or(value);
    match std::str::from_utf8(value).map(str::trim) {
        Ok("") => None,
        Ok(text) if !text.contains(narrows_escape::is_hidden) => {
            Some(crate::hardware::address(text).unwrap_or_else(|| text.to_owned()))
        }
        _ => Some(crate::hardware::hexadecimal(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_understood_and_printed_again() {
        for (name, kind) in NAMES {
            assert_eq!(Type::named(&name.to_lowercase()), Some(*kind));
            assert_eq!(kind.to_string(), *name);
        }
        assert_eq!(Type::named("9.252"), Some(Type::vendor(9, 252)));
        assert_eq!(Type::vendor(9, 252).to_string(), "9.252");
        assert_eq!(Type::named("77"), Some(Type::standard(77)));
    }

    #[test]
    fn numbers_that_cannot_be_are_no_attributes() {
        for word in ["", "0", "26", "256", "9.", ".9", "9.0", "-1.4", "4294967296.1", "Username"] {
            assert_eq!(Type::named(word), None, "{word}");
        }
    }

    #[test]
    fn values_become_one_line_of_text() {
        assert_eq!(text(b"ann@isp\0").as_deref(), Some("ann@isp"));
        assert_eq!(text(b"00-0C-29-AA-BB-CC").as_deref(), Some("00:0c:29:aa:bb:cc"));
        assert_eq!(text(&[0xff, 1]).as_deref(), Some("0xff01"));
        assert_eq!(text(b"a\nb").as_deref(), Some("0x610a62"));
        assert_eq!(text(b" "), None);
    }
}
